"""MLIR text -> `Document`, by the LALR grammar in `grammar.lark`, with no tree in between."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from lark import Lark, Token, Transformer, UnexpectedInput

from compiler.diagnostics import NO_FILE, SourceText
from compiler.frontends.stablehlo import pretty
from compiler.frontends.stablehlo.dense import float_attribute, integer
from compiler.frontends.stablehlo.locations import attach_locations
from compiler.frontends.stablehlo.resources import put_in_place, with_bytes, without_resources
from compiler.frontends.stablehlo.syntax import (
    Attribute,
    Dense,
    Document,
    Operation,
    Raw,
    Region,
    Symbol,
)
from compiler.frontends.stablehlo.types import find_arrow
from compiler.hlo.parsing import (
    STRING,
    grammar_text,
    nested,
    raise_syntax_error,
    split_top_level,
)
from tpu_sim.isa.collector import no_cyclic_gc

Attributes: TypeAlias = dict[str, Attribute]
Child: TypeAlias = (
    "Token | Attributes | Region | Operation | list[Region] | tuple[tuple[str, str, str], Attributes]"
    " | _Results | _Trailer | None"
)

_IN_WORDS = {
    "ANGLES": "`<...>`",
    "ARGUMENT": "an argument (`%name: type`)",
    "ARGUMENTS": "`(%name: type, ...)`",
    "ARRAY": "`array<...>`",
    "ATTRIBUTE_ALIAS": "an alias (`#name = ...`)",
    "BINDINGS": "`(%name = %value, ...)`",
    "BRACKETS": "`[...]`",
    "CONV_DIMENSIONS": "`[b, 0, f]x[0, i, o]->[b, 0, f]`",
    "DENSE": "`dense<...>`",
    "DIALECT_ATTRIBUTE": "an attribute (`#dialect.name<...>`)",
    "FLOAT": "a number",
    "FUNC": "`func.func`",
    "FUNCTION_TYPE": "a function type",
    "GENERIC": 'an operation (`"dialect.name"(...)`)',
    "INIT": "`(%operand init: %value)`",
    "INTEGER": "a number",
    "KEY": "`name = value`",
    "LABEL": "a block label",
    "LBRACE": "`{`",
    "MESH": "`sdy.mesh`",
    "MODULE": "`module`",
    "OPERATION": "an operation (`dialect.name`)",
    "RBRACE": "`}`",
    "REDUCER": "`reducer`",
    "RESULT": "a result (`%name = ...`)",
    "RETURN": "`return`",
    "SIGNATURE": "a type signature (`: type`)",
    "STATE": "`mhlo.xla.rng_get_and_update_state`",
    "STRING": "a string",
    "STRING_KEY": '`"name" = value`',
    "SYMBOL": "`@name`",
    "TYPE": "a type",
    "TYPE_ALIAS": "an alias (`!name = ...`)",
    "TYPE_SUFFIX": "`: type`",
    "VALUES": "a value (`%name`)",
    "VISIBILITY": "`public` or `private`",
    "WORD": "a word",
    "_ARROW": "`->`",
    "_ATTRIBUTES": "`attributes`",
    "_CLOSE_PROPERTIES": "`}>`",
    "_COMMA": "`,`",
    "_COND": "`cond`",
    "_DO": "`do`",
    "_LPAR": "`(`",
    "_LSQB": "`[`",
    "_OPEN_PROPERTIES": "`<{`",
    "_RPAR": "`)`",
    "_RSQB": "`]`",
    "_SCOPE": "`::`",
    "$END": "the end of the file",
}
_NO_WORDS = ("LOCATION", "LOCATION_ALIAS")
_BALANCED = {
    "BRACKETS": nested(r"\[", r"\]", rf'[^\[\]"]++|{STRING}', 4),
    "NEST": r"\s*" + nested("<", ">", rf'->|[^<>"\-]++|-|{STRING}', 5),
    "_LOCATION": r"\s*loc" + nested(r"\(", r"\)", rf'[^()"]++|{STRING}', 6),
}


def parse_document(text: str, file: str = NO_FILE) -> Document:
    """Parse a file of MLIR; raises CompileError with what was expected where.

    >>> parse_document("func.func @f(%x: tensor<2xf32>) { return }").operations[0].name
    'func.func'
    """
    source = SourceText(file, text)
    text, resources = without_resources(text)
    with _LOCK, no_cyclic_gc():
        parser = _grammar()
        _BUILD.begin(source)
        try:
            parser.parse(text)
            attach_locations(_BUILD.operations, _BUILD.places)
            if resources:
                _BUILD.put_in_place(resources)
        except UnexpectedInput as error:
            raise_syntax_error(error, _IN_WORDS, source, 0, len(text), ignored=_NO_WORDS)
        return _BUILD.finish()


_USE = re.compile(r"%[\w$.\-]+(?:#\d+)?")
_LOCATION = re.compile(r"\s*\bloc\(")
_TYPED = re.compile(r"(%[\w$.\-]+)\s*:\s*")


@dataclass(frozen=True)
class _Results:
    """The results of a function: type texts with attributes."""

    rows: list[tuple[str, Attributes]]


class _Trailer:
    """What follows the signature of a reduce (argument lists, a body) or a while."""

    def __init__(
        self, regions: list[Region], arguments: list[str], attributes: Attributes | None
    ) -> None:
        self.regions = regions
        self.arguments = arguments
        self.attributes = attributes


class _Build(Transformer[Token, None]):
    """The grammar's rule callbacks. The tables are built once with this object."""

    def begin(self, source: SourceText) -> None:
        self.source = source
        self.operations: tuple[Operation, ...] = ()
        self.attribute_aliases: dict[str, Attribute] = {}
        self.type_aliases: dict[str, str] = {}
        self.meshes: dict[str, str] = {}
        self.places: list[tuple[int, str]] = []
        self.locations: dict[str, str] = {}

    def note(self, token: Token) -> Token:
        """A location passes."""
        text = str(token)
        inside = text[text.index("(") + 1 : -1]
        if token.type == "LOCATION_ALIAS":
            self.locations[text[: text.index("=")].strip()] = inside
        else:
            self.places.append((token.start_pos or 0, inside))
        return token

    def put_in_place(self, resources: Mapping[str, str]) -> None:
        """Literals that stand at the end of the text."""
        put_in_place(self.operations, resources)
        for name, value in self.attribute_aliases.items():
            self.attribute_aliases[name] = with_bytes(value, resources)

    def finish(self) -> Document:
        document = Document(
            self.source,
            self.operations,
            self.attribute_aliases,
            self.type_aliases,
            self.meshes,
            self.locations,
        )
        self.begin(SourceText("", ""))
        return document

    def document(self, children: list[Child]) -> None:
        self.operations = tuple(c for c in children if isinstance(c, Operation))

    def alias(self, children: list[Token | Attribute]) -> None:
        name = str(children[0]).rstrip("= \t\n")
        value = children[1]
        if isinstance(children[0], Token) and children[0].type == "TYPE_ALIAS":
            self.type_aliases[name] = str(value)
        else:
            self.attribute_aliases[name] = value

    def mesh(self, children: list[Token]) -> None:
        name, _, value = str(children[0]).partition("=")
        self.meshes[name.split("@", 1)[1].strip().strip('"')] = value.strip()

    # Operations.

    def operation(self, name: Token, first: Token) -> Operation:
        return Operation(name.rstrip(), self.source, first.start_pos or 0)

    def pretty(self, children: list[Child]) -> Operation:
        results, children = _take_results(children)
        name = children[0]
        assert isinstance(name, Token)
        op = self.operation(name, name)
        op.results = results
        trailer = children[-1] if isinstance(children[-1], _Trailer) else None
        items = children[1:-1] if trailer is None else children[1:-2]
        signature = children[-1] if trailer is None else children[-2]
        assert isinstance(signature, Token)
        op.signature = str(signature)
        pretty.normalise(op, items)
        if trailer is not None:
            self.attach(op, trailer)
        return op

    def attach(self, op: Operation, trailer: _Trailer) -> None:
        op.attributes.update(trailer.attributes or {})
        if not trailer.arguments:  # a while: both regions see the names bound to the operands
            bound = [name for name, _ in pretty.bindings(op)]
            for region in trailer.regions:
                region.arguments = [(name, "") for name in bound]
        else:  # a reduce: (%lhs0, %rhs0) (%lhs1, %rhs1) become (%lhs0, %lhs1, %rhs0, %rhs1)
            pairs = [typed_names(text.strip()[1:-1]) for text in trailer.arguments]
            if any(len(pair) != 2 for pair in pairs):
                op.fail("want two arguments per reduced value after `reducer`")
            trailer.regions[0].arguments = [p[0] for p in pairs] + [p[1] for p in pairs]
        op.regions = trailer.regions

    def generic(self, children: list[Child]) -> Operation:
        results, children = _take_results(children)
        name = children[0]
        assert isinstance(name, Token)
        op = self.operation(Token("GENERIC", name[1:-1]), name)
        op.results = results
        for child in children[1:]:
            if isinstance(child, dict):
                op.attributes.update(child)
            elif isinstance(child, list):
                op.regions = child
            elif isinstance(child, Token) and child.type == "VALUES":
                op.operands = _USE.findall(child)
            elif isinstance(child, Token):
                op.signature = str(child)
        if op.name == "func.func":
            generic_function(op)
        elif op.name == "builtin.module":
            op.name = "module"
        elif op.name == "sdy.mesh":
            name_, mesh = op.attributes.get("sym_name"), op.attributes.get("mesh")
            if isinstance(name_, str) and isinstance(mesh, Raw):
                self.meshes[name_] = mesh.text
        return op

    def state(self, children: list[Child]) -> Operation:
        results, children = _take_results(children)
        name, *rest = children
        assert isinstance(name, Token)
        op = self.operation(Token("OPERATION", name.rstrip()), name)
        op.results = results
        op.signature = ": tensor<2xui64>"
        for child in rest:
            if isinstance(child, dict):
                op.attributes.update(child)
        return op

    def returning(self, children: list[Child]) -> Operation:
        first = children[0]
        assert isinstance(first, Token)
        op = self.operation(first, first)
        if len(children) > 2 and isinstance(children[1], Token):
            op.operands = _USE.findall(children[1])
            op.signature = str(children[2])
        return op

    def module(self, children: list[Child]) -> Operation:
        first = children[0]
        assert isinstance(first, Token)
        op = self.operation(Token("MODULE", "module"), first)
        for child in children[1:]:
            if isinstance(child, Token):
                op.attributes["sym_name"] = symbol_name(child)
            elif isinstance(child, dict):
                op.attributes.update(child)
            elif isinstance(child, Region):
                op.regions = [child]
        return op

    def function(self, children: list[Child]) -> Operation:
        first = children[0]
        assert isinstance(first, Token)
        op = self.operation(Token("FUNC", "func.func"), first)
        arguments: list[tuple[str, str, str]] = []
        attributes: list[Attributes] = []
        for child in children[1:]:
            if isinstance(child, tuple):
                arguments.append(child[0])
                attributes.append(child[1])
            elif isinstance(child, _Results):
                op.attributes["result_types"] = tuple(Raw(kind) for kind, _ in child.rows)
                op.attributes["res_attrs"] = tuple(attrs for _, attrs in child.rows)
            elif isinstance(child, Region):
                op.regions = [child]
            elif isinstance(child, dict):
                op.attributes.update(child)
            elif isinstance(child, Token) and child.type == "SYMBOL":
                op.attributes["sym_name"] = symbol_name(child)
            elif isinstance(child, Token):
                op.attributes["sym_visibility"] = str(child)
        if op.regions:
            op.regions[0].arguments = [(name, kind) for name, kind, _ in arguments]
            op.regions[0].attributes = attributes
            op.regions[0].locations = {name: where for name, _, where in arguments if where}
        return op

    def argument(self, children: list[Child]) -> tuple[tuple[str, str, str], Attributes]:
        text = str(children[0])
        attributes = children[1] if len(children) > 1 else {}
        assert isinstance(attributes, dict)
        typed = typed_names(text)
        name, kind = typed[0] if typed else ("", text)
        where = _LOCATION.search(text)
        return (name, kind, text[where.end() : -1] if where else ""), attributes

    def result_type(self, children: list[Child]) -> tuple[str, Attributes]:
        attributes = children[1] if len(children) > 1 else {}
        assert isinstance(attributes, dict)
        return str(children[0]), attributes

    def results(self, children: list[tuple[str, Attributes]]) -> _Results:
        return _Results(children)

    def one_result(self, children: list[Token]) -> _Results:
        return _Results([(str(children[0]), {})])

    # Regions.

    def regions(self, children: list[Region]) -> list[Region]:
        return children

    def region(self, children: list[Child]) -> Region:
        arguments: list[tuple[str, str]] = []
        operations: list[Operation] = []
        for child in children:
            if isinstance(child, Operation):
                operations.append(child)
            elif isinstance(child, Token) and child.type == "LABEL":
                arguments = typed_names(child[child.find("(") + 1 :]) if "(" in child else []
        return Region(arguments, operations)

    def item_region(self, children: list[Child]) -> Region:
        arguments, region = children
        assert isinstance(arguments, Token)
        assert isinstance(region, Region)
        region.arguments = typed_names(arguments.strip()[1:-1])
        return region

    def labelled_region(self, children: list[Child]) -> Region:
        region = self.region(children)
        region.attributes = [child for child in children if isinstance(child, dict)]
        return region

    def reducer(self, children: list[Child]) -> _Trailer:
        region = children[-1]
        assert isinstance(region, Region)
        return _Trailer([region], [str(c) for c in children[1:-1]], None)

    def loop(self, children: list[Child]) -> _Trailer:
        attributes = children[0] if isinstance(children[0], dict) else None
        return _Trailer([c for c in children if isinstance(c, Region)], [], attributes)

    # Attributes.

    def dictionary(self, children: list[Token | tuple[str, Attribute]]) -> Attributes:
        return dict(c for c in children if not isinstance(c, Token))

    properties = dictionary

    def entry(self, children: list[Attribute]) -> tuple[str, Attribute]:
        key = str(children[0]).rstrip("= \t\n")
        return (key[1:-1] if key.startswith('"') else key), children[1]

    def unit_entry(self, children: list[Token]) -> tuple[str, Attribute]:
        return str(children[0]).strip('"'), True

    def scalar(self, children: list[Token]) -> Attribute:
        token = children[0]
        suffix = str(children[1])[1:].strip() if len(children) > 1 else ""
        match token.type:
            case "INTEGER":
                value = integer(token)
                return float_attribute(value, suffix) if suffix.startswith(("f", "bf")) else value
            case "FLOAT":
                return float(token)
            case "STRING":
                return unquote(token)
        return Dense(str(token), suffix)

    def word(self, children: list[Token]) -> Attribute:
        text = str(children[0])
        return {"true": True, "false": False, "unit": True}.get(text, Raw(text))

    def symbol(self, children: list[Token]) -> Attribute:
        return Symbol(symbol_name(children[-1]))

    def sequence(self, children: list[Attribute]) -> Attribute:
        return tuple(children)

    def nested(self, children: list[Attribute]) -> Attribute:
        return children[0]


