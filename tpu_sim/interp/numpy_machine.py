"""`NumpyMachine`: executes a program bundle by bundle, slowly and plainly.

It is the second opinion on the LLVM machine: same memory afterwards, same `ExecutionResult`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tpu_sim.interp.bundle_executor import BundleExecutor
from tpu_sim.isa.checker import check_program
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import If, Loop, While
from tpu_sim.isa.program import MAX_FLAGS, Block, Bundle, Kernel, Program, core_word, spill_rows
from tpu_sim.isa.text import format_bundle
from tpu_sim.machine.checkpoint import CheckpointError, load_checkpoint
from tpu_sim.machine.fabric import Fabric, Links, LocalFabric
from tpu_sim.machine.far_core import FarCore
from tpu_sim.machine.faults import MachineFault
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.node_table import (
    MAIN,
    FlatNode,
    NodeStep,
    NodeTable,
    first_waits,
    node_table,
)
from tpu_sim.machine.race_detector import POISON, RaceDetector
from tpu_sim.machine.result import ExecutionResult, execution_result
from tpu_sim.machine.run import NO_CALL, Run, Stop
from tpu_sim.machine.state import CoreState, CoreWords


class NumpyMachine:
    """A core of `chip`. `checked` finds DMA races and uninitialised VMEM reads.

    A run longer than `max_cycles` ends with `CycleLimitFault` (`tpu_sim.machine.run`). `nan` are the bits
    of each NaN that the vector unit gives, None for what the host gives; `window_words` is what windows
    hold when a kernel starts, None for what was there. Both are no part of the machine: what differs
    between two choices depends on them. `fabric` says what transfers cost.
    """

    def __init__(
        self,
        chip: Chip,
        checked: bool = False,
        max_cycles: int | None = None,
        nan: int | None = None,
        window_words: int | None = None,
        fabric: Fabric | None = None,
    ) -> None:
        self.nan = nan
        self.window_words = POISON if checked else window_words
        self.chip = chip
        self.fabric = fabric or LocalFabric(chip)
        self.checked = checked
        self.max_cycles = max_cycles
        self._accepted: Program | None = None

    def run(self, program: Program, hbm: HbmMemory) -> ExecutionResult:
        """Execute `program` on `hbm`, whose constants and inputs are in place.

        Raises `ProgramError` before running a wrong program, `MachineFault` during the run.
        """
        return self.start(program, hbm).finish()

    def start(self, program: Program, hbm: HbmMemory) -> Run:
        """A run of `program` that stands at its start."""
        return Run(self._core(program, hbm), self.max_cycles)

    def restore(self, program: Program, hbm: HbmMemory, data: bytes) -> Run:
        """A run that stands where a saved one did; the program's part of `hbm` becomes what it was."""
        if self.checked:
            raise CheckpointError("a checked run starts at the start: what it watches is not saved")
        core = self._core(program, hbm)
        is_done = load_checkpoint(data, program, core.table, core.state(), hbm)
        return Run(core, self.max_cycles, is_done)

    def far_core(self, hbm: HbmMemory) -> FarCore:
        """What stands for a core of another process, with as much HBM, for those of such machines."""
        return FarCore(hbm.size_bytes)

    def take_over(self, program: Program, hbm: HbmMemory, state: CoreState) -> NumpySequencer:
        """A core that goes on where another machine's stands, on that one's very memories.

        `program` has been checked, and `state` came from that core's `state()`.
        """
        return NumpySequencer(self, program, hbm, state)

    def _core(self, program: Program, hbm: HbmMemory) -> NumpySequencer:
        if self._accepted is not program:
            check_program(program, self.chip)
            self._accepted = program
        return NumpySequencer(self, program, hbm)


