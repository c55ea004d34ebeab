"""Static checks of a whole program; a machine runs nothing that has not passed.

Tables:   windows are inside VMEM and disjoint, so are spill slots; descriptors and buffers are in
          range; calls name kernels and stand in main.
Control:  along every path, an sreg is written before it is read and read no earlier than it lands;
          MXU result queues have the same level on all ways into a node, never below 0 or above
          their entries, and are empty at kernel ends. At a call all registers are lost.
Blocks:   see `block_checker`; waits for other cores begin theirs (`flag_waits`).

A loop marked `parallel` carries no sreg from one iteration to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tpu_sim.isa.block_checker import BlockSummary, summarize_block
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import Call, If, Loop, While
from tpu_sim.isa.errors import HazardError, ProgramError, TargetError
from tpu_sim.isa.flag_waits import check_waits
from tpu_sim.isa.operand_limits import OperandLimits
from tpu_sim.isa.program import (
    HBM,
    MAX_ARGUMENTS,
    MAX_CHUNKS,
    MAX_FLAGS,
    NO_ROUTE,
    SMEM,
    SPILL_ROWS,
    VMEM,
    Block,
    DmaDescriptor,
    Kernel,
    Node,
    Program,
    Route,
    Window,
)

_MAX_DEPTH = 64
"""Of control flow: checkers and machines go down by recursion."""
_MAX_VISITS = 1 << 20
"""Of blocks: paths through nested branches double with each, and hostile programs end within
seconds."""
_MAX_EXTENT = 1 << 40
"""Units that a transfer reaches over: products of strides and counts stay within 64 bits."""
_MAX_STRIDE = 1 << 27
"""Units: 64 GiB of granules (assumed)."""
_MAX_DIMS = 8
"""Of a descriptor (assumed): a window's has one for each tiled dimension of its array."""
_MAX_TRIP = (1 << 31) - 1
"""What a scalar register can count to."""
_SPACES = (HBM, VMEM, SMEM)
MAX_CORES, MAX_PORTS, MAX_ROUTES = 1 << 15, 16, 1 << 16
"""More than the largest slices have; numbers of a file that are read before any table is made."""
_MAX_WINDOWS, _MAX_DESCRIPTORS = 256, 1024
"""What the fields of an instruction can name, or less."""


def check_program(program: Program, chip: Chip) -> None:
    """Raise `ProgramError` (or `HazardError`) on the first rule that `program` breaks."""
    if program.target != chip.name:
        raise TargetError(f"the program is for {program.target}, the machine is {chip.name}")
    _check_memory(program, chip)
    _check_routes(program.routes)
    bodies: set[tuple[object, ...]] = set()
    for name, kernel in program.kernels.items():
        if name != kernel.name:
            raise ProgramError(f"kernel {kernel.name!r} is listed under the name {name!r}")
        _check_tables(kernel, chip, len(program.routes))
        body = _body_key(kernel)
        if body not in bodies:
            _check_body(kernel, chip)
            bodies.add(body)
    check_waits(program)
    _BodyChecker(chip, None, "main", program).run(program.main)


def check_kernel(kernel: Kernel, chip: Chip) -> None:
    """Check one kernel by itself, in a program with any number of routes."""
    _check_tables(kernel, chip, MAX_ROUTES)
    _check_body(kernel, chip)


def _check_body(kernel: Kernel, chip: Chip) -> None:
    _BodyChecker(chip, kernel, f"kernel {kernel.name}", None).run(kernel.body)


def _body_key(kernel: Kernel) -> tuple[object, ...]:
    """The same for kernels whose bodies are one object and may do the same: arrays lie elsewhere alone."""
    rows = tuple(window.rows for window in kernel.windows)
    sizes = (len(kernel.descriptors), kernel.flags, kernel.spill_slots)
    return (id(kernel.body), rows, sizes)


def _check_tables(kernel: Kernel, chip: Chip, route_count: int) -> None:
    where = f"kernel {kernel.name}"
    if not 0 <= kernel.arg_count <= MAX_ARGUMENTS:
        raise ProgramError(f"{kernel.arg_count} arguments, want 0..{MAX_ARGUMENTS}", where)
    if not 0 <= kernel.flags <= MAX_FLAGS:
        raise ProgramError(f"{kernel.flags} sync flags, want 0..{MAX_FLAGS}", where)
    _check_cores(kernel, chip, where)
    _check_windows(kernel, chip, where)
    if len(kernel.descriptors) > _MAX_DESCRIPTORS:
        raise ProgramError(f"{len(kernel.descriptors)} descriptors, most {_MAX_DESCRIPTORS}", where)
    for number, descriptor in enumerate(kernel.descriptors):
        _check_descriptor(descriptor, kernel, route_count, f"{where}, descriptor d{number}")


