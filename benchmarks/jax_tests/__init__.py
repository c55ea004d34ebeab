"""JAX's own tests on the emulated chip: `python -m benchmarks.jax_tests --help`."""
