"""From LLO to a kernel of bundles: dead code, spills, sregs, schedule, VMEM addresses.

finalize_kernel(llo_kernel, chip) -> Kernel      for a kernel called by main
finalize_main(llo_kernel, chip) -> list[Node]    for the control flow that calls kernels

Where everything is verified (`tpu_sim.isa.verification`, as in the tests), the LLO is verified as it
comes and after every stage that rewrites it, and every schedule against its block (`hazards`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.backend.dead_code import remove_dead_code
from compiler.backend.dependences import DmaFacts, build_graph, descriptor_windows
from compiler.backend.hazards import check_schedule
from compiler.backend.op_table import OpInfo, op_table
from compiler.backend.register_allocator import allocate_sregs
from compiler.backend.scheduler import Schedule, schedule_block
from compiler.backend.spill import spill_vregs
from compiler.backend.unroll import unroll_parallel_loops
from compiler.diagnostics import CompileError, KernelLimitError, VerifyError
from compiler.llo.ir import (
    ALIAS_STRIDE,
    LloBlock,
    LloIf,
    LloKernel,
    LloLoop,
    LloNode,
    LloWhile,
    blocks,
)
from compiler.llo.verifier import verify_llo
from tpu_sim.isa.checker import check_kernel
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import Instr
from tpu_sim.isa.program import (
    Block,
    Bundle,
    Call,
    If,
    Kernel,
    Loop,
    Node,
    While,
    Window,
)
from tpu_sim.isa.verification import is_verifying

_ROWS_PER_SPILL_SLOT = 8
_WINDOW_ALIGNMENT = 8
MAX_WINDOWS, MAX_DESCRIPTORS, MAX_FLAGS = 256, 1024, 1024
"""What the encoding's window, descriptor and flag fields can name."""


def finalize_kernel(
    llo: LloKernel, chip: Chip, check: bool | None = None, vmem_rows: int | None = None
) -> Kernel:
    """Schedule a kernel. Consumes `llo`: its blocks are rewritten in place.

    `vmem_rows` are those it may use for itself, without what lies at places; None: all.

    `check` verifies every stage and holds the bundles against the rules of the machine (slots, unit
    spacing, latencies over block ends), whatever the environment says.
    """
    _check_tables(llo)
    checks = is_verifying() if check is None else check
    finalizer = _Finalizer(llo, chip, checks)
    body = finalizer.run()
    windows, spill_base = _place_windows(
        llo, chip, finalizer.spill_slots, chip.vmem_rows if vmem_rows is None else vmem_rows
    )
    kernel = Kernel(
        name=llo.name,
        arg_count=llo.arg_count,
        windows=windows,
        descriptors=list(llo.descriptors),
        body=body,
        spill_slots=finalizer.spill_slots,
        spill_base_row=spill_base,
        flags=llo.flags,
        flops=llo.flops,
        element_ops=llo.element_ops,
        least_bytes=llo.least_bytes,
        note=llo.note,
    )
    if checks:
        check_kernel(kernel, chip)
    return kernel


def finalize_main(llo: LloKernel, chip: Chip) -> list[Node]:
    """Schedule main: scalar code, control flow and calls."""
    return _Finalizer(llo, chip, is_verifying()).run()


def _check_tables(llo: LloKernel) -> None:
    for what, count, most in (
        ("windows", len(llo.windows), MAX_WINDOWS),
        ("DMA descriptors", len(llo.descriptors), MAX_DESCRIPTORS),
        ("sync flags", llo.flags, MAX_FLAGS),
    ):
        if count > most:
            raise KernelLimitError(f"kernel {llo.name}: {count} {what}, the encoding has {most}")


