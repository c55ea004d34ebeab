"""The SPMD partitioner: a program of global arrays becomes one of local arrays and collectives."""
