"""Kernels that exchange data between the chips of a slice."""
