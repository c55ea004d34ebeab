"""The VMEM a kernel of windows takes: every window that it allocates, by name, in rows of 512 bytes.

Pipeline and stages allocate what is listed here and nothing else (spill slots come on top); the
window search judges plans by the same list.

    in.<parameter>, out.<root>     blocks, two buffers where the grid moves them; none of an array
                                   that lies in VMEM
    scratch.<node>                 what a stage leaves for later ones
    sums.<node>                    partial results over grid steps, where windows cannot hold them
    bf16.<part>.<node>             a dot operand made ready for the MXU
    reduced.<node>                 a reduce's results before they are packed or turned
    accumulators.<node>            the running state of a reduce's loop
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.analysis.boxes import dot_operand_boxes, feeds_mxu, is_row_reduction
from compiler.analysis.dot_parts import DotParts, pair_depth
from compiler.analysis.fusion_body import FusionBody
from compiler.analysis.indexing_boxes import Box
from compiler.analysis.windows import OperandWindow, WindowPlan
from compiler.hlo.dtypes import BF16, F32, S32, U16
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape, leaves

LANES = 128
SUBLANES = 8
GUARD_ROWS = 8
"""Rows after every buffer that unaligned loads may touch."""
MOST_PACKED = 4
"""Elements of the narrowest type in a word."""


@dataclass(frozen=True)
class VmemWindow:
    """A window of `rows` rows."""

    name: str
    rows: int


def kernel_rows(body: FusionBody, plan: WindowPlan, parts: DotParts) -> int:
    """Rows of all windows of a kernel."""
    return sum(w.rows for w in kernel_windows(body, plan, parts))


def kernel_windows(body: FusionBody, plan: WindowPlan, parts: DotParts) -> list[VmemWindow]:
    """All windows of a kernel."""
    found = [_stream(plan, w, "in") for w in plan.inputs if not w.is_resident]
    found += [_stream(plan, w, "out") for w in plan.outputs if not w.is_resident]
    for node in body.materialised:
        if node.opcode == "reduce":
            found += _reduce_windows(node, body, plan)
        elif node.opcode == "dot":
            found += _dot_windows(node, body, plan, parts)
        else:
            rows = held_rows(node.array, plan.boxes[node].extent)
            found.append(VmemWindow(f"scratch.{node.name}", rows))
    return found


def held_rows(shape: ArrayShape, extent: tuple[int, ...], *, replicated: bool = False) -> int:
    """Rows of a box in VMEM, the guard rows after it included."""
    if replicated:
        unit = SUBLANES * shape.dtype.packing
        return math.prod(extent[:-1]) * -(-extent[-1] // unit) * SUBLANES + GUARD_ROWS
    return box_vreg_tiles(shape, extent) * SUBLANES + GUARD_ROWS


def box_vreg_tiles(shape: ArrayShape, extent: tuple[int, ...]) -> int:
    """Vreg tiles of a box."""
    unit = SUBLANES * shape.dtype.packing
    if shape.rank == 0:
        return 1
    if shape.rank == 1:
        return -(-extent[0] // (unit * LANES))
    return math.prod(extent[:-2]) * -(-extent[-2] // unit) * -(-extent[-1] // LANES)


def arrangement(shape: ArrayShape) -> tuple[object, ...]:
    """What the order of an array's elements in VMEM depends on."""
    if shape.rank < 2:
        return (shape.dtype.name, shape.dims)
    return (shape.dtype.name, math.prod(shape.dims[:-2]), *shape.dims[-2:])


def _stream(plan: WindowPlan, window: OperandWindow, kind: str) -> VmemWindow:
    slots = 2 if plan.moving_dims(window.origin) else 1
    rows = slots * box_vreg_tiles(window.shape, window.extent) * SUBLANES + GUARD_ROWS
    return VmemWindow(f"{kind}.{window.node.name}", rows)


def _reduce_windows(node: HloInstruction, body: FusionBody, plan: WindowPlan) -> list[VmemWindow]:
    """Where a reduce's results go that have no window to go to directly."""
    shapes = leaves(node.shape)
    keeps_rows, keeps_columns = _kept(node)
    slots = (MOST_PACKED if keeps_rows else 1) * len(shapes)
    found = [VmemWindow(f"accumulators.{node.name}", slots * SUBLANES)]
    outputs = direct_outputs(node, body, plan)
    if outputs is not None:
        is_cut = node in plan.depths and any(d.steps > 1 and not d.parallel for d in plan.grid)
        if is_cut and not all(takes_sums(node, w.shape) for w in outputs):
            return [*found, *(_turned("sums", node, s, outputs[0].extent) for s in shapes)]
        boxes = [(w.shape, w.extent, False) for w in outputs]
    else:
        box = next(plan.boxes[part] for part in result_parts(node) if part in plan.boxes)
        replicated = [is_row_reduction(node) and shape.rank > 0 for shape in shapes]
        boxes = [(s, box.extent, r) for s, r in zip(shapes, replicated, strict=True)]
        rows = [held_rows(s, e, replicated=r) for s, e, r in boxes]
        found += [VmemWindow(f"scratch.{node.name}", r) for r in rows]
    for shape, extent, is_replicated in boxes:
        fits_turn = is_replicated != keeps_columns or shape.rank == 0
        fits_type = shape.dtype.kind != "pred" if keeps_rows else shape.dtype.packing == 1
        if not (fits_turn and fits_type):
            found.append(_turned("reduced", node, shape, extent))
    return found


