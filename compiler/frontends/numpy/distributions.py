"""Random numbers of distributions beyond the uniform and the normal one, with the numbers of ``jax.random``.

For the same key the words that are drawn are JAX's, and what is made of them are the methods that its
documentation names: inverses of distribution functions; for gamma distributed numbers G. Marsaglia and
W. Tsang, "A simple method for generating gamma variables" (2000); for Poisson's D. Knuth's product of uniform
numbers below 10, else W. Hörmann, "The transformed rejection method for generating Poisson random variables"
(1993).
Rules are written in NumPy on traced arrays, which NumPy's types do not know: hence `Any`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.control import while_loop
from compiler.frontends.numpy.ops import as_tracer, convert
from compiler.frontends.numpy.random import (
    Shape,
    bernoulli,
    exponential,
    float_limits,
    float_type,
    floats_of_bits,
    normal,
    normal_of,
    split,
    threefry,
    uniform,
    word_type,
)
from compiler.frontends.numpy.special import apply_special
from compiler.frontends.numpy.tracer import Trace, open_trace
from compiler.hlo.host_types import NumpyDType
from compiler.hlo.special_functions import lgamma

_F32: NumpyDType = np.dtype(np.float32)
_Key = tuple[Any, Any]
"""The two words of a key for each element."""
_SQUEEZE = 0.0331
"""Of Marsaglia and Tsang: below this bound a proposal is accepted without logarithms."""
_KNUTH_BELOW = 10
"""The mean up to which Poisson's numbers are products of uniform ones."""
_FAR = 1e5
"""A mean at which rejection ends at once, for elements that have their numbers by the other method."""


def cauchy(trace: Trace, shape: Shape, dtype: NumpyDType, of: Any) -> Any:
    """Floats of the standard Cauchy distribution."""
    want = float_type("cauchy", dtype)
    least = np.array(float_limits(want).eps, want)
    drawn = uniform(trace, shape, want, of, least, np.array(1, want))
    return np.tan(np.array(math.pi, want) * (drawn - np.array(0.5, want)))


def logistic(trace: Trace, shape: Shape, dtype: NumpyDType, of: Any) -> Any:
    """Floats of the standard logistic distribution."""
    want = float_type("logistic", dtype)
    tiny = np.array(float_limits(want).tiny, want)
    drawn: Any = uniform(trace, shape, want, of, tiny, np.array(1, want))
    return np.log(drawn) - np.log1p(-drawn)


def pareto(trace: Trace, shape: Shape | None, dtype: NumpyDType, of: Any, b: Any) -> Any:
    """Floats of Pareto distributions of shape `b`, which are at least 1."""
    dims, (bound,) = _given("pareto", trace, shape, dtype, b)
    return np.exp(exponential(trace, dims, dtype, of) / bound)


def rayleigh(trace: Trace, shape: Shape | None, dtype: NumpyDType, of: Any, scale: Any) -> Any:
    """Floats of Rayleigh distributions."""
    dims, (factor,) = _given("rayleigh", trace, shape, dtype, scale)
    drawn: Any = uniform(trace, dims, dtype, of)
    return factor * np.sqrt(np.log(drawn) * np.array(-2, factor.dtype))


def lognormal(trace: Trace, shape: Shape | None, dtype: NumpyDType, of: Any, sigma: Any) -> Any:
    """Floats whose logarithm is normal with the deviation `sigma`."""
    dims, (factor,) = _given("lognormal", trace, shape, dtype, sigma)
    return np.exp(normal(trace, dims, dtype, of) * factor)


def weibull_min(
    trace: Trace, shape: Shape | None, dtype: NumpyDType, of: Any, scale: Any, concentration: Any
) -> Any:
    """Floats of Weibull distributions."""
    given = _given("weibull_min", trace, shape, dtype, scale, concentration)
    dims, (factor, exponent) = given
    drawn: Any = uniform(trace, dims, dtype, of)
    return np.power(-np.log1p(-drawn), np.array(1, factor.dtype) / exponent) * factor


def maxwell(trace: Trace, shape: Shape, dtype: NumpyDType, of: Any) -> Any:
    """Floats of the Maxwell distribution: lengths of vectors of three normal numbers."""
    drawn: Any = normal(trace, (*shape, 3), dtype, of)
    return np.sqrt(np.sum(drawn * drawn, axis=-1))


