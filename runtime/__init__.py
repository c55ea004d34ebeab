"""Clients, devices, buffers, executables: what runs a compiled program."""
