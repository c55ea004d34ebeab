"""The SPMD partitioner: a program of global arrays becomes one of local arrays and collectives.

To be imported from outside: `partitioner`, `placement_text`, `sizes`, `traffic`.
"""