def rademacher(trace: Trace, shape: Shape, dtype: NumpyDType, of: Any) -> Any:
    """1 or -1, each as likely."""
    two = np.array(2, dtype)
    return two * convert(bernoulli(trace, shape, of, 0.5), dtype) - np.array(1, dtype)


def triangular(
    trace: Trace, shape: Shape | None, dtype: NumpyDType, of: Any, left: Any, mode: Any, right: Any
) -> Any:
    """Floats of triangular distributions from `left` to `right`, most likely at `mode`."""
    dims, (low, top, high) = _given("triangular", trace, shape, dtype, left, mode, right)
    drawn: Any = uniform(trace, dims, dtype, of)
    rising = low + np.sqrt(drawn * (high - low) * (top - low))
    falling = high - np.sqrt((np.array(1, low.dtype) - drawn) * (high - low) * (high - top))
    return np.where(drawn < (top - low) / (high - low), rising, falling)


def geometric(trace: Trace, shape: Shape | None, dtype: NumpyDType, of: Any, p: Any) -> Any:
    """How many trials of the chance `p` it takes until the first one succeeds."""
    dims, (chance,) = _given("geometric", trace, shape, _F32, p)
    drawn: Any = uniform(trace, dims, chance.dtype, of)
    drawn = np.where(drawn == 0, np.float32(1), drawn)
    return convert(np.floor(np.log(drawn) / np.log1p(-chance)) + np.float32(1), dtype)


def gamma(trace: Trace, shape: Shape | None, dtype: NumpyDType, of: Any, a: Any) -> Any:
    """Floats of gamma distributions of shape `a`."""
    d, v, is_large, alpha, key = _gamma_parts("gamma", trace, shape, dtype, of, a)
    one = np.array(1, alpha.dtype)
    drawn = one - _uniform_of_key(key, alpha.dtype)
    return d * v * np.where(is_large, one, np.power(drawn, one / alpha))


def loggamma(trace: Trace, shape: Shape | None, dtype: NumpyDType, of: Any, a: Any) -> Any:
    """Logarithms of gamma distributed numbers, which are no zeros where `a` is small."""
    d, v, is_large, alpha, key = _gamma_parts("loggamma", trace, shape, dtype, of, a)
    zero, one = np.array(0, alpha.dtype), np.array(1, alpha.dtype)
    drawn: Any = np.log1p(-_uniform_of_key(key, alpha.dtype))
    boost = np.where(is_large | (drawn == zero), zero, drawn * (one / alpha))
    return np.log(d) + np.log(v) + boost


def beta(trace: Trace, shape: Shape | None, dtype: NumpyDType, of: Any, a: Any, b: Any) -> Any:
    """Floats of beta distributions."""
    dims, (first, second) = _given("beta", trace, shape, dtype, a, b)
    keys = split(trace, 2, of)
    logs: list[Any] = [
        loggamma(trace, dims, dtype, keys[n], x) for n, x in enumerate((first, second))
    ]
    largest = np.maximum(*logs)
    scaled = [np.exp(log - largest) for log in logs]
    return scaled[0] / (scaled[0] + scaled[1])


def dirichlet(trace: Trace, shape: Shape | None, dtype: NumpyDType, of: Any, alpha: Any) -> Any:
    """Vectors of Dirichlet distributions, along the last dimension; `shape` is that of the others."""
    weights = as_tracer(trace, alpha)
    if not weights.shape:
        raise CompileError("random.dirichlet: alpha is a scalar, want a vector or an array of them")
    batch = weights.shape[:-1] if shape is None else tuple(shape)
    logs: Any = loggamma(trace, (*batch, weights.shape[-1]), dtype, of, weights)
    scaled = np.exp(logs - np.max(logs, axis=-1, keepdims=True))
    return scaled / np.sum(scaled, axis=-1, keepdims=True)


def t(trace: Trace, shape: Shape | None, dtype: NumpyDType, of: Any, df: Any) -> Any:
    """Floats of Student's t distributions of `df` degrees of freedom."""
    dims, (degrees,) = _given("t", trace, shape, dtype, df)
    keys = split(trace, 2, of)
    half = degrees / np.array(2, degrees.dtype)
    drawn: Any = normal(trace, dims, dtype, keys[0])
    return drawn * np.sqrt(half / gamma(trace, dims, dtype, keys[1], half))


