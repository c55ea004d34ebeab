"""Random numbers with explicit keys, for functions under `tpuc.jit` and by themselves.

The same key gives the same bits as ``jax.random``, whose names these are.
"""

from runtime.random import (
    PRNGKey,
    bernoulli,
    bits,
    categorical,
    choice,
    exponential,
    fold_in,
    gumbel,
    key,
    laplace,
    normal,
    permutation,
    randint,
    split,
    truncated_normal,
    uniform,
)

__all__ = [
    "PRNGKey",
    "bernoulli",
    "bits",
    "categorical",
    "choice",
    "exponential",
    "fold_in",
    "gumbel",
    "key",
    "laplace",
    "normal",
    "permutation",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
]
