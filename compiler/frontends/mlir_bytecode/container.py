"""The sections of a bytecode file: strings, dialects, names of operations, attributes and types by number.

Attributes and types are read when they are asked for, each once. An attribute becomes a value as documents
have them (`stablehlo.syntax`), a type its text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from compiler.frontends.mlir_bytecode.cursor import Cursor
from compiler.frontends.stablehlo.syntax import Attribute, Raw

MAGIC = b"ML\xefR"
NEWEST = 6
"""The last version of the format that is known."""
VERSIONED_DIALECTS, LAZY_REGIONS, USE_LISTS, SHORT_ARGUMENTS, PROPERTIES = 1, 2, 3, 4, 5
"""The versions that brought these."""


class Section(IntEnum):
    """The parts of a file."""

    STRING = 0
    DIALECT = 1
    ATTRIBUTE = 2
    ATTRIBUTE_OFFSET = 3
    IR = 4
    RESOURCE = 5
    RESOURCE_OFFSET = 6
    VERSIONS = 7
    PROPERTIES = 8


@dataclass(frozen=True)
class _Entry:
    """Where an attribute or a type is, and whose."""

    dialect: str
    start: int
    end: int
    is_own_form: bool


@dataclass(frozen=True)
class Forms:
    """How a dialect writes its attributes and types: readers by the code that stands first."""

    attributes: Mapping[int, Callable[[Source], Attribute]]
    types: Mapping[int, Callable[[Source], str]]


class Source(Cursor):
    """A cursor within an attribute, a type or properties, which may refer to others by number."""

    def __init__(self, container: Container, data: bytes, at: int, end: int) -> None:
        super().__init__(data, at, end)
        self.container = container

    def attribute(self) -> Attribute:
        """An attribute by number."""
        return self.container.attribute(self.number())

    def optional_attribute(self) -> Attribute | None:
        """An attribute by number, if there is one."""
        number, is_there = self.flagged()
        return self.container.attribute(number) if is_there else None

    def attributes(self) -> tuple[Attribute, ...]:
        """A list of attributes by number."""
        return tuple(self.container.attribute(number) for number in self.numbers())

    def type(self) -> str:
        """A type by number."""
        return self.container.type(self.number())

    def types(self) -> tuple[str, ...]:
        """A list of types by number."""
        return tuple(self.container.type(number) for number in self.numbers())

    def string(self) -> str:
        """A string by number."""
        return self.container.string(self.number())


class Container:
    """A whole file. Raises ValueError for what is no bytecode of a known version."""

    def __init__(self, data: bytes, forms: Mapping[str, Forms]) -> None:
        self._data = data
        self._forms = forms
        head = Cursor(data)
        if head.take(4) != MAGIC:
            raise ValueError("it does not begin as MLIR bytecode does")
        self.version = head.number()
        if self.version > NEWEST:
            raise ValueError(f"version {self.version} of the format; 0 to {NEWEST} are known")
        producer = data.index(b"\0", head.at)
        self.producer = data[head.at : producer].decode("utf-8", "replace")
        head.at = producer + 1
        self._sections: dict[int, Cursor] = {}
        while not head.is_done:
            kind, section = read_section(head)
            self._sections[kind] = section
        self._strings = self._read_strings()
        self._dialects: list[str] = []
        self.operation_names: list[str] = []
        self._read_dialects()
        self._attribute_entries: list[_Entry] = []
        self._type_entries: list[_Entry] = []
        self._read_offsets()
        self._attributes: dict[int, Attribute] = {}
        self._types: dict[int, str] = {}
        self._properties = self._read_properties()

    def section(self, kind: Section) -> Cursor:
        """A section from its beginning."""
        found = self._sections.get(kind)
        if found is None:
            raise ValueError(f"it has no section {kind.name.lower()}")
        return Cursor(self._data, found.at, found.end)

    @property
    def dialects(self) -> list[str]:
        """The dialects by number."""
        return self._dialects

    def string(self, number: int) -> str:
        """A string; bytes that are no UTF-8 become surrogates."""
        return self._strings[number].decode("utf-8", "surrogateescape")

    def attribute(self, number: int) -> Attribute:
        """An attribute."""
        if number not in self._attributes:
            entry = self._attribute_entries[number]
            self._attributes[number] = self._read(entry, is_type=False)
        return self._attributes[number]

    def type(self, number: int) -> str:
        """The text of a type."""
        if number not in self._types:
            value = self._read(self._type_entries[number], is_type=True)
            if not isinstance(value, str):
                raise ValueError("a type that is none")
            self._types[number] = value
        return self._types[number]

    def properties(self, number: int) -> Source:
        """The properties of an operation."""
        start, end = self._properties[number]
        return Source(self, self._data, start, end)

    def _read(self, entry: _Entry, *, is_type: bool) -> Attribute:
        source = Source(self, self._data, entry.start, entry.end)
        if not entry.is_own_form:
            text = source.take(entry.end - entry.start).rstrip(b"\0").decode("utf-8", "replace")
            return text if is_type else Raw(text)
        forms = self._forms.get(entry.dialect)
        readers = None if forms is None else forms.types if is_type else forms.attributes
        code = source.number()
        if readers is None or code not in readers:
            what = "type" if is_type else "attribute"
            raise ValueError(f"{what} {code} of dialect {entry.dialect} is not known")
        value = readers[code](source)
        if not source.is_done:
            what = "type" if is_type else "attribute"
            raise ValueError(f"{what} {code} of dialect {entry.dialect} is of another version")
        return value

    def _read_strings(self) -> list[bytes]:
        section = self.section(Section.STRING)
        lengths = section.numbers()
        found: list[bytes] = []
        at = section.at + sum(lengths)
        if at != section.end:
            raise ValueError("the strings do not fill their section")
        for length in lengths:  # the last string comes first
            found.append(self._data[at - length : at - 1])
            at -= length
        return found[::-1]

    def _read_dialects(self) -> None:
        section = self.section(Section.DIALECT)
        for _ in range(section.count()):
            name, has_version = section.number(), False
            if self.version >= VERSIONED_DIALECTS:
                name, has_version = name >> 1, bool(name & 1)
            self._dialects.append(self.string(name))
            if has_version:
                read_section(section)
        if self.version >= SHORT_ARGUMENTS:
            section.number()  # how many operations there are
        while not section.is_done:
            dialect = self._dialects[section.number()]
            for _ in range(section.count()):
                number = section.flagged()[0] if self.version >= PROPERTIES else section.number()
                self.operation_names.append(f"{dialect}.{self.string(number)}")

    def _read_offsets(self) -> None:
        section = self.section(Section.ATTRIBUTE_OFFSET)
        data = self.section(Section.ATTRIBUTE)
        counts = section.number(), section.number()
        at = data.at
        for entries, count in zip(
            (self._attribute_entries, self._type_entries), counts, strict=True
        ):
            while len(entries) < count:
                dialect = self._dialects[section.number()]
                for _ in range(section.count()):
                    size, is_own_form = section.flagged()
                    entries.append(_Entry(dialect, at, at + size, is_own_form))
                    at += size
        if at > data.end:
            raise ValueError("attributes reach beyond their section")

    def _read_properties(self) -> list[tuple[int, int]]:
        if Section.PROPERTIES not in self._sections:
            return []
        section = self.section(Section.PROPERTIES)
        found = []
        for _ in range(section.count()):
            size = section.number()
            found.append((section.at, section.at + size))
            section.take(size)
        return found


def read_section(cursor: Cursor) -> tuple[int, Cursor]:
    """The next section: its kind, and a cursor of what it holds."""
    kind = cursor.byte()
    size = cursor.number()
    if kind & 128:
        cursor.skip_to_alignment(cursor.number())
    start = cursor.at
    cursor.take(size)
    return kind & 127, Cursor(cursor.data, start, start + size)
