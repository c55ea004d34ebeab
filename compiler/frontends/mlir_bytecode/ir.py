"""The operations of a bytecode file: regions, blocks, values by number.

A value's number counts from the beginning of the nearest region that sees nothing of what is around it (a
function's body, but any other too that happens not to): first the values of the region itself, then those of
regions within.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from compiler.frontends.mlir_bytecode.container import (
    LAZY_REGIONS,
    PROPERTIES,
    SHORT_ARGUMENTS,
    USE_LISTS,
    Container,
    Section,
    read_section,
)
from compiler.frontends.mlir_bytecode.cursor import Cursor
from compiler.frontends.stablehlo.syntax import Attribute

_ATTRIBUTES, _RESULTS, _OPERANDS, _SUCCESSORS, _REGIONS, _USES, _PROPERTIES = (
    1 << bit for bit in range(7)
)
"""What an operation has, in the mask that stands before it."""

SIZES = "sizes"
"""In place of a name: how many operands, or results, each part of an operation has."""

_CAST = "builtin.unrealized_conversion_cast"
"""Stands between VHLO's types and those of another dialect, which are the same here."""


@dataclass(frozen=True)
class Value:
    """A result or an argument: its name, and the text of its type."""

    name: str
    kind: str


@dataclass(frozen=True)
class Block:
    """The only block of a region."""

    arguments: list[Value]
    argument_locations: list[int | None]
    operations: list[Node]


@dataclass(frozen=True)
class Node:
    """An operation; `results` are (name, count) at most once, `location` is a number of an attribute."""

    name: str
    location: int
    attributes: dict[str, Attribute]
    results: tuple[str, int] | None
    result_kinds: list[str]
    operands: list[Value]
    regions: list[Block | None]


@dataclass
class _Scope:
    """The values that are seen from an isolated region on, by number."""

    values: dict[int, Value] = field(default_factory=dict)
    size: int = 0