def chisquare(trace: Trace, shape: Shape | None, dtype: NumpyDType, of: Any, df: Any) -> Any:
    """Floats of chi-square distributions of `df` degrees of freedom."""
    dims, (degrees,) = _given("chisquare", trace, shape, dtype, df)
    two = np.array(2, degrees.dtype)
    return np.exp(loggamma(trace, dims, dtype, of, degrees / two)) * two


def poisson(trace: Trace, shape: Shape | None, dtype: NumpyDType, of: Any, lam: Any) -> Any:
    """Integers of Poisson distributions of mean `lam`."""
    if dtype.kind not in "iu" or dtype.itemsize > 4:
        raise CompileError(f"random.poisson: {dtype}, want an integer type of at most 32 bits")
    _, (mean,) = _given("poisson", trace, shape, _F32, lam)
    is_small = np.isnan(mean) | (mean < np.float32(_KNUTH_BELOW))
    few = _by_products(trace, dtype, of, np.where(is_small, mean, np.float32(0)))
    many = _by_rejection(trace, dtype, of, np.where(is_small, np.float32(_FAR), mean))
    found = np.where(is_small, few, many)
    return np.where(mean == 0, np.zeros_like(found), found)


def _by_products(trace: Trace, dtype: NumpyDType, of: Any, mean: Any) -> Any:
    """How many uniform numbers it takes until their product falls below ``exp(-mean)``, less one."""

    def runs(state: Any) -> Any:
        return np.any(state[2] > -mean)

    def drawn(state: Any) -> Any:
        key, count, logs = state
        keys = split(_inner(), 2, key)
        more = np.where(logs > -mean, count + np.array(1, dtype), count)
        numbers: Any = uniform(_inner(), mean.shape, _F32, keys[1])
        return keys[0], more, logs + np.log(numbers)

    start = (as_tracer(trace, of), convert(np.zeros_like(mean), dtype), np.zeros_like(mean))
    return while_loop(trace, runs, drawn, start)[1] - np.array(1, dtype)


def _by_rejection(trace: Trace, dtype: NumpyDType, of: Any, mean: Any) -> Any:
    """Hörmann's method: proposals from a transformed uniform number, until one is accepted."""
    b = np.float32(0.931) + np.float32(2.53) * np.sqrt(mean)
    a = np.float32(-0.059) + np.float32(0.02483) * b
    inverse = np.float32(1.1239) + np.float32(1.1328) / (b - np.float32(3.4))
    least = np.float32(0.9277) - np.float32(3.6224) / (b - np.float32(2))
    logarithm = np.log(mean)

    def runs(state: Any) -> Any:
        return np.any(~state[1])

    def proposed(state: Any) -> Any:
        count, is_done, key = state
        keys = split(_inner(), 3, key)
        numbers: list[Any] = [uniform(_inner(), mean.shape, _F32, keys[n]) for n in (1, 2)]
        u, v = numbers[0] - np.float32(0.5), numbers[1]
        far = np.float32(0.5) - np.abs(u)
        k = np.floor((np.float32(2) * a / far + b) * u + mean + np.float32(0.43))
        s = np.log(v * inverse / (a / (far * far) + b))
        bound = -mean + k * logarithm - apply_special(_inner(), lgamma, k + np.float32(1))
        is_refused = (k < 0) | ((far < np.float32(0.013)) & (v > far))
        is_quick = (far >= np.float32(0.07)) & (v <= least)
        is_taken = is_quick | (~is_refused & (s <= bound))
        return np.where(is_taken, k, count), is_done | is_taken, keys[0]

    start = (-np.ones_like(mean), np.zeros_like(mean) != 0, as_tracer(trace, of))
    return convert(while_loop(trace, runs, proposed, start)[0], dtype)


