"""Programs that use JAX on the platform "tpuc", each run in a process of its own by test_jax_plugin.py."""
