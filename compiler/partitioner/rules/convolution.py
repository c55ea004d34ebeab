"""Convolutions: tiles of images with rows of their neighbours, partial sums over channels or over windows.

A dimension of a window that is longer than what is made by it, as of the convolution that makes a kernel's
gradient of two images, is summed in tiles: each device has a tile of the window, and fetches the rows of the
image that this meets.
"""

from __future__ import annotations

import math
from dataclasses import replace

from compiler.hlo.attributes import ConvDims, Window, WindowDim
from compiler.hlo.ir import HloInstruction
from compiler.partitioner.factors import FactorPlan, Job
from compiler.partitioner.region import Handler, LocalComputation
from compiler.partitioner.rules.contraction import sum_of, zero_of
from compiler.partitioner.rules.windows import (
    Shift,
    Shifts,
    Starts,
    shifts_of_windows,
    with_windows,
)
from compiler.partitioner.values import Held
from compiler.sharding.rule import FactorKind

Instr = HloInstruction


def _convolution(region: LocalComputation, instr: Instr) -> Held:
    """Input features make partial sums; groups are cut by group."""
    labels, window = instr.attrs["dim_labels"], instr.attrs.get("window", Window())
    assert isinstance(labels, ConvDims)
    assert isinstance(window, Window)
    plan = FactorPlan.of(instr, sums=True)
    plan.fills = {i: zero_of(o) for i, o in enumerate(instr.operands[:2])}
    plan.combiner = sum_of(instr)
    taps = math.prod(part.size for part in window.dims)
    channels = instr.operands[1].array.dims[labels.kernel_input_feature]
    plan.work = instr.array.element_count * taps * channels / 32
    places = list(zip(labels.input_spatial, labels.output_spatial, strict=True))
    summed = _summed_windows(instr, plan, labels, window)
    shifts = shifts_of_windows(region, instr, plan, window, places, 1)
    shifts = Shifts(region, instr, plan, shifts.found + list(summed.values()))

    def emit(job: Job) -> list[Instr]:
        for shift in shifts.found:
            shifts.fetched(job, shift, zero_of(instr.operands[0]))
        attrs = _local_groups(job, plan, labels)
        found = with_windows(job, shifts, window, places)
        return job.same(window=_with_tiles(job, plan, summed, found, labels), **attrs)

    plan.emit = emit
    return region.apply(instr, plan)


def _summed_windows(
    instr: Instr, plan: FactorPlan, labels: ConvDims, window: Window
) -> dict[int, Shift]:
    """By number the dimensions of the window that are longer than what is made: one factor of both operands,
    which is summed, in `plan`."""
    image, kernel = (operand.array.dims for operand in instr.operands)
    found = {}
    for number, part in enumerate(window.dims):
        source, target = labels.input_spatial[number], labels.output_spatial[number]
        made, of_kernel = instr.array.dims[target], labels.kernel_spatial[number]
        is_plain = part.base_dilation == 1 and not part.reversal
        if not is_plain or part.size <= max(1, made) or not image[source] * made:
            continue
        _sum_together(plan, {0: source, 1: of_kernel}, kernel[of_kernel])
        rows = _rows_of_tile(part, made)
        found[number] = Shift(0, source, image[source], part.size, rows, "sum")
    return found


def _sum_together(plan: FactorPlan, places: dict[int, int], size: int) -> None:
    """Give a dimension of some operands one factor, which is summed."""
    rule, new = plan.rule, len(plan.rule.sizes)
    operands = [
        tuple((new,) if places.get(i) == d else factors for d, factors in enumerate(dims))
        for i, dims in enumerate(rule.operands)
    ]
    plan.rule = replace(
        rule,
        sizes=(*rule.sizes, size),
        kinds=(*rule.kinds, FactorKind.REDUCE),
        operands=tuple(operands),
    )
    plan.ways.append("sum")


def _rows_of_tile(part: WindowDim, made: int) -> Starts:
    """The rows of the image that a tile of the window meets at any of its places."""
    step = part.window_dilation

    def rows(i: int, local: int) -> tuple[int, int]:
        return i * local * step - part.pad_low, (local - 1) * step + (made - 1) * part.stride + 1

    return rows


def _with_tiles(
    job: Job, plan: FactorPlan, summed: dict[int, Shift], window: Window, labels: ConvDims
) -> Window:
    """The window of a device that holds a tile of it; the fetched rows begin where it does."""
    dims = list(window.dims)
    for number, shift in summed.items():
        if job.axes(plan.where(shift.operand, shift.dim)):
            local = job.operands[1].array.dims[labels.kernel_spatial[number]]
            dims[number] = replace(dims[number], size=local, pad_low=0, pad_high=0)
    return Window(tuple(dims))


def _local_groups(job: Job, plan: FactorPlan, labels: ConvDims) -> dict[str, object]:
    """The number of groups that a device has."""
    dims = {
        "feature_group_count": labels.input_feature,
        "batch_group_count": labels.input_batch,
    }
    found: dict[str, object] = {}
    for name, dim in dims.items():
        groups = job.instr.attrs.get(name, 1)
        assert isinstance(groups, int)
        if groups > 1:
            axes = job.axes(plan.rule.operands[0][dim][0])
            found[name] = groups // job.b.grid.count(axes)
    return found


CONVOLUTION: dict[str, Handler] = {"convolution": _convolution}