def _place_windows(
    llo: LloKernel, chip: Chip, spill_slots: int, vmem_rows: int
) -> tuple[list[Window], int]:
    """Windows without a place one after another from row 0, then the spill slots."""
    windows: list[Window] = []
    row = 0
    for window in llo.windows:
        if window.place >= 0:
            windows.append(Window(window.name, window.place, window.rows, kept=True))
            continue
        windows.append(Window(window.name, row, window.rows))
        row += -(-window.rows // _WINDOW_ALIGNMENT) * _WINDOW_ALIGNMENT
    total = row + spill_slots * _ROWS_PER_SPILL_SLOT
    if total > vmem_rows:
        own = [w for w in llo.windows if w.place < 0]
        largest = sorted(own, key=lambda w: -w.rows)[:4]
        raise KernelLimitError(
            f"kernel {llo.name}: needs {total * 512} bytes of VMEM, {chip.name} has "
            f"{vmem_rows * 512} for it; largest windows: "
            + ", ".join(f"{w.name} {w.rows * 512}" for w in largest)
        )
    return windows, row


@dataclass
class _Finalizer:
    llo: LloKernel
    chip: Chip
    check: bool
    spill_slots: int = 0
    table: dict[str, OpInfo] = field(default_factory=dict)
    sreg_of: dict[int, int] = field(default_factory=dict)
    occupancy: dict[int, int] = field(default_factory=dict)

    def run(self) -> list[Node]:
        """All stages over the kernel, in order."""
        self.table = op_table(self.chip)
        self._verify("lowering")
        remove_dead_code(self.llo, self.table)
        self._verify("dead code removal")
        unroll_parallel_loops(self.llo, self.table, self.chip)
        self._verify("unrolling")
        self.spill_slots = spill_vregs(self.llo, self.table, self.chip)
        self._verify("spilling")
        self.sreg_of = allocate_sregs(self.llo, self.table, self.chip)
        self._verify("scalar register allocation")
        self.dma = _dma_facts(self.llo)
        body = self._nodes(self.llo.body)
        self._expect_empty("at the end of the kernel")
        return body

    def _verify(self, stage: str) -> None:
        if not self.check:
            return
        try:
            verify_llo(self.llo)
        except VerifyError as error:
            raise VerifyError(f"{error.message}\n  while verifying after {stage}") from error

    def _nodes(self, body: list[LloNode]) -> list[Node]:
        out: list[Node] = []
        for node in body:
            match node:
                case LloBlock():
                    if node.ops:
                        out.append(self._block(node))
                case LloLoop():
                    out.append(self._loop(node))
                case LloIf():
                    out.append(self._if(node))
                case LloWhile():
                    test = self._same_occupancy(node.test, "a while loop's test")
                    loop = self._same_occupancy(node.body, "a while loop")
                    condition = self.sreg_of[node.condition]
                    out.append(While(test, condition, loop, node.name, node.expected_trips))
                case Call():
                    self._expect_empty(f"at the call of {node.kernel}")
                    out.append(node)
        return out

    def _loop(self, node: LloLoop) -> Loop:
        body = self._same_occupancy(node.body, f"loop {node.name}")
        trip_sreg = self.sreg_of[node.trip_sreg] if node.trip < 0 else -1
        index = self.sreg_of[node.index]
        return Loop(node.trip, index, body, trip_sreg, node.parallel, node.name)

    def _if(self, node: LloIf) -> If:
        before = dict(self.occupancy)
        then = self._nodes(node.then)
        after = self.occupancy
        self.occupancy = before
        orelse = self._nodes(node.orelse)
        if _waiting(after) != _waiting(self.occupancy):
            raise CompileError(f"kernel {self.llo.name}: MXU queues differ between branches")
        return If(self.sreg_of[node.condition], then, orelse)

    def _same_occupancy(self, body: list[LloNode], what: str) -> list[Node]:
        before = _waiting(self.occupancy)
        nodes = self._nodes(body)
        if _waiting(self.occupancy) != before:
            raise CompileError(
                f"kernel {self.llo.name}: {what} leaves MXU results {_waiting(self.occupancy)}, "
                f"it found {before}"
            )
        return nodes

    def _expect_empty(self, where: str) -> None:
        waiting = _waiting(self.occupancy)
        if waiting:
            raise CompileError(f"kernel {self.llo.name}: MXU results {waiting} unread {where}")

    def _block(self, block: LloBlock) -> Block:
        ops = block.ops
        infos = [self.table[instr.row.name] for instr in ops]
        graph = build_graph(ops, infos, self.sreg_of, self.chip, self.dma, self.occupancy)
        schedule = schedule_block(ops, infos, graph, self.chip)
        if self.check:
            check_schedule(ops, infos, schedule, self.sreg_of)
        return Block(_bundles(ops, infos, schedule, self.sreg_of), block.name)


def _waiting(occupancy: dict[int, int]) -> dict[int, int]:
    return {unit: results for unit, results in occupancy.items() if results}


def _dma_facts(llo: LloKernel) -> DmaFacts:
    windows = [descriptor_windows(descriptor) for descriptor in llo.descriptors]
    of_flag: dict[int, frozenset[int]] = {}
    for block in blocks(llo.body):
        for instr in block.ops:
            row = instr.row
            if row.is_transfer:
                descriptor = instr.operands[row.descriptor_index]
                flag = instr.operands[row.flag_index]
                of_flag[flag] = of_flag.get(flag, frozenset()) | windows[descriptor]
    return DmaFacts(windows, of_flag)


def _bundles(
    ops: list[Instr], infos: list[OpInfo], schedule: Schedule, sreg_of: dict[int, int]
) -> list[Bundle]:
    """The scheduled operations with physical registers."""
    vregs, masks = schedule.vregs, schedule.masks
    files = {"v": vregs, "m": masks, "s": sreg_of}
    physical: list[Instr] = []
    for instr, info in zip(ops, infos, strict=True):
        operands = list(instr.operands)
        for i in info.vregs:
            operands[i] = vregs[operands[i]]
        for i in info.sregs:
            operands[i] = sreg_of[operands[i]]
        for i in info.masks:
            operands[i] = masks[operands[i]]
        if info.defines:
            operands[0] = files[info.defines][operands[0]]
        if info.window >= 0:
            operands[info.window] %= ALIAS_STRIDE
        physical.append(Instr(instr.row, tuple(operands), instr.source))
    return [tuple([physical[index] for index in bundle]) for bundle in schedule.bundles]