class NumpySequencer:
    """The core during one run: a sequencer over the program's nodes, which can step by bundles."""

    def __init__(
        self,
        machine: NumpyMachine,
        program: Program,
        hbm: HbmMemory,
        state: CoreState | None = None,
    ) -> None:
        self.program = program
        self.hbm = hbm
        self.table: NodeTable = node_table(program, machine.chip)
        self.bundle = 0
        """How many bundles of the block at the node have been executed."""
        self._chip = machine.chip
        self._state = CoreState(machine.chip, len(self.table.calls)) if state is None else state
        self._fabric = machine.fabric
        self._races = RaceDetector(machine.chip.vmem_rows) if machine.checked else None
        self._nan = machine.nan
        self._window_words = machine.window_words
        self._links: Links | None = None
        self._executors: dict[int, BundleExecutor] = {}
        self._bundle: Bundle = ()

    def connect(self, number: int, cores: Mapping[int, NumpySequencer | FarCore]) -> None:
        """See `tpu_sim.machine.run.Core`."""
        self._state.smem[core_word(self._chip.smem_words)] = number
        ends = {
            n: (core if isinstance(core, FarCore) else core._state, core.hbm)
            for n, core in cores.items()
        }
        self._links = Links(number, ends, self.program.routes, [0] * len(self.program.routes))

    @property
    def now(self) -> int:
        """The cycle at which the next bundle would issue."""
        return self._state.now

    @property
    def words(self) -> CoreWords:
        """See `tpu_sim.machine.run.Core`."""
        return self._state

    @property
    def node(self) -> int:
        """The node it goes on with."""
        return self._state.node

    @property
    def body_name(self) -> str:
        """Where it stands: "main" or a kernel."""
        return self.table.bodies[self._state.body].kernel.name

    def result(self) -> ExecutionResult:
        """What it all took so far."""
        state, count = self._state, self._state.record_count
        records, totals = state.records[:count], state.totals
        sent = self._links.sent if self._links is not None else [0] * len(self.program.routes)
        return execution_result(state.now, self.table.calls, records, totals, self._chip, sent)

    def state(self) -> CoreState:
        """The state itself."""
        return self._state

    def adopt(self, state: CoreState) -> None:
        """See `tpu_sim.machine.run.Core`; registers that live within a block hold nothing."""
        assert state is self._state
        state.forget_block()
        self.bundle = 0

    def advance(self, until: int, until_call: int = NO_CALL) -> Stop:
        """See `tpu_sim.machine.run.Core`."""
        return self._guarded(lambda: self._walk(until, until_call))

    def reach_bundle(self) -> Stop:
        """Do all that comes before the next bundle: overheads of calls and iterations, tests, branches."""
        return self._guarded(self._to_bundle)

    def step_bundle(self) -> Stop:
        """Execute the next bundle, and reach the one behind it."""
        stop = self.reach_bundle()
        if stop is not Stop.PAUSED:
            return stop
        self._guarded(self._one_bundle)
        return self.reach_bundle()

    def flat_node(self) -> FlatNode:
        """The node at which it stands."""
        return self.table.bodies[self._state.body].nodes[self._state.node]

    def _guarded(self, walk: Callable[[], Stop]) -> Stop:
        try:
            with np.errstate(all="ignore"):
                return walk()
        except MachineFault as fault:
            bundle = format_bundle(self._bundle) if self._bundle else ""
            raise type(fault)(fault.message, self.body_name, bundle) from fault

    def _walk(self, until: int, until_call: int) -> Stop:
        state = self._state
        while True:
            node = self.flat_node()
            stop = self._stops(node)
            if stop is not None:
                return stop
            takes_time = self._node(node)
            is_call = node.step is NodeStep.CALL and state.record_count >= until_call
            if takes_time and (state.now >= until or is_call):
                return Stop.PAUSED

    def _to_bundle(self) -> Stop:
        while True:
            node = self.flat_node()
            stop = self._stops(node)
            if stop is not None:
                return stop
            block = node.source
            if node.step is NodeStep.RUN and isinstance(block, Block) and block.bundles:
                return Stop.PAUSED
            self._node(node)

    def _one_bundle(self) -> Stop:
        node = self.flat_node()
        assert isinstance(node.source, Block)
        bundles = node.source.bundles
        self._bundle = bundles[self.bundle]
        self._executor().execute(self._bundle)
        self.bundle += 1
        if self.bundle == len(bundles):
            self._end_block(node)
            self._state.node += 1
        self._bundle = ()
        return Stop.PAUSED

    def _stops(self, node: FlatNode) -> Stop | None:
        """Whether it goes no further: at the end of main, or at a wait for another core."""
        if node.step is NodeStep.END and self._state.body == MAIN:
            return Stop.DONE
        return Stop.WAITING if self.bundle == 0 and self._waits(node) else None

    def _waits(self, node: FlatNode) -> bool:
        """Whether a block may not begin before another core has raised a flag."""
        state = self._state
        flags = [flag + state.sreg(sreg) for flag, sreg in first_waits(node)]
        return any(0 <= flag < MAX_FLAGS and state.flag_pending[flag] > 0 for flag in flags)

    def _node(self, node: FlatNode) -> bool:
        """Do one node; whether time may have passed."""
        state = self._state
        following = state.node + 1
        match node.step:
            case NodeStep.START:
                if state.body != MAIN:
                    self._enter(self.table.bodies[state.body].kernel)
            case NodeStep.RUN:
                self._block(node)
            case NodeStep.ENTER:
                self._begin_loop(node)
            case NodeStep.TEST:
                following = following if self._goes_on(node) else node.target
            case NodeStep.AGAIN:
                state.counters[node.counter] += 1
                state.now += self._chip.loop_overhead_cycles
                self._charge(node)
                following = node.target
            case NodeStep.BRANCH:
                assert isinstance(node.source, If)
                following = following if state.sreg(node.source.condition) else node.target
            case NodeStep.JUMP:
                following = node.target
            case NodeStep.CALL:
                self._call(node)
                return True
            case NodeStep.END:
                self._return()
                return False
        state.node = following
        return node.step in (NodeStep.RUN, NodeStep.AGAIN)

    def _block(self, node: FlatNode) -> None:
        assert isinstance(node.source, Block)
        executor = self._executor()
        for bundle in node.source.bundles[self.bundle :]:
            self._bundle = bundle
            executor.execute(bundle)
        self._bundle = ()
        self._end_block(node)

    def _end_block(self, node: FlatNode) -> None:
        self._charge(node)
        self._state.forget_block()
        self.bundle = 0

    def _executor(self) -> BundleExecutor:
        """Of the body that runs."""
        number = self._state.body
        if number not in self._executors:
            kernel = None if number == MAIN else self.table.bodies[number].kernel
            self._executors[number] = BundleExecutor(
                self._state,
                self.hbm,
                kernel,
                self._races,
                self._nan,
                self._fabric,
                self._links,
            )
        return self._executors[number]

    def _charge(self, node: FlatNode) -> None:
        for cause, count in node.issued or ():
            self._state.causes[cause] += count

    def _begin_loop(self, node: FlatNode) -> None:
        state = self._state
        state.counters[node.counter] = 0
        if isinstance(node.source, Loop):
            loop = node.source
            trip = loop.trip if loop.trip >= 0 else state.sreg(loop.trip_sreg)
            state.trips[node.counter] = trip

    def _goes_on(self, node: FlatNode) -> bool:
        """Whether a loop runs another time; sets the index of a counted one."""
        state = self._state
        if isinstance(node.source, While):
            return state.sreg(node.source.condition) != 0
        assert isinstance(node.source, Loop)
        done = int(state.counters[node.counter])
        state.sregs[node.source.index] = done & 0xFFFFFFFF
        return done < int(state.trips[node.counter])

    def _call(self, node: FlatNode) -> None:
        state = self._state
        state.begin_call(node.call)
        state.return_node = state.node + 1
        state.body, state.node = self.table.body_of_call[node.call], 0

    def _return(self) -> None:
        if self._races:
            self._races.leave_kernel()
        kernel = self.table.bodies[self._state.body].kernel
        assert kernel is not None
        self._forget_windows(kernel)
        if self._state.end_share():
            self._state.node = 0
            return
        self._state.end_call()
        self._state.body, self._state.node = MAIN, self._state.return_node

    def _enter(self, kernel: Kernel) -> None:
        self._state.enter_kernel()
        self._state.cores, self._state.core_flags = kernel.cores, kernel.core_flags
        self._state.vmem[spill_rows(kernel)] = 0
        if self._races:
            self._races.enter_kernel(kernel.windows)
        self._forget_windows(kernel)

    def _forget_windows(self, kernel: Kernel) -> None:
        """What windows hold outside of their kernel's run is not specified, but for kept ones."""
        if self._window_words is None:
            return
        for window in kernel.windows:
            if not window.kept:
                rows = slice(window.base_row, window.base_row + window.rows)
                self._state.vmem[rows] = self._window_words
