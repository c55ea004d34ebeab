"""The arrays of a program as values that have a sharding each, and what runs between them.

Instructions that only hand arrays on (tuples, their elements, barriers, a branch's arguments) share
their values. A loop's state is one value for its parameter and its result; what is put into it at
the start and after each turn flows into it along an edge, and so do a conditional's results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from compiler.hlo.iota_order import Ints
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.hlo.sharding import leaf_count
from compiler.sharding.mesh import Axes, DimSharding, Mesh, TensorSharding

Instr = HloInstruction


class ShardedValue:
    """One array, and what is known of its sharding.

    `axes` cut each dimension so far; `is_open` says to which more may be added. `blocked` are
    axes that must not cut it. `waiting` holds what its own sharding gives a dimension at a
    priority whose turn has not come.
    """

    __slots__ = (
        "axes", "blocked", "dims", "is_fixed", "is_open", "manual", "mesh", "number", "unreduced",
        "waiting",
    )  # fmt: skip

    def __init__(self, number: int, dims: Ints) -> None:
        self.number = number
        self.dims = dims
        self.mesh: Mesh | None = None
        self.axes: list[Axes] = [()] * len(dims)
        self.is_open = [True] * len(dims)
        self.blocked: Axes = ()
        self.manual: Axes = ()
        self.unreduced: Axes = ()
        self.waiting: dict[int, list[tuple[int, DimSharding]]] = {}
        self.is_fixed = False

    def fix(self, sharding: TensorSharding) -> None:
        """Take over a sharding that the program states; priorities above 0 wait for their turn."""
        self.is_fixed = True
        self.mesh = sharding.mesh
        self.unreduced = sharding.unreduced
        self.manual = tuple(dict.fromkeys((*self.manual, *sharding.manual)))
        self.blocked = (*sharding.replicated, *sharding.unreduced)
        self.waiting = {}
        for dim, found in enumerate(sharding.dims):
            if found.priority:
                self.waiting.setdefault(found.priority, []).append((dim, found))
                self.axes[dim], self.is_open[dim] = (), False
            else:
                self.axes[dim], self.is_open[dim] = found.axes, found.is_open

    def forget(self) -> None:
        """Take back what the program states."""
        self.is_fixed, self.mesh = False, None
        self.axes, self.is_open = [()] * len(self.dims), [True] * len(self.dims)
        self.blocked, self.unreduced, self.waiting = (), (), {}

    def take_turn(self, priority: int) -> None:
        """Let what waits for this priority count."""
        for dim, found in self.waiting.pop(priority, ()):
            self.axes[dim], self.is_open[dim] = found.axes, found.is_open

    def unusable(self) -> Iterator[Axes]:
        """Axes that may cut no dimension, but those of the dimensions themselves."""
        yield self.blocked
        yield self.manual
        for items in self.waiting.values():
            for _, found in items:
                yield found.axes

    def sharding(self, mesh: Mesh) -> TensorSharding:
        """What has been found, closed."""
        dims = tuple(DimSharding(axes) for axes in self.axes)
        return TensorSharding(self.mesh or mesh, dims, manual=self.manual, unreduced=self.unreduced)


@dataclass
class Edge:
    """Arrays that flow into one value: a loop's state, a conditional's result."""

    sources: list[ShardedValue]
    target: ShardedValue


@dataclass
class Values:
    """The values of all instructions that run as control flow, and the edges between them."""

    of: dict[Instr, list[ShardedValue]] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    count: int = 0

    def fresh(self, shape: Shape) -> list[ShardedValue]:
        """New values for the arrays (and tokens) of a shape."""
        found = []
        for leaf in leaf_shapes(shape):
            dims = leaf.dims if isinstance(leaf, ArrayShape) else ()
            found.append(ShardedValue(self.count, dims))
            self.count += 1
        return found

    def all(self) -> list[ShardedValue]:
        """Each value once, in the order of the program."""
        found = {value.number: value for values in self.of.values() for value in values}
        return [found[number] for number in sorted(found)]

    def operands(self, instr: Instr) -> list[ShardedValue]:
        """The values of all operands' arrays."""
        return [value for operand in instr.operands for value in self.of[operand]]


def leaf_shapes(shape: Shape) -> Iterator[Shape]:
    """The shapes in a shape that are no tuples, tokens too, in order: each has a value of its own."""
    if isinstance(shape, TupleShape):
        for element in shape.elements:
            yield from leaf_shapes(element)
    else:
        yield shape


def values_of(module: HloModule) -> Values:
    """The values of a module whose calls are inlined and whose computations have one caller."""
    found = Values()
    _walk(module.entry, None, found)
    return found


def _walk(
    computation: HloComputation, arguments: list[list[ShardedValue]] | None, found: Values
) -> list[ShardedValue]:
    """Give the instructions of a computation their values; returns those of its root."""
    for instr in computation:
        found.of[instr] = _values(instr, arguments, found)
    return found.of[computation.root_instruction]


def _values(
    instr: Instr, arguments: list[list[ShardedValue]] | None, found: Values
) -> list[ShardedValue]:
    match instr.opcode:
        case "parameter" if arguments is not None:
            number = instr.attrs["parameter_number"]
            assert isinstance(number, int)
            return arguments[number]
        case "tuple":
            return found.operands(instr)
        case "get-tuple-element":
            return _element(instr, found)
        case "opt-barrier" | "domain":
            return found.of[instr.operands[0]]
        case "add-dependency":
            return found.of[instr.operands[0]]
        case "while":
            return _while(instr, found)
        case "conditional":
            return _conditional(instr, found)
    return found.fresh(instr.shape)


def _element(instr: Instr, found: Values) -> list[ShardedValue]:
    (operand,) = instr.operands
    index = instr.attrs["index"]
    assert isinstance(index, int)
    assert isinstance(operand.shape, TupleShape)
    counts = [leaf_count(element) for element in operand.shape.elements]
    start = sum(counts[:index])
    return found.of[operand][start : start + counts[index]]


def _while(instr: Instr, found: Values) -> list[ShardedValue]:
    state = found.fresh(instr.shape)
    body, condition = instr.attrs["body"], instr.attrs["condition"]
    assert isinstance(body, HloComputation)
    assert isinstance(condition, HloComputation)
    _walk(condition, [state], found)
    after = _walk(body, [state], found)
    _add_edges(found, [found.operands(instr), after], state)
    return state


def _conditional(instr: Instr, found: Values) -> list[ShardedValue]:
    results = found.fresh(instr.shape)
    branches = instr.called_computations()
    given = [
        _walk(branch, [found.of[operand]], found)
        for branch, operand in zip(branches, instr.operands[1:], strict=True)
    ]
    _add_edges(found, given, results)
    return results


def _add_edges(
    found: Values, sources: Iterable[list[ShardedValue]], targets: list[ShardedValue]
) -> None:
    for index, target in enumerate(targets):
        arrays = [values[index] for values in sources]
        found.edges.append(Edge([v for v in arrays if v is not target], target))
