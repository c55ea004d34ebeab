"""What a program's kernels read, make and compute, in the model's own shapes: for reports and advice.

A program keeps them as one text in its metadata (`Program.metadata["facts"]`), by kernel. Nothing of timing
or of values depends on them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

FACTS = "facts"
"""The metadata key."""

STATED_PRECISION = "stated precision"
"""Of a product: the model says how exact it is."""
ONE_HOT_ROWS, ONE_HOT_COLUMNS = "one-hot rows", "one-hot columns"
"""Of a product: rows of the left (columns of the right) operand have at most one element that is not zero."""
COLUMNS = "columns"
"""Of a gather: what it takes lies across the rows of its table, an element in each."""
OUTER_SUM = "outer sum"
"""Of a reduction: it sums polynomials of the elements of two smaller arrays, each with each."""
MODEL_LOOP = "model's loop"
"""Of a loop: the model has it, as a scan or a while loop; a pass made no loop of some other operation."""
LOOKED_UP = "looked up"
"""Of a part of an array that turns of a loop cut out: where, elements of arrays say."""
CHEAPER_ORDER = "cheaper order"
"""Of a product of a product: multiplied in another order it takes fewer multiply-adds."""
PRODUCTS = "products"
"""Of such a reduction: what it sums are products alone, with no sum or difference in them."""


@dataclass(frozen=True)
class ArrayFacts:
    """An array in HBM that a kernel reads or makes: bytes of its elements, and of its whole tiles."""

    shape: str  # "f32[1024,64]"
    minor: int  # elements of its minor dimension as it lies in memory
    bytes: int
    stored_bytes: int

    @property
    def element(self) -> str:
        """The name of the element type."""
        return self.shape.partition("[")[0]


@dataclass(frozen=True)
class OperationFacts:
    """An operation of a kernel.

    `source` is its name in HLO and on the kernel's instructions, `work` its operations on elements. A
    product has `dims` (batch, rows, columns, depth) and `passes` of the matrix unit for each number; one
    that is cheaper in another order has a second row, of the shape that lies between the two products, with
    the multiply-adds of both as stated and in that order. What goes row by row (gather, scatter) has the
    rows, the elements of each, and the rows of the table; a sort its lines and the elements of each; a loop
    that is a kernel its trips (0: not known), the operations on elements of a turn, those of them that
    wait for no turn before, and the operations one after another of its test and of a turn with it, and
    a row for each array that its turns look up, of that array's shape, with the elements that a turn
    takes, those of all, and the parts that a turn takes; what moves elements (transpose, ..) how many.
    `marks` are of those above.
    """

    source: str
    opcode: str
    shape: str
    dims: tuple[int, ...] = ()
    passes: int = 0
    work: int = 0
    marks: tuple[str, ...] = ()

    @property
    def minor(self) -> int:
        """Elements of the last dimension; 0 for a scalar."""
        last = self.shape.rstrip("]").rpartition("[")[2].rpartition(",")[2]
        return int(last) if last.isdigit() else 0


@dataclass(frozen=True)
class KernelFacts:
    """Of one kernel; operations are products, rows and sorts, the dearest on elements, what moves most."""

    arrays: tuple[ArrayFacts, ...] = ()
    operations: tuple[OperationFacts, ...] = ()


def facts_text(facts: Mapping[str, KernelFacts]) -> str:
    """The facts of all kernels as they are kept."""
    rows = {
        name: [
            [list(asdict(array).values()) for array in kernel.arrays],
            [list(asdict(operation).values()) for operation in kernel.operations],
        ]
        for name, kernel in facts.items()
    }
    return json.dumps(rows, separators=(",", ":"))


def kernel_facts(metadata: Mapping[str, str]) -> dict[str, KernelFacts]:
    """The facts by kernel; none where the text is no such table, or there is none."""
    try:
        found = json.loads(metadata.get(FACTS, "{}"))
        return {
            str(name): KernelFacts(
                tuple(_array(*row) for row in arrays), tuple(_operation(*row) for row in operations)
            )
            for name, (arrays, operations) in found.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}  # a program file is not to be trusted, and facts are for reports only


def _array(shape: str, minor: int, size: int, stored: int) -> ArrayFacts:
    return ArrayFacts(str(shape), int(minor), int(size), int(stored))


def _operation(
    source: str,
    opcode: str,
    shape: str,
    dims: list[int],
    passes: int,
    work: int,
    marks: Sequence[str] = (),
) -> OperationFacts:
    numbers, names = tuple(int(dim) for dim in dims), tuple(map(str, marks))
    return OperationFacts(
        str(source), str(opcode), str(shape), numbers, int(passes), int(work), names
    )
