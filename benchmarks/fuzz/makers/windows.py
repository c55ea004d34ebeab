"""Sliding windows: reduce-window and select-and-scatter in all their forms."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from benchmarks.fuzz import kinds
from benchmarks.fuzz.makers.folds import greatest_with_nan, product_of_pairs
from benchmarks.fuzz.makers.reductions import combiner
from benchmarks.fuzz.makers.registry import maker
from benchmarks.fuzz.scope import Scope, Value


@dataclass(frozen=True)
class Along:
    """The window along one dimension."""

    size: int
    stride: int = 1
    low: int = 0
    high: int = 0
    base: int = 1
    dilation: int = 1
    reversed: bool = False

    def output(self, size: int) -> int:
        """How many positions there are."""
        padded = (0 if size == 0 else (size - 1) * self.base + 1) + self.low + self.high
        reach = (self.size - 1) * self.dilation + 1 if self.size else 0
        return 0 if padded < reach else (padded - reach) // self.stride + 1


def window_text(window: list[Along]) -> str:
    """``window={size=.. stride=.. pad=..}``; what is as usual is mostly left out."""
    parts = ["size=" + "x".join(str(w.size) for w in window)]
    for word, usual, values in (
        ("stride", "1", [str(w.stride) for w in window]),
        ("pad", "0_0", [f"{w.low}_{w.high}" for w in window]),
        ("lhs_dilate", "1", [str(w.base) for w in window]),
        ("rhs_dilate", "1", [str(w.dilation) for w in window]),
        ("rhs_reversal", "0", ["1" if w.reversed else "0" for w in window]),
    ):
        if any(v != usual for v in values):
            parts.append(f"{word}={'x'.join(values)}")
    return f"window={{{' '.join(parts)}}}"


def _along(scope: Scope, size: int, plain: bool) -> Along:
    rng = scope.rng
    draw = rng.random()
    if draw < 0.4:
        return Along(1)
    if draw < 0.5 and size <= 64 and size:  # a running total
        low = rng.choice((size - 1, 0))
        return Along(size, 1, low, size - 1 - low if rng.random() < 0.8 else 0)
    window = rng.choice((1, 2, 2, 3, 3, 5, 7))
    if rng.random() < 0.06:
        window = rng.choice((13, 31, 50, 64, 127))
    stride = rng.choice((1, 1, 2, 3, window))
    low, high = (rng.choice((0, 0, 1, window - 1, window // 2)) for _ in range(2))
    if plain:
        return Along(window, stride, low, high)
    if rng.random() < 0.2:
        low, high = (rng.choice((0, 1, -rng.randint(0, min(2, size // 2)))) for _ in range(2))
    return Along(
        window, stride, low, high, rng.choice((1, 1, 1, 2, 3)), rng.choice((1, 1, 1, 2, 3))
    )


def _window(scope: Scope, dims: tuple[int, ...], plain: bool = False) -> list[Along]:
    return [_along(scope, n, plain) for n in dims]


@maker("reduce-window", weight=2)
def reduce_window(scope: Scope) -> Value | None:
    """Of one operand, seldom of two."""
    rng = scope.rng
    x = scope.pick(least_rank=1, most_rank=7, tame=rng.random() < 0.85)
    window = _window(scope, x.dims)
    dims = [w.output(n) for w, n in zip(window, x.dims, strict=True)]
    taps = math.prod(w.size for w in window)
    if taps > 300 and (taps > 8000 or taps * math.prod(dims) > scope.room(1_000_000)):
        return None
    if math.prod(dims) > 3 * scope.program.most_elements or (0 in dims and rng.random() < 0.8):
        return None
    operands = [x]
    if rng.random() < 0.15:
        for _ in range(rng.choice((1, 1, 2))):
            operands.append(scope.like(kinds.dtype(rng, ("f32", "s32", "u8", "bf16")), x.dims))
    dtypes = [v.dtype for v in operands]
    if len(operands) == 1 and x.dtype in ("bf16", "f16") and rng.random() < 0.15:
        dtypes = ["f32"]  # summed in a wider float
    starts = [scope.constant(t) if rng.random() < 0.6 else scope.like(t, ()) for t in dtypes]
    if x.is_tame:
        starts = [scope.tamed(v) for v in starts]
    apply, grows = combiner(scope, dtypes)
    names = ", ".join(v.name for v in operands + starts)
    call = f"reduce-window({names}), {window_text(window)}, to_apply={apply}"
    count = math.prod(w.size for w in window) + 1
    most = max(x.most, starts[0].most) * (count if grows else 1)
    if apply.startswith("multiply"):
        most = math.inf
    if len(operands) == 1:
        return scope.add(call, dtypes[0], dims, most)
    shapes = ", ".join(kinds.text(v.dtype, tuple(dims)) for v in operands)
    name = scope.raw(f"({shapes})", call)
    scope.element(name, 1, operands[1].dtype, dims)
    return scope.element(name, 0, x.dtype, dims, most)


@maker("reduce-window", weight=0.3)
def reduce_window_pairs(scope: Scope) -> Value | None:
    """Of two operands whose results depend on each other: products of pairs, places of maxima."""
    rng = scope.rng
    is_place = rng.random() < 0.5
    x = scope.pick(("f32",) if is_place else ("s32",), least_rank=1, most_rank=4)
    window = _window(scope, x.dims)
    dims = [w.output(n) for w, n in zip(window, x.dims, strict=True)]
    taps = math.prod(w.size for w in window)
    if taps > 100 or 0 in dims or math.prod(dims) > 3 * scope.program.most_elements:
        return None
    if is_place:
        index = rng.choice(("s32", "s32", "u8"))
        along = f"iota(), iota_dimension={rng.randrange(x.rank)}"
        operands = [x, scope.add(along, index, x.dims)]
        starts = [scope.constant("f32", (), "-inf"), scope.zero(index)]
        apply = greatest_with_nan(scope, index)
    else:
        operands = [x, scope.like("s32", x.dims)]
        starts = [scope.constant("s32", (), text) for text in "10"]
        apply = product_of_pairs(scope)
    names = ", ".join(v.name for v in operands + starts)
    shapes = ", ".join(kinds.text(v.dtype, tuple(dims)) for v in operands)
    call = f"reduce-window({names}), {window_text(window)}, to_apply={apply}"
    name = scope.raw(f"({shapes})", call)
    scope.element(name, 1, operands[1].dtype, dims)
    return scope.element(name, 0, x.dtype, dims)


@maker("select-and-scatter", weight=0.8)
def select_and_scatter(scope: Scope) -> Value | None:
    """The gradient of a pooling."""
    rng = scope.rng
    x = scope.pick((*kinds.FLOATS, *kinds.INTEGERS), least_rank=1, most_rank=4, tame=True)
    window = _window(scope, x.dims, plain=True)
    if rng.random() < 0.1:
        window = [replace(w, dilation=rng.choice((1, 2, 3))) for w in window]
    if rng.random() < 0.1:  # of a global pooling, or wider than a program may write out
        along = rng.randrange(x.rank)
        size = max(1, x.dims[along] - rng.choice((0, 0, 1, 7)))
        low = rng.choice((0, 0, size - 1))
        window[along] = Along(size, rng.choice((1, 1, 1, 2)), low)
    dims = [w.output(n) for w, n in zip(window, x.dims, strict=True)]
    taps = math.prod(w.size for w in window)
    if 0 in dims or (taps > 100 and (taps > 5000 or taps * math.prod(dims) > 1_000_000)):
        return None
    source = scope.like(x.dtype, dims, scope.tame_kind(x.dtype))
    start = scope.tamed(scope.constant(x.dtype))
    direction, names = rng.choice(("GE", "GE", "LE", "GT")), rng.choice(("a, b", "a, b", "b, a"))
    call = f"compare({names}), direction={direction}" if rng.random() < 0.95 else "constant(true)"
    body = (
        f"  a = {x.dtype}[] parameter(0)\n  b = {x.dtype}[] parameter(1)\n  ROOT r = pred[] {call}"
    )
    chosen = scope.program.computation(scope.program.name("select"), body)
    opcode = rng.choice(("add", "add", "maximum", "minimum"))
    call = (
        f"select-and-scatter({x.name}, {source.name}, {start.name}), {window_text(window)}, "
        f"select={chosen}, scatter={scope.program.pair(opcode, x.dtype)}"
    )
    return scope.add(call, x.dtype, x.dims, 300 * max(source.most, start.most))
