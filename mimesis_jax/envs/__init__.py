"""Environments: single-use gyms that know users and tasks, never tokens."""
