"""Operand rounding: what products alone read, and round to bf16, is stored so.

    h = f32[4096,3072] tanh(a)            h = f32[4096,3072] tanh(a)
    d = f32[4096,768] dot(h, w)           r = bf16[4096,3072] convert(h)
                                          d = f32[4096,768] dot(r, w)

A product of one pass takes bf16 of f32 operands. If nothing else reads an array, be it in another
order, cut or padded, rounding it where it is made gives the same values for half of the bytes, and no
product has to make its operand ready. Products of more passes read all bits.

What a conditional gives is rounded where its branches make it. What a loop hands on as it is, and its body
only gives to products, is rounded once before the loop: the weights of a recurrent network, of a decoder.
"""

from __future__ import annotations

from compiler.analysis.dot_parts import dot_parts
from compiler.analysis.loop_invariants import is_invariant, state_reads
from compiler.analysis.trip_count import trip_count
from compiler.hlo.call_graph import control_computations
from compiler.hlo.dtypes import BF16, F32
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait, with_any
from compiler.hlo.shape import ArrayShape
from compiler.passes.context import PassContext
from compiler.passes.dimension_order.dots import may_be_in_lanes
from compiler.passes.stacked_view import carry, is_only_caller
from compiler.rewrite import make
from compiler.rewrite.graph import emit, remove_dead, replace

Instr = HloInstruction
_MOVED = with_any(Trait.INDEX_MAP | Trait.PIECEWISE) - with_any(Trait.BOX | Trait.SYMBOLIC)
"""Operations whose results are elements of their operands, at places known beforehand."""
_LEAST_ELEMENTS = 1 << 14
"""Of an array: one more step in a kernel is not worth it for less."""
_LEAST_TRIPS = 3
"""Of a loop that reads an array in each: rounding it before reads and writes it once more."""


def round_operands(module: HloModule, context: PassContext) -> bool:
    """Round the arrays of every computation that only products of one pass read."""
    precision = context.planner.precision
    for computation in control_computations(module):
        finder = _Finder(precision)
        loops = [i for i in computation if i.opcode == "while"]
        carried = sum(_round_invariants(module, loop, finder) for loop in loops)
        context.counts["carried"] += carried
        made = [i for i in computation if _is_made(i) and finder.is_rounded(i)]
        for instr in made:
            _Rounding().round(instr)
        chosen = [
            i
            for i in computation
            if _is_chosen(i) and finder.is_rounded(i) and is_only_caller(module, i)
        ]
        for instr in chosen:
            _Rounding().chosen(instr)
        context.counts["arrays"] += len(made) + len(chosen)
        if made or carried or chosen:
            computation.sort()
    return bool(context.counts["arrays"] or context.counts["carried"])


def _round_invariants(module: HloModule, loop: Instr, finder: _Finder) -> int:
    """Round what a loop only reads, for products, before it; returns how many arrays."""
    root = loop.body.root_instruction
    if loop.operands[0].opcode != "tuple" or root.opcode != "tuple":
        return 0
    found = [n for n in range(len(root.operands)) if _is_rounded_inside(loop, n, finder)]
    trips = trip_count(loop) if found else None
    if (
        not found
        or (trips is not None and trips < _LEAST_TRIPS)
        or not is_only_caller(module, loop)
    ):
        return 0
    for index in found:
        carry(loop, index, _as_bf16(loop.operands[0].operands[index]))
        for value in state_reads(loop.body, index):
            _Rounding().carried(value, root)
    loop.body.sort()
    return len(found)


def _as_bf16(value: Instr) -> Instr:
    """A value rounded: once, whatever reads it."""
    made = (u for u in value.users if u.opcode == "convert" and u.array.dtype == BF16)
    return next(made, None) or make.convert(value, BF16)


def _is_rounded_inside(loop: Instr, index: int, finder: _Finder) -> bool:
    """Whether an element of a loop's state is an f32 array that never changes, and its body rounds."""
    shape = loop.operands[0].operands[index].shape
    if not isinstance(shape, ArrayShape) or shape.dtype != F32:
        return False
    if shape.element_count < _LEAST_ELEMENTS or not is_invariant(loop.body, index):
        return False
    ends = [loop, loop.condition.parameters[0]]
    if any(u.opcode != "get-tuple-element" or u.index == index for e in ends for u in e.users):
        return False
    root = loop.body.root_instruction
    if [o for n, o in enumerate(root.operands) if n != index and o is root.operands[index]]:
        return False
    return all(finder.is_rounded(v, root) for v in state_reads(loop.body, index))


