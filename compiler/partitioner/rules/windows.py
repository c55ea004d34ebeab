"""Operations whose result rows need rows of neighbouring tiles: shifts and windows.

Along a dimension that a sharding rule calls `permute` (or whose parts are cut out or joined) the
result's tile i is computed on the device that holds the operand's tile i, from rows that it fetches.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from compiler.analysis.reducers import is_idempotent_start, neutral_starts
from compiler.hlo.attributes import Window, WindowDim
from compiler.hlo.ir import HloInstruction
from compiler.partitioner.factors import Assignment, FactorPlan, Job, result_dims
from compiler.partitioner.halo import Reach, fetch, kept_inside
from compiler.partitioner.local import Local
from compiler.partitioner.region import Handler, LocalComputation
from compiler.partitioner.values import Held
from compiler.sharding.rule import FactorKind

Instr = HloInstruction
Starts = Callable[[int, int], tuple[int, int]]
"""(first row of tile i, number of rows) of tile number i of `local` result rows."""


@dataclass(frozen=True)
class Shift:
    """A dimension whose result rows come from other rows of an operand."""

    operand: int
    dim: int
    size: int
    made: int  # the result's rows
    rows: Starts
    way: str = "pass"  # "sum": what is made is summed over, none of the result's rows

    def reach(self, tiles: int) -> Reach:
        """What each tile wants."""
        local = -(-self.made // tiles)
        found = [self.rows(i, local) for i in range(tiles)]
        return Reach(self.size, tiles, tuple(start for start, _ in found), found[0][1])


@dataclass
class Shifts:
    """The shifted dimensions of an operation, and what to do about them on a device."""

    region: LocalComputation
    instr: Instr
    plan: FactorPlan
    found: list[Shift]

    def __post_init__(self) -> None:
        for shift in self.found:
            self.plan.ways[self.factor(shift)] = shift.way
        self.plan.extra = self._bytes

    def factor(self, shift: Shift) -> int:
        """Its factor in the plan."""
        return self.plan.where(shift.operand, shift.dim)

    def _bytes(self, given: Assignment) -> float:
        """What the pieces of neighbours take to send, one dimension fetched after the other."""
        total, grid = 0.0, self.region.grid
        grown: dict[tuple[int, int], int] = {}
        for shift in self.found:
            axes = given.get(self.factor(shift), ())
            if not axes:
                continue
            if shift.way == "sum" and shift.made % grid.count(axes):
                return math.inf  # what stands for rows past the end would meet rows that are there
            operand = self.instr.operands[shift.operand].array
            cuts = self.plan.project(self.plan.rule.operands[shift.operand], given)
            others = [
                grown.get((shift.operand, d), -(-s // grid.count(a)))
                for d, (s, a) in enumerate(zip(operand.dims, cuts, strict=True))
                if d != shift.dim
            ]
            reach = shift.reach(grid.count(axes))
            grown[shift.operand, shift.dim] = reach.width
            row = math.prod(others) * max(1, operand.dtype.bits // 8)
            total += row * reach.rows_sent() + 8 * reach.messages()
        return total

    def fetched(self, job: Job, shift: Shift, fill: Callable[[Local], Instr] | None) -> None:
        """Replace a local operand by the rows that are wanted of it, if the dimension is cut."""
        axes, b = job.axes(self.factor(shift)), job.b
        if not axes:
            return
        reach = shift.reach(b.grid.count(axes))
        rows = fetch(b, job.operands[shift.operand], shift.dim, axes, reach)
        if fill is not None and reach.leaves:
            rows = kept_inside(b, rows, shift.dim, axes, reach, fill(b))
        job.operands[shift.operand] = rows


def _slice(region: LocalComputation, instr: Instr) -> Held:
    ranges = instr.attrs["slice"]
    assert isinstance(ranges, tuple)
    dims = instr.operands[0].array.dims

    def rows(start: int, stride: int) -> Starts:
        return lambda i, local: (start + i * local * stride, (local - 1) * stride + 1)

    changed = [
        Shift(0, d, dims[d], instr.array.dims[d], rows(start, stride))
        for d, (start, _, stride) in enumerate(ranges)
        if instr.array.dims[d] != dims[d] and instr.array.dims[d]
    ]
    shifts = Shifts(region, instr, FactorPlan.of(instr), changed)

    def emit(job: Job) -> list[Instr]:
        local = [(0, size, 1) for size in job.operands[0].array.dims]
        for shift in changed:
            shifts.fetched(job, shift, None)
            stride = ranges[shift.dim][2]
            is_cut = bool(job.axes(shifts.factor(shift)))
            width = job.operands[0].array.dims[shift.dim]
            local[shift.dim] = (0, width, stride) if is_cut else ranges[shift.dim]
        return job.same(slice=tuple(local))

    shifts.plan.emit = emit
    return region.apply(instr, shifts.plan)


def _reverse(region: LocalComputation, instr: Instr) -> Held:
    turned = instr.dimensions
    dims = instr.array.dims

    def rows(size: int) -> Starts:
        return lambda i, local: (size - (i + 1) * local, local)

    changed = [Shift(0, d, dims[d], dims[d], rows(dims[d])) for d in turned if dims[d]]
    shifts = Shifts(region, instr, FactorPlan.of(instr), changed)

    def emit(job: Job) -> list[Instr]:
        b = job.b
        cut = {s: axes for s in changed if (axes := job.axes(shifts.factor(s)))}
        even = {s: axes for s, axes in cut.items() if s.size % b.grid.count(axes) == 0}
        if len(even) > 1:  # whole tiles of several dimensions change places at once
            axes = tuple(a for found in even.values() for a in found)
            pairs = [(n, b.grid.count(axes) - 1 - n) for n in range(b.grid.count(axes))]
            job.operands[0] = b.permute(job.operands[0], b.grid.along(axes, pairs, b.order))
        for shift in cut:
            if len(even) < 2 or shift not in even:
                shifts.fetched(job, shift, None)
        return job.same()

    shifts.plan.emit = emit
    return region.apply(instr, shifts.plan)


def _pad(region: LocalComputation, instr: Instr) -> Held:
    padding = instr.attrs["padding"]
    assert isinstance(padding, tuple)
    dims = instr.operands[0].array.dims

    def rows(low: int, step: int) -> Starts:
        def found(i: int, local: int) -> tuple[int, int]:
            return (i * local - low) // step, (local - 1 + step - 1) // step + 1

        return found

    changed = [
        Shift(0, d, dims[d], instr.array.dims[d], rows(low, inside + 1))
        for d, (low, _, inside) in enumerate(padding)
        if (low, inside) != (0, 0) or instr.array.dims[d] != dims[d]
    ]
    changed = [s for s in changed if s.size and s.made]
    shifts = Shifts(region, instr, FactorPlan.of(instr), changed)

    def emit(job: Job) -> list[Instr]:
        local = list(padding)
        value = job.operands[1]
        cut = [s for s in changed if job.axes(shifts.factor(s))]
        for shift in cut:
            shifts.fetched(job, shift, lambda _: value)
            local[shift.dim] = (0, 0, padding[shift.dim][2])
        made = job.b.pad(job.operands[0], value, local)
        for shift in cut:
            made = _from_first(job, shifts, shift, made, padding[shift.dim])
        return [made]

    shifts.plan.emit = emit
    return region.apply(instr, shifts.plan)


def _from_first(
    job: Job, shifts: Shifts, shift: Shift, made: Instr, padding: tuple[int, int, int]
) -> Instr:
    """Where the tile begins between two rows with padding inside, what stands before it is left out."""
    low, _, inside = padding
    axes, local = job.axes(shifts.factor(shift)), job.dims[0][shift.dim]
    tiles = range(job.b.grid.count(axes))
    before = [(i * local - low) % (inside + 1) for i in tiles]
    table = [before[int(tile)] for tile in job.b.tile(axes)]
    missing = max(before) + local - made.array.dims[shift.dim]
    if missing > 0:
        padded = [(0, 0, 0)] * made.array.rank
        padded[shift.dim] = (0, missing, 0)
        made = job.b.pad(made, job.operands[1], padded)
    return job.b.part_at(made, shift.dim, job.b.scalar_of(table), local)


def _rolled(region: LocalComputation, instr: Instr) -> Held | None:
    """A concatenation of an array's end and its beginning: each device has rows of at most two others.

    None for any other concatenation, and where tiles are not even.
    """
    shift = _shift_of(instr)
    if shift is None:
        return None
    (dim,), whole = instr.dimensions, instr.operands[0].operands[0]
    (hint,) = region.hints(instr)
    source = region.value(whole)
    cut = hint if hint is not None and hint.dims[dim] else source.first
    axes, tiles = cut.dims[dim], region.grid.count(cut.dims[dim])
    if tiles == 1 or cut.partial or instr.array.dims[dim] % tiles:
        return None
    operand, b = region.need(whole, cut), region.b
    b.near, b.order = instr, cut.order
    rows = instr.array.dims[dim] // tiles
    behind, first = divmod(shift, rows)
    parts = []
    for step, low, high in ((behind, first, rows), (behind + 1, 0, first)):
        if low == high:
            continue
        part = b.part(operand, dim, low, high)
        pairs = [((tile + step) % tiles, tile) for tile in range(tiles)]
        parts.append(b.permute(part, b.grid.along(axes, pairs, b.order)) if step % tiles else part)
    return region.new_value(b.join(parts, dim), instr.array.dims, cut, hint)


def _shift_of(instr: Instr) -> int | None:
    """Of ``concatenate(x[k:], x[:k])`` along one dimension the k; None of anything else."""
    if len(instr.operands) != 2 or any(o.opcode != "slice" for o in instr.operands):
        return None
    end, start = instr.operands
    (dim,), whole = instr.dimensions, end.operands[0]
    if start.operands[0] is not whole or whole.array.dims != instr.array.dims:
        return None
    ranges = [operand.attrs["slice"] for operand in (end, start)]
    full = [(0, size, 1) for size in whole.array.dims]
    shift = end.array.dims[dim] - whole.array.dims[dim]
    wanted = [
        (*full[:dim], part, *full[dim + 1 :])
        for part in ((-shift, whole.array.dims[dim], 1), (0, -shift, 1))
    ]
    return -shift if ranges == wanted else None


def _concatenate(region: LocalComputation, instr: Instr) -> Held:
    rolled = _rolled(region, instr)
    if rolled is not None:
        return rolled
    (dim,) = instr.dimensions
    sizes = [operand.array.dims[dim] for operand in instr.operands]
    offsets = [sum(sizes[:i]) for i in range(len(sizes))]

    def rows(offset: int) -> Starts:
        return lambda i, local: (i * local - offset, local)

    changed = [
        Shift(i, dim, size, sum(sizes), rows(offset))
        for i, (size, offset) in enumerate(zip(sizes, offsets, strict=True))
    ]
    if len(sizes) == 1 or not all(sizes):
        changed = []
    shifts = Shifts(region, instr, FactorPlan.of(instr), changed)

    def emit(job: Job) -> list[Instr]:
        axes = job.axes(shifts.factor(changed[0])) if changed else ()
        if not axes:
            return job.same()
        b = job.b
        for shift in changed:
            shifts.fetched(job, shift, None)
        start = b.offset(sum(sizes), axes)
        made = job.operands[0]
        for operand, offset in zip(job.operands[1:], offsets[1:], strict=True):
            places = b.positions_of(operand, dim, start)
            made = b.select(b.compare(places, b.like(places, offset), "GE"), operand, made)
        return [made]

    shifts.plan.emit = emit
    return region.apply(instr, shifts.plan)


# Windows.


def _window_rows(part: WindowDim) -> Starts:
    """The rows of the operand that the windows of a tile touch."""
    step = part.base_dilation

    def rows(i: int, local: int) -> tuple[int, int]:
        first = i * local * part.stride - part.pad_low
        last = first + (local - 1) * part.stride + part.dilated_size - 1
        return first // step, last // step - first // step + 1

    return rows


def _local_window(part: WindowDim, local: int) -> WindowDim:
    """The window over fetched rows: they begin where the tile's first window does."""
    step = part.base_dilation
    before = -part.pad_low % step
    _, width = _window_rows(part)(0, local)
    wanted = (local - 1) * part.stride + part.dilated_size
    after = wanted - ((width - 1) * step + 1 - before)
    return replace(part, pad_low=-before, pad_high=after)


