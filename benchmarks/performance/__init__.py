"""Execution and compile times beside XLA:CPU: ``python -m benchmarks.performance``."""
