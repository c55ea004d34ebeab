"""Opcodes that make, copy and rearrange arrays."""

from __future__ import annotations

import math

from benchmarks.fuzz import kinds
from benchmarks.fuzz.makers.registry import maker
from benchmarks.fuzz.scope import Scope, Value


def listed(numbers: object) -> str:
    """``1,2,3``."""
    return ",".join(map(str, numbers))  # type: ignore[call-overload]


@maker("broadcast", weight=2)
def broadcast(scope: Scope) -> Value | None:
    """New dimensions, operand dimensions in any place (XLA wants them in order)."""
    x = scope.pick(most_rank=7)
    rng, fresh = scope.rng, scope.rng.choice((1, 1, 1, 2, 3))
    rank = min(x.rank + fresh, max(5, x.rank + 1))
    room = scope.program.most_elements // max(1, x.count)
    places = sorted(rng.sample(range(rank), x.rank))
    dims = [0] * rank
    for place, size in zip(places, x.dims, strict=True):
        dims[place] = size
    for d in range(rank):
        if d not in places:
            dims[d] = min(scope.size(), max(1, room))
            room //= max(1, dims[d])
    call = f"broadcast({x.name}), dimensions={{{listed(places)}}}"
    return scope.add(call, x.dtype, dims, x.most)


def other_dims(scope: Scope, count: int) -> tuple[int, ...]:
    """Some dimensions of so many elements."""
    if count == 0:
        return (*scope.dims(0, 3), 0)
    sizes: list[int] = []
    for factor in scope.rng.sample((2, 3, 5, 7, 8, 9, 16, 31, 64, 127, 128, 129, 257), 6):
        if count % factor == 0 and len(sizes) < 4 and scope.rng.random() < 0.7:
            sizes.append(factor)
            count //= factor
    sizes.append(count)
    sizes += [1] * scope.rng.choice((0, 0, 0, 1, 2))
    scope.rng.shuffle(sizes)
    return tuple(sizes)


_WHOLE_BYTES = ("f32", "s32", "u32", "bf16", "f16", "s16", "u16", "s8", "u8", "s64", "u64",
                "f8e4m3fn", "f8e5m2")  # fmt: skip


@maker("reshape", "bitcast", weight=2)
def reshape(scope: Scope) -> Value | None:
    """Any dimensions of as many elements."""
    x = scope.pick()
    dims = () if x.count == 1 and scope.rng.random() < 0.3 else other_dims(scope, x.count)
    if math.prod(dims) != x.count or len(dims) > 8:
        return None
    opcode = "bitcast" if scope.rng.random() < 0.15 else "reshape"
    other = kinds.dtype(scope.rng, _WHOLE_BYTES)
    if opcode == "bitcast" and x.dtype in _WHOLE_BYTES and scope.rng.random() < 0.3:
        count, rest = divmod(x.count * kinds.bits(x.dtype), kinds.bits(other))
        if not rest and count <= 2 * scope.program.most_elements:
            return scope.add(f"bitcast({x.name})", other, other_dims(scope, count)[:8])
    return scope.add(f"{opcode}({x.name})", x.dtype, dims, x.most)


