"""Reads ``.tpu`` text, line by line; the form is described in `assembly`."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import replace

from tpu_sim.isa.assembly import COUNT_NAMES, SPACE_NAMES
from tpu_sim.isa.errors import AssemblyError
from tpu_sim.isa.instruction import Instr
from tpu_sim.isa.program import (
    NO_ROUTE,
    Block,
    Bundle,
    Call,
    DmaDescriptor,
    DmaDim,
    HbmBuffer,
    If,
    Kernel,
    Loop,
    Node,
    Program,
    Route,
    While,
    Window,
)
from tpu_sim.isa.text import parse_instr

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_MAX_NOPS = 1 << 24
_MAX_SHOWN = 160  # characters of a line in a message
_SPACES = {name: number for number, name in SPACE_NAMES.items()}
_COUNTS = {name: count for count, name in COUNT_NAMES.items()}
_SPLIT = re.compile(rf"({_QUOTED})|;")


def _form(text: str) -> re.Pattern[str]:
    """A line's form: Q is a quoted string, N a number, words and signs stand for themselves."""
    parts = []
    for word in text.split():
        pattern = {"Q": f"({_QUOTED})", "N": r"(-?\d+)"}.get(word)
        if pattern is None:
            pattern = re.sub(r"\\?#", r"(\\d+)", re.escape(word))
        parts.append(pattern)
    return re.compile(r"\s*".join(parts))


_TARGET = _form("target Q hbm N smem N args N")
_METADATA = _form("metadata Q Q")
_BUFFER = re.compile(_form("buffer Q Q N at N size N Q").pattern + rf"(?:\s*host\s*({_QUOTED}))?")
_CONSTANT = _form("constant at N size N {")
_KERNEL = _form("kernel Q args N flags N spill N at N flops N ops N least N note Q {")
_WINDOW = re.compile(_form("window w# Q rows N + N").pattern + r"(\s*kept)?")
_DESCRIPTOR = re.compile(
    r"descriptor d(\d+) (\w+) -> (\w+)(?: w(\d+))? chunk (\d+) dims \[(.*)\](?: route (\d+))?"
)
_ROUTE = re.compile(r"route r(\d+) port (\d+) hops (\d+) load (\S+) \[([-\d ]*)\]")
_DIM = re.compile(r"\s*(c0|c1|-?\d+) x (-?\d+) -> (-?\d+)\s*")
_BLOCK = _form("block Q {")
_LOOP = re.compile(rf"loop s(\d+) = 0 \.\. (\d+|s\d+)( parallel)? ({_QUOTED}) {{")
_IF = _form("if s# {")
_WHILE = _form("while Q trips N {")
_DO = _form("} do s# {")
_CALL = _form("call Q site Q")
_NOP = _form("nop N")


def parse_program(text: str, file: str = "<text>") -> Program:
    """The program that `text` describes; raises `AssemblyError` with file, line and column."""
    parser = _Parser(text, file)
    try:
        return parser.program()
    except (
        ValueError
    ) as error:  # an escape that JSON does not have, a number of thousands of digits
        raise parser.error(str(error)) from error
    except RecursionError as error:
        raise parser.error("the control flow is nested too deep") from error


