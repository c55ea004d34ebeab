"""What a window plan costs in cycles.

    period  = max(DMA of a step, compute of a step, (DMA + compute + latency) / 2)
    cycles  = first fetch + latency + steps * period + last compute + last write-back + latency

of the steps that a core does, where cores of a device share the grid.

Two fetches are in flight at a time (the next step's is issued before this step's is waited for),
hence the half. Compute is estimated from the operations of the fusion and the MXU passes. What the
kernel carries to VMEM beside its work comes in parts, one a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from compiler.analysis.code_costs import WindowCosts
from compiler.analysis.indexing_boxes import Box
from compiler.analysis.kernel_vmem import VREG_TILE_BYTES, box_vreg_tiles
from compiler.analysis.sublane_axis import box_registers
from compiler.analysis.tiled_layout import byte_size
from compiler.analysis.windows import OperandWindow, PlanCost, WindowPlan
from compiler.hlo.dtypes import BF16, F32
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.kernels.plan import KernelPlan, MatmulStage
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, SUBLANES
from tpu_sim.isa.program import HBM, VMEM
from tpu_sim.isa.timing import dma_cost


def _depth(dot: HloInstruction, plan: WindowPlan) -> int:
    depth = plan.depths.get(dot)
    return depth.extent[0] if depth is not None else dot.operands[0].array.dims[-1]


def plan_cost(kernel: KernelPlan, chip: Chip) -> PlanCost:
    """What a kernel is estimated to cost."""
    plan = kernel.windows
    latency = chip.dma_latency_cycles
    cost = dma_cost(HBM, VMEM, chip)
    inputs = [w for w in plan.inputs if not w.is_resident]
    outputs = [w for w in plan.outputs if not w.is_resident]
    windows = (*inputs, *outputs)
    cores = plan.cores(chip)
    moved = sum(max(1, _fetches(plan, w) // cores) * cost.cycles(_window_bytes(w)) for w in windows)
    first = sum(cost.cycles(_window_bytes(w)) for w in inputs)
    last = sum(cost.cycles(_window_bytes(w)) for w in outputs)
    compute = _step_compute(kernel, chip)
    steps = plan.steps // cores
    carried = sum(cost.cycles(byte_size(p.array)) for p in kernel.body.carried) / steps
    step_dma = max(0.0, moved - first - last) / max(1, steps - 1) if steps > 1 else 0.0
    period = max(step_dma + carried, compute)
    if windows:
        period = max(period, (step_dma + compute + latency) / 2)
    costs = WindowCosts.of(chip)
    overhead = costs.step + (costs.window + chip.dma_wait_cycles) * len(windows)
    ends = first + last + latency * (bool(inputs) + bool(outputs))
    ends += chip.core_sync_cycles if cores > 1 else 0
    waits = ends + (steps - 1) * (period - compute) + max(0.0, carried - compute)
    idle = steps * max(0.0, min(period - step_dma, compute) - carried) if cores == 1 else 0
    return PlanCost(int(waits + steps * (compute + overhead)), int(waits), int(idle))


@dataclass(frozen=True)
class WindowTraffic:
    """What a plan costs, the bytes its windows move, and those of its arrays once."""

    cost: PlanCost
    moved: int
    least: int


@dataclass(frozen=True)
class PlanFacts:
    """What is known of a plan without its nodes: the same for fusions that get equal windows.

    `window_bytes`: what the windows of the operands move, then those of the results; None where an
    operand has none. `is_disjoint`: no grid step computes what another step computed before.
    `is_off_period`: as of the plan.
    """

    traffic: WindowTraffic
    window_bytes: tuple[int | None, ...]
    is_disjoint: bool
    is_off_period: bool

    @property
    def cycles(self) -> int:
        """Estimated cycles."""
        return self.traffic.cost.cycles


def plan_facts(plan: WindowPlan, parameters: Sequence[HloInstruction]) -> PlanFacts:
    """The facts of a plan; `parameters` are those of its fusion's computation."""
    of_node = {w.node: window_moves(plan, w) for w in plan.inputs}
    moved = [of_node.get(parameter) for parameter in parameters]
    moved += [window_moves(plan, w) for w in plan.outputs]
    is_disjoint = all(d.total % d.block == 0 for d in plan.grid)
    return PlanFacts(plan_traffic(plan), tuple(moved), is_disjoint, plan.is_off_period)


def window_moves(plan: WindowPlan, window: OperandWindow) -> int:
    """Bytes that a window moves in all steps."""
    return 0 if window.is_resident else _fetches(plan, window) * _window_bytes(window)


def plan_traffic(plan: WindowPlan) -> WindowTraffic:
    """What a plan moves through its windows."""
    windows = (*plan.inputs, *plan.outputs)
    moved = sum(window_moves(plan, w) for w in windows)
    least = sum(byte_size(w.shape) for w in windows if not w.is_resident)
    return WindowTraffic(plan.cost, moved, least)