def _turned(
    prefix: str, node: HloInstruction, shape: ArrayShape, extent: tuple[int, ...]
) -> VmemWindow:
    """Scratch for a result in the arrangement and type that a reduce stage makes."""
    wide = shape.with_dtype(F32 if shape.dtype.is_float else S32)
    is_replicated = not _kept(node)[1] and shape.rank > 0
    return VmemWindow(f"{prefix}.{node.name}", held_rows(wide, extent, replicated=is_replicated))


def _kept(reduce: HloInstruction) -> tuple[bool, bool]:
    """Whether the rows and the columns of the operand are kept."""
    rank = reduce.operands[0].array.rank
    reduced = reduce.dimensions
    return rank >= 2 and rank - 2 not in reduced, rank - 1 not in reduced


def result_parts(node: HloInstruction) -> list[HloInstruction]:
    """The nodes that stand for a stage's results: itself, or what takes its tuple apart."""
    return [node] if isinstance(node.shape, ArrayShape) else list(node.users)


def direct_outputs(
    node: HloInstruction, body: FusionBody, plan: WindowPlan
) -> list[OperandWindow] | None:
    """The output windows of a stage's results when each is a root that nothing else reads."""
    found: list[OperandWindow] = []
    parts = result_parts(node)
    for part in parts:
        places = [i for i, root in enumerate(body.roots) if root is part]
        is_read = any(user.opcode != "tuple" for user in part.users)
        if len(places) != 1 or is_read:
            return None
        found.append(plan.outputs[places[0]])
    is_whole = len(found) == len(leaves(node.shape)) and all(w.is_dense for w in found)
    return found if is_whole else None


def direct_output(dot: HloInstruction, body: FusionBody, plan: WindowPlan) -> OperandWindow | None:
    """The output window that a dot's sums go to: a root of just the box that it computes."""
    found = direct_outputs(dot, body, plan)
    if found is None or dot.array.dtype not in (F32, S32):
        return None
    (window,) = found
    is_all = Box(window.origin, window.extent) == plan.boxes[dot]
    return window if is_all else None


def takes_sums(reduce: HloInstruction, shape: ArrayShape) -> bool:
    """Whether an output window has the arrangement that partial results come in."""
    return shape.dtype.packing == 1 and (_kept(reduce)[1] or shape.rank == 0)


def _dot_windows(
    dot: HloInstruction, body: FusionBody, plan: WindowPlan, parts: DotParts
) -> list[VmemWindow]:
    found: list[VmemWindow] = []
    for number, box in prepared_operands(dot, plan, parts).items():
        operand = dot.operands[number]
        shape, held = prepared_form(dot, number, parts, box)
        rows = held_rows(shape, held.extent)
        names = (f"bf16.{part}.{operand.name}" for part in range(parts.of(number)))
        found += [VmemWindow(name, rows) for name in names]
    if direct_output(dot, body, plan) is None:
        rows = held_rows(ArrayShape(F32, dot.array.dims), plan.boxes[dot].extent)
        found.append(VmemWindow(f"scratch.{dot.name}", rows))
    return found


def prepared_form(
    dot: HloInstruction, number: int, parts: DotParts, box: Box
) -> tuple[ArrayShape, Box]:
    """What an operand is prepared as, and the box of that: bf16, or pairs of 8-bit integers."""
    dims = dot.operands[number].array.dims
    if not parts.integer:
        return ArrayShape(BF16, dims), box
    side = "rhs" if number else "lhs"
    (axis,) = dot.ints(f"{side}_contracting_dims")
    depth = pair_depth(dims[axis])
    extent = tuple(depth if d == axis else size for d, size in enumerate(box.extent))
    shape = ArrayShape(U16, tuple(depth if d == axis else size for d, size in enumerate(dims)))
    return shape, Box(box.low, extent)


def prepared_operands(dot: HloInstruction, plan: WindowPlan, parts: DotParts) -> dict[int, Box]:
    """The boxes of the dot operands that do not feed the MXU as their windows lie."""
    boxes = dot_operand_boxes(dot, plan.boxes[dot], plan.depths.get(dot))
    windows = {window.node: window for window in plan.inputs}
    found: dict[int, Box] = {}
    for number, (operand, box) in enumerate(zip(dot.operands, boxes, strict=True)):
        window = windows.get(operand)
        is_ready = (
            window is not None
            and window.is_dense
            and parts.of(number) == 1
            and is_fed(dot, number, window.shape, Box(window.origin, window.extent), box)
        )
        if not is_ready:
            found[number] = box
    return found


def is_fed(dot: HloInstruction, number: int, shape: ArrayShape, held: Box, wanted: Box) -> bool:
    """Whether a dot operand held like this goes to the MXU as it lies."""
    return held == wanted and feeds_mxu(dot, number, shape, held)
