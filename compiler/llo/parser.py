"""Reads ``.llo`` text, line by line; the form is described in `printer`."""

from __future__ import annotations

import json
import re
from typing import NoReturn

from compiler.diagnostics import CompileError, SourceSpan
from compiler.llo.ir import (
    LloBlock,
    LloIf,
    LloKernel,
    LloLoop,
    LloNode,
    LloWhile,
    LloWindow,
)
from tpu_sim.isa.assembly import COUNT_NAMES, SPACE_NAMES
from tpu_sim.isa.errors import AssemblyError
from tpu_sim.isa.instruction import Instr
from tpu_sim.isa.program import NO_ROUTE, Call, DmaDescriptor, DmaDim
from tpu_sim.isa.text import parse_instr

_QUOTED = r'("(?:[^"\\]|\\.)*")'
_SPACES = {name: number for number, name in SPACE_NAMES.items()}
_COUNTS = {name: count for count, name in COUNT_NAMES.items()}

_KERNEL = re.compile(
    rf"kernel {_QUOTED} args (\d+) flags (\d+) flops (\d+) ops (\d+) least (\d+) "
    rf"variables \[(.*?)\] note {_QUOTED} {{"
)
_WINDOW = re.compile(rf"window w(\d+) {_QUOTED} rows (\d+)(?: at (\d+))?")
_DESCRIPTOR = re.compile(
    r"descriptor d(\d+) (\w+) -> (\w+)(?: w(\d+))? chunk (\d+) dims \[(.*)\](?: route (\d+))?"
)
_SPILL = re.compile(r"spill (\d+)")
_REGISTERS = re.compile(r"registers \[(.*)\]")
_DIM = re.compile(r"\s*(c0|c1|-?\d+) x (-?\d+) -> (-?\d+)\s*")
_BLOCK = re.compile(rf"block {_QUOTED} {{")
_LOOP = re.compile(rf"loop s(\d+) = 0 \.\. (s?)(\d+)( parallel)? {_QUOTED} {{")
_IF = re.compile(r"if s(\d+) {")
_WHILE = re.compile(rf"while {_QUOTED} trips (-?\d+) {{")
_DO = re.compile(r"} do s(\d+) {")
_CALL = re.compile(rf"call {_QUOTED} site {_QUOTED}")


def parse_llo(text: str, file: str = "<text>") -> LloKernel:
    """The kernel that `text` describes; raises `CompileError` with file and line."""
    parser = _Parser(text, file)
    kernel = parser.kernel()
    parser.end("the end of the kernel")
    return kernel


def parse_kernels(text: str, file: str = "<text>") -> list[LloKernel]:
    """The kernels of a text, at least one, as `LoweredModule.llo_text` prints them."""
    parser = _Parser(text, file)
    kernels = [parser.kernel()]
    while parser.is_more:
        kernels.append(parser.kernel())
    return kernels


