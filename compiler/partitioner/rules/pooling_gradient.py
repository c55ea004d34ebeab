"""Select-and-scatter: every device does the windows that touch its tile, and keeps the tile."""

from __future__ import annotations

from collections.abc import Callable

from compiler.analysis.reducers import reducer_kind
from compiler.hlo.attributes import Window, WindowDim
from compiler.hlo.dtypes import DType
from compiler.hlo.identities import MONOIDS, identity
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.partitioner.factors import FactorPlan, Job
from compiler.partitioner.local import Local
from compiler.partitioner.region import Handler, LocalComputation
from compiler.partitioner.rules.windows import Shift, Shifts, Starts
from compiler.partitioner.values import Held
from compiler.sharding.rule import FactorKind

Instr = HloInstruction
_NEVER_SELECTED = {"GE": "maximum", "GT": "maximum", "LE": "minimum", "LT": "minimum"}
"""By the direction of the comparison that selects: whose identity it does not select."""


def _first_window(part: WindowDim, row: int) -> int:
    """The first window that touches a row."""
    return -(-(row + part.pad_low - part.size + 1) // part.stride)


def _windows(part: WindowDim) -> Starts:
    """The windows, that is the rows of the source, that touch a tile."""

    def count(i: int, local: int) -> int:
        last = ((i + 1) * local - 1 + part.pad_low) // part.stride
        return last - _first_window(part, i * local) + 1

    def rows(i: int, local: int) -> tuple[int, int]:
        most = max(count(k, local) for k in range(part.stride))
        return _first_window(part, i * local), most

    return rows


def _rows(part: WindowDim) -> Starts:
    """The rows that those windows cover."""

    def rows(i: int, local: int) -> tuple[int, int]:
        first, count = _windows(part)(i, local)
        return first * part.stride - part.pad_low, (count - 1) * part.stride + part.size

    return rows


def _select_and_scatter(region: LocalComputation, instr: Instr) -> Held:
    window, scatter = instr.attrs["window"], instr.attrs["scatter"]
    assert isinstance(window, Window)
    plan = FactorPlan.of(instr)
    image, source, _ = (o.array for o in instr.operands)
    kind, selected = reducer_kind(scatter, MONOIDS), _selected(instr)
    fills = (
        identity(selected, image.dtype) if selected is not None else None,
        identity(kind, source.dtype) if kind is not None else None,
    )
    cut: list[tuple[Shift, Shift]] = []
    for dim, part in enumerate(window.dims):
        is_shifted = plan.rule.kinds[plan.where(0, dim)] is FactorKind.PERMUTE
        is_plain = part.window_dilation == part.base_dilation == 1 and not part.reversal
        size, count = image.dims[dim], source.dims[dim]
        if is_shifted and is_plain and None not in fills and count:
            if image.dtype.is_integer and _leaves_the_image(part, size, count):
                continue
            of_image = Shift(0, dim, size, size, _rows(part))
            cut.append((of_image, Shift(1, dim, count, size, _windows(part))))
    shifts = Shifts(region, instr, plan, [shift for pair in cut for shift in pair])
    plan.emit = lambda job: _computed(job, shifts, cut, window, fills)
    return region.apply(instr, plan)


def _leaves_the_image(part: WindowDim, size: int, count: int) -> bool:
    """Whether a window has rows beside the image. There a device would see the least or greatest number,
    which an integer of the image may be as well: which of two equal ones is selected is their order's."""
    return part.pad_low > 0 or (count - 1) * part.stride + part.size - part.pad_low > size


def _selected(instr: Instr) -> str | None:
    body = instr.attrs["select"]
    assert isinstance(body, HloComputation)
    root = body.root_instruction
    if root.opcode != "compare" or list(root.operands) != body.parameters:
        return None
    return _NEVER_SELECTED.get(str(root.attrs.get("direction")))


def _computed(
    job: Job,
    shifts: Shifts,
    cut: list[tuple[Shift, Shift]],
    window: Window,
    fills: tuple[float | None, float | None],
) -> list[Instr]:
    b, dims = job.b, list(window.dims)
    here = [pair for pair in cut if job.axes(shifts.factor(pair[0]))]
    for pair in here:
        for shift, fill in zip(pair, fills, strict=True):
            dtype = job.operands[shift.operand].array.dtype
            shifts.fetched(job, shift, _constant(dtype, fill))
        part = dims[pair[0].dim]
        dims[pair[0].dim] = WindowDim(part.size, part.stride)
    attrs = dict(job.instr.attrs) | {"window": Window(tuple(dims))}
    attrs = {k: v for k, v in attrs.items() if k not in ("sharding", "metadata")}
    made = b.instruction("select-and-scatter", job.operands, attrs, None, job.instr.name)
    for shift, _ in here:
        made = _own_rows(job, shifts, shift, made)
    return [made]


def _constant(dtype: DType, value: float | None) -> Callable[[Local], Instr]:
    return lambda b: b.constant(dtype, value or 0)


def _own_rows(job: Job, shifts: Shifts, shift: Shift, made: Instr) -> Instr:
    """The device's tile out of the rows of its windows; rows that no window touches are initial."""
    b, local = job.b, job.dims[0][shift.dim]
    axes = job.axes(shifts.factor(shift))
    starts = shift.reach(b.grid.count(axes)).starts
    offsets = [i * local - start for i, start in enumerate(starts)]
    low = max(0, -min(offsets))
    high = max(0, max(offsets) + local - made.array.dims[shift.dim])
    padding = [(0, 0, 0)] * made.array.rank
    padding[shift.dim] = (low, high, 0)
    if low or high:
        made = b.pad(made, job.operands[2], padding)
    table = [offsets[int(tile)] + low for tile in b.tile(axes)]
    return b.part_at(made, shift.dim, b.scalar_of(table), local)


POOLING_GRADIENT: dict[str, Handler] = {"select-and-scatter": _select_and_scatter}
