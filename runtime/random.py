"""Random numbers with explicit keys (`tpuc.random`), named and called as in ``jax.random``.

    first, second = random.split(random.key(0))
    x = random.normal(first, (128, 128))

The same key gives the same bits as JAX. The same key twice gives the same numbers twice: split it.
Called outside of a traced function each runs on the chip by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError
from compiler.frontends.numpy import random as rules
from compiler.frontends.numpy.tracer import Rule
from runtime.array_api.creation import dims_of
from runtime.rules import apply_rule

Shape = int | Sequence[int]
F32 = np.float32


def key(seed: Any) -> Any:
    """The key ``uint32[2]`` of an integer seed of 32 bits."""
    if isinstance(seed, int) and not -(2**31) <= seed < 2**32:
        raise CompileError(f"random.key: {seed} does not fit 32 bits")
    number = np.uint32(seed) if isinstance(seed, int) and seed >= 0 else seed
    return apply(rules.key, (), (number,))


PRNGKey = key


def split(key: Any, num: int | tuple[int, ...] = 2) -> Any:
    """``uint32[num, 2]``: new keys."""
    return apply(rules.split, (num,), (key,))


def fold_in(key: Any, data: Any) -> Any:
    """A new key of a key and an integer."""
    return apply(rules.fold_in, (), (key, data))


def bits(key: Any, shape: Shape = (), dtype: object = np.uint32) -> Any:
    """Random bits as uint8, uint16 or uint32."""
    return apply(rules.bits, (dims_of(shape), np.dtype(dtype)), (key,))  # type: ignore[call-overload]


def uniform(
    key: Any, shape: Shape = (), dtype: object = F32, minval: Any = 0.0, maxval: Any = 1.0
) -> Any:
    """Floats in ``[minval, maxval)``."""
    return apply(rules.uniform, (dims_of(shape), type_of(dtype)), (key, minval, maxval))


def normal(key: Any, shape: Shape = (), dtype: object = F32) -> Any:
    """Floats of the standard normal distribution."""
    return apply(rules.normal, (dims_of(shape), type_of(dtype)), (key,))


def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Shape = (), dtype: object = F32
) -> Any:
    """Standard normal floats in ``(lower, upper)``."""
    return apply(rules.truncated_normal, (dims_of(shape), type_of(dtype)), (key, lower, upper))


def randint(key: Any, shape: Shape, minval: Any, maxval: Any, dtype: object = np.int32) -> Any:
    """Integers in ``[minval, maxval)``."""
    return apply(rules.randint, (dims_of(shape), type_of(dtype)), (key, minval, maxval))


def bernoulli(key: Any, p: Any = 0.5, shape: Shape | None = None) -> Any:
    """Truth values that hold with probability `p`, by default of its shape."""
    dims = np.shape(p) if shape is None else dims_of(shape)
    return apply(rules.bernoulli, (dims,), (key, p))


def gumbel(key: Any, shape: Shape = (), dtype: object = F32) -> Any:
    """Floats of the standard Gumbel distribution."""
    return apply(rules.gumbel, (dims_of(shape), type_of(dtype)), (key,))


def exponential(key: Any, shape: Shape = (), dtype: object = F32) -> Any:
    """Floats of the standard exponential distribution."""
    return apply(rules.exponential, (dims_of(shape), type_of(dtype)), (key,))


def laplace(key: Any, shape: Shape = (), dtype: object = F32) -> Any:
    """Floats of the standard Laplace distribution."""
    return apply(rules.laplace, (dims_of(shape), type_of(dtype)), (key,))


def categorical(key: Any, logits: Any, axis: int = -1, shape: Shape | None = None) -> Any:
    """Positions along `axis` of `logits`, by default one for each slice."""
    dims = None if shape is None else dims_of(shape)
    return apply(rules.categorical, (axis, dims), (key, logits))


def permutation(key: Any, x: Any, axis: int = 0) -> Any:
    """The slices of an array along an axis in random order, or the numbers below an integer."""
    if isinstance(x, int):
        return apply(_numbers, (x, axis), (key,))
    return apply(rules.permutation, (axis,), (key, x))


def choice(key: Any, a: Any, shape: Shape = (), replace: bool = True) -> Any:
    """Elements of the first axis of `a` (or numbers below the integer `a`), with or without putting
    back."""
    count = a if isinstance(a, int) else np.shape(a)[0]
    dims = dims_of(shape)
    size = int(np.prod(dims))
    if not replace and size > count:
        raise CompileError(f"random.choice: {size} of {count} elements without putting back")
    if replace:
        picked = randint(key, dims, 0, count)
    else:
        picked = permutation(key, count)[:size].reshape(dims)
    return picked if isinstance(a, int) else np.take(a, picked, axis=0)


def _numbers(trace: Any, count: int, axis: int, key: Any) -> Any:
    return rules.permutation(trace, axis, key, count)


def apply(rule: Rule, known: tuple[object, ...], operands: tuple[Any, ...]) -> Any:
    """Apply a rule of random numbers."""
    return apply_rule("random", rule, known, operands)


def type_of(dtype: object) -> np.dtype[Any]:
    """NumPy's type object."""
    return np.dtype(dtype)  # type: ignore[call-overload, no-any-return]