def _is_made(instr: Instr) -> bool:
    """Whether an f32 array is computed here, of more than its own place."""
    if not isinstance(instr.shape, ArrayShape) or instr.array.dtype != F32:
        return False
    op = OPCODES[instr.opcode]
    is_computed = op.has(Trait.ELEMENTWISE) or op.has(Trait.STAGE)
    is_exact = instr.opcode == "convert" and instr.operands[0].array.dtype.bits <= BF16.bits
    return is_computed and not is_exact and instr.array.element_count >= _LEAST_ELEMENTS


def _is_chosen(instr: Instr) -> bool:
    """Whether an f32 array is what one of several branches makes."""
    if instr.opcode != "conditional" or not isinstance(instr.shape, ArrayShape):
        return False
    if instr.array.dtype != F32 or instr.array.element_count < _LEAST_ELEMENTS:
        return False
    branches = instr.called_computations()
    return len(set(branches)) == len(branches)


class _Finder:
    """Which arrays only products of one pass read."""

    def __init__(self, precision: str) -> None:
        self._precision = precision

    def is_rounded(self, value: Instr, root: Instr | None = None) -> bool:
        """Whether all that reads a value rounds it to bf16, or moves it for such a reader; but for the
        `root` of a loop's body, which hands the value on."""
        found: dict[Instr, None] = {value: None}
        pending = [value]
        while pending:
            node = pending.pop()
            computation = node.computation
            if computation is None or computation.root is node or not node.users:
                return False
            if set(node.users) == {root}:
                return False
            for user in node.users:
                if self._rounds(user, node) or (user is root and node is value):
                    continue
                if user.opcode not in _MOVED or user.array.dtype != F32:
                    return False
                if user not in found:
                    found[user] = None
                    pending.append(user)
        return True

    def _rounds(self, user: Instr, node: Instr) -> bool:
        if user.opcode == "convert":
            return user.array.dtype == BF16
        if user.opcode != "dot" or user.array.dtype.bits == 64 or not user.array.dtype.is_float:
            return False
        if may_be_in_lanes(user):
            return False  # it may become arithmetic of all bits
        parts = dot_parts(user, self._precision)
        return all(parts.of(n) == 1 for n, o in enumerate(user.operands) if o is node)


class _Rounding:
    """One array rounded, and what is moved of it."""

    def __init__(self) -> None:
        self._made: dict[Instr, Instr] = {}

    def round(self, value: Instr) -> None:
        """Make all readers of `value` read it in bf16."""
        readers = list(value.users)
        self._made[value] = make.convert(value, BF16)
        self._move(value, readers)

    def carried(self, value: Instr, root: Instr | None) -> None:
        """Make all readers of what control flow hands on but `root` take it as bf16, which it is."""
        value.shape = value.array.with_dtype(BF16)
        self._made[value] = value
        self._move(value, [user for user in value.users if user is not root])

    def chosen(self, conditional: Instr) -> None:
        """Make the branches of a conditional give bf16, and all readers take it."""
        for branch in conditional.called_computations():
            branch.root = make.convert(branch.root_instruction, BF16)
        self.carried(conditional, None)

    def _move(self, node: Instr, readers: list[Instr]) -> None:
        pending = [(node, readers)]
        while pending:
            source, users = pending.pop()
            rounded = self._made[source]
            for user in users:
                if user.opcode == "convert":
                    replace(user, rounded)
                elif user.opcode == "dot":
                    user.set_operands([rounded if o is source else o for o in user.operands])
                elif user not in self._made:
                    operands = [self._bf16(o) for o in user.operands]
                    shape = ArrayShape(BF16, user.array.dims)
                    moved = emit(user, user.opcode, shape, operands, dict(user.attrs))
                    self._made[user] = moved
                    pending.append((user, list(user.users)))
        for moved in reversed(self._made):
            if moved.computation is not None:
                remove_dead(moved)

    def _bf16(self, operand: Instr) -> Instr:
        if operand in self._made:
            return self._made[operand]
        if operand.opcode == "constant" and not operand.array.dims:
            return make.constant(operand, BF16, operand.literal)
        return make.convert(operand, BF16)