class _Parser:
    """A cursor over the lines that hold something."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._lines = [
            (number, line.strip(), len(line) - len(line.lstrip()) + 1)
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip() and not line.strip().startswith("//")
        ]
        self._at = 0

    def program(self) -> Program:
        target, hbm_bytes, smem_words, smem_args = self._expect(_TARGET, "target ...")
        program = Program(_text(target), {}, [], [], [], int(hbm_bytes), int(smem_words))
        program.smem_args = int(smem_args)
        while self._line != "main {":
            self._item(program)
        self._at += 1
        program.main = self._body()
        self._close()
        if self._at < len(self._lines):
            self._fail("text after the end of main")
        return program

    @property
    def _line(self) -> str:
        if self._at >= len(self._lines):
            number = self._lines[-1][0] if self._lines else 1
            raise AssemblyError("the text ends too early", f"{self._file}:{number}")
        return self._lines[self._at][1]

    def _fail(self, message: str, offset: int = 0) -> None:
        """Raise for the current line, `offset` characters after its indentation."""
        raise self.error(message, offset)

    def error(self, message: str, offset: int = 0) -> AssemblyError:
        """What is wrong with the current line."""
        if not self._lines:
            return AssemblyError(message, f"{self._file}:1")
        number, line, column = self._lines[min(self._at, len(self._lines) - 1)]
        start = max(0, offset - _MAX_SHOWN // 2)
        shown = line[start : start + _MAX_SHOWN]
        return AssemblyError(message, f"{self._file}:{number}:{column + offset}", shown)

    def _accept(self, form: re.Pattern[str]) -> tuple[str, ...] | None:
        match = form.fullmatch(self._line)
        if match is None:
            return None
        self._at += 1
        return match.groups()

    def _expect(self, form: re.Pattern[str], what: str) -> tuple[str, ...]:
        groups = self._accept(form)
        if groups is None:
            self._fail(f"want {what}")
            raise AssertionError
        return groups

    def _close(self) -> None:
        if self._line != "}":
            self._fail("want }")
        self._at += 1

    def _item(self, program: Program) -> None:
        if found := self._accept(_METADATA):
            program.metadata[_text(found[0])] = _text(found[1])
        elif found := self._accept(_BUFFER):
            name, kind, index, offset, size, shape, host = found
            program.buffers.append(
                HbmBuffer(
                    _text(name),
                    _text(kind),
                    int(offset),
                    int(size),
                    _text(shape),
                    int(index),
                    _text(host) if host else "",
                )
            )
        elif found := self._accept(_ROUTE):
            self._in_order(found[0], len(program.routes))
            port, hops, load = int(found[1]), int(found[2]), float(found[3])
            targets = tuple(int(target) for target in found[4].split())
            program.routes.append(Route(targets, hops, load, port))
        elif found := self._accept(_CONSTANT):
            program.constants.append((int(found[0]), self._data(int(found[1]))))
        elif found := self._accept(_KERNEL):
            kernel = self._kernel(found)
            program.kernels[kernel.name] = kernel
        else:
            self._fail("want metadata, route, buffer, constant, kernel or main")

    def _data(self, size: int) -> bytes:
        chunks: list[bytes] = []
        while self._line != "}":
            try:
                chunks.append(base64.b64decode(self._line, validate=True))
            except (binascii.Error, ValueError):
                self._fail("want a line of base64")
            self._at += 1
        self._at += 1
        data = b"".join(chunks)
        if len(data) != size:
            self._fail(f"the constant has {len(data)} bytes, want {size}")
        return data

    def _kernel(self, head: tuple[str, ...]) -> Kernel:
        name, args, flags, spill_slots, spill_base, flops, ops, least, note = head
        windows: list[Window] = []
        while found := self._accept(_WINDOW):
            self._in_order(found[0], len(windows))
            place = int(found[2]), int(found[3])
            windows.append(Window(_text(found[1]), *place, kept=bool(found[4])))
        descriptors: list[DmaDescriptor] = []
        while found := self._accept(_DESCRIPTOR):
            self._in_order(found[0], len(descriptors))
            descriptors.append(self._descriptor(found))
        body = self._body()
        self._close()
        return Kernel(
            name=_text(name),
            arg_count=int(args),
            windows=windows,
            descriptors=descriptors,
            body=body,
            spill_slots=int(spill_slots),
            spill_base_row=int(spill_base),
            flags=int(flags),
            flops=int(flops),
            element_ops=int(ops),
            least_bytes=int(least),
            note=_text(note),
        )

    def _in_order(self, number: str, want: int) -> None:
        if int(number) != want:
            self._at -= 1
            self._fail(f"number {number}, want {want}: tables are listed in order")

    def _descriptor(self, found: tuple[str, ...]) -> DmaDescriptor:
        _, source, target, window, chunk, dims_text, route = found
        if source not in _SPACES or target not in _SPACES:
            self._at -= 1
            self._fail("want the spaces hbm, vmem or smem")
        dims = []
        for item in dims_text.split(",") if dims_text.strip() else ():
            match = _DIM.fullmatch(item)
            if match is None:
                self._at -= 1
                self._fail(f"want a dimension like 4 x 8 -> 16, found {item!r}")
                raise AssertionError
            count, src_stride, dst_stride = match.groups()
            steps = _COUNTS[count] if count in _COUNTS else int(count)
            dims.append(DmaDim(steps, int(src_stride), int(dst_stride)))
        window_id = int(window) if window is not None else -1
        spaces = (_SPACES[source], _SPACES[target])
        way = int(route) if route is not None else NO_ROUTE
        return DmaDescriptor(*spaces, int(chunk), tuple(dims), window_id, way)

    def _body(self) -> list[Node]:
        nodes: list[Node] = []
        while not self._line.startswith("}"):
            nodes.append(self._node())
        return nodes

    def _node(self) -> Node:
        parsers: tuple[tuple[re.Pattern[str], Callable[[tuple[str, ...]], Node]], ...] = (
            (_BLOCK, self._block),
            (_LOOP, self._loop),
            (_IF, self._if),
            (_WHILE, self._while),
            (_CALL, lambda found: Call(_text(found[0]), _text(found[1]))),
        )
        for form, parse in parsers:
            if found := self._accept(form):
                return parse(found)
        self._fail("want block, loop, if, while, call or }")
        raise AssertionError

    def _block(self, found: tuple[str, ...]) -> Block:
        bundles: list[Bundle] = []
        while self._line != "}":
            if nops := self._accept(_NOP):
                count = int(nops[0])
                if not 0 < count <= _MAX_NOPS:
                    self._fail(f"nop {count}")
                bundles.extend([()] * count)
            else:
                bundles.append(self._bundle())
        self._at += 1
        return Block(bundles, _text(found[0]))

    def _bundle(self) -> Bundle:
        line = self._line
        if not (line.startswith("{ ") and line.endswith(" }")):
            self._fail("want a bundle like { a ; b } or nop n")
        bundle: list[Instr] = []
        at = 0
        for part in split_instructions(line[1:-1]):
            at = line.index(part, at)
            try:
                bundle.append(parse_instr(part))
            except AssemblyError as error:
                self._fail(error.message, at + len(part) - len(part.lstrip()))
        self._at += 1
        return tuple(bundle)

    def _loop(self, found: tuple[str, ...]) -> Loop:
        index, trip, parallel, name = found
        is_dynamic = trip.startswith("s")
        body = self._body()
        self._close()
        return Loop(
            trip=-1 if is_dynamic else int(trip),
            index=int(index),
            body=body,
            trip_sreg=int(trip[1:]) if is_dynamic else -1,
            parallel=parallel is not None,
            name=_text(name),
        )

    def _if(self, found: tuple[str, ...]) -> If:
        node = If(int(found[0]), self._body())
        if self._line == "} else {":
            self._at += 1
            node = replace(node, orelse=self._body())
        self._close()
        return node

    def _while(self, found: tuple[str, ...]) -> While:
        test = self._body()
        (condition,) = self._expect(_DO, "} do s<n> {")
        body = self._body()
        self._close()
        return While(test, int(condition), body, _text(found[0]), int(found[1]))


def split_instructions(text: str) -> list[str]:
    """The instructions between the braces of a bundle; ``;`` inside quotes does not split."""
    parts: list[str] = []
    start = 0
    for match in _SPLIT.finditer(text):
        if match.group(1) is None:
            parts.append(text[start : match.start()])
            start = match.end()
    return [part for part in (*parts, text[start:]) if part.strip()]


def _text(quoted: str) -> str:
    return str(json.loads(quoted))
