"""Rule-based users and the populations they are drawn from."""
