"""Random networks as their authors write them in JAX: stacks of layers, run forward or trained."""
