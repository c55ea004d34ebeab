"""What an operation is that costs more than it needs to, as far as its own operands tell: for advice alone.

The marks are names of `tpu_sim.isa.kernel_facts`. Only what lies within one kernel is seen: whoever makes an
operand in another kernel is unknown here, and then nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from compiler.analysis.dot_parts import stated_precision
from compiler.analysis.gather_dims import gather_dims
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.origins import origins_of
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa import kernel_facts as facts

_LOOP = re.compile(r"(^|/)(while|scan)$")
"""How frameworks' names of a loop end."""
_OF_POLYNOMIALS = frozenset({"add", "subtract", "multiply", "negate"})
"""A sum over these of two arrays is a few products: of (x - y)^2 the sums of x^2, x y and y^2."""
_OF_SEVERAL_TERMS = frozenset({"add", "subtract"})
"""A polynomial without these is one product of its arrays' elements."""


def marks_of(node: HloInstruction) -> tuple[str, ...]:
    """The marks of an operation, by its opcode."""
    if OPCODES[node.opcode].has(Trait.CONTRACTION):
        return tuple(_product_marks(node))
    if node.opcode == "while":
        is_models = any(_LOOP.search(origin.op_name) for origin in origins_of(node))
        return (facts.MODEL_LOOP,) if is_models else ()
    if node.opcode == "gather" and _takes_columns(node):
        return (facts.COLUMNS,)
    if node.opcode == "reduce" and _is_outer_sum(node):
        opcodes = {inner.opcode for inner in _polynomial(node.operands[0])}
        products = () if opcodes & _OF_SEVERAL_TERMS else (facts.PRODUCTS,)
        return (facts.OUTER_SUM, *products)
    return ()


def _product_marks(node: HloInstruction) -> Iterator[str]:
    if stated_precision(node) is not None:
        yield facts.STATED_PRECISION
    if node.opcode == "dot":
        contracted = (node.lhs_contracting_dims, node.rhs_contracting_dims)
        for operand, dims, mark in zip(
            node.operands, contracted, (facts.ONE_HOT_ROWS, facts.ONE_HOT_COLUMNS), strict=True
        ):
            if len(dims) == 1 and _is_one_hot(operand, dims[0]):
                yield mark


def _is_one_hot(operand: HloInstruction, along: int) -> bool:
    """Whether along a dimension at most one element is one: where a number equals a counted one."""
    node, dim = _source(operand, along)
    if node.opcode != "compare" or node.direction != "EQ":
        return False
    sides = [_source(side, dim) for side in node.operands]
    are_counted = [side.opcode == "iota" and side.iota_dimension == at for side, at in sides]
    return any(are_counted) and any(_is_alike_along(side, at) for side, at in sides)


def _is_alike_along(node: HloInstruction, dim: int) -> bool:
    if node.opcode == "iota":
        return node.iota_dimension != dim
    return node.opcode == "broadcast" and dim not in node.dimensions


def _source(node: HloInstruction, dim: int) -> tuple[HloInstruction, int]:
    """Whose elements these are, behind changes of type and shape, and which of its dimensions one is."""
    while (before := _dim_before(node, dim)) is not None:
        node, dim = node.operands[0], before
    return node, dim


def _dim_before(node: HloInstruction, dim: int) -> int | None:
    """The dimension of the operand that a dimension of the result comes from; None: of no single one."""
    if node.opcode == "transpose":
        return node.dimensions[dim]
    if node.opcode == "broadcast":
        return node.dimensions.index(dim) if dim in node.dimensions else None
    if node.opcode == "reshape":
        before, after = (_wide_dims(n) for n in (node.operands[0], node))
        is_same = [size for _, size in before] == [size for _, size in after]
        return (
            dict(zip((d for d, _ in after), (d for d, _ in before), strict=True)).get(dim)
            if is_same
            else None
        )
    return dim if node.opcode == "convert" else None


def _wide_dims(node: HloInstruction) -> list[tuple[int, int]]:
    return [(dim, size) for dim, size in enumerate(node.array.dims) if size != 1]


def _takes_columns(node: HloInstruction) -> bool:
    """Whether each slice is one element wide in the last dimension, and has many elements."""
    d = gather_dims(node)
    last = d.operand.array.rank - 1
    return last > 0 and last in d.start_map and d.slice_sizes[last] == 1 < max(d.slice_sizes)


def _is_outer_sum(node: HloInstruction) -> bool:
    """Whether a polynomial of two arrays is summed, each of which lacks a dimension that the other has."""
    if len(node.operands) != 2 or not isinstance(node.shape, ArrayShape):
        return False
    if node.to_apply.root_instruction.opcode != "add":
        return False
    kept = frozenset(range(node.operands[0].array.rank)) - set(node.dimensions)
    lacking = set[frozenset[int]]()
    for leaf in _polynomial(node.operands[0]):
        if _is_inner(leaf):
            continue
        if leaf.opcode != "broadcast":
            return False
        if leaf.operands[0].array.rank:
            lacking.add(kept - set(leaf.dimensions))
    return len(lacking) == 2 and all(lacking) and not frozenset.intersection(*lacking)


def _changes_width(node: HloInstruction) -> bool:
    """Whether floats become other floats, as they do around sums; integers would be cut off."""
    if node.opcode != "convert":
        return False
    return node.array.dtype.is_float and node.operands[0].array.dtype.is_float


def _is_inner(node: HloInstruction) -> bool:
    return node.opcode in _OF_POLYNOMIALS or _changes_width(node)


def _polynomial(root: HloInstruction) -> Iterator[HloInstruction]:
    """The operations of a polynomial, and the leaves that these are about."""
    seen: set[HloInstruction] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if _is_inner(node):
            pending += node.operands
        yield node
