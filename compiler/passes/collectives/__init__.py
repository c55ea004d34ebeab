"""Collectives on their way to what kernels do: exchanges of whole slots, and arithmetic between."""
