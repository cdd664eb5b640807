"""Coaches: what could have been said to the agent after each of its turns."""
