"""Typed reads of an operation's attributes, whatever form the text gave them.

Numbers arrive as ``array<i64: 1, 2>``, ``dense<[1, 2]> : tensor<2xi64>`` or ``[1, 2]``; words as
``#stablehlo<precision HIGHEST>`` or ``HIGHEST``; records as ``#stablehlo.gather<a = [1], b = 2>``.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from compiler.frontends.stablehlo.dense import parse_dense
from compiler.frontends.stablehlo.syntax import Attribute, Dense, Operation, Raw, Symbol
from compiler.frontends.stablehlo.types import Types
from compiler.hlo.parsing import split_top_level
from compiler.hlo.shape import ArrayShape

_NUMBER = re.compile(r"-?\d+")
_BOOLEANS = {"true": 1, "false": 0}


class Attributes:
    """The attributes of one operation, or of a dictionary among them; aliases are resolved, failures name
    the operation."""

    def __init__(
        self,
        op: Operation,
        types: Types,
        aliases: dict[str, Attribute],
        fields: dict[str, Attribute] | None = None,
    ) -> None:
        self._op = op
        self._types = types
        self._aliases = aliases
        self._fields = op.attributes if fields is None else fields

    def get(self, name: str) -> Attribute | None:
        """The value as parsed, or None when it is absent."""
        value = self._fields.get(name)
        if isinstance(value, Raw) and value.text in self._aliases:
            return self._aliases[value.text]
        return value

    def has(self, name: str) -> bool:
        """Whether the attribute is there."""
        return name in self._fields

    def integer(self, name: str, default: int | None = None) -> int:
        """A number."""
        value = self.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, Dense):
            return self.ints(name)[0]
        if not isinstance(value, int):
            self._op.fail(f"want attribute {name} = <number>")
        return int(value)

    def number(self, name: str) -> float:
        """A float (or an integer standing for one)."""
        value = self.get(name)
        if not isinstance(value, int | float):
            self._op.fail(f"want attribute {name} = <number>")
        return float(value)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A truth value; a unit attribute is true when it is there."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._op.fail(f"want attribute {name} = true or false")
        return value

    def ints(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A list of numbers."""
        value = self.get(name)
        if value is None:
            if default is None:
                self._op.fail(f"want attribute {name} = [numbers]")
            return default
        return self._ints(name, value)

    def _ints(self, name: str, value: Attribute) -> tuple[int, ...]:
        if isinstance(value, Raw) and value.text.startswith("array<"):
            try:
                return tuple(_array_elements(value.text))
            except ValueError:
                self._op.fail(f"attribute {name}: want array<type: numbers>, found {value.text}")
        if isinstance(value, Dense):
            return tuple(int(v) for v in self._dense(name, value).reshape(-1).tolist())
        if isinstance(value, tuple) and all(isinstance(v, int) for v in value):
            return tuple(int(v) for v in value if isinstance(v, int))
        self._op.fail(f"want attribute {name} = [numbers]")

    def pairs(self, name: str) -> tuple[tuple[int, ...], ...] | None:
        """Rows of numbers: a rank-2 dense literal or a nested list; None when absent."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, tuple):
            return tuple(self._ints(name, row) for row in value)
        rows = self.array(name)
        if rows.ndim != 2:
            self._op.fail(f"want attribute {name} = [[numbers], ...]")
        return tuple(tuple(int(v) for v in row) for row in rows.tolist())

    def array(self, name: str) -> npt.NDArray[np.generic]:
        """A dense literal with a type of its own."""
        value = self.get(name)
        if not isinstance(value, Dense):
            self._op.fail(f"want attribute {name} = dense<...> : type")
        return self._dense(name, value)

    def _dense(self, name: str, value: Dense) -> npt.NDArray[np.generic]:
        try:
            shape = self._types.type(value.type_text)
            if not isinstance(shape, ArrayShape):
                self._op.fail(f"attribute {name}: {value.type_text} is no tensor type")
            return parse_dense(value.text, shape)
        except ValueError as error:
            self._op.fail(f"attribute {name}: {error}")

    def word(self, name: str, default: str | None = None) -> str:
        """An enumerator: the last word of ``#dialect<kind WORD>``, or the word itself."""
        value = self.get(name)
        if value is None and default is not None:
            return default
        word = word_of(value)
        if word is None:
            self._op.fail(f"want attribute {name} = <word>")
        return word

    def words(self, name: str) -> tuple[str, ...]:
        """A list of enumerators; absent is empty."""
        value = self.get(name)
        if value is None:
            return ()
        found = [word_of(v) for v in value] if isinstance(value, tuple) else [None]
        if None in found:
            self._op.fail(f"want attribute {name} = [words]")
        return tuple(w for w in found if w is not None)

    def string(self, name: str, default: str | None = None) -> str:
        """A quoted string, or the name of a symbol."""
        value = self.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, Symbol):
            return value.name
        if not isinstance(value, str):
            self._op.fail(f'want attribute {name} = "string"')
        return value

    def record(self, name: str) -> Record:
        """``#dialect.name<key = value, ...>`` or a dictionary; absent is empty."""
        return _record(self.get(name))

    def inside(self, name: str) -> Attributes:
        """The attributes in a dictionary; absent is empty."""
        return Attributes(self._op, self._types, self._aliases, self.record(name).fields)


class Record:
    """The fields of a structured attribute."""

    def __init__(self, fields: dict[str, Attribute]) -> None:
        self.fields = fields

    def ints(self, name: str) -> tuple[int, ...]:
        """A list of numbers; absent is empty."""
        value = self.fields.get(name, ())
        if not isinstance(value, tuple):
            return ()
        return tuple(int(v) for v in value if isinstance(v, int))

    def integer(self, name: str, default: int) -> int:
        """A number; absent is `default`."""
        value = self.fields.get(name, default)
        return int(value) if isinstance(value, int) else default

    def word(self, name: str) -> str:
        """A word; absent is empty."""
        return word_of(self.fields.get(name)) or ""

    def record(self, name: str) -> Record:
        """A record in the record; absent is empty."""
        return _record(self.fields.get(name))


def _record(value: Attribute | None) -> Record:
    if isinstance(value, dict):
        return Record(value)
    return Record(_record_fields(value.text) if isinstance(value, Raw) else {})


def word_of(value: Attribute | None) -> str | None:
    """The enumerator in a value, if it is one."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if not isinstance(value, Raw):
        return None
    inside = value.text.partition("<")[2].rstrip("> ") or value.text
    words = inside.split()
    return words[-1] if words else None


def _array_elements(text: str) -> list[int]:
    _, _, values = text[len("array<") : -1].partition(":")
    parts = [part.strip() for part in values.split(",")]
    return [_BOOLEANS[part] if part in _BOOLEANS else int(part) for part in parts if part]


def _record_fields(text: str) -> dict[str, Attribute]:
    inside = text[text.index("<") + 1 : text.rindex(">")] if "<" in text else ""
    fields: dict[str, Attribute] = {}
    for part in split_top_level(inside):
        key, _, value = part.partition("=")
        fields[key.strip()] = _field_value(value.strip())
    return fields


def _field_value(text: str) -> Attribute:
    if text.startswith("["):
        return tuple(_field_value(part.strip()) for part in split_top_level(text[1:-1]))
    if _NUMBER.fullmatch(text):
        return int(text)
    return {"true": True, "false": False}.get(text, Raw(text))
