"""Reads ``.tpu`` text, line by line; the form is described in `assembly`."""

from __future__ import annotations

import base64
import binascii
import re

from tpu_sim.isa.errors import AssemblyError
from tpu_sim.isa.instruction import Instr
from tpu_sim.isa.program import Block, Bundle, HbmBuffer, Kernel, Program, Route, Window
from tpu_sim.isa.structure_parser import QUOTED, StructureParser, form, unquoted
from tpu_sim.isa.text import parse_instr

_MAX_NOPS = 1 << 24
"""As `MAX_BUNDLES` of `node_json`: a line of text must not take all memory."""
_MAX_SHOWN = 160  # characters of a line in a message
_SPLIT = re.compile(rf"({QUOTED})|;")


_TARGET = form("target Q hbm N smem N args N")
_METADATA = form("metadata Q Q")
_BUFFER = re.compile(form("buffer Q Q N at N size N Q").pattern + rf"(?:\s*host\s*({QUOTED}))?")
_CONSTANT = form("constant at N size N {")
_KERNEL = re.compile(
    form("kernel Q args N flags N").pattern
    + r"(?:\s*cores\s*(\d+))?\s*"
    + form("spill N at N flops N ops N least N note Q {").pattern
)
_WINDOW = re.compile(form("window w# Q rows N + N").pattern + r"(\s*kept)?")
_ROUTE = re.compile(r"route r(\d+) port (\d+) hops (\d+) load (\S+) \[([-\d ]*)\]")
_NOP = form("nop N")


def parse_program(text: str, file: str = "<text>") -> Program:
    """The program that `text` describes; raises `AssemblyError` with file, line and column."""
    parser = _Parser(text, file)
    return parser.read(parser.program)


class _Parser(StructureParser[Block]):
    """A program's text."""

    def program(self) -> Program:
        target, hbm_bytes, smem_words, smem_args = self.expect(_TARGET, "target ...")
        program = Program(unquoted(target), {}, [], [], [], int(hbm_bytes), int(smem_words))
        program.smem_args = int(smem_args)
        while self.line != "main {":
            self._item(program)
        self.at += 1
        program.main = self.body()
        self.close()
        self.end("the end of main")
        return program

    def error(self, message: str, offset: int = 0) -> AssemblyError:
        """What is wrong with the current line."""
        if not self.lines:
            return AssemblyError(message, f"{self.file}:1")
        number, line, column = self.lines[min(self.at, len(self.lines) - 1)]
        start = max(0, offset - _MAX_SHOWN // 2)
        shown = line[start : start + _MAX_SHOWN]
        return AssemblyError(message, f"{self.file}:{number}:{column + offset}", shown)

    def _item(self, program: Program) -> None:
        if found := self.accept(_METADATA):
            program.metadata[unquoted(found[0])] = unquoted(found[1])
        elif found := self.accept(_BUFFER):
            name, kind, index, offset, size, shape, host = found
            program.buffers.append(
                HbmBuffer(
                    unquoted(name),
                    unquoted(kind),
                    int(offset),
                    int(size),
                    unquoted(shape),
                    int(index),
                    unquoted(host) if host else "",
                )
            )
        elif found := self.accept(_ROUTE):
            self.in_order(found[0], len(program.routes))
            port, hops, load = int(found[1]), int(found[2]), float(found[3])
            targets = tuple(int(target) for target in found[4].split())
            program.routes.append(Route(targets, hops, load, port))
        elif found := self.accept(_CONSTANT):
            program.constants.append((int(found[0]), self._data(int(found[1]))))
        elif found := self.accept(_KERNEL):
            kernel = self._kernel(found)
            program.kernels[kernel.name] = kernel
        else:
            self.fail("want metadata, route, buffer, constant, kernel or main")

    def _data(self, size: int) -> bytes:
        chunks: list[bytes] = []
        while self.line != "}":
            try:
                chunks.append(base64.b64decode(self.line, validate=True))
            except (binascii.Error, ValueError):
                self.fail("want a line of base64")
            self.at += 1
        self.at += 1
        data = b"".join(chunks)
        if len(data) != size:
            self.fail(f"the constant has {len(data)} bytes, want {size}")
        return data

    def _kernel(self, head: tuple[str, ...]) -> Kernel:
        name, args, flags, cores, spill_slots, spill_base, flops, ops, least, note = head
        windows: list[Window] = []
        while found := self.accept(_WINDOW):
            self.in_order(found[0], len(windows))
            place = int(found[2]), int(found[3])
            windows.append(Window(unquoted(found[1]), *place, kept=bool(found[4])))
        descriptors = self.descriptors()
        body = self.body()
        self.close()
        return Kernel(
            name=unquoted(name),
            arg_count=int(args),
            windows=windows,
            descriptors=descriptors,
            body=body,
            spill_slots=int(spill_slots),
            spill_base_row=int(spill_base),
            flags=int(flags),
            cores=int(cores or 1),
            flops=int(flops),
            element_ops=int(ops),
            least_bytes=int(least),
            note=unquoted(note),
        )

    def block(self, name: str) -> Block:
        """Bundles."""
        bundles: list[Bundle] = []
        while self.line != "}":
            if nops := self.accept(_NOP):
                count = int(nops[0])
                if not 0 < count <= _MAX_NOPS:
                    self.fail(f"nop {count}")
                bundles.extend([()] * count)
            else:
                bundles.append(self._bundle())
        self.at += 1
        return Block(bundles, name)

    def _bundle(self) -> Bundle:
        line = self.line
        if not (line.startswith("{ ") and line.endswith(" }")):
            self.fail("want a bundle like { a ; b } or nop n")
        bundle: list[Instr] = []
        at = 0
        for part in split_instructions(line[1:-1]):
            at = line.index(part, at)
            try:
                bundle.append(parse_instr(part))
            except AssemblyError as error:
                self.fail(error.message, at + len(part) - len(part.lstrip()))
        self.at += 1
        return tuple(bundle)


def split_instructions(text: str) -> list[str]:
    """The instructions between the braces of a bundle; ``;`` inside quotes does not split."""
    parts: list[str] = []
    start = 0
    for match in _SPLIT.finditer(text):
        if match.group(1) is None:
            parts.append(text[start : match.start()])
            start = match.end()
    return [part for part in (*parts, text[start:]) if part.strip()]