def _check_memory(program: Program, chip: Chip) -> None:
    if not 0 <= program.hbm_bytes <= chip.hbm_bytes:
        raise ProgramError(f"{program.hbm_bytes} bytes of HBM, {chip.name} has {chip.hbm_bytes}")
    if not 0 <= program.smem_words <= chip.smem_words:
        raise ProgramError(f"{program.smem_words} words of SMEM, {chip.name} has {chip.smem_words}")
    ranges = [(f"buffer {b.name}", b.offset_bytes, b.size_bytes) for b in program.buffers]
    ranges += [(f"constant {i}", at, len(data)) for i, (at, data) in enumerate(program.constants)]
    for what, offset, size in ranges:
        if offset < 0 or size < 0 or offset + size > program.hbm_bytes:
            raise ProgramError(
                f"{what}: bytes {offset}..{offset + size} are not within the program's "
                f"{program.hbm_bytes} bytes of HBM"
            )


def _check_routes(routes: list[Route]) -> None:
    for number, route in enumerate(routes):
        where, cores = f"route r{number}", len(routes[0].targets)
        ends = [target for target in route.targets if target >= 0]
        if not 0 < len(route.targets) == cores <= MAX_CORES:
            raise ProgramError(f"{len(route.targets)} cores, want {cores} of {MAX_CORES}", where)
        if len(set(ends)) < len(ends) or any(not -1 <= t < cores for t in route.targets):
            raise ProgramError("two cores share a target, or one is no core", where)
        # the way may lead past chips that take no part
        if not (0 <= route.hops <= MAX_CORES and 0 <= route.port < MAX_PORTS):
            raise ProgramError(f"{route.hops} hops by port {route.port}", where)
        if not 1 <= route.load <= cores * cores:
            raise ProgramError(f"load {route.load}, want 1 or more", where)


def _check_cores(kernel: Kernel, chip: Chip, where: str) -> None:
    """Cores that share a kernel have nothing but HBM in common; in an exchange each has flags and ports of
    its own, which is for who writes the kernel."""
    if kernel.cores not in (1, chip.cores_per_device):
        raise ProgramError(
            f"cores {kernel.cores}, a device of {chip.name} has {chip.cores_per_device}", where
        )
    if kernel.cores == 1:
        return
    if any(window.kept for window in kernel.windows):
        raise ProgramError("cores share it, but a window is kept in VMEM", where)


def _check_windows(kernel: Kernel, chip: Chip, where: str) -> None:
    if len(kernel.windows) > _MAX_WINDOWS:
        raise ProgramError(f"{len(kernel.windows)} windows, at most {_MAX_WINDOWS}", where)
    if kernel.spill_slots < 0:
        raise ProgramError(f"{kernel.spill_slots} spill slots", where)
    ranges = list(kernel.windows)
    if kernel.spill_slots:
        spill_rows = kernel.spill_slots * SPILL_ROWS
        ranges.append(Window("(spill slots)", kernel.spill_base_row, spill_rows))
    for window in ranges:
        end = window.base_row + window.rows
        if window.base_row < 0 or window.rows <= 0 or end > chip.vmem_rows:
            raise ProgramError(
                f"window {window.name}: rows {window.base_row}..{end} are not within VMEM's "
                f"{chip.vmem_rows}", where,
            )  # fmt: skip
    ranges.sort(key=lambda window: window.base_row)
    for below, above in pairwise(ranges):
        if below.base_row + below.rows > above.base_row:
            raise ProgramError(f"windows {below.name} and {above.name} overlap", where)


