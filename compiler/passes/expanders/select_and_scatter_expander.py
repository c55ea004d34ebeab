"""Select-and-scatter: the gradient of a max-pooling, or any such pair of computations.

For every window the number of the tap that is selected is worked out, tap after tap. Then each
tap spreads the source elements whose windows selected it back to where the tap lies. Windows of
many elements do so in two loops over their taps.
"""

from __future__ import annotations

import itertools

from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.expanders.driver import expand
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction
Dims = tuple[int, ...]
MAX_TAPS = 128
"""Of windows a step apart whose taps are written out, one after another; more are steps of a loop."""
MAX_STRIDED_TAPS = 1024
"""Of windows further apart: a step of the loop looks at what lies between a tap's elements too."""


def expand_select_and_scatters(module: HloModule, context: PassContext) -> bool:
    """Expand every select-and-scatter."""
    return expand(module, context, {"select-and-scatter": expand_select_and_scatter})


def expand_select_and_scatter(instr: Instr) -> Instr | None:
    """The start value, combined with each source element where its window selected."""
    operand, source, init = instr.operands
    e = Emitter.at(instr)
    if 0 in source.array.dims or 0 in operand.array.dims:
        return e.broadcast(init, instr.array.dims)
    windows = _Windows(instr, operand, source.array.dims)
    if windows.is_in_a_loop:
        return windows.scattered_in_a_loop(e, source, init, windows.selected_in_a_loop(e))
    return windows.scattered(e, source, init, windows.selected(e))


