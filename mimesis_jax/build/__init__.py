"""The composition root: parts put together into the runs that the command line offers (verbs)."""
