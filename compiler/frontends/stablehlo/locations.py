"""``loc(...)``: where an operation comes from in a framework's source, and HLO metadata made of it.

    loc("jit(f)/add"(#loc7))                     a name for the operation, around where it stands
    loc("model.py":12:4 to :20)                  a place
    loc(callsite("f"(#loc3) at "main"(#loc1)))   a frame and who called it: the place is the inner one
    loc(fused["a"(#loc1), "b"(#loc2)])           several origins at once
    loc(#loc8), loc(unknown)

Names inside a call site are of functions; the outermost name is the operation's, as in XLA's import.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from compiler.frontends.stablehlo.syntax import Operation
from compiler.hlo.escapes import quote
from tpu_sim.isa.origins import Origin

_TOKEN = re.compile(
    r'\s*("(?:[^"\\]|\\.)*"|#[\w$.\-]+|callsite|fused|unknown|at\b|to\b|\d+|<|.)', re.S
)
_HEX = re.compile(r"\\([0-9A-Fa-f]{2}|.)")
MOST_DEPTH = 400
"""Frames behind each other that are followed."""


def attach_locations(operations: Sequence[Operation], places: Sequence[tuple[int, str]]) -> None:
    """Give operations the locations (offset, text) that stand behind them.

    One stands behind the operation it is of, after all that is in the operation's regions.
    """
    if not places:
        return
    opened = sorted(op.offset for op in _all(operations))
    following = dict(zip(opened, [*opened[1:], 1 << 62], strict=True))
    at = 0
    for op, last in _inner_first(operations):
        while at < len(places) and places[at][0] < last:
            at += 1
        if at < len(places) and places[at][0] < following[last]:
            op.location = places[at][1]
            at += 1


def _all(operations: Sequence[Operation]) -> Iterator[Operation]:
    for op, _ in _inner_first(operations):
        yield op


def _inner_first(operations: Sequence[Operation]) -> Iterator[tuple[Operation, int]]:
    """Each operation after those in its regions, with the offset of the last of these (or its own)."""
    for op in operations:
        last = op.offset
        for region in op.regions:
            for inner, end in _inner_first(region.operations):
                last = max(last, end)
                yield inner, end
        yield op, last


class Locations:
    """The locations of a document as HLO metadata; `aliases` are those with a name."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._aliases = aliases
        self._known: dict[str, tuple[Origin, ...]] = {}

    def metadata(self, text: str) -> list[str]:
        """The metadata texts of a location, one for each origin; none where it says nothing."""
        return [text for text in map(metadata_text, self.origins(text)) if text]

    def origins(self, text: str) -> tuple[Origin, ...]:
        """The origins of the text inside of ``loc(...)``."""
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = tuple(dict.fromkeys(_Reader(text, self._aliases, 0).read()))
        return found


@lru_cache(maxsize=16384)
def metadata_text(origin: Origin) -> str:
    """``{op_name="f/add" source_file="f.py" source_line=3}``, or nothing for an origin of nothing."""
    parts = [f"op_name={quote(origin.op_name)}"] if origin.op_name else []
    parts += [f"source_file={quote(origin.file)}"] if origin.file else []
    parts += [f"source_line={origin.line}"] if origin.file and origin.line else []
    return "{" + " ".join(parts) + "}" if parts else ""


class _Reader:
    """Reads one location; what is not understood says nothing, for origins are notes."""

    def __init__(self, text: str, aliases: Mapping[str, str], depth: int) -> None:
        self._tokens = [found[1] for found in _TOKEN.finditer(text) if found[1].strip()]
        self._at = 0
        self._aliases = aliases
        self._depth = depth

    def read(self) -> list[Origin]:
        """The origins from here on."""
        token = self._take()
        if token.startswith('"'):
            return self._named(_unquoted(token))
        if token.startswith("#"):
            text = self._aliases.get(token)
            if text is None or self._depth > MOST_DEPTH:
                return []
            return _Reader(text, self._aliases, self._depth + 1).read()
        if token == "callsite":
            self._take()
            callee = self.read()
            return [Origin("", origin.file, origin.line) for origin in callee]
        return self._fused() if token == "fused" else []

    def _named(self, text: str) -> list[Origin]:
        if self._peek() == ":":  # a file
            self._take()
            line = self._take()
            return [Origin("", text, int(line) if line.isdecimal() else 0)]
        if self._peek() != "(":
            return [Origin(text)]
        self._take()
        inner = self.read()
        return [Origin(text, origin.file, origin.line) for origin in inner] or [Origin(text)]

    def _fused(self) -> list[Origin]:
        while self._peek() not in ("[", ""):
            self._take()  # what the fusion is tagged with
        self._take()
        found: list[Origin] = []
        while self._peek() not in ("]", ""):
            found += self.read()
            while self._peek() not in (",", "]", ""):
                self._take()
            if self._peek() == ",":
                self._take()
        return found

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._at += 1
        return token


def _unquoted(text: str) -> str:
    return _HEX.sub(lambda f: chr(int(f[1], 16)) if len(f[1]) == 2 else f[1], text[1:-1])
