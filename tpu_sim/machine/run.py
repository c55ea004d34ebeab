"""`Run`: one execution of a program on a core, which may be paused, looked at, saved and gone on with.

A machine's part is a `Core`: a sequencer that walks the nodes of `tpu_sim.machine.node_table` and
looks at the time at each border where a run may pause. A cycle limit, a pause that somebody asked
for and Ctrl-C are the same thing there; what it means is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Protocol, Self

from tpu_sim.isa.program import Program
from tpu_sim.machine.checkpoint import Checkpoint, dump_checkpoint
from tpu_sim.machine.far_core import FarCore
from tpu_sim.machine.faults import CycleLimitFault, DeadlockFault, MachineFault
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.result import ExecutionResult
from tpu_sim.machine.state import CoreState, CoreWords

DEFAULT_MAX_CYCLES = 1 << 40
_MOST_CYCLES = (1 << 62) - 1
NO_CALL = (1 << 62) - 1
"""A number that no kernel call has."""


class Stop(Enum):
    """Why a sequencer came back."""

    DONE = "the end of main"
    PAUSED = "a border where the cycle had come"
    WAITING = "a wait for another core"


class Core(Protocol):
    """A core with a program and HBM, standing at the border of two nodes."""

    @property
    def program(self) -> Program:
        """What it runs."""
        ...

    @property
    def hbm(self) -> HbmMemory:
        """Its HBM."""
        ...

    @property
    def body_name(self) -> str:
        """Where it stands: "main", or a kernel's name."""
        ...

    @property
    def node(self) -> int:
        """The number of the node there that it goes on with."""
        ...

    @property
    def now(self) -> int:
        """The cycle at which the next bundle would issue."""
        ...

    @property
    def words(self) -> CoreWords:
        """The words of its state."""
        ...

    def connect(self, number: int, cores: Mapping[int, Self | FarCore]) -> None:
        """Be core `number` of those that run the program together, before the run starts.

        Those that it sends to are in `cores`, by number; all are of one kind of machine.
        """
        ...

    def advance(self, until: int, until_call: int = NO_CALL) -> Stop:
        """Walk on: to the end of main, the first border where cycle `until` has come, or a wait.

        The begin of a kernel call, when as many as `until_call` are over, is such a border too.

        Raises `MachineFault`, after which the state means nothing.
        """
        ...

    def result(self) -> ExecutionResult:
        """What it took so far, a kernel call under way left out."""
        ...

    def state(self) -> CoreState:
        """The state, in the stated order; memories and words are the core's own, the rest copies."""
        ...

    def adopt(self, state: CoreState) -> None:
        """Go on from what `state`, which came from `state()`, has become."""
        ...


class Run:
    """An execution of a program from its start, or from where a saved one was.

    One longer than `max_cycles` ends with `CycleLimitFault` at the first border behind them. Not
    for several threads at a time.
    """

    def __init__(self, core: Core, max_cycles: int | None = None, is_done: bool = False) -> None:
        most = DEFAULT_MAX_CYCLES if max_cycles is None else max_cycles
        self._core = core
        self._max_cycles = min(most, _MOST_CYCLES)
        self._is_broken = False
        self.is_done = is_done
        """Whether it came to the end of main."""
        self.is_waiting = False
        """Whether it stands before a wait for another core (`CoreState.raise_flag`)."""

    def connect(self, number: int, runs: Mapping[int, Run | FarCore]) -> None:
        """Be core `number` of the runs that execute a program together; for a run at its start."""
        ends = {n: one._core if isinstance(one, Run) else one for n, one in runs.items()}
        self._core.connect(number, ends)

    @property
    def core(self) -> Core:
        """The machine's part."""
        return self._core

    @property
    def body_name(self) -> str:
        """Where it stands: "main" or a kernel."""
        return self._core.body_name

    @property
    def node(self) -> int:
        """The number of the node there that it goes on with."""
        return self._core.node

    @property
    def cycle(self) -> int:
        """The cycle at which it stands."""
        return self._core.now

    @property
    def state(self) -> CoreState:
        """Where it stands and all that is there; see `Core.state`."""
        self._check_alive()
        return self._core.state()

    def step(self) -> bool:
        """Run up to the next border: a block, or the overhead of an iteration or a call. True at the end."""
        return self.run_until(self.cycle)

    def run_until(self, cycle: int | None = None) -> bool:
        """Run to the first border at which `cycle` has come, a wait, or the end; true at the end.

        On the LLVM machine an exception that a signal's handler raises meanwhile, as Ctrl-C does, leaves
        the run paused.
        """
        self._check_alive()
        if self.is_done:
            return True
        limit = self._max_cycles + 1
        try:
            stop = self._core.advance(limit if cycle is None else min(cycle, limit))
        except MachineFault:
            self._is_broken = True
            raise
        self.is_done, self.is_waiting = stop is Stop.DONE, stop is Stop.WAITING
        if stop is Stop.PAUSED and self._core.now >= limit:
            self._is_broken = True
            raise CycleLimitFault(f"the run passed {self._max_cycles} cycles", self._core.body_name)
        return self.is_done

    def finish(self) -> ExecutionResult:
        """Run to the end; what it all took."""
        if not self.run_until():
            message = "the run waits for another core to raise a sync flag, and there is none"
            raise DeadlockFault(message, self._core.body_name)
        return self.result

    @property
    def result(self) -> ExecutionResult:
        """What it took so far, kernel calls under way left out."""
        return self._core.result()

    def save(self) -> bytes:
        """The run as bytes, from which `restore` of any machine of the same chip goes on.

        They hold the program's part of HBM, not the program.
        """
        core = self._core
        return dump_checkpoint(Checkpoint(core.program, self.state, core.hbm, self.is_done))

    def _check_alive(self) -> None:
        if self._is_broken:
            raise RuntimeError("the run ended with a fault: its state means nothing any more")
