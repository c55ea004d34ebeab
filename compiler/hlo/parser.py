"""HLO text -> IR: ``parse_module(text)`` reads what XLA prints, and what people write by hand.

The grammar is `grammar.lark`; each instruction is reduced straight to an `HloInstruction`, with
no tree in between. Computations may stand in any order and instructions may refer to later
ones; names need a percent sign nowhere. The order of the text is kept wherever it is already
topological. Every error is a CompileError with file, line, column and what was expected.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import NoReturn

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from compiler.diagnostics import CompileError, SourceText
from compiler.hlo import attribute_text
from compiler.hlo.attribute_text import Reference
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.literal_text import parse_literal
from compiler.hlo.module_tools import post_order
from compiler.hlo.opcodes import OPCODES
from compiler.hlo.shape import Shape, TupleShape, is_compatible
from compiler.hlo.shape_text import parse_shape, print_shape

_IN_WORDS = {
    "ATTRIBUTE": "an attribute (`, name=value`)",
    "CLOSE": "`)`",
    "CLOSE_BODY": "`}`",
    "COLON": "`:`",
    "CONSTANT": "an opcode and `(`",
    "ENTRY": "`ENTRY`",
    "HLO_MODULE": "`HloModule`",
    "LITERAL": "a literal",
    "LPAR": "`(`",
    "NAME": "a name",
    "NAMES": "operand names",
    "OPCODE": "an opcode and `(`",
    "OPEN_BODY": "`{`",
    "RESULT": "an instruction (`%name = ...`)",
    "RPAR": "`)`",
    "SHAPE": "a shape",
    "_COMMA": "`,`",
    "__ANON_0": "`->`",
    "$END": "the end of the file",
}


def parse_module(text: str, file: str = "<text>") -> HloModule:
    """Parse one module; `file` is the name that errors show. Raises CompileError.

    >>> module = parse_module("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
    >>> module.entry.root
    %y = negate(%x)
    """
    source = SourceText(file, text)
    build = _Build(source)
    with _LOCK, _no_cyclic_gc():
        parser = _grammar()
        _DELEGATE.build = build
        try:
            parser.parse(text)
        except UnexpectedInput as error:
            _raise_syntax_error(source, error)
        finally:
            _DELEGATE.build = None
        return build.finish()


@contextmanager
def _no_cyclic_gc() -> Iterator[None]:
    """Parsing makes many objects that all stay alive: collecting meanwhile is wasted time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Build:
    """One module while it is being read: the grammar's callbacks call its methods."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.module = HloModule("module")
        self.computations: dict[str, HloComputation] = {}
        self.entry: HloComputation | None = None
        self.last: HloComputation | None = None
        self.shapes: dict[str, Shape] = {}
        self.attributes: dict[str, tuple[str, object]] = {}
        self.references: list[tuple[HloInstruction | HloModule, str, Reference, int]] = []
        self.environment: dict[str, HloInstruction] = {}
        self.pending: dict[HloInstruction, list[str]] = {}  # operands that stand further down
        self.root: HloInstruction | None = None

    # The header and computations.

    def header(self, name: str, attributes: list[Token]) -> None:
        self.module.name = name
        self.module.attrs = self.read_attributes(attributes, self.module)

    def computation(
        self,
        name: Token,
        is_entry: bool,
        signature: tuple[list[Shape], Shape] | None,
        attributes: list[Token],
    ) -> None:
        offset = name.start_pos or 0
        computation = HloComputation(_bare(name))
        computation.span = self.source.span(offset)
        if computation.name in self.computations:
            self.fail(f"computation %{computation.name} is defined twice", offset)
        if not self.environment:
            self.fail(f"computation %{computation.name} has no instructions", offset)
        for instr in self.environment.values():
            computation.add(instr)
        computation.root = self.root if self.root is not None else instr
        self.resolve_operands(computation)
        self.resolve_predecessors()
        self.check_parameters(computation)
        if signature is not None:
            self.check_signature(computation, *signature)
        self.computations[computation.name] = self.last = computation
        if is_entry:
            if self.entry is not None:
                self.fail(f"a second ENTRY computation: %{self.entry.name} is one", offset)
            self.entry = computation
        if attributes:
            computation.attrs = self.read_attributes(attributes, None)
        self.environment = {}
        self.root = None

    def resolve_operands(self, computation: HloComputation) -> None:
        """Fill in operands that were used before their line; then the order is not the text's."""
        if not self.pending:
            return
        for instr, names in self.pending.items():
            for name in names:
                if name not in self.environment:
                    self.fail_at(instr, f"%{instr.name}: operand %{name} is not defined")
            instr.set_operands(self.environment[name] for name in names)
        self.pending = {}
        computation.sort()

    def resolve_predecessors(self) -> None:
        kept = []
        for item in self.references:
            holder, attribute, reference, _ = item
            if not reference.of_instructions or isinstance(holder, HloModule):
                kept.append(item)
                continue
            missing = [name for name in reference.names if name not in self.environment]
            if missing:
                self.fail_at(holder, f"%{holder.name}: {attribute}: %{missing[0]} is not defined")
            holder.attrs[attribute] = tuple(self.environment[name] for name in reference.names)
        self.references = kept

    def check_parameters(self, computation: HloComputation) -> None:
        for want, parameter in enumerate(computation.parameters):
            number = parameter.attrs["parameter_number"]
            if number != want:
                problem = "appears twice" if want and number == want - 1 else f"but no {want}"
                self.fail_at(parameter, f"%{computation.name}: parameter {number}, {problem}")

    def check_signature(
        self, computation: HloComputation, parameters: list[Shape], result: Shape
    ) -> None:
        if len(parameters) != len(computation.parameters):
            found, want = len(parameters), len(computation.parameters)
            message = f"the signature has {found} parameters, the body has {want}"
            raise CompileError(f"%{computation.name}: {message}", computation.span)
        for shape, parameter in zip(parameters, computation.parameters, strict=True):
            if not is_compatible(shape, parameter.shape):
                self.fail_at(parameter, f"the signature says {print_shape(shape, False)}")
        if not is_compatible(result, computation.root_instruction.shape):
            message = f"the signature's result is {print_shape(result, False)}"
            self.fail_at(computation.root_instruction, message)

    # Instructions.

    def instruction(
        self,
        result: Token,
        shape: Token,
        opcode: str,
        operand_names: list[str],
        attributes: list[Token],
    ) -> HloInstruction:
        offset = result.start_pos or 0
        name = result[: result.index("=")].rstrip()
        is_root = name.startswith("ROOT") and name[4:5].isspace()
        if is_root:
            name = name[4:].lstrip()
        if name[0] == "%":
            name = name[1:]
        environment = self.environment
        if name in environment:
            self.fail(f"%{name} is defined twice in this computation", offset)
        attrs: dict[str, object] = {}
        operands: list[HloInstruction] = []
        pending = None
        if opcode == "parameter":
            attrs["parameter_number"] = self.parameter_number(operand_names, offset)
        else:
            try:
                operands = [environment[operand] for operand in operand_names]
            except KeyError:
                pending = operand_names
            half = self.check_opcode(name, opcode, len(operand_names), offset)
            if half is not None:
                return self.async_half(result, shape, half, operand_names, attributes)
        instr = HloInstruction(opcode, name, self.shape(shape), operands, attrs)
        instr.location = (self.source, offset)
        if attributes:
            attrs.update(self.read_attributes(attributes, instr))
        environment[name] = instr
        if pending is not None:
            self.pending[instr] = pending
        if is_root:
            if self.root is not None:
                self.fail(f"a second ROOT: %{self.root.name} is one", offset)
            self.root = instr
        return instr

    def constant(
        self, result: Token, shape: Token, literal: Token, attributes: list[Token]
    ) -> None:
        instr = self.instruction(result, shape, "constant", [], attributes)
        try:
            value = parse_literal(literal, instr.shape)
        except ValueError as error:
            self.fail(f"%{instr.name}: {error}", literal.start_pos or 0)
        instr.attrs = {"literal": value, **instr.attrs}

    def check_opcode(
        self, name: str, opcode: str, operand_count: int, offset: int
    ) -> tuple[str, str] | None:
        """Refuse what the opcode table does not know; (slice, start) for a ``slice-start``."""
        info = OPCODES.get(opcode)
        if info is None:
            wrapped, _, half = opcode.rpartition("-")
            if wrapped in OPCODES and half in ("start", "update", "done"):
                return wrapped, half
            self.fail(f"%{name}: unknown opcode `{opcode}`", offset)
        if not info.accepts(operand_count):
            message = f"%{name}: {opcode} takes {info.arity_text()}, found {operand_count}"
            self.fail(message, offset)
        return None

    def async_half(
        self,
        result: Token,
        shape: Token,
        half: tuple[str, str],
        operand_names: list[str],
        attributes: list[Token],
    ) -> HloInstruction:
        """Read XLA's short form ``slice-start(x), slice=...`` of an async-start and its callee."""
        wrapped, kind = half
        if kind != "start":
            return self.instruction(result, shape, f"async-{kind}", operand_names, [])
        instr = self.instruction(result, shape, "async-start", operand_names, [])
        elements = instr.shape.elements if isinstance(instr.shape, TupleShape) else ()
        if len(elements) < 2 or not isinstance(elements[0], TupleShape):
            self.fail("want the shape ((operands), result, ...)", shape.start_pos or 0)
        callee = HloComputation(f"{instr.name}.wrapped")
        operands = [
            callee.add(HloInstruction("parameter", f"p{i}", s, (), {"parameter_number": i}))
            for i, s in enumerate(elements[0].elements)
        ]
        root = callee.add(HloInstruction(wrapped, f"{instr.name}.op", elements[1], operands))
        root.location = instr.location
        root.attrs = self.read_attributes(attributes, root)
        callee.root = root
        self.computations[callee.name] = callee
        instr.attrs["calls"] = callee
        return instr

    def parameter_number(self, names: list[str], offset: int) -> int:
        if len(names) != 1 or not names[0].isdigit():
            self.fail("want parameter(N) with the parameter's number", offset)
        return int(names[0])

    def shape(self, token: Token) -> Shape:
        shape = self.shapes.get(token)
        if shape is None:
            try:
                shape = parse_shape(token.strip())
            except ValueError as error:
                self.fail(str(error), token.start_pos or 0)
            self.shapes[str(token)] = shape
        return shape

    def read_attributes(
        self, tokens: list[Token], holder: HloInstruction | HloModule | None
    ) -> dict[str, object]:
        attrs: dict[str, object] = {}
        for token in tokens:
            decoded = self.attributes.get(token)
            if decoded is None:
                decoded = self.decode_attribute(token)
            name, value = decoded
            if name in attrs:
                self.fail(f"attribute {name} is given twice", token.start_pos or 0)
            attrs[name] = value
            if isinstance(value, Reference):
                assert holder is not None
                self.references.append((holder, name, value, token.start_pos or 0))
        return attrs

    def decode_attribute(self, token: Token) -> tuple[str, object]:
        name, _, text = token[1:].partition("=")
        name = name.strip()
        try:
            decoded = (name, attribute_text.decode(name, text.strip()))
        except ValueError as error:
            self.fail(f"attribute {name}: {error}", (token.start_pos or 0) + 2)
        self.attributes[str(token)] = decoded
        return decoded

    # The whole module.

    def finish(self) -> HloModule:
        """Resolve computation names and put callees before callers."""
        for holder, attribute, reference, offset in self.references:
            missing = [name for name in reference.names if name not in self.computations]
            if missing:
                self.fail(f"{attribute}: computation %{missing[0]} is not defined", offset + 2)
            found = tuple(self.computations[name] for name in reference.names)
            holder.attrs[attribute] = found if reference.is_list else found[0]
        entry = self.entry if self.entry is not None else self.last
        assert entry is not None
        for computation in post_order(self.computations.values()):
            self.module.add_computation(computation, keep_names=True)
        self.module.entry_name = entry.name
        return self.module

    def fail_at(self, instr: HloInstruction, message: str) -> NoReturn:
        raise CompileError(message, instr.span)

    def fail(self, message: str, offset: int) -> NoReturn:
        raise CompileError(message, self.source.span(offset))


def _bare(name: str) -> str:
    return name.strip().removeprefix("%")


class _Delegate(Transformer[Token, None]):
    """The grammar's rule callbacks: take a rule's children apart and hand them to the build.

    The LALR tables are built once with this object, so the module being read is a field.
    """

    build: _Build | None = None

    def _current(self) -> _Build:
        assert self.build is not None
        return self.build

    def header(self, children: list[Token]) -> None:
        self._current().header(_bare(children[1]), children[2:])

    def instruction(self, children: list[Token]) -> None:
        opcode = _opcode(children[2])
        names: list[str] = []
        at = 4
        if children[3].type == "NAMES":
            names = _split_names(children[3])
            at = 5
        self._current().instruction(children[0], children[1], opcode, names, children[at:])

    def constant(self, children: list[Token]) -> None:
        self._current().constant(children[0], children[1], children[3], children[5:])

    def with_typed_operands(self, children: list[Token | str]) -> None:
        result, shape, opcode = children[:3]
        assert isinstance(result, Token)
        assert isinstance(shape, Token)
        names = [c for c in children[3:] if not isinstance(c, Token)]
        attributes = [c for c in children[3:] if isinstance(c, Token) and c.type == "ATTRIBUTE"]
        self._current().instruction(result, shape, _opcode(opcode), names, attributes)

    def operand(self, children: list[Token]) -> str:
        return _bare(str(children[-1]))

    def parameter(self, children: list[Token]) -> Shape:
        return self._current().shape(children[1])

    def signature(self, children: list[Token | Shape]) -> tuple[list[Shape], Shape]:
        parameters = [c for c in children if not isinstance(c, Token)]
        result = children[-1]
        assert isinstance(result, Token)
        return parameters, self._current().shape(result)

    def computation(self, children: list[Token | tuple[list[Shape], Shape] | None]) -> None:
        tokens = [c for c in children if isinstance(c, Token)]
        name = next(t for t in tokens if t.type == "NAME")
        attributes = [t for t in tokens if t.type == "ATTRIBUTE"]
        signature = next((c for c in children if isinstance(c, tuple)), None)
        is_entry = tokens[0].type == "ENTRY"
        self._current().computation(name, is_entry, signature, attributes)


def _opcode(token: str) -> str:
    return token[: token.index("(")].rstrip()


def _split_names(token: Token) -> list[str]:
    """``%a, /*index=5*/%b`` -> ``["a", "b"]``."""
    text = token.strip()
    if "/*" in text:
        parts = [part.rpartition("*/")[2] for part in text.split(",")]
    else:
        parts = text.split(",")
    return [part.strip().removeprefix("%") for part in parts]


_DELEGATE = _Delegate()
_LOCK = threading.RLock()


@cache
def _grammar() -> Lark:
    text = resources.files("compiler.hlo").joinpath("grammar.lark").read_text()
    return Lark(text, start="module", parser="lalr", lexer="contextual", transformer=_DELEGATE)


def _raise_syntax_error(source: SourceText, error: UnexpectedInput) -> NoReturn:
    """Say what was expected in the words of the language, not in terminal names."""
    expected: set[str] = set()
    offset = error.pos_in_stream or 0
    if isinstance(error, UnexpectedCharacters):
        expected = set(error.allowed or ())
    elif isinstance(error, UnexpectedToken):
        expected = set(error.accepts or error.expected)
        if error.token.type == "$END":
            offset = len(source.text)
        elif error.token.start_pos is not None:
            offset = error.token.start_pos
    words = sorted({_IN_WORDS.get(name, name) for name in expected})
    want = (
        f": expected {', '.join(words[:-1])}{' or ' if words[1:] else ''}{words[-1]}"
        if words
        else ""
    )
    raise CompileError(f"syntax error{want}", source.span(offset)) from None
