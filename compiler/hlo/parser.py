"""HLO text -> IR: ``parse_module(text)`` reads what XLA prints, and what people write by hand.

The grammar is `grammar.lark`; each instruction is reduced straight to an `HloInstruction`, with
no tree in between. Computations may stand in any order and instructions may refer to later
ones; names need a percent sign nowhere. The order of the text is kept wherever it is already
topological; a name that an earlier computation has gets a number, as in XLA. Every error is a
CompileError with file, line, column and what was expected.
"""

from __future__ import annotations

import threading
from functools import cache

from lark import Lark, Token, Transformer, UnexpectedInput

from compiler.diagnostics import NO_FILE, SourceText
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.parsing import STRING, grammar_text, nested, raise_syntax_error
from compiler.hlo.shape import Shape
from compiler.hlo.text_build import TextBuild
from compiler.hlo.text_parts import NestedOperand, Operand, TypedName, bare, opcode_text
from tpu_sim.isa.collector import no_cyclic_gc

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
    "PARAMETERS": "parameters in parentheses",
    "STACK_FRAMES": "a table of stack frames",
    "_COMMA": "`,`",
    "__ANON_0": "`->`",
    "$END": "the end of the file",
}


def parse_module(text: str, file: str = NO_FILE) -> HloModule:
    """Parse one module; `file` is the name that errors show. Raises CompileError.

    >>> module = parse_module("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
    >>> module.entry.root
    %y = negate(%x)
    """
    source = SourceText(file, text)
    build = TextBuild(source, _read_into)
    with _LOCK, no_cyclic_gc():
        _read_into(text, build)
        return build.finish()


def _read_into(text: str, build: TextBuild) -> None:
    """Parse `text`, which begins at ``build.base`` of the source; may be called while it runs."""
    parser = _grammar()
    outer, _DELEGATE.build = _DELEGATE.build, build
    try:
        parser.parse(text)
    except UnexpectedInput as error:
        raise_syntax_error(error, _IN_WORDS, build.source, build.base, build.base + len(text))
    finally:
        _DELEGATE.build = outer


class _Delegate(Transformer[Token, None]):
    """The grammar's rule callbacks: take a rule's children apart and hand them to the build.

    The LALR tables are built once with this object, so the module being read is a field.
    """

    build: TextBuild | None = None

    def _current(self) -> TextBuild:
        assert self.build is not None
        return self.build

    def header(self, children: list[Token]) -> None:
        self._current().header(bare(children[1]), children[2:])

    def stack_frames(self, children: list[Token]) -> None:
        self._current().stack_frames(children[0])

    def instruction(self, children: list[Token]) -> HloInstruction:
        result, shape, opcode, at = _head(children)
        names: list[str] = []
        if children[at].type == "NAMES":
            names = _split_names(children[at])
            at += 1
        return self._current().instruction(result, shape, opcode, names, children[at + 1 :])

    def constant(self, children: list[Token]) -> HloInstruction:
        return self._current().constant(children[0], children[1], children[3], children[5:])

    def with_operands(self, children: list[Token | Operand]) -> HloInstruction:
        build = self._current()
        tokens = [c for c in children if isinstance(c, Token)]
        result, shape, opcode, _ = _head(tokens)
        offset = result.start_pos or 0
        names = [build.operand_name(c, offset) for c in children if not isinstance(c, Token)]
        attributes = [c for c in tokens if c.type == "ATTRIBUTE"]
        return build.instruction(result, shape, opcode, names, attributes)

    def operand(self, children: list[Token]) -> Operand:
        if len(children) == 2:
            return TypedName(children[0], bare(children[1]))
        if children[0].type == "NAME":
            return bare(children[0])
        return TypedName(children[0], "")

    def nested(self, children: list[Token | Operand]) -> Operand:
        shape = children[0] if _is_token(children[0], "SHAPE") else None
        opcode = children[0] if shape is None else children[1]
        operands: list[Operand] = []
        literal = None
        for child in children:
            if not isinstance(child, Token):
                operands.append(child)
            elif child.type == "NAMES":
                operands.extend(_split_names(child))
            elif child.type == "LITERAL":
                literal = child
        assert isinstance(opcode, Token)
        assert shape is None or isinstance(shape, Token)
        return NestedOperand(shape, opcode, tuple(operands), literal)

    def unnamed(self, children: list[Token | Operand]) -> None:
        build = self._current()
        attributes = [c for c in children if isinstance(c, Token) and c.type == "ATTRIBUTE"]
        rest = [c for c in children if not _is_token(c, "ATTRIBUTE")]
        build.lone_instruction(build.unnamed(self.nested(rest), attributes))

    def lone_start(self, children: list[Token]) -> None:
        self._current().makes_parameters = True

    def lone_instruction(self, children: list[HloInstruction]) -> None:
        self._current().lone_instruction(children[0])

    def signature(self, children: list[Token]) -> Shape:
        return self._current().shape(children[-1])

    def computation(self, children: list[Token | Shape | HloInstruction]) -> None:
        tokens = [c for c in children if isinstance(c, Token)]
        name = next(t for t in tokens if t.type == "NAME")
        attributes = [t for t in tokens if t.type == "ATTRIBUTE"]
        result = next((c for c in children if isinstance(c, Shape)), None)
        is_entry = tokens[0].type == "ENTRY"
        self._current().computation(name, is_entry, result, attributes)


def _head(tokens: list[Token]) -> tuple[Token, Token | None, str, int]:
    """Result, shape (if given) and opcode of a line, and where the rest begins."""
    if tokens[1].type == "SHAPE":
        return tokens[0], tokens[1], opcode_text(tokens[2]), 3
    return tokens[0], None, opcode_text(tokens[1]), 2


def _is_token(child: object, kind: str) -> bool:
    return isinstance(child, Token) and child.type == kind


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
_BALANCED = {  # to a depth that covers JSON configurations, and tuple shapes with tiled layouts
    "BRACES": nested(r"\{", r"\}", rf'[^{{}}"]++|{STRING}', 8),
    "PARENTHESES": nested(r"\(", r"\)", "[^()]++", 6),
}


@cache
def _grammar() -> Lark:
    text = grammar_text("compiler.hlo", _BALANCED)
    return Lark(text, start="module", parser="lalr", lexer="contextual", transformer=_DELEGATE)