def _gamma_parts(
    name: str, trace: Trace, shape: Shape | None, dtype: NumpyDType, of: Any, a: Any
) -> tuple[Any, Any, Any, Any, _Key]:
    """Factors `d` and `v` of numbers of the shape `a`, or ``a + 1`` where that is below 1; where it is not;
    `a`; and keys for what makes up for the 1."""
    dims, (alpha,) = _given(name, trace, shape, dtype, a)
    keys = split(trace, dims, of)
    key: _Key = (keys[..., 0], keys[..., 1])
    one = np.array(1, alpha.dtype)
    third = np.array(1 / 3, alpha.dtype)
    is_large = alpha >= one
    d = np.where(is_large, alpha, alpha + one) - third
    v = _accepted(trace, _derived(key, 0), d, third / np.sqrt(d))
    return d, v, is_large, alpha, _derived(key, 1)


def _accepted(trace: Trace, key: _Key, d: Any, c: Any) -> Any:
    """Marsaglia and Tsang's `v` of each element."""
    one, half = np.array(1, d.dtype), np.array(0.5, d.dtype)
    squeeze = np.array(_SQUEEZE, d.dtype)

    def is_refused(x: Any, v: Any, u: Any) -> Any:
        is_outside = u >= one - squeeze * (x * x)
        return is_outside & (np.log(u) >= x * half + d * ((one - v) + np.log(v)))

    def runs(state: Any) -> Any:
        return np.any(is_refused(*state[2:]))

    def proposed(state: Any) -> Any:
        is_open = is_refused(*state[2:])
        keys = [_derived(state[:2], n) for n in range(3)]
        x, v = _with_positive_cube(_inner(), keys[1], c, is_open)
        made = (*keys[0], x * x, v * v * v, _uniform_of_key(keys[2], d.dtype))
        return tuple(np.where(is_open, *pair) for pair in zip(made, state, strict=True))

    start = (*key, np.zeros_like(d), np.ones_like(d), np.zeros_like(d) + np.array(2, d.dtype))
    return while_loop(trace, runs, proposed, start)[3]


def _with_positive_cube(trace: Trace, key: _Key, c: Any, is_open: Any) -> tuple[Any, Any]:
    """Normal numbers `x` whose ``v = 1 + c x`` is above 0, and `v`, where elements are open."""
    zero, one = np.array(0, c.dtype), np.array(1, c.dtype)

    def runs(state: Any) -> Any:
        return np.any(is_open & (state[3] <= zero))

    def drawn(state: Any) -> Any:
        keys = [_derived(state[:2], n) for n in range(2)]
        x = normal_of(_inner(), _word(keys[1], c.dtype), c.dtype)
        made = (*keys[0], x, one + x * c)
        return tuple(np.where(state[3] <= zero, *pair) for pair in zip(made, state, strict=True))

    _, _, x, v = while_loop(trace, runs, drawn, (*key, np.zeros_like(c), -np.ones_like(c)))
    return x, v


def _derived(key: _Key, number: int) -> _Key:
    """The key of that number of each element's."""
    zero = np.zeros_like(key[0])
    return threefry(key, zero, zero + np.uint32(number))


def _word(key: _Key, dtype: NumpyDType) -> Any:
    """The random bits of one number of each element."""
    zero = np.zeros_like(key[0])
    high, low = threefry(key, zero, zero)
    return convert(high ^ low, word_type(dtype))


def _uniform_of_key(key: _Key, dtype: NumpyDType) -> Any:
    return floats_of_bits(_word(key, dtype), dtype, np.array(0, dtype), np.array(1, dtype))


def _given(
    name: str, trace: Trace, shape: Shape | None, dtype: NumpyDType, *parameters: Any
) -> tuple[tuple[int, ...], list[Any]]:
    """The dimensions that are drawn and the parameters, all of the type and of these dimensions."""
    want = float_type(name, dtype)
    found = [convert(as_tracer(trace, p), want) for p in parameters]
    shapes = [p.shape for p in found]
    try:
        common = np.broadcast_shapes(*shapes)
        dims = common if shape is None else tuple(shape)
        fits = np.broadcast_shapes(common, dims) == dims
    except ValueError:
        fits = False
    if not fits:
        given = " and ".join(str(list(s)) for s in shapes)
        wanted = "" if shape is None else f" to shape {list(shape)}"
        raise CompileError(f"random.{name}: parameters of shape {given} do not broadcast{wanted}")
    return dims, [np.broadcast_to(p, dims) for p in found]


def _inner() -> Trace:
    """The trace of the loop's body that is being made."""
    found = open_trace()
    assert found is not None
    return found