def _is_regular(part: WindowDim, tiles: int, made: int) -> bool:
    """Whether every tile begins at the same place between rows with holes."""
    local = -(-made // tiles)
    rows = _window_rows(part)
    same = {
        (rows(i, local)[1], (i * local * part.stride) % part.base_dilation) for i in range(tiles)
    }
    return len(same) == 1


def shifts_of_windows(
    region: LocalComputation,
    instr: Instr,
    plan: FactorPlan,
    window: Window,
    places: list[tuple[int, int]],
    operands: int,
) -> Shifts:
    """`places` are the operand's and the result's dimension of each window dimension."""
    found = []
    for part, (dim, target) in zip(window.dims, places, strict=True):
        size, made = instr.operands[0].array.dims[dim], _result_dims(instr)[target]
        is_plain = plan.rule.kinds[plan.where(0, dim)] is FactorKind.PASS
        is_summed = plan.ways[plan.where(0, dim)] == "sum"
        if is_plain or is_summed or not size or not made or not part.size:
            continue
        if all(_is_regular(part, n, made) for n in _counts(region)):
            found += [Shift(i, dim, size, made, _window_rows(part)) for i in range(operands)]
    return Shifts(region, instr, plan, found)


def _counts(region: LocalComputation) -> list[int]:
    n = region.grid.device_count
    return [d for d in range(1, n + 1) if n % d == 0]


def _result_dims(instr: Instr) -> tuple[int, ...]:
    return result_dims(instr)[0]


def with_windows(job: Job, shifts: Shifts, window: Window, places: list[tuple[int, int]]) -> Window:
    """The window of a device: over fetched rows where a dimension is cut."""
    dims = list(window.dims)
    for number, (dim, target) in enumerate(places):
        shift = next((s for s in shifts.found if s.dim == dim and s.way == "pass"), None)
        if shift is not None and job.axes(shifts.factor(shift)):
            dims[number] = _local_window(dims[number], job.dims[0][target])
    return Window(tuple(dims))


def _reduce_window(region: LocalComputation, instr: Instr) -> Held:
    """Past the border stands what changes nothing, or a start that windows may meet several times."""
    window = instr.attrs["window"]
    assert isinstance(window, Window)
    places = [(d, d) for d in range(len(window.dims))]
    count = len(instr.operands) // 2
    neutral = neutral_starts(instr)
    is_known = neutral is not None or is_idempotent_start(instr)
    shifted = count if is_known else 0
    shifts = shifts_of_windows(region, instr, FactorPlan.of(instr), window, places, shifted)

    def fill(job: Job, number: int) -> Callable[[Local], Instr]:
        start, dtype = job.operands[count + number], instr.operands[number].array.dtype
        if neutral is None:
            return lambda b: b.cast(start, dtype)
        return lambda b: b.cast(b.constant(start.array.dtype, neutral[number]), dtype)

    def emit(job: Job) -> list[Instr]:
        for shift in shifts.found:
            shifts.fetched(job, shift, fill(job, shift.operand))
        return job.same(window=with_windows(job, shifts, window, places))

    shifts.plan.emit = emit
    return region.apply(instr, shifts.plan)


WINDOWS: dict[str, Handler] = {
    "concatenate": _concatenate,
    "pad": _pad,
    "reduce-window": _reduce_window,
    "reverse": _reverse,
    "slice": _slice,
}
