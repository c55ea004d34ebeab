"""Reads ``.llo`` text, line by line; the form is described in `printer`."""

from __future__ import annotations

import re

from compiler.diagnostics import NO_FILE, CompileError, SourceSpan
from compiler.llo.ir import LloBlock, LloKernel, LloWindow
from tpu_sim.isa.errors import AssemblyError
from tpu_sim.isa.instruction import Instr
from tpu_sim.isa.structure_parser import QUOTED, StructureParser, unquoted
from tpu_sim.isa.text import parse_instr

_KERNEL = re.compile(
    rf"kernel ({QUOTED}) args (\d+) flags (\d+) (?:cores (\d+) )?flops (\d+) ops (\d+) least (\d+) "
    rf"variables \[(.*?)\] note ({QUOTED}) {{"
)
_WINDOW = re.compile(rf"window w(\d+) ({QUOTED}) rows (\d+)(?: at (\d+))?")
_SPILL = re.compile(r"spill (\d+)")
_REGISTERS = re.compile(r"registers \[(.*)\]")


def parse_llo(text: str, file: str = NO_FILE) -> LloKernel:
    """The kernel that `text` describes; raises `CompileError` with file and line."""
    parser = _Parser(text, file)
    kernel = parser.read(parser.kernel)
    parser.end("the end of the kernel")
    return kernel


def parse_kernels(text: str, file: str = NO_FILE) -> list[LloKernel]:
    """The kernels of a text, at least one, as `LoweredModule.llo_text` prints them."""
    parser = _Parser(text, file)
    kernels = [parser.read(parser.kernel)]
    while parser.is_more:
        kernels.append(parser.read(parser.kernel))
    return kernels


class _Parser(StructureParser[LloBlock]):
    """The text of kernels."""

    def error(self, message: str, offset: int = 0) -> CompileError:
        """At the present line."""
        number, line, _ = (
            self.lines[min(self.at, len(self.lines) - 1)] if self.lines else (1, "", 1)
        )
        return CompileError(message, SourceSpan(self.file, number, 1, line))

    def kernel(self) -> LloKernel:
        head = self.accept(_KERNEL)
        if head is None:
            self.fail(
                'want kernel "name" args .. flags .. flops .. ops .. least .. '
                'variables [..] note ".." {'
            )
        name, args, flags, cores, flops, ops, least, variables, note = head
        windows: list[LloWindow] = []
        while found := self.accept(_WINDOW):
            self.in_order(found[0], len(windows))
            place = int(found[3]) if found[3] is not None else -1
            windows.append(LloWindow(unquoted(found[1]), int(found[2]), place))
        descriptors = self.descriptors()
        spill = self.accept(_SPILL)
        registers = self.accept(_REGISTERS)
        body = self.body()
        self.close()
        return LloKernel(
            name=unquoted(name),
            arg_count=int(args),
            windows=windows,
            descriptors=descriptors,
            body=body,
            flags=int(flags),
            cores=int(cores or 1),
            variables={int(sreg) for sreg in re.findall(r"s(\d+)", variables)},
            spill_slots=int(spill[0]) if spill else 0,
            registers=_registers(registers[0]) if registers else {},
            flops=int(flops),
            element_ops=int(ops),
            least_bytes=int(least),
            note=unquoted(note),
        )

    def block(self, name: str) -> LloBlock:
        """Operations."""
        ops: list[Instr] = []
        while self.line != "}":
            try:
                ops.append(parse_instr(self.line))
            except AssemblyError as error:
                self.fail(error.message)
            self.at += 1
        self.at += 1
        return LloBlock(ops, name)


def _registers(listed: str) -> dict[int, int]:
    pairs = re.findall(r"s(\d+) = (\d+)", listed)
    return {0: 0} | {int(sreg): int(number) for sreg, number in pairs}