def least_cycles(steps: int, chip: Chip) -> float:
    """What no plan of so many steps stays below: two fetches in flight, each takes the latency."""
    steps = -(-steps // chip.cores_per_device)
    step = chip.dma_latency_cycles / 2 + WindowCosts.of(chip).step
    return (steps - 1) * step + 2 * chip.dma_latency_cycles


def _window_bytes(window: OperandWindow) -> int:
    """Bytes of one transfer, sublanes that small arrays do not have left out."""
    tiles = box_vreg_tiles(window.shape, window.extent)
    if window.shape.rank >= 2:
        unit = SUBLANES * window.shape.dtype.packing
        packing = window.shape.dtype.packing
        filled = min(window.shape.dims[-2], unit) if window.row is None else packing
        return -(-tiles * VREG_TILE_BYTES * filled // unit)
    return tiles * VREG_TILE_BYTES


def _fetches(plan: WindowPlan, window: OperandWindow) -> int:
    """How often the window's block changes (the first fetch included)."""
    moving = plan.moving_dims(window.origin)
    if not moving:
        return 1
    return math.prod(d.steps for d in plan.grid[: moving[-1] + 1])


def _step_compute(kernel: KernelPlan, chip: Chip) -> float:
    """Cycles of one step's stages."""
    body, plan = kernel.body, kernel.windows
    outer = max((_lanes_tiles(w) for w in plan.outputs), default=1)
    costs = WindowCosts.of(chip)
    rate = costs.operations
    cycles = outer * body.operations / rate
    if plan.is_off_period:
        cycles += outer * costs.rows_anywhere
    for reduce in body.reduces:
        box = plan.depths.get(reduce)
        node = reduce if isinstance(reduce.shape, ArrayShape) else next(iter(reduce.users))
        tiles = _reduce_tiles(reduce, box, plan.boxes.get(node))
        cycles += tiles * (2 + body.operations / rate)
    for stage in kernel.stages:
        if isinstance(stage, MatmulStage):
            cycles += _dot_cycles(stage, kernel, chip)
    return cycles


def _lanes_tiles(window: OperandWindow) -> int:
    """Registers of f32 behind an output window: packed types compute as many per vreg."""
    return box_registers(window.shape, window.extent) * window.shape.dtype.packing


def _reduce_tiles(reduce: HloInstruction, box: Box | None, result: Box | None) -> int:
    operand = reduce.operands[0].array
    if box is not None:
        return box_vreg_tiles(operand, box.extent)
    if result is None:
        return 0
    reduced = reduce.dimensions
    kept = iter(result.extent)
    extent = tuple(n if d in reduced else next(kept) for d, n in enumerate(operand.dims))
    return box_vreg_tiles(operand, extent)


def _dot_cycles(stage: MatmulStage, kernel: KernelPlan, chip: Chip) -> float:
    """MXU cycles of a step, and what preparing operands takes, spread over the steps."""
    dot, plan, parts = stage.node, kernel.windows, kernel.parts
    costs = WindowCosts.of(chip)
    box = plan.boxes[dot]
    batch = math.prod(box.extent[:-2])
    rows = max(-(-box.extent[-2] // 16), 8)  # latching a block takes as long as 8 matmuls
    cols = -(-box.extent[-1] // LANES)
    depth = -(-_depth(dot, plan) // LANES) / (2 if parts.integer else 1)
    matmuls = batch * rows * cols * depth * parts.passes
    cycles = matmuls * chip.matmul_cycles / chip.mxu_sustained / chip.mxu_units
    cycles += costs.dot_step * parts.passes
    if dot in plan.depths:
        cycles += costs.accumulation * box_vreg_tiles(ArrayShape(F32, dot.array.dims), box.extent)
    for node, operand in zip(dot.operands, stage.operands, strict=True):
        if not operand.parts:
            continue
        tiles = box_vreg_tiles(ArrayShape(BF16, node.array.dims), operand.box.extent)
        moving = plan.moving_dims(operand.box.low)
        times = math.prod(d.steps for d in plan.grid[: moving[-1] + 1]) if moving else 1
        each = costs.preparation * len(operand.parts) * _joined_choices(node, plan.depths.get(dot))
        cycles += each * tiles * times / plan.steps
    return cycles


def _joined_choices(operand: HloInstruction, depth: Box | None) -> int:
    """Of how many parts a tile of a dot's operand may be in one step or another, of those that lie side by
    side along a depth which the grid cuts: all of them are loaded, and one is taken."""
    columns = operand.array.dims[-1]
    steps = 1 if depth is None else -(-columns // depth.extent[0])
    joined = operand
    while joined.opcode != "concatenate":
        same = [o for o in joined.operands if o.array.dims[-1:] == (columns,)]
        if steps == 1 or len(same) != 1:
            return 1
        joined = same[0]
    is_along_depth = joined.dimensions == (joined.array.rank - 1,)
    return min(steps, len(joined.operands)) if is_along_depth else 1
