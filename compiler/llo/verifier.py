"""The invariants of LLO, numbered; `verify_llo` reads only.

L1  operands have the number and range their kinds ask for
L2  a vreg or vmask is written once, and read only later in the block that writes it
L3  an sreg is read only where a write of it has been executed on every path
L4  s0 is never written; only variables are written more than once
L5  every push of the EUP or XLU queue is popped in its block, and no pop comes early
L6  window, descriptor and flag numbers are in the kernel's tables
L7  nothing is read across a call
L8  a spill slot is below the kernel's number of them, and filled in the block that spilled to it
"""

from __future__ import annotations

from compiler.diagnostics import VerifyError
from compiler.llo.ir import (
    ALIAS_STRIDE,
    REGISTER_LETTERS,
    WRITTEN_KINDS,
    LloBlock,
    LloKernel,
    LloNode,
)
from compiler.llo.walk import has_call
from tpu_sim.isa.control_flow import Call, If, Loop, While
from tpu_sim.isa.instruction import Instr, Kind
from tpu_sim.isa.text import format_instr

_RANGES: dict[Kind, tuple[int, int]] = {
    Kind.IMM: (-(1 << 15), (1 << 15) - 1),
    Kind.I32: (-(1 << 31), (1 << 31) - 1),
    Kind.F32: (-(1 << 31), (1 << 32) - 1),
}


def verify_llo(kernel: LloKernel) -> None:
    """Raise `VerifyError` if `kernel` breaks an invariant."""
    _Verifier(kernel).run()


class _Verifier:
    def __init__(self, kernel: LloKernel) -> None:
        self.kernel = kernel
        self.written: set[str] = set()
        self.sregs: set[int] = {0}
        self.stale: set[int] = set()  # written before a call
        self.limits = {
            Kind.WIN: len(kernel.windows),
            Kind.DESC: len(kernel.descriptors),
            Kind.FLAG: kernel.flags,
        }
        self.spilled: set[int] = set()
        self.instr: Instr | None = None

    def run(self) -> None:
        self._nodes(self.kernel.body)

    def _fail(self, number: int, message: str) -> None:
        line = f"\n  > {format_instr(self.instr)}" if self.instr is not None else ""
        raise VerifyError(f"error[L{number}]: kernel {self.kernel.name}: {message}{line}")

    def _nodes(self, body: list[LloNode]) -> None:
        for node in body:
            self.instr = None
            match node:
                case LloBlock():
                    self._block(node)
                case Loop():
                    if node.trip < 0:
                        self._read_sreg(node.trip_sreg)
                    self._scoped(node.body, {node.index})
                case If():
                    self._read_sreg(node.condition)
                    before = set(self.stale)
                    self._scoped(node.then, set())
                    after, self.stale = self.stale, before
                    self._scoped(node.orelse, set())  # a call in one branch is none in the other
                    self.stale |= after
                case While():
                    outer = set(self.sregs)
                    if has_call(node.body):
                        self.stale |= self.sregs - {0}
                    self._nodes(node.test)
                    self.instr = None
                    self._read_sreg(node.condition)
                    self._nodes(node.body)
                    self.sregs = outer
                case Call():
                    self.stale |= self.sregs - {0}

    def _scoped(self, body: list[LloNode], defined: set[int]) -> None:
        outer = set(self.sregs)
        if defined and has_call(body):
            self.stale |= self.sregs - {0}  # the second iteration comes after the call
        for sreg in defined:
            self._write_sreg(sreg)
        self._nodes(body)
        self.sregs = outer

    def _read_sreg(self, sreg: int) -> None:
        if sreg not in self.sregs:
            self._fail(3, f"s{sreg} is read where it may not be written")
        if sreg in self.stale:
            self._fail(7, f"s{sreg} is read across a call")

    def _write_sreg(self, sreg: int) -> None:
        if sreg == 0:
            self._fail(4, "s0 is written")
        name = f"s{sreg}"
        if name in self.written and sreg not in self.kernel.variables:
            self._fail(4, f"{name} is written twice and is no variable")
        self.written.add(name)
        self.sregs.add(sreg)
        self.stale.discard(sreg)

    def _block(self, block: LloBlock) -> None:
        local: set[str] = set()
        queued = {"eup": 0, "xlu": 0}
        self.spilled.clear()
        for instr in block.ops:
            self.instr = instr
            self._operands(instr)
            self._reads(instr, local)
            self._slots(instr)
            if instr.row.pushes in queued:
                queued[instr.row.pushes] += 1
            if instr.row.pops in queued:
                queued[instr.row.pops] -= 1
                if queued[instr.row.pops] < 0:
                    self._fail(5, f"pop of the empty {instr.row.pops} queue")
            self._writes(instr, local)
        self.instr = None
        for queue, count in queued.items():
            if count:
                self._fail(5, f"{count} results left in the {queue} queue at the end of a block")

    def _operands(self, instr: Instr) -> None:
        if len(instr.operands) != len(instr.row.operands):
            self._fail(1, f"{len(instr.operands)} operands, want {len(instr.row.operands)}")
        for operand, value in zip(instr.row.operands, instr.operands, strict=True):
            low, high = _RANGES.get(operand.kind, (0, (1 << 31) - 1))
            if not low <= value <= high:
                self._fail(1, f"operand {operand.name} is {value}, want {low}..{high}")
            if operand.kind is Kind.WIN:
                value %= ALIAS_STRIDE
            if operand.kind in self.limits and value >= self.limits[operand.kind]:
                limit = self.limits[operand.kind]
                self._fail(6, f"operand {operand.name} is {value}, the table has {limit}")

    def _reads(self, instr: Instr, local: set[str]) -> None:
        for operand, value in zip(instr.row.operands, instr.operands, strict=True):
            if operand.kind is Kind.SS:
                self._read_sreg(value)
            elif operand.kind in (Kind.VS, Kind.MS):
                name = f"{REGISTER_LETTERS[operand.kind]}{value}"
                if name not in local:
                    self._fail(2, f"{name} is read but not written before in this block")

    def _slots(self, instr: Instr) -> None:
        for operand, slot in zip(instr.row.operands, instr.operands, strict=True):
            if operand.kind is not Kind.SPILL:
                continue
            if slot >= self.kernel.spill_slots:
                self._fail(8, f"spill slot {slot}, the kernel has {self.kernel.spill_slots}")
            if instr.row.operands[0].kind is Kind.SPILL:
                self.spilled.add(slot)
            elif slot not in self.spilled:
                self._fail(
                    8, f"spill slot {slot} is filled but not spilled to before in this block"
                )

    def _writes(self, instr: Instr, local: set[str]) -> None:
        for operand, value in zip(instr.row.operands, instr.operands, strict=True):
            if operand.kind is Kind.SD:
                self._write_sreg(value)
            elif operand.kind in WRITTEN_KINDS:
                name = f"{REGISTER_LETTERS[operand.kind]}{value}"
                if name in self.written:
                    self._fail(2, f"{name} is written twice")
                self.written.add(name)
                local.add(name)
