"""Clients of many devices: memories, buffers, executables, calls. Imports the compiler and `tpu_sim`.

Any file may be imported.
"""
