"""The NumPy machine: slow, plain, the second oracle."""