class _Parser:
    """A cursor over the lines that hold something."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._lines = [
            (number, line.strip())
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip() and not line.strip().startswith("//")
        ]
        self._at = 0

    def kernel(self) -> LloKernel:
        head = self._accept(_KERNEL)
        if head is None:
            self._fail(
                'want kernel "name" args .. flags .. flops .. ops .. least .. '
                'variables [..] note ".." {'
            )
        name, args, flags, flops, ops, least, variables, note = head.groups()
        windows: list[LloWindow] = []
        while found := self._accept(_WINDOW):
            self._in_order(found[1], len(windows))
            place = int(found[4]) if found[4] is not None else -1
            windows.append(LloWindow(_text(found[2]), int(found[3]), place))
        descriptors: list[DmaDescriptor] = []
        while found := self._accept(_DESCRIPTOR):
            self._in_order(found[1], len(descriptors))
            descriptors.append(self._descriptor(found))
        spill = self._accept(_SPILL)
        registers = self._accept(_REGISTERS)
        body = self._body()
        self._close()
        return LloKernel(
            name=_text(name),
            arg_count=int(args),
            windows=windows,
            descriptors=descriptors,
            body=body,
            flags=int(flags),
            variables={int(sreg) for sreg in re.findall(r"s(\d+)", variables)},
            spill_slots=int(spill[1]) if spill else 0,
            registers=_registers(registers[1]) if registers else {},
            flops=int(flops),
            element_ops=int(ops),
            least_bytes=int(least),
            note=_text(note),
        )

    @property
    def is_more(self) -> bool:
        """Whether lines are left."""
        return self._at < len(self._lines)

    def end(self, where: str) -> None:
        """Refuse lines that are left."""
        if self.is_more:
            self._fail(f"text after {where}")

    @property
    def _line(self) -> str:
        if self._at >= len(self._lines):
            self._at = len(self._lines) - 1
            self._fail("the text ends too early")
        return self._lines[self._at][1]

    def _fail(self, message: str) -> NoReturn:
        number, line = self._lines[self._at] if self._lines else (1, "")
        raise CompileError(message, SourceSpan(self._file, number, 1, line))

    def _accept(self, form: re.Pattern[str]) -> re.Match[str] | None:
        match = form.fullmatch(self._line)
        if match is not None:
            self._at += 1
        return match

    def _close(self) -> None:
        if self._line != "}":
            self._fail("want }")
        self._at += 1

    def _in_order(self, number: str, want: int) -> None:
        if int(number) != want:
            self._at -= 1
            self._fail(f"number {number}, want {want}: tables are listed in order")

    def _descriptor(self, found: re.Match[str]) -> DmaDescriptor:
        _, source, target, window, chunk, dims_text, route = found.groups()
        self._at -= 1
        if source not in _SPACES or target not in _SPACES:
            self._fail("want the spaces hbm, vmem or smem")
        dims: list[DmaDim] = []
        for item in dims_text.split(",") if dims_text.strip() else ():
            match = _DIM.fullmatch(item)
            if match is None:
                self._fail(f"want a dimension like 4 x 8 -> 16, found {item!r}")
            steps = _COUNTS[match[1]] if match[1] in _COUNTS else int(match[1])
            dims.append(DmaDim(steps, int(match[2]), int(match[3])))
        self._at += 1
        window_id = int(window) if window is not None else -1
        spaces, way = (_SPACES[source], _SPACES[target]), int(route) if route else NO_ROUTE
        return DmaDescriptor(*spaces, int(chunk), tuple(dims), window_id, way)

    def _body(self) -> list[LloNode]:
        nodes: list[LloNode] = []
        while not self._line.startswith("}"):
            nodes.append(self._node())
        return nodes

    def _node(self) -> LloNode:
        if found := self._accept(_BLOCK):
            return LloBlock(self._ops(), _text(found[1]))
        if found := self._accept(_LOOP):
            return self._loop(found)
        if found := self._accept(_IF):
            return self._if(found)
        if found := self._accept(_WHILE):
            return self._while(found)
        if found := self._accept(_CALL):
            return Call(_text(found[1]), _text(found[2]))
        self._fail("want block, loop, if, while, call or }")

    def _ops(self) -> list[Instr]:
        ops: list[Instr] = []
        while self._line != "}":
            try:
                ops.append(parse_instr(self._line))
            except AssemblyError as error:
                self._fail(error.message)
            self._at += 1
        self._at += 1
        return ops

    def _loop(self, found: re.Match[str]) -> LloLoop:
        index, is_dynamic, trip, parallel, name = found.groups()
        body = self._body()
        self._close()
        return LloLoop(
            index=int(index),
            body=body,
            trip=-1 if is_dynamic else int(trip),
            trip_sreg=int(trip) if is_dynamic else -1,
            parallel=parallel is not None,
            name=_text(name),
        )

    def _if(self, found: re.Match[str]) -> LloIf:
        node = LloIf(int(found[1]), self._body())
        if self._line == "} else {":
            self._at += 1
            node.orelse = self._body()
        self._close()
        return node

    def _while(self, found: re.Match[str]) -> LloWhile:
        test = self._body()
        condition = self._accept(_DO)
        if condition is None:
            self._fail("want } do s<n> {")
        body = self._body()
        self._close()
        return LloWhile(test, int(condition[1]), body, _text(found[1]), int(found[2]))


def _registers(listed: str) -> dict[int, int]:
    pairs = re.findall(r"s(\d+) = (\d+)", listed)
    return {0: 0} | {int(sreg): int(number) for sreg, number in pairs}


def _text(quoted: str) -> str:
    return str(json.loads(quoted))
