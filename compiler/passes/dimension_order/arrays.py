"""The arrays of a program's control flow: which are one, and which of their dimensions correspond.

What a loop carries is one array wherever it is named: in the tuple the loop starts from, in its
body and condition, in what the body gives, in the result. Such an array has one order.

Dimensions correspond where an operation takes one along the other: all of an elementwise operation,
those that a broadcast keeps or a reduce leaves. They are best moved together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.passes.dimension_order.forms import ties

Instr = HloInstruction
Leaf = tuple[Instr, int]
HANDED_ON = with_trait(Trait.CARRIES)
"""Operations that compute nothing: their arrays are those of others, or come from outside."""
_ORDERED_TUPLES = HANDED_ON | {"reduce"}


class Classes:
    """Numbers that are joined into classes."""

    def __init__(self) -> None:
        self._parent: list[int] = []

    def new(self) -> int:
        """A class of its own."""
        self._parent.append(len(self._parent))
        return len(self._parent) - 1

    def find(self, item: int) -> int:
        """The number that stands for the class of `item`."""
        while self._parent[item] != item:
            self._parent[item] = item = self._parent[self._parent[item]]
        return item

    def join(self, a: int, b: int) -> None:
        """Make one class of two."""
        self._parent[self.find(a)] = self.find(b)


def array_leaves(shape: Shape) -> Iterator[tuple[int, ArrayShape]]:
    """The arrays of a shape (an array or a flat tuple) by their index."""
    parts = shape.elements if isinstance(shape, TupleShape) else (shape,)
    for index, part in enumerate(parts):
        if isinstance(part, ArrayShape):
            yield index, part


class Arrays:
    """Every array of the control flow by its leaf: an instruction, and an index in its tuple."""

    def __init__(self, module: HloModule) -> None:
        self.computations = control_computations(module)
        self._homes = Classes()
        self._dims = Classes()
        self._number: dict[Leaf, int] = {}
        self._first: dict[Leaf, int] = {}
        self.fixed: set[int] = set()
        self.members: dict[int, list[Leaf]] = {}
        for computation in self.computations:
            for instr in computation:
                for index, shape in array_leaves(instr.shape):
                    self._add((instr, index), shape)
        for computation in self.computations:
            for instr in computation:
                self._join_control(instr)
        for computation in self.computations:
            for instr in computation:
                self._tie(instr)
        self._fix(module.entry)
        for leaf in self._number:
            self.members.setdefault(self.home(*leaf), []).append(leaf)

    def home(self, instr: Instr, index: int = 0) -> int:
        """The array that a leaf is."""
        return self._homes.find(self._number[instr, index])

    def homes_around(self, instr: Instr) -> tuple[int, ...]:
        """The arrays that an instruction takes and gives."""
        leaves = (
            (i, index) for i in (instr, *instr.operands) for index, _ in array_leaves(i.shape)
        )
        return tuple(dict.fromkeys(self.home(*leaf) for leaf in leaves))

    def dim(self, instr: Instr, dim: int, index: int = 0) -> int:
        """The class of one dimension of a leaf."""
        return self._dims.find(self._first[instr, index] + dim)

    def _add(self, leaf: Leaf, shape: ArrayShape) -> None:
        self._number[leaf] = self._homes.new()
        dims = [self._dims.new() for _ in shape.dims]
        self._first[leaf] = dims[0] if dims else -1

    def _same(self, a: Leaf, b: Leaf) -> None:
        if a in self._number and b in self._number:
            self._homes.join(self._number[a], self._number[b])
            self._correspond(a, b)

    def _correspond(self, a: Leaf, b: Leaf) -> None:
        for dim in range(_shape(a).rank):
            self._dims.join(self._first[a] + dim, self._first[b] + dim)

    def _join_control(self, instr: Instr) -> None:
        if instr.opcode == "get-tuple-element":
            index = instr.index
            self._same((instr, 0), (instr.operands[0], index))
        elif instr.opcode == "tuple":
            for index, operand in enumerate(instr.operands):
                if (operand, 0) in self._number and isinstance(operand.shape, ArrayShape):
                    self._correspond((instr, index), (operand, 0))
        elif instr.opcode == "opt-barrier":
            self._join_whole(instr, instr.operands)
        elif instr.opcode == "reduce" and isinstance(instr.shape, TupleShape):
            for index in range(1, len(instr.shape.elements)):
                self._same((instr, 0), (instr, index))
        elif instr.opcode == "while":
            condition, body = instr.condition, instr.body
            state = instr.operands[0]
            others = (state, condition.parameters[0], body.parameters[0], body.root_instruction)
            self._join_whole(instr, others)
        elif instr.opcode == "conditional":
            branches = instr.called_computations()
            self._join_whole(instr, [b.root_instruction for b in branches])
            for branch, operand in zip(branches, instr.operands[1:], strict=True):
                self._join_whole(operand, [branch.parameters[0]])

    def _join_whole(self, instr: Instr, others: Sequence[Instr]) -> None:
        for index, _ in array_leaves(instr.shape):
            for other in others:
                self._same((instr, index), (other, index))

    def _tie(self, instr: Instr) -> None:
        for (slot, dim), (other, other_dim) in ties(instr):
            a = instr if slot < 0 else instr.operands[slot]
            b = instr if other < 0 else instr.operands[other]
            self._dims.join(self._first[a, 0] + dim, self._first[b, 0] + other_dim)

    def _fix(self, entry: HloComputation) -> None:
        """What crosses the program's boundary, and what unknown operations take, stays as it is."""
        ends = [*entry.parameters]
        if isinstance(entry.root_instruction.shape, TupleShape):
            ends.append(entry.root_instruction)
        for end in ends:
            self.fixed.update(self.home(end, index) for index, _ in array_leaves(end.shape))
        for computation in self.computations:
            for instr in computation:
                if isinstance(instr.shape, TupleShape) and not _is_ordered(instr):
                    self.fixed.update(self.home(instr, i) for i, _ in array_leaves(instr.shape))


def _is_ordered(instr: Instr) -> bool:
    """Whether the orders of a tuple's arrays may be chosen: it is no part of another tuple."""
    if instr.opcode not in _ORDERED_TUPLES or instr.opcode == "get-tuple-element":
        return False
    return all(user.opcode != "tuple" for user in instr.users)


def _shape(leaf: Leaf) -> ArrayShape:
    instr, index = leaf
    part = instr.shape.elements[index] if isinstance(instr.shape, TupleShape) else instr.shape
    assert isinstance(part, ArrayShape)
    return part
