"""Random numbers of traced functions: Threefry-2x32 counters and explicit keys, as JAX makes them.

A key is ``u32[2]``. Element ``i`` of an array of bits is a function of the key and of `i` alone (JAX's
"partitionable" form, its default), so bits do not depend on how an array is cut or fused. Sources:
J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011) for the generator; the documentation
of ``jax.random`` for what its functions mean. Rules are written in NumPy on traced arrays, which NumPy's
types do not know: hence `Any`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.ops import as_tracer, convert, iota
from compiler.frontends.numpy.special import apply_special
from compiler.frontends.numpy.tracer import Trace, Tracer
from compiler.hlo.dtypes import from_numpy
from compiler.hlo.host_types import NumpyDType, device_dtype
from compiler.hlo.special_functions import erf_inv

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_ROUND_GROUPS = 5
_WORD_BITS = 32
_UNSIGNED: dict[int, type[np.unsignedinteger[Any]]] = {8: np.uint8, 16: np.uint16, 32: np.uint32}
_SHUFFLE_EXPONENT = 3
"""Rounds of a shuffle are chosen so that two sort keys are equal with a chance below size^-3."""

Shape = Sequence[int]


def threefry(key: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """Two words for each counter of two words: twenty rounds of Threefry-2x32.

    `key` is a key, or the first and the second words of many, each for a counter of its own.
    """
    first, second = key[0], key[1]
    schedule = (first, second, first ^ second ^ np.uint32(_PARITY))
    a, b = high + schedule[0], low + schedule[1]
    for group in range(_ROUND_GROUPS):
        for rotation in _ROTATIONS[group % 2]:
            a = a + b
            b = _rotated(b, rotation) ^ a
        a = a + schedule[(group + 1) % 3]
        b = b + (schedule[(group + 2) % 3] + np.uint32(group + 1))
    return a, b


def key(trace: Trace, seed: Any) -> Any:
    """The key of an integer seed: its low word, behind a high one that is 0 (-1 of a negative one)."""
    number = as_tracer(trace, seed)
    if number.shape or number.dtype.kind not in "iu":
        raise CompileError(f"random.key: {number!r} is no integer scalar")
    low = convert(number, np.uint32)
    return np.stack([np.zeros_like(low), low])


def split(trace: Trace, num: int | tuple[int, ...], of: Any) -> Any:
    """``u32[num, 2]``: keys that depend on this one and on their number."""
    shape = (num,) if isinstance(num, int) else tuple(num)
    high, low = threefry(_key(trace, of), *_counters(trace, shape))
    return np.stack([high, low], axis=-1)


def fold_in(trace: Trace, of: Any, data: Any) -> Any:
    """A key of this one and an integer."""
    number = key(trace, data)
    high, low = threefry(_key(trace, of), number[0], number[1])
    return np.stack([high, low])


def bits(trace: Trace, shape: Shape, dtype: NumpyDType, of: Any) -> Any:
    """Random bits as unsigned integers."""
    if dtype.kind != "u" or dtype.itemsize > 4:
        raise CompileError(f"random.bits: {dtype}, want uint8, uint16 or uint32")
    return _bits(_key(trace, of), trace, shape, dtype.itemsize * 8)


def uniform(
    trace: Trace, shape: Shape, dtype: NumpyDType, of: Any, minval: Any = 0.0, maxval: Any = 1.0
) -> Any:
    """Floats in ``[minval, maxval)``: random bits as the mantissas of numbers in [1, 2)."""
    want = float_type("uniform", dtype)
    low, high = (convert(as_tracer(trace, bound), want) for bound in (minval, maxval))
    drawn = _bits(_key(trace, of), trace, shape, word_type(want)(0).itemsize * 8)
    return floats_of_bits(drawn, want, low, high)


def word_type(dtype: NumpyDType) -> type[np.unsignedinteger[Any]]:
    """The type of the random bits that a float is made of."""
    info = float_limits(dtype)
    return _UNSIGNED[8 if info.nmant < 8 else info.bits]


def floats_of_bits(drawn: Any, want: NumpyDType, low: Any, high: Any) -> Any:
    """Floats in ``[low, high)`` of random bits of `word_type`."""
    info = float_limits(want)
    drawn_bits = drawn.dtype.itemsize * 8
    drawn = convert(drawn, _UNSIGNED[info.bits])
    one = np.ones((), want).view(_UNSIGNED[info.bits])
    mantissa = drawn >> one.dtype.type(drawn_bits - info.nmant)
    floats = _with_bits(mantissa | one, want) - np.ones((), want)
    return np.maximum(low, floats * (high - low) + low)


def normal(trace: Trace, shape: Shape, dtype: NumpyDType, of: Any) -> Any:
    """Floats of the standard normal distribution: its inverse applied to uniform ones."""
    want = float_type("normal", dtype)
    drawn = _bits(_key(trace, of), trace, shape, word_type(want)(0).itemsize * 8)
    return normal_of(trace, drawn, want)


def normal_of(trace: Trace, bits: Any, want: NumpyDType) -> Any:
    """Standard normal numbers of random bits of `word_type`."""
    least = np.nextafter(np.array(-1, want), np.array(0, want), dtype=want)
    drawn = floats_of_bits(bits, want, least, np.array(1, want))
    return np.array(math.sqrt(2), want) * apply_special(trace, erf_inv, drawn)


def truncated_normal(
    trace: Trace, shape: Shape, dtype: NumpyDType, of: Any, lower: Any, upper: Any
) -> Any:
    """Standard normal numbers that lie in ``(lower, upper)``."""
    want = float_type("truncated_normal", dtype)
    bounds: list[Any] = [convert(as_tracer(trace, bound), want) for bound in (lower, upper)]
    low, high = bounds
    root = np.array(math.sqrt(2), want)
    ends = [Tracer(trace, trace.builder.unary("erf", (end / root).instr)) for end in (low, high)]
    drawn = uniform(trace, shape, want, of, ends[0], ends[1])
    found = root * apply_special(trace, erf_inv, drawn)
    infinity: Any = np.array(np.inf, want)
    return np.clip(found, np.nextafter(low, infinity), np.nextafter(high, -infinity))


def randint(
    trace: Trace, shape: Shape, dtype: NumpyDType, of: Any, minval: Any, maxval: Any
) -> Any:
    """Integers in ``[minval, maxval)``, each from two random words; `minval` where that is empty."""
    if dtype.kind not in "iu" or dtype.itemsize > 4:
        raise CompileError(f"random.randint: {dtype}, want an integer type of at most 32 bits")
    drawn = dtype if dtype.itemsize == 4 else np.dtype(np.int32)
    ends: list[Any] = [convert(as_tracer(trace, bound), drawn) for bound in (minval, maxval)]
    low, high = ends
    if drawn != dtype:
        limits = np.iinfo(str(dtype))
        low = np.clip(low, np.int32(limits.min), np.int32(limits.max))
        high = np.clip(high, np.int32(limits.min), np.int32(limits.max + 1))
    keys = split(trace, 2, of)
    upper, lower = (_bits(keys[i], trace, shape, _WORD_BITS) for i in range(2))
    size = convert(high, np.uint32) - convert(low, np.uint32)
    span = np.where(high <= low, np.uint32(1), size)
    carry = np.uint32(1 << (_WORD_BITS // 2)) % span
    carry = (carry * carry) % span
    offset = ((upper % span) * carry + lower % span) % span
    return convert(low + convert(offset, drawn), dtype)


def bernoulli(trace: Trace, shape: Shape, of: Any, p: Any) -> Any:
    """Truth values that hold with probability `p`."""
    chance = as_tracer(trace, p)
    want = chance.dtype if chance.dtype.kind == "f" else np.dtype(np.float32)
    return uniform(trace, shape, want, of) < chance


def gumbel(trace: Trace, shape: Shape, dtype: NumpyDType, of: Any) -> Any:
    """Floats of the standard Gumbel distribution."""
    want = float_type("gumbel", dtype)
    tiny = np.array(float_limits(want).tiny, want)
    drawn: Any = uniform(trace, shape, want, of, tiny, np.array(1, want))
    inner: Any = -np.log(drawn)
    return -np.log(inner)


def exponential(trace: Trace, shape: Shape, dtype: NumpyDType, of: Any) -> Any:
    """Floats of the standard exponential distribution."""
    drawn: Any = uniform(trace, shape, dtype, of)
    logarithm: Any = np.log1p(-drawn)
    return -logarithm


def laplace(trace: Trace, shape: Shape, dtype: NumpyDType, of: Any) -> Any:
    """Floats of the standard Laplace distribution."""
    want = float_type("laplace", dtype)
    least = np.array(-1 + float_limits(want).epsneg, want)
    drawn = uniform(trace, shape, want, of, least, np.array(1, want))
    return np.sign(drawn) * np.log1p(-np.abs(drawn))


def categorical(trace: Trace, axis: int, shape: Shape | None, of: Any, logits: Any) -> Any:
    """Positions along `axis`, each with the probability that the softmax of `logits` says."""
    weights = as_tracer(trace, logits)
    axis = axis % weights.ndim
    batch = weights.shape[:axis] + weights.shape[axis + 1 :]
    want = batch if shape is None else tuple(shape)
    extra = len(want) - len(batch)
    if want[extra:] != batch:
        raise CompileError(
            f"random.categorical: shape {list(want)}, want it to end in {list(batch)}"
        )
    place = extra + axis
    drawn_shape = (*want[:place], weights.shape[axis], *want[place:])
    drawn = gumbel(trace, drawn_shape, weights.dtype, of)
    return np.argmax(drawn + weights, axis=place)


def permutation(trace: Trace, axis: int, of: Any, x: Any) -> Any:
    """The slices of `x` along an axis in random order; of an integer: of the numbers below it."""
    if isinstance(x, int):
        return _shuffled(trace, iota(trace, (x,), 0), of)
    values = as_tracer(trace, x)
    if values.ndim == 1:
        return _shuffled(trace, values, of)
    order = _shuffled(trace, iota(trace, (values.shape[axis],), 0), of)
    return np.take(values, order, axis=axis)


def _shuffled(trace: Trace, values: Any, of: Any) -> Any:
    """Sorted by random keys, as often as makes ties unlikely."""
    current = _key(trace, of)
    size = max(1, values.size)
    rounds = math.ceil(_SHUFFLE_EXPONENT * math.log(size) / math.log(2**_WORD_BITS - 1))
    for _ in range(rounds):
        keys = split(trace, 2, current)
        current = keys[0]
        order = np.argsort(_bits(keys[1], trace, values.shape, _WORD_BITS), kind="stable")
        values = np.take(values, order)
    return values


def _bits(of: Tracer, trace: Trace, shape: Shape, width: int) -> Any:
    high, low = threefry(of, *_counters(trace, shape))
    return convert(high ^ low, _UNSIGNED[width])


def _counters(trace: Trace, shape: Shape) -> tuple[Any, Any]:
    """The high and low word of each element's number."""
    dims = tuple(int(n) for n in shape)
    if math.prod(dims) >= 1 << _WORD_BITS:
        raise CompileError(f"random numbers of shape {list(dims)}: want fewer than 2^32")
    low: Any = np.zeros(dims, np.uint32) if not dims else None
    stride = 1
    for axis in reversed(range(len(dims))):
        part = iota(trace, dims, axis, np.uint32) * np.uint32(stride)
        low = part if low is None else low + part
        stride *= dims[axis]
    low = as_tracer(trace, low)
    return np.zeros_like(low), low


def _rotated(x: Any, distance: int) -> Any:
    return (x << np.uint32(distance)) | (x >> np.uint32(_WORD_BITS - distance))


def _with_bits(x: Tracer, dtype: NumpyDType) -> Any:
    return Tracer(x.owner, x.owner.builder.bitcast_convert(x.instr, from_numpy(dtype)))


def _key(trace: Trace, value: Any) -> Any:
    found = as_tracer(trace, value)
    if found.shape != (2,) or found.dtype != np.uint32:
        raise CompileError(
            f"{found!r} is no key: want uint32[2], as random.key or random.split make"
        )
    return found


def float_limits(dtype: NumpyDType) -> Any:
    """What `finfo` says of a type."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def float_type(name: str, dtype: NumpyDType) -> NumpyDType:
    """The type of what is drawn; raises CompileError."""
    want = device_dtype(dtype)
    if not from_numpy(want).is_float or want.itemsize not in (2, 4):
        raise CompileError(f"random.{name}: {want}, want float32, float16 or bfloat16")
    return want
