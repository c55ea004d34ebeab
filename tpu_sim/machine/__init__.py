"""State and devices of one emulated core."""