def _check_descriptor(
    descriptor: DmaDescriptor, kernel: Kernel, route_count: int, where: str
) -> None:
    spaces = (descriptor.src_space, descriptor.dst_space)
    if any(space not in _SPACES for space in spaces):
        raise ProgramError(f"memory spaces {spaces}, want {_SPACES}", where)
    if not (0 if VMEM in spaces else -1) <= descriptor.window < len(kernel.windows):
        raise ProgramError(f"window {descriptor.window}, want 0..{len(kernel.windows) - 1}", where)
    if not NO_ROUTE <= descriptor.route < route_count:
        raise ProgramError(f"route {descriptor.route}, the program has {route_count}", where)
    if descriptor.route != NO_ROUTE and spaces != (HBM, HBM):
        raise ProgramError("a route leads from HBM to HBM", where)
    extent, chunks = descriptor.chunk, 1
    if not 1 <= descriptor.chunk <= _MAX_STRIDE:
        raise ProgramError(f"chunk {descriptor.chunk}, want 1..{_MAX_STRIDE}", where)
    if len(descriptor.dims) > _MAX_DIMS:
        raise ProgramError(f"{len(descriptor.dims)} dimensions, at most {_MAX_DIMS}", where)
    for dim in descriptor.dims:
        chunks *= max(1, dim.count)
        if chunks > MAX_CHUNKS:
            raise ProgramError(f"a transfer of more than {MAX_CHUNKS} chunks", where)
        if dim.count < -2:
            raise ProgramError(f"count {dim.count}, want >= 0, or -1 or -2", where)
        extent *= max(1, dim.count)
        if max(abs(dim.src_stride), abs(dim.dst_stride)) >= _MAX_STRIDE or extent > _MAX_EXTENT:
            raise ProgramError("a count or stride is out of range", where)


@dataclass
class _State:
    """What is known at a point of the control flow. Residues are cycles still to pass."""

    sregs: dict[int, int]  # written sregs -> residue
    units: dict[str, int]  # unit steps -> residue
    mrf: dict[int, int]  # results waiting per MXU, zero levels left out

    def copy(self) -> _State:
        return _State(dict(self.sregs), dict(self.units), dict(self.mrf))


