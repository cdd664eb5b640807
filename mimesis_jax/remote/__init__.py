"""Other people's models behind an OpenAI-compatible endpoint: as user, agent, coach or judge."""
