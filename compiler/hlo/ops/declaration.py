"""What a declaration of an opcode says: `Op`, its `Trait`s and the rows of its attributes.

The declarations stand in the families beside this file; `compiler.hlo.opcodes` puts them together.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from compiler.hlo.attributes import Window
from compiler.hlo.ops.inference import Rule


class Trait(enum.Flag):
    """What passes need to know about an opcode, whatever its operands."""

    NONE = 0
    ELEMENTWISE = enum.auto()
    """Each result element depends on the same element of each operand (and nothing else)."""
    COMMUTATIVE = enum.auto()
    """``op(a, b) == op(b, a)``."""
    ASSOCIATIVE = enum.auto()
    """``op(op(a, b), c) == op(a, op(b, c))`` in exact arithmetic."""
    IDEMPOTENT = enum.auto()
    """``op(a, a) == a``."""
    DATA_MOVEMENT = enum.auto()
    """Result elements are copies of operand elements (or of a padding value)."""
    CALLS = enum.auto()
    """Names one or more computations in its attributes."""
    CONTROL_FLOW = enum.auto()
    """Runs its computations as part of the program's control flow (may allocate buffers)."""
    SIDE_EFFECT = enum.auto()
    """Must not be removed, duplicated or reordered against other side effects."""
    NONDETERMINISTIC = enum.auto()
    """Two instances with equal operands may differ, so they must not be merged."""
    COLLECTIVE = enum.auto()
    """Communicates between devices."""
    GROUPED = enum.auto()
    """A collective of groups of devices that is done when it returns."""
    ASYNC = enum.auto()
    """A start, update or done half of an asynchronous operation."""
    CONTRACTION = enum.auto()
    """Multiplies and sums over contracted dimensions: MXU work."""
    REDUCTION = enum.auto()
    """Combines many operand elements into one with `to_apply`."""
    TRANSCENDENTAL = enum.auto()
    """Needs the EUP or a polynomial rather than a VALU instruction."""
    TUPLE_ONLY = enum.auto()
    """Moves no data: builds, takes apart or orders tuples and tokens."""
    GIVEN = enum.auto()
    """Lies in memory before its computation runs."""
    FORWARDS = enum.auto()
    """Its arrays are those of its operands, in their places."""
    SYMBOLIC = enum.auto()
    """A formula of its place and at most one smaller operand: cheaper made again than stored."""
    REARRANGES = enum.auto()
    """All elements of its one operand elsewhere, perhaps repeated; of a scalar, that scalar."""
    TAKES_PART = enum.auto()
    """A part of operand 0 is all it reads of it."""
    INDEX_MAP = enum.auto()
    """Each element is one element of operand 0, at an index that follows from its own."""
    PIECEWISE = enum.auto()
    """Each element is read from one of several places, which conditions on its index choose."""
    BOX = enum.auto()
    """Reads or writes a box of operand 0 that begins where one scalar for each dimension says."""
    UPDATES = enum.auto()
    """Operand 0 but for a part; may be done in its place."""
    EXACT = enum.auto()
    """Of floats it makes values of their type, with nothing to round."""
    ROUNDED = enum.auto()
    """Its floats have no more precision than their type, even where kernels keep more of others."""
    ORDERS = enum.auto()
    """Puts elements in order, by a comparator or by their size."""
    COMBINES = enum.auto()
    """Folds elements together with a computation of scalars."""
    STAGE = enum.auto()
    """A stage of a kernel: whole before anything reads it, and its operands are read in another order."""
    KERNEL = enum.auto()
    """In a finished program, it is a kernel."""
    RUNS = enum.auto()
    """Runs computations on whole values, not on elements."""
    HANDS_STATE = enum.auto()
    """Control flow that hands one value, often a tuple, to each of its computations."""
    UNREAD = enum.auto()
    """XLA's reader of text does not know it: passes make it, or jaxlib's is older."""
    STABLEHLO = enum.auto()
    """StableHLO has an operation of this name, ``_`` for ``-``, with the same operands and no attributes."""
    CHLO = enum.auto()
    """So has its dialect for clients."""
    CARRIES = enum.auto()
    """Computes nothing: its arrays are those of others, or come from outside."""
    OVERLAPS = enum.auto()
    """A collective that may be done in parts, with other kernels between them."""
    OPAQUE = enum.auto()
    """Its value does not follow from operands and attributes."""


VARIADIC = -1


@dataclass(frozen=True)
class AttributeRow:
    """One attribute: `omitted` is the value that is not printed, `filled` stands for absence."""

    name: str
    omitted: object = None
    filled: object = None


def words(names: str) -> tuple[AttributeRow, ...]:
    """Attributes that are printed when they are there."""
    return tuple(AttributeRow(name) for name in names.split())


def flags(names: str) -> tuple[AttributeRow, ...]:
    """Attributes that are printed when they are true."""
    return tuple(AttributeRow(name, omitted=False) for name in names.split())


APPLY = words("to_apply")
DIMENSIONS = (AttributeRow("dimensions", filled=()),)
PRECISION = words("operand_precision algorithm")
WINDOW = (AttributeRow("window", omitted=Window(())),)
CONVOLUTION_GROUPS = (
    AttributeRow("feature_group_count", omitted=1),
    AttributeRow("batch_group_count", omitted=1),
)


@dataclass(frozen=True)
class Op:
    """What the compiler knows of an opcode.

    `arity` is the operand count, or `VARIADIC` with at least `min_arity`. `infer` gives the result's
    shape. `attrs` are its own attributes in the order in which XLA prints them, `unprinted` what XLA
    reads besides. `compiler.hlo.evaluator` holds its meaning:
    the oracle shares nothing with this.
    """

    name: str
    arity: int
    infer: Rule
    traits: Trait = Trait.NONE
    attrs: tuple[AttributeRow, ...] = ()
    unprinted: tuple[str, ...] = ()
    min_arity: int = 0
    max_arity: int | None = None

    def has(self, trait: Trait) -> bool:
        """Whether the opcode has all the given traits."""
        wanted = trait._value_
        return self.traits._value_ & wanted == wanted  # a tenth of what Flag's `in` takes

    def accepts(self, operand_count: int) -> bool:
        """Whether an instruction of this opcode may have so many operands."""
        if self.arity != VARIADIC:
            return operand_count == self.arity
        most = operand_count if self.max_arity is None else self.max_arity
        return self.min_arity <= operand_count <= most

    def arity_text(self) -> str:
        """The operand count in words, for messages."""
        if self.arity != VARIADIC:
            return f"{self.arity} operand{'' if self.arity == 1 else 's'}"
        if self.max_arity is not None:
            return f"{self.min_arity} to {self.max_arity} operands"
        return f"at least {self.min_arity} operand{'' if self.min_arity == 1 else 's'}"


def variadic(
    name: str,
    least: int,
    infer: Rule,
    traits: Trait = Trait.NONE,
    attrs: tuple[AttributeRow, ...] = (),
    unprinted: tuple[str, ...] = (),
    most: int | None = None,
) -> Op:
    """An opcode of any number of operands within bounds."""
    return Op(name, VARIADIC, infer, traits, attrs, unprinted, least, most)
