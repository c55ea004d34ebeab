"""Distributions of `tpuc.random` beyond the uniform and the normal one, named and called as in `jax.random`.

The same key gives JAX's numbers, but for roundings. Parameters are arrays that are broadcast against each
other; without a `shape` there is one number for each of their elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.frontends.numpy import distributions as rules
from compiler.frontends.numpy.tracer import Rule
from runtime.array_api.creation import dims_of
from runtime.random import F32, Shape, apply, type_of

_S32 = np.int32


def cauchy(key: Any, shape: Shape = (), dtype: object = F32) -> Any:
    """Floats of the standard Cauchy distribution."""
    return _drawn(rules.cauchy, shape, dtype, key)


def logistic(key: Any, shape: Shape = (), dtype: object = F32) -> Any:
    """Floats of the standard logistic distribution."""
    return _drawn(rules.logistic, shape, dtype, key)


def maxwell(key: Any, shape: Shape = (), dtype: object = F32) -> Any:
    """Floats of the Maxwell distribution."""
    return _drawn(rules.maxwell, shape, dtype, key)


def rademacher(key: Any, shape: Shape = (), dtype: object = _S32) -> Any:
    """1 or -1, each as likely."""
    return _drawn(rules.rademacher, shape, dtype, key)


def pareto(key: Any, b: Any, shape: Shape | None = None, dtype: object = F32) -> Any:
    """Floats of Pareto distributions of shape `b`, which are at least 1."""
    return _drawn(rules.pareto, shape, dtype, key, b)


def rayleigh(key: Any, scale: Any, shape: Shape | None = None, dtype: object = F32) -> Any:
    """Floats of Rayleigh distributions."""
    return _drawn(rules.rayleigh, shape, dtype, key, scale)


def lognormal(key: Any, sigma: Any = 1.0, shape: Shape | None = None, dtype: object = F32) -> Any:
    """Floats whose logarithm is normal with the deviation `sigma`."""
    return _drawn(rules.lognormal, shape, dtype, key, sigma)


def weibull_min(
    key: Any, scale: Any, concentration: Any, shape: Shape | None = None, dtype: object = F32
) -> Any:
    """Floats of Weibull distributions."""
    return _drawn(rules.weibull_min, shape, dtype, key, scale, concentration)


def triangular(
    key: Any, left: Any, mode: Any, right: Any, shape: Shape | None = None, dtype: object = F32
) -> Any:
    """Floats of triangular distributions from `left` to `right`, most likely at `mode`."""
    return _drawn(rules.triangular, shape, dtype, key, left, mode, right)


def geometric(key: Any, p: Any, shape: Shape | None = None, dtype: object = _S32) -> Any:
    """How many trials of the chance `p` it takes until the first one succeeds."""
    return _drawn(rules.geometric, shape, dtype, key, p)


def gamma(key: Any, a: Any, shape: Shape | None = None, dtype: object = F32) -> Any:
    """Floats of gamma distributions of shape `a` and scale 1. There is no derivative by `a`."""
    return _drawn(rules.gamma, shape, dtype, key, a)


def loggamma(key: Any, a: Any, shape: Shape | None = None, dtype: object = F32) -> Any:
    """Logarithms of gamma distributed numbers, which are no zeros where `a` is small."""
    return _drawn(rules.loggamma, shape, dtype, key, a)


def beta(key: Any, a: Any, b: Any, shape: Shape | None = None, dtype: object = F32) -> Any:
    """Floats of beta distributions."""
    return _drawn(rules.beta, shape, dtype, key, a, b)


def dirichlet(key: Any, alpha: Any, shape: Shape | None = None, dtype: object = F32) -> Any:
    """Vectors of Dirichlet distributions, along the last dimension; `shape` is that of the others."""
    return _drawn(rules.dirichlet, shape, dtype, key, alpha)


def t(key: Any, df: Any, shape: Shape | None = None, dtype: object = F32) -> Any:
    """Floats of Student's t distributions of `df` degrees of freedom."""
    return _drawn(rules.t, shape, dtype, key, df)


def chisquare(key: Any, df: Any, shape: Shape | None = None, dtype: object = F32) -> Any:
    """Floats of chi-square distributions of `df` degrees of freedom."""
    return _drawn(rules.chisquare, shape, dtype, key, df)


def poisson(key: Any, lam: Any, shape: Shape | None = None, dtype: object = _S32) -> Any:
    """Integers of Poisson distributions of mean `lam`."""
    return _drawn(rules.poisson, shape, dtype, key, lam)


def _drawn(rule: Rule, shape: Shape | None, dtype: object, *operands: Any) -> Any:
    dims = None if shape is None else dims_of(shape)
    return apply(rule, (dims, type_of(dtype)), operands)
