"""What the grammar builds: operations with attributes and regions, before any meaning is given.

Both textual forms of an operation become the same record, with the attribute names of the generic
form (`pretty.py` translates). Types are kept as text and decoded once per spelling (`types.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from compiler.diagnostics import CompileError, SourceSpan, SourceText


@dataclass(frozen=True)
class Symbol:
    """``@name``."""

    name: str


@dataclass(frozen=True)
class Dense:
    """``dense<[1, 2]> : tensor<2xi64>``; `type_text` is empty where the signature gives it."""

    text: str
    type_text: str = ""


@dataclass(frozen=True)
class Raw:
    """A bare word, type, ``array<...>`` or ``#dialect.attribute<...>``, verbatim."""

    text: str


Attribute: TypeAlias = (
    "int | float | bool | str | Symbol | Dense | Raw | tuple[Attribute, ...] | dict[str, Attribute]"
)
"""A decoded attribute value; a quoted string is a `str`."""


class Operation:
    """One operation. Operands and results are names; `results` pairs each with its count."""

    __slots__ = (
        "attributes", "location", "name", "offset", "operands", "regions", "results", "signature",
        "source",
    )  # fmt: skip

    def __init__(self, name: str, source: SourceText, offset: int) -> None:
        self.name = name
        self.source = source
        self.offset = offset
        self.results: list[tuple[str, int]] = []
        self.operands: list[str] = []
        self.attributes: dict[str, Attribute] = {}
        self.regions: list[Region] = []
        self.signature = ""
        self.location = ""  # the text of its loc(...), if it has one

    @property
    def span(self) -> SourceSpan:
        """Where it stands in the source."""
        return self.source.span(self.offset)

    @property
    def result_count(self) -> int:
        """How many values it defines."""
        return sum(count for _, count in self.results)

    def fail(self, message: str) -> NoReturn:
        """Refuse this operation."""
        raise CompileError(f"{self.name}: {message}", self.span)


class Region:
    """A single block: its arguments as (name, type text), and its operations."""

    __slots__ = ("arguments", "attributes", "locations", "operations")

    def __init__(self, arguments: list[tuple[str, str]], operations: list[Operation]) -> None:
        self.arguments = arguments
        self.operations = operations
        # The texts of the arguments' locations, by name, where they have any.
        self.locations: dict[str, str] = {}
        # Of function arguments, in order; or what a pretty operation says in front of its region.
        self.attributes: list[dict[str, Attribute]] = []


@dataclass(frozen=True)
class Document:
    """A whole file: top-level operations (a module, or bare functions) and aliases.

    `locations` are those with a name: ``#loc3`` -> ``"f"(#loc1)``.
    """

    source: SourceText
    operations: tuple[Operation, ...]
    attribute_aliases: dict[str, Attribute]
    type_aliases: dict[str, str]
    meshes: dict[str, str]
    locations: dict[str, str]
