"""Derivatives of reductions, windows, sorts and what is computed from random states."""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.autodiff.expansion import Chosen, Expansion
from compiler.autodiff.refusal import refused
from compiler.autodiff.rule import (
    Constant,
    DerivativeRule,
    DerivativeStep,
    Linear,
    LocalRule,
    Pullback,
    Refused,
    Scope,
)
from compiler.autodiff.values import (
    Contribution,
    Instr,
    Mask,
    Tangent,
    Value,
    array_of,
    or_zeros,
)
from compiler.autodiff.windows import turned_window
from compiler.hlo.attributes import Window, WindowDim
from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import PRED, DType
from compiler.hlo.ir import HloComputation
from compiler.hlo.shape import ArrayShape
from compiler.passes.expanders.scan_expander import scan_expansion
from compiler.rewrite.emitter import Emitter, result_of

_RANDOM = "it is random"


def monoid_of(computation: HloComputation) -> str | None:
    """The opcode of a computation that is one operation on its two parameters."""
    root = computation.root_instruction
    if len(root.operands) != 2 or set(root.operands) != set(computation.parameters):
        return None
    return root.opcode


# --- reduce --------------------------------------------------------------------------------------


def _spread(step: DerivativeStep, value: Instr) -> Instr:
    """A result-shaped array over the reduced dimensions."""
    dims = step.operands[0].array.dims
    kept = [d for d in range(len(dims)) if d not in step.instr.dimensions]
    return step.e.broadcast(value, dims, kept) if dims != value.array.dims else value


def _everything(e: Emitter, value: Instr) -> Instr:
    rank = value.array.rank
    return e.total(value, *range(rank)) if rank else value