class _BodyChecker:
    """Walks the control flow of a kernel (or of main, `kernel` None) with block summaries."""

    def __init__(
        self, chip: Chip, kernel: Kernel | None, where: str, program: Program | None
    ) -> None:
        self.chip = chip
        self.limits = OperandLimits(chip, kernel)
        self.where = where
        self.program = program
        self.depth = 0
        self.visits = 0
        self.summaries: dict[int, BlockSummary] = {}

    def run(self, body: list[Node]) -> None:
        """Check a whole body; nothing is written at its start."""
        state = _State({0: 0}, {}, {})
        self._nodes(body, state)
        self._expect_empty(state, "at the end")

    def _nodes(self, nodes: list[Node], state: _State) -> None:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ProgramError(f"control flow is nested deeper than {_MAX_DEPTH}", self.where)
        for node in nodes:
            match node:
                case Block():
                    self._block(node, state)
                case Loop():
                    self._loop(node, state)
                case If():
                    self._if(node, state)
                case While():
                    self._while(node, state)
                case Call():
                    self._call(node, state)
        self.depth -= 1

    def _block(self, block: Block, state: _State) -> None:
        self.visits += 1
        if self.visits > _MAX_VISITS:
            raise ProgramError("the control flow has too many paths to check", self.where)
        summary = self.summaries.get(id(block))
        if summary is None:
            summary = summarize_block(block, self.chip, self.limits, self.where)
            self.summaries[id(block)] = summary
        where = f"{self.where}, block {block.name!r}" if block.name else self.where
        for sreg, cycle in summary.sreg_reads.items():
            self._read(sreg, cycle, state, where)
        for name, cycle in summary.unit_uses.items():
            if state.units.get(name, 0) > cycle:
                raise HazardError(f"the {name} is used before it is ready", where)
        for unit, net in summary.mrf_net.items():
            self._queue(unit, net, summary, state, where)
        passed = summary.cycles
        state.sregs = {sreg: max(0, left - passed) for sreg, left in state.sregs.items()}
        state.sregs.update(summary.sreg_lands)
        state.units = {name: left - passed for name, left in state.units.items() if left > passed}
        state.units.update({name: left for name, left in summary.unit_lands.items() if left})

    def _read(self, sreg: int, cycle: int, state: _State, where: str) -> None:
        residue = state.sregs.get(sreg)
        if residue is None:
            raise HazardError(f"s{sreg} is read but not written on every path before", where)
        if residue > cycle:
            raise HazardError(f"s{sreg} is read {residue - cycle} cycles before it is ready", where)

    def _queue(self, unit: int, net: int, summary: BlockSummary, state: _State, where: str) -> None:
        level = state.mrf.get(unit, 0)
        if level + summary.mrf_low[unit] < 0:
            raise HazardError(f"vpop.mrf of the empty result queue of MXU {unit}", where)
        if level + summary.mrf_high[unit] > self.chip.mrf_entries:
            entries = self.chip.mrf_entries
            raise HazardError(
                f"the result queue of MXU {unit} overflows its {entries} entries", where
            )
        state.mrf[unit] = level + net
        if not state.mrf[unit]:
            del state.mrf[unit]

    def _loop(self, loop: Loop[Block], state: _State) -> None:
        where = f"{self.where}, loop {loop.name!r}"
        self._sreg_in_range(loop.index, where, lowest=1)
        if not -1 <= loop.trip <= _MAX_TRIP:
            raise ProgramError(f"{loop.trip} iterations, want 0..{_MAX_TRIP}, or -1", where)
        if loop.trip < 0:
            self._sreg_in_range(loop.trip_sreg, where, lowest=0)
            self._read(loop.trip_sreg, 0, state, where)
        entry = state.copy()
        entry.sregs[loop.index] = 0
        inside = entry.copy()
        self._nodes(loop.body, inside)
        self._same_queues(entry, inside, where)
        again = _join(entry, inside)
        again.sregs[loop.index] = 0
        if loop.parallel:
            for sreg in self._written(loop.body):
                again.sregs.pop(sreg, None)
        if again != entry:
            self._nodes(loop.body, again)
            inside = _join(inside, again)
        after = inside if loop.trip > 0 else _join(state, inside)
        after.sregs.pop(loop.index, None)  # the index is no value once the loop is over
        _become(state, after)

    def _written(self, nodes: list[Node]) -> set[int]:
        """The sregs that blocks and loops of `nodes` write."""
        written: set[int] = set()
        for node in nodes:
            match node:
                case Block():
                    written |= self.summaries[id(node)].sreg_lands.keys()
                case Loop():
                    written |= self._written(node.body) | {node.index}
                case If():
                    written |= self._written(node.then) | self._written(node.orelse)
                case While():
                    written |= self._written(node.test) | self._written(node.body)
                case Call():
                    pass
        return written

    def _while(self, loop: While[Block], state: _State) -> None:
        where = f"{self.where}, while {loop.name!r}"
        self._sreg_in_range(loop.condition, where, lowest=0)
        if not -1 <= loop.expected_trips <= _MAX_TRIP:
            raise ProgramError(
                f"{loop.expected_trips} expected trips, want 0..{_MAX_TRIP}, or -1", where
            )
        while True:  # joins only lose knowledge, so this ends; mostly after one round
            tested = state.copy()
            self._nodes(loop.test, tested)
            self._read(loop.condition, 0, tested, where)
            after = tested.copy()
            self._nodes(loop.body, after)
            self._same_queues(state, after, where)
            again = _join(state, after)
            if again == state:
                break
            _become(state, again)
        _become(state, tested)

    def _if(self, node: If[Block], state: _State) -> None:
        where = f"{self.where}, if s{node.condition}"
        self._sreg_in_range(node.condition, where, lowest=0)
        self._read(node.condition, 0, state, where)
        other = state.copy()
        self._nodes(node.then, state)
        self._nodes(node.orelse, other)
        self._same_queues(state, other, where)
        _become(state, _join(state, other))

    def _call(self, call: Call, state: _State) -> None:
        if self.program is None:
            raise ProgramError(f"call of {call.kernel}: only main calls kernels", self.where)
        if call.kernel not in self.program.kernels:
            raise ProgramError(f"call of {call.kernel}: there is no such kernel", self.where)
        self._expect_empty(state, f"at the call of {call.kernel}")
        _become(state, _State({0: 0}, {}, {}))

    def _expect_empty(self, state: _State, when: str) -> None:
        if state.mrf:
            raise HazardError(f"MXU results {state.mrf} are unread {when}", self.where)

    def _same_queues(self, a: _State, b: _State, where: str) -> None:
        if a.mrf != b.mrf:
            raise HazardError(f"MXU result queues differ between paths: {a.mrf}, {b.mrf}", where)

    def _sreg_in_range(self, sreg: int, where: str, lowest: int) -> None:
        if not lowest <= sreg < self.chip.sregs:
            raise ProgramError(f"sreg {sreg}, want {lowest}..{self.chip.sregs - 1}", where)


def _join(a: _State, b: _State) -> _State:
    """What holds whichever of two paths was taken."""
    sregs = {s: max(left, b.sregs[s]) for s, left in a.sregs.items() if s in b.sregs}
    units = {n: max(a.units.get(n, 0), b.units.get(n, 0)) for n in a.units.keys() | b.units.keys()}
    return _State(sregs, units, dict(a.mrf))


def _become(state: _State, new: _State) -> None:
    state.sregs, state.units, state.mrf = new.sregs, new.units, new.mrf