@maker("bitcast-convert")
def bitcast_convert(scope: Scope) -> Value | None:
    """Bits as another type, of the same width or not."""
    x = scope.pick(tuple(t for t in kinds.ALL if t not in ("pred", "c64")))
    target = kinds.dtype(
        scope.rng, tuple(t for t in kinds.ALL if t not in ("pred", "c64", x.dtype))
    )
    old, new = kinds.bits(x.dtype), kinds.bits(target)
    if max(old, new) % min(old, new):
        return None
    dims = x.dims
    if old > new:
        dims = (*x.dims, old // new)
    if old < new:
        ratio = new // old
        if x.count % ratio or not x.count:
            return None
        if x.dims[-1:] != (ratio,):
            x = scope.add(f"reshape({x.name})", x.dtype, (x.count // ratio, ratio), x.most)
        dims = x.dims[:-1]
    if len(dims) > 6:
        return None
    return scope.add(f"bitcast-convert({x.name})", target, dims)


@maker("transpose", weight=2)
def transpose(scope: Scope) -> Value:
    """Any order of dimensions."""
    x = scope.pick(least_rank=2)
    order = scope.rng.sample(range(x.rank), x.rank)
    dims = [x.dims[d] for d in order]
    call = f"transpose({x.name}), dimensions={{{listed(order)}}}"
    return scope.add(call, x.dtype, dims, x.most)


@maker("reverse")
def reverse(scope: Scope) -> Value:
    """Back to front along some dimensions."""
    x = scope.pick(least_rank=1)
    along = sorted(scope.rng.sample(range(x.rank), scope.rng.randint(1, x.rank)))
    return scope.add(f"reverse({x.name}), dimensions={{{listed(along)}}}", x.dtype, x.dims, x.most)


@maker("slice", weight=2)
def slice_(scope: Scope) -> Value:
    """Any start, limit and stride."""
    x = scope.pick(least_rank=1)
    ranges = []
    for size in x.dims:
        whole = scope.rng.random() < 0.4
        start = 0 if whole else scope.rng.randint(0, size)
        limit = size if whole else scope.rng.randint(start, size)
        ranges.append((start, limit, scope.rng.choice((1, 1, 1, 2, 3, 7))))
    dims = [-(-(b - a) // s) for a, b, s in ranges]
    texts = ", ".join(f"[{a}:{b}:{s}]" if s > 1 else f"[{a}:{b}]" for a, b, s in ranges)
    return scope.add(f"slice({x.name}), slice={{{texts}}}", x.dtype, dims, x.most)


@maker("pad", weight=1.5)
def pad(scope: Scope) -> Value | None:
    """Edges, also negative, and interior."""
    x = scope.pick(least_rank=1)
    value = scope.like(x.dtype, ())
    edges, dims = [], []
    for size in x.dims:
        interior = scope.rng.choice((0, 0, 0, 1, 2))
        inner = size + max(0, size - 1) * interior
        low = scope.rng.choice((0, 0, 1, 2, 5, -1, -2, 127))
        high = scope.rng.choice((0, 0, 1, 3, -1, -3))
        low = max(low, -inner)
        high = max(high, -(inner + low))
        edges.append(f"{low}_{high}" + (f"_{interior}" if interior else ""))
        dims.append(inner + low + high)
    if math.prod(dims) > 4 * scope.program.most_elements:
        return None
    if any(e.count("_") == 2 for e in edges):
        edges = [e if e.count("_") == 2 else e + "_0" for e in edges]
    call = f"pad({x.name}, {value.name}), padding={'x'.join(edges)}"
    return scope.add(call, x.dtype, dims, max(x.most, value.most))


@maker("concatenate", weight=1.5)
def concatenate(scope: Scope) -> Value | None:
    """One to four operands, the same one twice too."""
    x = scope.pick(least_rank=1)
    along = scope.rng.randrange(x.rank)
    others = [x]
    for _ in range(scope.rng.choice((0, 1, 1, 1, 2, 3))):
        dims = list(x.dims)
        dims[along] = scope.size() if scope.rng.random() < 0.6 else x.dims[along]
        if math.prod(dims) <= scope.program.most_elements:
            others.append(scope.like(x.dtype, dims))
    if scope.rng.random() < 0.15:  # read in several places
        others += [scope.rng.choice(others)] * scope.rng.choice((1, 1, 2, 5))
    scope.rng.shuffle(others)
    dims = list(x.dims)
    dims[along] = sum(v.dims[along] for v in others)
    names = ", ".join(v.name for v in others)
    call = f"concatenate({names}), dimensions={{{along}}}"
    return scope.add(call, x.dtype, dims, max(v.most for v in others))


@maker("copy", weight=0.6)
def copy(scope: Scope) -> Value:
    """As it is."""
    x = scope.pick()
    return scope.add(f"copy({x.name})", x.dtype, x.dims, x.most)


@maker("iota", "constant", "parameter")
def leaf(scope: Scope) -> Value:
    """A value that depends on no other."""
    dtype = kinds.dtype(scope.rng)
    draw = scope.rng.random()
    if draw < 0.4 and dtype != "pred" and kinds.has_zero(dtype):
        return scope.iota(dtype, scope.dims(1))
    if draw < 0.8:
        dims = scope.dims(most=40)
        is_short = Value("", dtype, dims).written <= 40
        return scope.constant(dtype, dims) if is_short else scope.new(dtype, dims)
    return scope.new(dtype, scope.dims())


@maker("get-dimension-size", weight=0.2)
def dimension_size(scope: Scope) -> Value:
    """A number known when compiling."""
    x = scope.pick(least_rank=1)
    call = f"get-dimension-size({x.name}), dimensions={{{scope.rng.randrange(x.rank)}}}"
    return scope.add(call, "s32", (), 1024.0)
