"""The emulated TPU: instruction set, machines, timing."""
