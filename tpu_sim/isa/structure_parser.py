"""What the texts of programs (``.tpu``) and of LLO (``.llo``) have in common, read line by line.

Both list windows and DMA descriptors by number, and have the same control flow around blocks of
their own. The forms are described in `tpu_sim.isa.assembly`.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

from tpu_sim.isa.assembly import COUNT_NAMES, SPACE_NAMES
from tpu_sim.isa.control_flow import Call, ControlFlow, If, Loop, While
from tpu_sim.isa.program import NO_ROUTE, DmaDescriptor, DmaDim

N = TypeVar("N")
T = TypeVar("T")
Groups = tuple[str, ...]
QUOTED = r'"(?:[^"\\]|\\.)*"'
_SPACES = {name: number for number, name in SPACE_NAMES.items()}
_COUNTS = {name: count for count, name in COUNT_NAMES.items()}


def form(text: str) -> re.Pattern[str]:
    """A line's form: Q is a quoted string, N a number, words and signs stand for themselves."""
    parts = []
    for word in text.split():
        pattern = {"Q": f"({QUOTED})", "N": r"(-?\d+)"}.get(word)
        if pattern is None:
            pattern = re.sub(r"\\?#", r"(\\d+)", re.escape(word))
        parts.append(pattern)
    return re.compile(r"\s*".join(parts))


def unquoted(text: str) -> str:
    """The string of a quoted one; raises ValueError for an escape that JSON does not have."""
    return str(json.loads(text))


_DESCRIPTOR = re.compile(
    r"descriptor d(\d+) (\w+) -> (\w+)(?: w(\d+))? chunk (\d+) dims \[(.*)\](?: route (\d+))?"
)
_DIM = re.compile(r"\s*(c0|c1|-?\d+) x (-?\d+) -> (-?\d+)\s*")
_BLOCK = form("block Q {")
_LOOP = re.compile(rf"loop s(\d+) = 0 \.\. (\d+|s\d+)( parallel)? ({QUOTED}) {{")
_IF = form("if s# {")
_WHILE = form("while Q trips N {")
_DO = form("} do s# {")
_CALL = form("call Q site Q")


class StructureParser(ABC, Generic[N]):
    """A cursor over the lines that hold something, and the control flow of nodes N."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.lines = [
            (number, line.strip(), len(line) - len(line.lstrip()) + 1)
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip() and not line.strip().startswith("//")
        ]
        self.at = 0

    @abstractmethod
    def error(self, message: str, offset: int = 0) -> Exception:
        """What is wrong with the present line, `offset` characters after its indentation."""

    @abstractmethod
    def block(self, name: str) -> N:
        """The block that begins at the present line, up to behind its closing brace."""

    def fail(self, message: str, offset: int = 0) -> NoReturn:
        """Raise for the present line."""
        raise self.error(message, offset)

    def read(self, parse: Callable[[], T]) -> T:
        """What `parse` gives; a number or a string that Python refuses is an error of the text, too."""
        try:
            return parse()
        except ValueError as error:  # an escape that JSON does not have, thousands of digits
            raise self.error(str(error)) from error
        except RecursionError as error:
            raise self.error("the control flow is nested too deep") from error

    @property
    def is_more(self) -> bool:
        """Whether lines are left."""
        return self.at < len(self.lines)

    def end(self, where: str) -> None:
        """Refuse lines that are left."""
        if self.is_more:
            self.fail(f"text after {where}")

    @property
    def line(self) -> str:
        """The present line."""
        if not self.is_more:
            self.at = len(self.lines) - 1
            self.fail("the text ends too early")
        return self.lines[self.at][1]

    def accept(self, pattern: re.Pattern[str]) -> Groups | None:
        """The groups of the present line, and go on, if it has the form."""
        match = pattern.fullmatch(self.line)
        if match is None:
            return None
        self.at += 1
        return match.groups()

    def expect(self, pattern: re.Pattern[str], what: str) -> Groups:
        """The groups of the present line, which must have the form."""
        groups = self.accept(pattern)
        return groups if groups is not None else self.fail(f"want {what}")

    def close(self) -> None:
        """Go past a closing brace."""
        if self.line != "}":
            self.fail("want }")
        self.at += 1

    def in_order(self, number: str, want: int) -> None:
        """Refuse the line before unless it has the number `want`."""
        if int(number) != want:
            self.at -= 1
            self.fail(f"number {number}, want {want}: tables are listed in order")

    def descriptors(self) -> list[DmaDescriptor]:
        """The DMA descriptors that are listed from here on."""
        found: list[DmaDescriptor] = []
        while groups := self.accept(_DESCRIPTOR):
            self.in_order(groups[0], len(found))
            self.at -= 1
            found.append(self._descriptor(groups))
            self.at += 1
        return found

    def _descriptor(self, groups: Groups) -> DmaDescriptor:
        _, source, target, window, chunk, dims_text, route = groups
        if source not in _SPACES or target not in _SPACES:
            self.fail("want the spaces hbm, vmem or smem")
        dims: list[DmaDim] = []
        for item in dims_text.split(",") if dims_text.strip() else ():
            match = _DIM.fullmatch(item)
            if match is None:
                self.fail(f"want a dimension like 4 x 8 -> 16, found {item!r}")
            steps = _COUNTS[match[1]] if match[1] in _COUNTS else int(match[1])
            dims.append(DmaDim(steps, int(match[2]), int(match[3])))
        window_id = int(window) if window is not None else -1
        spaces, way = (_SPACES[source], _SPACES[target]), int(route) if route else NO_ROUTE
        return DmaDescriptor(*spaces, int(chunk), tuple(dims), window_id, way)

    def body(self) -> list[ControlFlow[N]]:
        """The nodes from here on, up to a line that begins with a closing brace."""
        nodes: list[ControlFlow[N]] = []
        while not self.line.startswith("}"):
            nodes.append(self._node())
        return nodes

    def _node(self) -> ControlFlow[N]:
        if found := self.accept(_BLOCK):
            return self.block(unquoted(found[0]))
        if found := self.accept(_LOOP):
            return self._loop(found)
        if found := self.accept(_IF):
            then, orelse = self.body(), []
            if self.line == "} else {":
                self.at += 1
                orelse = self.body()
            self.close()
            return If(int(found[0]), then, orelse)
        if found := self.accept(_WHILE):
            test = self.body()
            (condition,) = self.expect(_DO, "} do s<n> {")
            body = self.body()
            self.close()
            return While(test, int(condition), body, unquoted(found[0]), int(found[1]))
        if found := self.accept(_CALL):
            return Call(unquoted(found[0]), unquoted(found[1]))
        self.fail("want block, loop, if, while, call or }")

    def _loop(self, found: Groups) -> Loop[N]:
        index, trip, parallel, name = found
        is_dynamic = trip.startswith("s")
        body = self.body()
        self.close()
        return Loop(
            trip=-1 if is_dynamic else int(trip),
            index=int(index),
            body=body,
            trip_sreg=int(trip[1:]) if is_dynamic else -1,
            parallel=parallel is not None,
            name=unquoted(name),
        )
