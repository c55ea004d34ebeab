"""Which part of every leaf and materialised node a step's part of the results needs.

Boxes flow from the results to the parameters by interval analysis (`indexing_boxes`), through the
nodes that stages leave in VMEM: users before producers, so that such a node is computed over the
hull of what its users read.
"""

from __future__ import annotations

from compiler.analysis.fusion_body import MATERIALISED_OPCODES, FusionBody
from compiler.analysis.indexing import const
from compiler.analysis.indexing_boxes import Box, merge_boxes, operand_boxes, tile_units
from compiler.hlo.dtypes import BF16
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.geometry import LANES, SUBLANES

_PACKED_ROWS = 16


def leaf_boxes(
    body: FusionBody, root_boxes: tuple[Box, ...], overrides: dict[HloInstruction, Box]
) -> dict[HloInstruction, Box]:
    """Boxes of all array parameters and materialised nodes, in whole tiles.

    `overrides` gives the operand boxes of reduces and the depth (one dimension) of the dot where the
    grid cuts what they sum over. A root that is materialised has its root box among the needs.
    """
    needs: dict[HloInstruction, list[Box]] = {}
    leaves = body.leaves
    for root, box in zip(body.roots, root_boxes, strict=True):
        _need(root, box, leaves, needs)
    settled: dict[HloInstruction, Box] = {}
    for node in reversed(body.materialised):
        node_box = _settle(node, needs, settled)
        if node_box is None:
            continue
        if node.opcode not in MATERIALISED_OPCODES:
            _need(node, node_box, leaves - {node}, needs)
            continue
        for operand, operand_box in _operand_boxes(node, node_box, overrides.get(node)):
            _need(operand, operand_box, leaves, needs)
    for node, boxes in needs.items():
        if node not in settled:
            settled[node] = merge_boxes(node.array, boxes, held_units(node))
    return settled


def _need(
    node: HloInstruction,
    box: Box,
    leaves: frozenset[HloInstruction],
    needs: dict[HloInstruction, list[Box]],
) -> None:
    """Record that `box` of a node is needed: of its leaves, or of itself if it is one."""
    for leaf, leaf_box in operand_boxes(node, box, leaves, held_units).items():
        needs.setdefault(leaf, []).append(leaf_box)


def _settle(
    node: HloInstruction,
    needs: dict[HloInstruction, list[Box]],
    settled: dict[HloInstruction, Box],
) -> Box | None:
    """The box to compute of a materialised node; the parts of a variadic reduce share one."""
    parts = [node] if isinstance(node.shape, ArrayShape) else list(node.users)
    boxes = [box for part in parts for box in needs.get(part, ())]
    if not boxes:
        return None
    box = merge_boxes(parts[0].array, boxes, held_units(parts[0]))
    for part in parts:
        settled[part] = box
    return box


def held_units(node: HloInstruction) -> tuple[int, ...]:
    """The multiples that boxes of a leaf keep to in VMEM.

    A dot is computed from packed bf16 operands, 16 rows at a time; a row reduction's results are
    held one a row, so that their last dimension is in sublanes.
    """
    shape = node.array
    if node.opcode == "dot":
        return tile_units(ArrayShape(BF16, shape.dims))
    if shape.rank and is_row_reduction(node):
        return (*(1 for _ in shape.dims[:-1]), SUBLANES)
    return tile_units(shape)


def is_row_reduction(node: HloInstruction) -> bool:
    """Whether this is a result of a reduce over the minor-most dimensions."""
    reduce = node.operands[0] if node.opcode == "get-tuple-element" else node
    if reduce.opcode != "reduce":
        return False
    rank = reduce.operands[0].array.rank
    reduced = sorted(reduce.dimensions)
    return reduced == list(range(rank - len(reduced), rank))


def _operand_boxes(
    node: HloInstruction, box: Box, override: Box | None
) -> list[tuple[HloInstruction, Box]]:
    """The operand boxes that computing `box` of a reduce or dot reads."""
    if node.opcode == "reduce":
        operand_box = override or reduce_operand_box(node, box)
        count = len(node.operands) // 2
        start = Box((), ())  # start values are read too: a step that ends a sum takes them in
        return [
            (operand, operand_box if number < count else start)
            for number, operand in enumerate(node.operands)
        ]
    lhs, rhs = dot_operand_boxes(node, box, override)
    return [(node.operands[0], lhs), (node.operands[1], rhs)]


def reduce_operand_box(reduce: HloInstruction, box: Box) -> Box:
    """The part of a reduce's operands behind a box of its result: reduced dimensions whole."""
    reduced = reduce.dimensions
    operand = reduce.operands[0].array
    kept = iter(zip(box.low, box.extent, strict=True))
    sides = [
        (const(0), size) if d in reduced else next(kept) for d, size in enumerate(operand.dims)
    ]
    return Box(tuple(low for low, _ in sides), tuple(size for _, size in sides))


def dot_operand_boxes(dot: HloInstruction, box: Box, depth: Box | None) -> tuple[Box, Box]:
    """The parts of a canonical dot's operands behind a box of its result.

    `depth` is the part of K, all of it when None. Of an operand that is the same matrix for the whole
    batch the first is read.
    """
    rank = len(box.low)
    if depth is None:
        depth = Box((const(0),), (dot.operands[0].array.dims[-1],))
    batch = Box(box.low[: rank - 2], box.extent[: rank - 2])
    rows = Box(box.low[-2:-1], box.extent[-2:-1])
    columns = Box(box.low[-1:], box.extent[-1:])
    first = Box((const(0),) * (rank - 2), (1,) * (rank - 2))
    left, right = (first if _is_one_matrix(o) else batch for o in dot.operands)
    is_transposed = is_rhs_transposed(dot)
    lhs = _concatenated(left, rows, depth)
    sides = (columns, depth) if is_transposed else (depth, columns)
    return lhs, _concatenated(right, *sides)


def _is_one_matrix(operand: HloInstruction) -> bool:
    """Whether a dot's operand repeats a matrix for all of the batch."""
    rank = operand.array.rank
    return operand.opcode == "broadcast" and all(d >= rank - 2 for d in operand.dimensions)


def _concatenated(*boxes: Box) -> Box:
    lows = tuple(low for box in boxes for low in box.low)
    return Box(lows, tuple(size for box in boxes for size in box.extent))


def is_rhs_transposed(dot: HloInstruction) -> bool:
    """Whether a canonical dot's right side is ``[B.., N, K]``."""
    return dot.rhs_contracting_dims == (dot.operands[1].array.rank - 1,)


def feeds_mxu(dot: HloInstruction, number: int, shape: ArrayShape, held: Box) -> bool:
    """Whether an operand held like this goes to the MXU as it lies.

    It must be bf16, start and end with what the step multiplies, and hold nothing beyond K where
    the MXU would read it: in the lanes up to 128, in packed rows up to 16.
    """
    depth = dot.operands[0].array.dims[-1]
    in_lanes = number == 0 or is_rhs_transposed(dot)
    multiple = LANES if in_lanes else _PACKED_ROWS
    units = tile_units(shape)
    starts_whole = all(
        (low // unit) * unit == low for low, unit in zip(held.low, units, strict=True)
    )
    return shape.dtype == BF16 and depth % multiple == 0 and starts_whole
