"""Select-and-scatter: the gradient of a max-pooling, or any such pair of computations.

For every window the number of the tap that is selected is worked out, tap after tap. Then each
tap spreads the source elements whose windows selected it back to where the tap lies.
"""

from __future__ import annotations

import itertools

from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.expanders.driver import expand
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction
Dims = tuple[int, ...]
MAX_TAPS = 1024


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
    if len(windows.taps) > MAX_TAPS:
        raise UnsupportedError(
            f"%{instr.name}: a window of {len(windows.taps)} elements; use up to {MAX_TAPS}",
            instr.span,
        )
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

    def selected(self, e: Emitter) -> Instr:
        """The number of the selected tap of every window, -1 where a window is all padding."""
        assert isinstance(self.select, HloComputation)
        fill = e.constant(self.operand.array.dtype, 0)
        padding = [(d.pad_low, d.pad_high, 0) for d in self.window]
        array = e.pad(self.operand, fill, padding) if self.is_padded else self.operand
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