class Reader:
    """Reads the operations of a container. Raises ValueError.

    `properties` names the attributes that lie in the so many properties of an operation, with ``?`` behind
    those that may be absent.
    """

    def __init__(
        self, container: Container, properties: Callable[[str, int], tuple[str, ...]]
    ) -> None:
        self._container = container
        self._version = container.version
        self._properties_of = properties
        self._count = 0

    def read(self) -> list[Node]:
        """The operations at the top."""
        cursor = self._container.section(Section.IR)
        return self._block(cursor, _Scope(), [0]).operations

    def _region(self, cursor: Cursor, scope: _Scope) -> Block | None:
        blocks = cursor.count()
        if blocks == 0:
            return None
        if blocks > 1:
            raise ValueError("a region of several blocks")
        first, before = scope.size, scope.size
        scope.size += cursor.number()
        block = self._block(cursor, scope, [first])
        scope.size = before
        return block

    def _block(self, cursor: Cursor, scope: _Scope, following: list[int]) -> Block:
        """A block, whose values have the numbers from `following` on."""
        count, has_arguments = cursor.flagged()
        arguments: list[Value] = []
        locations: list[int | None] = []
        for _ in range(cursor.count() if has_arguments else 0):
            kind, is_located = self._argument(cursor)
            locations.append(cursor.number() if is_located else None)
            arguments.append(self._define(kind, scope, following))
        if has_arguments and self._version >= USE_LISTS and cursor.byte():
            _skip_use_lists(cursor, len(arguments))
        operations = [self._operation(cursor, scope, following) for _ in range(count)]
        return Block(arguments, locations, [op for op in operations if op.name != _CAST])

    def _argument(self, cursor: Cursor) -> tuple[str, bool]:
        if self._version < SHORT_ARGUMENTS:
            return self._container.type(cursor.number()), True
        number, is_located = cursor.flagged()
        return self._container.type(number), is_located

    def _define(self, kind: str, scope: _Scope, following: list[int]) -> Value:
        value = Value(f"%arg{self._count}", kind)
        self._count += 1
        scope.values[following[0]] = value
        following[0] += 1
        return value

    def _operation(self, cursor: Cursor, scope: _Scope, following: list[int]) -> Node:
        container = self._container
        name = container.operation_names[cursor.number()]
        mask = cursor.byte()
        location = cursor.number()
        attributes: dict[str, Attribute] = {}
        if mask & _ATTRIBUTES:
            found = container.attribute(cursor.number())
            attributes |= found if isinstance(found, dict) else {}
        if mask & _PROPERTIES:
            attributes |= self._read_properties(name, cursor.number())
        kinds = [container.type(n) for n in cursor.numbers()] if mask & _RESULTS else []
        results = self._define_results(kinds, scope, following)
        numbers = cursor.numbers() if mask & _OPERANDS else ()
        operands = [scope.values[number] for number in numbers]
        if mask & _SUCCESSORS:
            raise ValueError(f"{name} has successors")
        if mask & _USES and self._version >= USE_LISTS:
            _skip_use_lists(cursor, len(kinds))
        regions = self._regions(cursor, scope) if mask & _REGIONS else []
        if name == _CAST:
            self._forward(operands, kinds, scope, following)
        return Node(name, location, attributes, results, kinds, operands, regions)

    def _define_results(
        self, kinds: list[str], scope: _Scope, following: list[int]
    ) -> tuple[str, int] | None:
        if not kinds:
            return None
        name = f"%{self._count}"
        self._count += 1
        for place, kind in enumerate(kinds):
            own = name if len(kinds) == 1 else f"{name}#{place}"
            scope.values[following[0]] = Value(own, kind)
            following[0] += 1
        return name, len(kinds)

    def _forward(
        self, operands: list[Value], kinds: list[str], scope: _Scope, following: list[int]
    ) -> None:
        """Let the results of a cast, which are the last values, be its operands."""
        if [value.kind for value in operands] != kinds:
            raise ValueError(f"{_CAST} from {[value.kind for value in operands]} to {kinds}")
        for number, value in enumerate(operands, following[0] - len(kinds)):
            scope.values[number] = value

    def _regions(self, cursor: Cursor, scope: _Scope) -> list[Block | None]:
        """The regions; those that see nothing of what is around them are a section together."""
        count, is_isolated = cursor.flagged()
        if is_isolated:
            scope = _Scope()
            if self._version >= LAZY_REGIONS:
                kind, cursor = read_section(cursor)
                if kind != Section.IR:
                    raise ValueError(f"a section {kind} in place of regions")
        if count > cursor.end - cursor.at:
            raise ValueError("more regions than the file has room for")
        return [self._region(cursor, scope) for _ in range(count)]

    def _read_properties(self, name: str, number: int) -> dict[str, Attribute]:
        source = self._container.properties(number)
        if self._version < PROPERTIES:
            raise ValueError("properties in a version without them")
        numbers = []
        while not source.is_done:
            numbers.append(source.number())
        names = self._properties_of(name, len(numbers))
        keys = [key for key in names if key != SIZES]
        if _without_sizes(numbers, len(keys), len(names) - len(keys)):
            raise ValueError(f"{name} has properties that are not known")
        found: dict[str, Attribute] = {}
        for key, own in zip(keys, numbers, strict=False):
            if not key.endswith("?"):
                found[key] = self._container.attribute(own)
            elif own & 1:
                found[key.removesuffix("?")] = self._container.attribute(own >> 1)
        return found


def _without_sizes(numbers: list[int], start: int, count: int) -> list[int]:
    """What is left of `numbers` behind `count` lists of sizes that begin at `start`.

    Sizes say which operands and results belong together; where most are 0, only the others are there, behind
    how many bits their places take.
    """
    rest = numbers[start:]
    if len(numbers) < start + count:
        raise ValueError("properties end too early")
    for _ in range(count):
        length, is_sparse = divmod(rest[0], 2)
        rest = rest[1 + length + (1 if is_sparse and length else 0) :]
    return rest


def _skip_use_lists(cursor: Cursor, count: int) -> None:
    """Pass the orders in which values are used, which mean nothing to what is computed."""
    for _ in range(1 if count == 1 else cursor.count()):
        if count > 1:
            cursor.number()
        indices, _ = cursor.flagged()
        for _ in range(indices):
            cursor.number()
