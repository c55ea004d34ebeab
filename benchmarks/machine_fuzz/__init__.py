"""Random programs on both machines: what the checker accepts must mean the same on either."""