def _sum(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    """Every summand has the sum's cotangent."""
    start = _everything(step.e, g) if step.wanted[1] else None
    return [_spread(step, g) if step.wanted[0] else None, start]


class _ReduceExtreme(LocalRule):
    """The largest or smallest element; several of them share alike."""

    def _shares(self, step: DerivativeStep) -> Instr:
        """How much of the result each element is: zero, or one over their number."""
        e, x, y = step.e, step.operands[0], step.y
        taken = e.compare(x, _spread(step, y), "EQ")
        flags = e.select(taken, e.like(x, 1), e.like(x, 0))
        count = e.total(flags, *step.instr.dimensions)
        # None is equal to a NaN, and none to a start value beyond them all.
        count = e.maximum(count, e.like(count, 1))
        return e.divide(flags, _spread(step, count))

    def tangent(self, step: DerivativeStep, tangents: Sequence[Instr | None]) -> Tangent:
        """The mean tangent of those elements."""
        if tangents[0] is None:
            return None
        return step.e.total(
            step.e.multiply(self._shares(step), tangents[0]), *step.instr.dimensions
        )

    def cotangents(self, step: DerivativeStep, cotangent: Tangent) -> Sequence[Contribution]:
        """The cotangent, shared among those elements."""
        g = _spread(step, array_of(cotangent))
        return [step.e.multiply(self._shares(step), g), None]


def _reduce_tree(instr: Instr) -> Instr:
    """Any reduction as combinations of halves, then of the start values and what they came to."""
    e = Emitter.at(instr)
    half = len(instr.operands) // 2
    arrays, starts = instr.operands[:half], instr.operands[half:]
    dims = arrays[0].array.dims
    gone = instr.dimensions
    kept = [d for d in range(len(dims)) if d not in gone]
    result = tuple(dims[d] for d in kept)
    level = [
        e.shaped(e.transpose(a, (*gone, *kept)), (math.prod(dims[d] for d in gone), *result))
        for a in arrays
    ]
    spread = [start if not result else e.broadcast(start, result) for start in starts]
    if not level[0].array.dims[0]:
        return result_of(e, instr, spread)
    while (count := level[0].array.dims[0]) > 1:
        middle = count // 2
        ahead = [e.part(a, 0, 0, middle) for a in level]
        behind = [e.part(a, 0, middle, 2 * middle) for a in level]
        rest = [e.part(a, 0, 2 * middle, count) for a in level]
        level = e.apply(instr.to_apply, [*ahead, *behind])
        if count % 2:
            level = [e.join((a, r), 0) for a, r in zip(level, rest, strict=True)]
    flat = [e.shaped(a, result) for a in level]
    return result_of(e, instr, e.apply(instr.to_apply, [*spread, *flat]))


_REDUCE_BY = {
    "add": Linear(None, _sum),
    "maximum": _ReduceExtreme(),
    "minimum": _ReduceExtreme(),
}
_REDUCE_ANY = Expansion(_reduce_tree)


def _reduce(instr: Instr, wanted: Sequence[bool]) -> DerivativeRule:
    monoid = monoid_of(instr.to_apply)
    if monoid is None or (monoid != "add" and any(wanted[len(wanted) // 2 :])):
        return _REDUCE_ANY
    return _REDUCE_BY.get(monoid, _REDUCE_ANY)


# --- windows -------------------------------------------------------------------------------------


def _window_sum(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    """A sum over windows of the cotangent, with stride and dilation exchanged."""
    e, dims = step.e, step.operands[0].array.dims
    spread = None
    if step.wanted[0]:
        pairs = zip(step.instr.window.dims, dims, g.array.dims, strict=True)
        back = Window(tuple(turned_window(w, n, m) for w, n, m in pairs))
        dtype = g.array.dtype
        spread = e.reduce_window(g, e.constant(dtype, 0), back, e.scalar("add", dtype))
    return [spread, _everything(e, g) if step.wanted[1] else None]


class _WindowExtreme(LocalRule):
    """The largest or smallest element of each window; of several the first."""

    def tangent(self, step: DerivativeStep, tangents: Sequence[Instr | None]) -> Tangent:
        """The tangent of that element."""
        if tangents[0] is None:
            return None
        return picked(step.e, step.operands[0], tangents[0], step.instr.window, self._order(step))

    def cotangents(self, step: DerivativeStep, cotangent: Tangent) -> Sequence[Contribution]:
        """The cotangent of each window, in that element's place."""
        e, x, g = step.e, step.operands[0], array_of(cotangent)
        dtype = x.array.dtype
        attrs: dict[str, object] = {
            "window": step.instr.window,
            "select": _comparison(e, dtype, self._order(step)),
            "scatter": e.scalar("add", dtype),
        }
        made = e.instruction("select-and-scatter", (x, g, e.constant(dtype, 0)), attrs)
        return [made, None]

    def _order(self, step: DerivativeStep) -> str:
        return "GE" if monoid_of(step.instr.to_apply) == "maximum" else "LE"


def _comparison(b: HloBuilder, dtype: DType, direction: str) -> HloComputation:
    """``a >= b`` of scalars."""
    inner = HloBuilder(f"is_{direction.lower()}_{dtype}", b.module)
    a, c = (inner.parameter(ArrayShape(dtype, ()), name) for name in ("a", "b"))
    return inner.build(inner.compare(a, c, direction))


def picked(e: Emitter, keys: Instr, values: Instr, window: Window, order: str) -> Instr:
    """The value beside the best key of each window: a reduce-window of pairs."""
    key, value = keys.array.dtype, values.array.dtype
    inner = HloBuilder(f"pick_{order.lower()}_{key}_{value}", e.module)
    first, mine, second, other = (
        inner.parameter(ArrayShape(t, ()), n) for t, n in zip((key, value) * 2, "abcd", strict=True)
    )
    better = inner.compare(first, second, order)
    chosen = (inner.select(better, first, second), inner.select(better, mine, other))
    body = inner.build(inner.tuple(chosen))
    worst = float("-inf") if order == "GE" else float("inf")
    starts = (e.constant(key, worst), e.constant(value, 0))
    attrs: dict[str, object] = {"window": window, "to_apply": body}
    pair = e.instruction("reduce-window", (keys, values, *starts), attrs)
    return e.get_tuple_element(pair, 1)


def _window_tree(instr: Instr) -> Instr:
    """Windows of any reduction, dimension by dimension, each by doubling."""
    e = Emitter.at(instr)
    half = len(instr.operands) // 2
    arrays, starts = instr.operands[:half], instr.operands[half:]
    window = instr.window
    padding = [(w.pad_low, w.pad_high, w.base_dilation - 1) for w in window.dims]
    level = [e.pad(a, start, padding) for a, start in zip(arrays, starts, strict=True)]
    for dim, w in enumerate(window.dims):
        level = _windowed(e, instr.to_apply, level, dim, w)
    result = level[0].array.dims
    spread = [e.broadcast(start, result) if result else start for start in starts]
    return result_of(e, instr, e.apply(instr.to_apply, [*spread, *level]))


def _windowed(
    e: Emitter, combine: HloComputation, level: Sequence[Instr], dim: int, w: WindowDim
) -> list[Instr]:
    """Windows along one dimension: those of 1, 2, 4.. elements, joined to the window's size."""
    if w.reversal:
        level = [e.reverse(a, (dim,)) for a in level]
    length = level[0].array.dims[dim] - w.dilated_size + 1
    doubled, size = list(level), 1
    found: list[Instr] = []
    offset = 0
    while offset < w.size:
        if w.size & size:
            start = offset * w.window_dilation
            parts = [e.part(a, dim, start, start + length) for a in doubled]
            found = e.apply(combine, [*found, *parts]) if found else parts
            offset += size
        room = doubled[0].array.dims[dim] - size * w.window_dilation
        if offset < w.size:
            near = [e.part(a, dim, 0, room) for a in doubled]
            step = size * w.window_dilation
            far = [e.part(a, dim, step, step + room) for a in doubled]
            doubled = e.apply(combine, [*near, *far])
            size *= 2
    return [e.part(a, dim, 0, length, w.stride) for a in found]


_WINDOW_ANY = Expansion(_window_tree)
_WINDOW_SUM = Linear(None, _window_sum)
_WINDOW_EXTREME = _WindowExtreme()


def _reduce_window(instr: Instr, wanted: Sequence[bool]) -> DerivativeRule:
    monoid = monoid_of(instr.to_apply)
    dims = instr.window.dims
    plain = all(d.base_dilation == d.window_dilation == 1 and not d.reversal for d in dims)
    if monoid == "add" and not any(d.reversal for d in dims):
        return _WINDOW_SUM
    if monoid in ("maximum", "minimum") and plain and not wanted[-1]:
        return _WINDOW_EXTREME
    return _WINDOW_ANY


class _SelectAndScatter(LocalRule):
    """Linear in the source: each of its elements goes where its window's chosen element is."""

    def tangent(self, step: DerivativeStep, tangents: Sequence[Instr | None]) -> Tangent:
        """The same places, of the source's tangent."""
        operand, source, start = step.operands
        if tangents[1] is None and tangents[2] is None:
            return None
        moved = or_zeros(step.e, tangents[1], source.array)
        return step.again([operand, moved, or_zeros(step.e, tangents[2], start.array)])

    def cotangents(self, step: DerivativeStep, cotangent: Tangent) -> Sequence[Contribution]:
        """What the cotangent has in the chosen places."""
        g, order = array_of(cotangent), step.instr.select.root_instruction.attrs.get("direction")
        if order not in ("GE", "LE"):
            raise refused(
                step.instr,
                "select-and-scatter has no derivative when its windows choose by something else "
                "than >= or <=",
            )
        assert isinstance(order, str)
        source = picked(step.e, step.operands[0], g, step.instr.window, order)
        return [None, source, _everything(step.e, g) if step.wanted[2] else None]


# --- sort ----------------------------------------------------------------------------------------


class _Sort(DerivativeRule):
    """Derivatives move along, as further operands that nobody compares."""

    def _sorted(
        self, scope: Scope, instr: Instr, operands: Sequence[Instr], more: Sequence[Instr]
    ) -> list[Instr]:
        e = scope.emitter(instr)
        attrs = {k: v for k, v in instr.attrs.items() if k != "metadata"}
        attrs["to_apply"] = _with_more_parameters(e, instr.to_apply, [m.array.dtype for m in more])
        every = [*operands, *more]
        made = e.instruction("sort", every, attrs)
        return [e.get_tuple_element(made, k) for k in range(len(every))]

    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """Positions are sorted along; sorting by them takes cotangents back."""
        arrays = [array_of(o) for o in operands]
        e = scope.emitter(instr)
        (dim,) = instr.dimensions
        places = e.positions(arrays[0].array.dims, dim)
        *values, order = self._sorted(scope, instr, arrays, [places])
        value: Value = tuple(values) if len(values) > 1 else values[0]

        def pullback(cotangent: Tangent) -> Sequence[Contribution]:
            parts = cotangent if isinstance(cotangent, tuple) else (cotangent,)
            found = [array_of(p) for p in parts if p is not None]
            types = [order.array.dtype, *(g.array.dtype for g in found)]
            back = e.sort([order, *found], dim, _ascending(e, types), stable=False)
            returned = iter([e.get_tuple_element(back, k + 1) for k in range(len(found))])
            return [None if p is None else next(returned) for p in parts]

        return value, pullback

    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """Tangents are sorted along."""
        arrays = [array_of(o) for o in operands]
        moving = [None if t is None else array_of(t) for t in tangents]
        made = self._sorted(scope, instr, arrays, [t for t in moving if t is not None])
        values, rest = made[: len(arrays)], iter(made[len(arrays) :])
        moved = [None if t is None else next(rest) for t in moving]
        if len(arrays) == 1:
            return values[0], moved[0]
        return tuple(values), tuple(moved)


def _with_more_parameters(
    e: Emitter, comparator: HloComputation, types: Sequence[DType]
) -> HloComputation:
    """The comparator of further operands that it does not look at."""
    inner = HloBuilder(f"{comparator.name}_more", e.module)
    given = [inner.parameter(p.shape) for p in comparator.parameters]
    for dtype in types:
        for _ in range(2):
            inner.parameter(ArrayShape(dtype, ()))
    result = inner.call(comparator, given)
    return inner.build(result)


def _ascending(e: Emitter, types: Sequence[DType]) -> HloComputation:
    """``a < b`` of the first of several operands."""
    inner = HloBuilder("is_before", e.module)
    pairs = [[inner.parameter(ArrayShape(t, ())) for _ in range(2)] for t in types]
    first, second = pairs[0]
    result = inner.compare(first, second, "LT")
    assert result.array.dtype == PRED
    return inner.build(result)


REDUCTION_RULES: dict[str, DerivativeRule] = {
    "network-sort": Refused("passes make it after differentiation"),
    "pair-fft": Refused("passes make it after differentiation"),
    "reduce": Chosen(_reduce),
    "reduce-window": Chosen(_reduce_window),
    "rng": Refused("draw numbers between constants, and scale them"),
    "rng-bit-generator": Constant(_RANDOM),
    "rng-get-and-update-state": Constant(_RANDOM),
    "running-total": Refused("passes make it after differentiation"),
    "scan": Expansion(scan_expansion),
    "select-and-scatter": _SelectAndScatter(),
    "sort": _Sort(),
}