class _Windows:
    """The windows of one instruction over its operand."""

    def __init__(self, instr: Instr, operand: Instr, counts: Dims) -> None:
        self.select, self.scatter = instr.select, instr.scatter
        self.operand, self.counts = operand, counts
        self.window = instr.window.dims
        places = (range(0, d.size * d.window_dilation, d.window_dilation) for d in self.window)
        self.taps: list[Dims] = list(itertools.product(*places))
        """Where the elements of a window lie, from its first on."""
        self.is_padded = any(d.pad_low or d.pad_high for d in self.window)

    @property
    def is_in_a_loop(self) -> bool:
        """Whether there are so many taps that the program should not grow with them."""
        is_strided = self._reach() != self.counts
        return len(self.taps) > (MAX_STRIDED_TAPS if is_strided else MAX_TAPS)

    def selected(self, e: Emitter) -> Instr:
        """The number of the selected tap of every window, -1 where a window is all padding."""
        assert isinstance(self.select, HloComputation)
        array = self._padded(e)
        best: Instr | None = None
        chosen = e.full(S32, self.counts, -1)
        for number, tap in enumerate(self.taps):
            value = self._tap(e, array, tap)
            inside = self._inside(e, tap)
            here = e.full(S32, self.counts, number)
            if best is None:
                best = value
                chosen = here if inside is None else e.select(inside, here, chosen)
                continue
            (stays,) = e.apply(self.select, [best, value])
            takes = e.not_(stays)
            if self.is_padded:
                takes = e.or_(takes, e.compare_to(chosen, 0, "LT"))
            if inside is not None:
                takes = e.and_(takes, inside)
            best = e.select(takes, value, best)
            chosen = e.select(takes, here, chosen)
        return chosen

    def selected_in_a_loop(self, e: Emitter) -> Instr:
        """As `selected`, a tap a step."""
        select = self.select
        assert isinstance(select, HloComputation)
        array = self._padded(e)

        def step(b: Emitter, number: Instr, state: list[Instr]) -> list[Instr]:
            array, best, chosen = state
            tap = self._tap_of(b, number)
            met = b.dynamic_slice(array, tap, self._reach())
            strides = tuple(d.stride for d in self.window)
            ranges = tuple((0, n, s) for n, s in zip(self._reach(), strides, strict=True))
            value = b.instruction("slice", (met,), {"slice": ranges})
            (stays,) = b.apply(select, [best, value])
            takes = b.or_(b.not_(stays), b.compare_to(chosen, 0, "LT"))
            for mask in self._masks_of(b, tap):
                takes = b.and_(takes, mask)
            here = b.broadcast(number, self.counts)
            return [array, b.select(takes, value, best), b.select(takes, here, chosen)]

        nothing = e.full(self.operand.array.dtype, self.counts, 0)
        state = [array, nothing, e.full(S32, self.counts, -1)]
        return e.loop(len(self.taps), state, step)[2]

    def scattered_in_a_loop(self, e: Emitter, source: Instr, init: Instr, chosen: Instr) -> Instr:
        """As `scattered`, the last tap first: each lies on a box of the padded operand's elements."""
        scatter = self.scatter
        assert isinstance(scatter, HloComputation)
        apart = [(0, 0, d.stride - 1) for d in self.window]
        source = e.pad(source, e.constant(source.array.dtype, 0), apart)
        chosen = e.pad(chosen, e.constant(S32, -2), apart)

        def step(b: Emitter, done: Instr, state: list[Instr]) -> list[Instr]:
            result, source, chosen = state
            number = b.subtract(b.constant(S32, len(self.taps) - 1), done)
            tap = self._tap_of(b, number)
            box = b.dynamic_slice(result, tap, source.array.dims)
            (combined,) = b.apply(scatter, [box, source])
            hit = b.compare(chosen, b.broadcast(number, chosen.array.dims), "EQ")
            changed = b.select(hit, combined, box)
            return [b.dynamic_update_slice(result, changed, tap), source, chosen]

        dims = self.operand.array.dims
        sides = [(d.pad_low, d.pad_high) for d in self.window]
        whole = tuple(low + n + high for n, (low, high) in zip(dims, sides, strict=True))
        state = [e.broadcast(init, whole), source, chosen]
        (result, *_) = e.loop(len(self.taps), state, step)
        return e.pad(result, init, [(-low, -high, 0) for low, high in sides])

    def _padded(self, e: Emitter) -> Instr:
        fill = e.constant(self.operand.array.dtype, 0)
        padding = [(d.pad_low, d.pad_high, 0) for d in self.window]
        return e.pad(self.operand, fill, padding) if self.is_padded else self.operand

    def _reach(self) -> Dims:
        """From the first element that a tap meets to the last, in each dimension."""
        pairs = zip(self.counts, self.window, strict=True)
        return tuple((n - 1) * d.stride + 1 for n, d in pairs)

    def _tap_of(self, b: Emitter, number: Instr) -> tuple[Instr, ...]:
        """Where a tap lies, by its number."""
        found: list[Instr] = []
        for d in reversed(self.window):
            size = b.constant(S32, d.size)
            outer = b.divide(number, size)
            place = b.subtract(number, b.multiply(outer, size))
            found.append(b.multiply(place, b.constant(S32, d.window_dilation)))
            number = outer
        return tuple(reversed(found))

    def _masks_of(self, b: Emitter, tap: tuple[Instr, ...]) -> list[Instr]:
        """Where a tap does not meet padding, in each dimension that has some."""
        masks: list[Instr] = []
        sizes = self.operand.array.dims
        for dim, (k, d, size) in enumerate(zip(tap, self.window, sizes, strict=True)):
            if d.pad_low <= 0 and d.pad_high <= 0:
                continue
            place = b.positions(self.counts, dim)
            place = b.multiply(place, b.like(place, d.stride))
            first = b.subtract(k, b.constant(S32, d.pad_low))
            place = b.add(place, b.broadcast(first, self.counts))
            masks += [b.compare_to(place, 0, "GE"), b.compare_to(place, size, "LT")]
        return masks

    def _tap(self, e: Emitter, array: Instr, tap: Dims) -> Instr:
        ranges = tuple(
            (k, k + (n - 1) * d.stride + 1, d.stride)
            for k, n, d in zip(tap, self.counts, self.window, strict=True)
        )
        return e.instruction("slice", (array,), {"slice": ranges})

    def _inside(self, e: Emitter, tap: Dims) -> Instr | None:
        """Where the tap does not meet padding; None when it never does."""
        masks: list[Instr] = []
        for dim, (k, d) in enumerate(zip(tap, self.window, strict=True)):
            size = self.operand.array.dims[dim]
            first, last = k - d.pad_low, k - d.pad_low + (self.counts[dim] - 1) * d.stride
            if first >= 0 and last < size:
                continue
            place = e.positions(self.counts, dim)
            place = e.multiply(place, e.like(place, d.stride))
            if first < 0:
                masks.append(e.compare_to(place, -first, "GE"))
            if last >= size:
                masks.append(e.compare_to(place, size - first, "LT"))
        for mask in masks[1:]:
            masks[0] = e.and_(masks[0], mask)
        return masks[0] if masks else None

    def scattered(self, e: Emitter, source: Instr, init: Instr, chosen: Instr) -> Instr:
        """Combine: the last tap first, which meets the first of the windows over an element.

        Elements as far apart as windows meet the same taps: they are a *phase*, computed for as many
        elements as there are windows, and phases are put side by side.
        """
        dims = self.operand.array.dims
        strides = tuple(min(d.stride, n) for d, n in zip(self.window, dims, strict=True))
        counts = tuple(-(-n // s) for n, s in zip(dims, strides, strict=True))
        places = itertools.product(*(range(s) for s in strides))
        phases = [self._phase(e, source, init, chosen, place, counts) for place in places]
        for dim in reversed(range(len(dims))):
            stride, shape = strides[dim], phases[0].array.dims
            if stride > 1:
                split = (*shape[: dim + 1], 1, *shape[dim + 1 :])
                parts = [e.reshape(phase, split) for phase in phases]
                groups = range(0, len(parts), stride)
                phases = [e.concatenate(parts[i : i + stride], dim + 1) for i in groups]
        whole = tuple(n * s for n, s in zip(counts, strides, strict=True))
        joined = e.reshape(phases[0], whole)
        return joined if whole == dims else e.slice(joined, (0,) * len(dims), dims)

    def _phase(
        self, e: Emitter, source: Instr, init: Instr, chosen: Instr, place: Dims, counts: Dims
    ) -> Instr:
        """Elements `place`, `place + stride`, .. of the result, `counts` of them a dimension."""
        assert isinstance(self.scatter, HloComputation)
        result = e.broadcast(init, counts)
        nowhere = e.constant(S32, -2)
        fill = e.constant(source.array.dtype, 0)
        for number, tap in reversed(list(enumerate(self.taps))):
            behind = [r + d.pad_low - k for r, d, k in zip(place, self.window, tap, strict=True)]
            if any(b % d.stride for b, d in zip(behind, self.window, strict=True)):
                continue  # no window's tap lies on these elements
            first = [b // d.stride for b, d in zip(behind, self.window, strict=True)]
            padding = [
                (-f, n - windows + f, 0)
                for f, n, windows in zip(first, counts, self.counts, strict=True)
            ]
            hit = e.compare_to(e.pad(chosen, nowhere, padding), number, "EQ")
            (combined,) = e.apply(self.scatter, [result, e.pad(source, fill, padding)])
            result = e.select(hit, combined, result)
        return result
