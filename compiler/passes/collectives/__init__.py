"""Collectives on their way to what kernels do: exchanges of whole slots, and arithmetic between.

To be imported from outside: `collective_matmul`, `combiner`, `expander`, `flattening`,
`latency_hiding`, `loop_exchanges`.
"""
