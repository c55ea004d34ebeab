"""What a kernel reads, makes and computes, as `tpu_sim.isa.kernel_facts` keeps it for reports."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from compiler.analysis.dot_parts import dot_parts, is_integer_pass
from compiler.analysis.gather_dims import gather_dims
from compiler.analysis.kernel_work import operations
from compiler.analysis.operation_marks import marks_of
from compiler.analysis.product_order import cheaper_order
from compiler.analysis.scatter_dims import scatter_dims
from compiler.analysis.tiled_layout import byte_size, memory_space
from compiler.analysis.trip_count import trip_count
from compiler.analysis.turn_work import LookUp, look_ups, turn_chains, turn_work
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_any, with_trait
from compiler.hlo.origins import inside
from compiler.hlo.shape import ArrayShape, leaves
from tpu_sim.isa.kernel_facts import (
    CHEAPER_ORDER,
    LOOKED_UP,
    ArrayFacts,
    KernelFacts,
    OperationFacts,
)
from tpu_sim.isa.program import HBM

_MOST_OPERATIONS = 4
"""On elements that are named: the dearest."""
_MOST_MOVES = 2
_MOVES = with_trait(Trait.DATA_MOVEMENT) - with_any(Trait.SYMBOLIC | Trait.FORWARDS | Trait.BOX)
"""Operations that put whole arrays elsewhere; what goes row by row is named as such."""


def facts_of(calls: Mapping[str, HloInstruction], precision: str) -> dict[str, KernelFacts]:
    """The facts of kernels by name; `calls` has an instruction of each: a fusion, copy or loop."""
    orders = _orders(calls.values(), precision)
    return {name: _facts(call, precision, orders[call]) for name, call in calls.items()}


def _facts(instr: HloInstruction, precision: str, orders: Sequence[OperationFacts]) -> KernelFacts:
    arrays = [leaf for o in (*instr.operands, instr) for leaf in leaves(o.shape)]
    in_hbm = (_array(shape) for shape in arrays if memory_space(shape) == HBM)
    named = [_named(node, precision) for node in inside(instr) if node.opcode in _DIMS]
    return KernelFacts(
        tuple(in_hbm), (*_loop(instr), *named, *orders, *_dearest(instr), *_moves(instr))
    )


def _orders(
    calls: Iterable[HloInstruction], precision: str
) -> dict[HloInstruction, list[OperationFacts]]:
    """By kernel, the products that are cheaper in another order: of a pair each is one."""
    found: dict[HloInstruction, list[OperationFacts]] = defaultdict(list)
    for call in calls:
        for node in inside(call):
            if (order := cheaper_order(call, node)) is None:
                continue
            for kernel, product in ((call, node), (order.call, order.inner)):
                shape, dims = _text(order.inner.array), (order.stated, order.other)
                passes = _passes(product, precision)
                marks = (CHEAPER_ORDER,)
                found[kernel].append(
                    OperationFacts(product.name, product.opcode, shape, dims, passes, 0, marks)
                )
    return found


def _loop(instr: HloInstruction) -> Iterator[OperationFacts]:
    """The loop that a kernel is."""
    if instr.opcode == "while":
        state = max(leaves(instr.shape), key=lambda shape: shape.byte_count)
        work, chains = turn_work(instr), turn_chains(instr)
        dims = (trip_count(instr) or 0, work.total, work.free, chains.test, chains.turn)
        yield OperationFacts(instr.name, instr.opcode, _text(state), dims, marks=marks_of(instr))
        of_array: dict[HloInstruction, list[LookUp]] = defaultdict(list)
        for found in look_ups(instr):
            of_array[found.array].append(found)
        yield from (_looked_up(array.array, found) for array, found in of_array.items())


def _looked_up(whole: ArrayShape, found: Sequence[LookUp]) -> OperationFacts:
    """All that a turn cuts out of an array: many parts, where turns are unrolled."""
    first = found[0].cut
    elements = sum(look_up.cut.array.element_count for look_up in found)
    dims = (elements, whole.element_count, len(found))
    return OperationFacts(first.name, first.opcode, _text(whole), dims, marks=(LOOKED_UP,))


def _array(shape: ArrayShape) -> ArrayFacts:
    order = shape.layout.minor_to_major if shape.layout is not None else ()
    minor = shape.dims[order[0]] if order else (shape.dims[-1] if shape.dims else 1)
    return ArrayFacts(_text(shape), minor, shape.byte_count, byte_size(shape))


def _text(shape: ArrayShape) -> str:
    return f"{shape.dtype.name}[{','.join(map(str, shape.dims))}]"


def _named(node: HloInstruction, precision: str) -> OperationFacts:
    is_product = OPCODES[node.opcode].has(Trait.CONTRACTION)
    passes = _passes(node, precision) if is_product else 0
    shape = _text(leaves(node.shape)[0])
    dims = _DIMS[node.opcode](node)
    return OperationFacts(node.name, node.opcode, shape, dims, passes, 0, marks_of(node))


def _passes(node: HloInstruction, precision: str) -> int:
    """Passes of a matrix unit for each number; 0 for a product that the vector unit makes."""
    types = [part.array.dtype for part in (node, *node.operands[:2])]
    is_multiplied = is_integer_pass(node) or all(dtype.is_float for dtype in types)
    return dot_parts(node, precision).passes if is_multiplied else 0


def _gathered(node: HloInstruction) -> tuple[int, ...]:
    """Rows that are taken one by one, elements of each, and rows of what they are taken from."""
    d = gather_dims(node)
    each = max(math.prod(d.slice_sizes), 1)
    return node.array.element_count // each, each, d.operand.array.element_count // each


def _scattered(node: HloInstruction) -> tuple[int, ...]:
    """As `_gathered`, of what is put there."""
    s = scatter_dims(node)
    each = max(math.prod(s.updates.array.dims[d] for d in s.window_dims), 1)
    return s.updates.array.element_count // each, each, s.operand.array.element_count // each


def _dot_dims(dot: HloInstruction) -> tuple[int, ...]:
    """Batch, rows, columns, depth."""
    left, right = (operand.array.dims for operand in dot.operands[:2])
    batch = math.prod(left[d] for d in dot.lhs_batch_dims)
    depth = math.prod(left[d] for d in dot.lhs_contracting_dims)
    inner = max(batch * depth, 1)
    return batch, math.prod(left) // inner, math.prod(right) // inner, depth


def _convolution_dims(node: HloInstruction) -> tuple[int, ...]:
    """Groups, pixels, features of a group, and what a feature of a pixel is summed over."""
    labels, kernel = node.dim_labels, node.operands[1].array.dims
    groups = max(node.feature_group_count, node.batch_group_count)
    features = kernel[labels.kernel_output_feature]
    depth = math.prod(kernel) // max(features, 1)
    pixels = node.array.element_count // max(features, 1)
    return groups, pixels, features // max(groups, 1), depth


def _sort_dims(node: HloInstruction) -> tuple[int, ...]:
    """Lines, and elements of each, of blocks ``[majors, rows, columns]``."""
    majors, rows, columns = node.operands[0].array.dims
    lanes = node.line_lanes
    return majors * columns // max(lanes, 1), rows * lanes


_DIMS: dict[str, Callable[[HloInstruction], tuple[int, ...]]] = {
    "dot": _dot_dims,
    "convolution": _convolution_dims,
    "gather": _gathered,
    "scatter": _scattered,
    "network-sort": _sort_dims,
}
"""Operations that are named whatever they take, and what their dimensions are."""


def _dearest(instr: HloInstruction) -> tuple[OperationFacts, ...]:
    work = [(operations(node), node) for node in inside(instr)]
    ordered = sorted((item for item in work if item[0]), key=lambda item: -item[0])
    return tuple(
        OperationFacts(
            node.name, node.opcode, _text(leaves(node.shape)[0]), (), 0, count, marks_of(node)
        )
        for count, node in ordered[:_MOST_OPERATIONS]
    )


def _moves(instr: HloInstruction) -> tuple[OperationFacts, ...]:
    """What moves most elements."""
    nodes = [node for node in (instr, *inside(instr)) if _does_move(node)]
    ordered = sorted(nodes, key=lambda node: -node.array.element_count)
    return tuple(
        OperationFacts(node.name, node.opcode, _text(node.array), (node.array.element_count,))
        for node in ordered[:_MOST_MOVES]
    )


def _does_move(node: HloInstruction) -> bool:
    if node.opcode not in _MOVES - _DIMS.keys() or not isinstance(node.shape, ArrayShape):
        return False
    if node.opcode == "reshape":  # others number the rows anew, which moves nothing
        return node.array.dims[-1:] != node.operands[0].array.dims[-1:]
    return node.array.rank > 0