def typed_names(text: str) -> list[tuple[str, str]]:
    """``%a: tensor<2xf32>, %b: i1`` -> names with their type texts."""
    found = list(_TYPED.finditer(text))
    ends = [m.start() for m in found[1:]] + [len(text)][: len(found)]
    return [(m[1], _type_only(text[m.end() : end])) for m, end in zip(found, ends, strict=True)]


def _type_only(text: str) -> str:
    """Drop a location, a comma or a closing parenthesis after a type."""
    return _LOCATION.split(text, maxsplit=1)[0].rstrip(" \t\n,):")


def unquote(text: str) -> str:
    """The value of a quoted MLIR string."""
    inside = text[1:-1]
    if "\\" not in inside:
        return inside
    return re.sub(r"\\([0-9A-Fa-f]{2}|.)", _unescape, inside)


def _unescape(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code, 16)) if len(code) == 2 else {"n": "\n", "t": "\t"}.get(code, code)


def symbol_name(token: str) -> str:
    """``@name`` or ``@"name"`` -> name."""
    return unquote(token[1:]) if token[1] == '"' else token[1:]


def _take_results(children: list[Child]) -> tuple[list[tuple[str, int]], list[Child]]:
    first = children[0]
    if not (isinstance(first, Token) and first.type == "RESULT"):
        return [], children
    results = []
    for part in first[: first.rindex("=")].split(","):
        name, _, count = part.strip().partition(":")
        results.append((name, int(count) if count else 1))
    return results, children[1:]


def generic_function(op: Operation) -> None:
    """Give the generic form of a function what the pretty form has."""
    if op.regions and not op.regions[0].operations:
        op.regions = []
    kind = op.attributes.get("function_type")
    if isinstance(kind, Raw):
        results = kind.text[find_arrow(kind.text) + 2 :].strip()
        inside = results[1:-1] if results.startswith("(") else results
        op.attributes["result_types"] = tuple(Raw(part) for part in split_top_level(inside))
    attributes = op.attributes.get("arg_attrs", ())
    if op.regions and isinstance(attributes, tuple):
        op.regions[0].attributes = [a if isinstance(a, dict) else {} for a in attributes]


_BUILD = _Build()
_LOCK = threading.RLock()


@cache
def _grammar() -> Lark:
    notes = {"LOCATION": _BUILD.note, "LOCATION_ALIAS": _BUILD.note}
    return Lark(
        grammar_text("compiler.frontends.stablehlo", _BALANCED),
        start="document",
        parser="lalr",
        lexer="contextual",
        transformer=_BUILD,
        lexer_callbacks=notes,
    )
