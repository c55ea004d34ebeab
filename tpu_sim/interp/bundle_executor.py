"""Executes one bundle on a `CoreState`: stalls, then all reads, then all writes.

An instruction's read phase gives its commits, functions without arguments; these run in the order
listed, and those that start transfers last. Where several instructions of a bundle fault, the first
of these is the one: waits, loads, scalar instructions, stores and indexed accesses, transfers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tpu_sim.interp.numpy_core import Commit, NumpyCore
from tpu_sim.interp.numpy_lanes import NumpyLanes
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chip_limits import MOST_RESULTS
from tpu_sim.isa.geometry import LANES, SUBLANES
from tpu_sim.isa.instruction import Instr, Kind, Row, Slot
from tpu_sim.isa.program import Bundle, Kernel
from tpu_sim.isa.resources import EUP, FLAG, MRF
from tpu_sim.isa.timing import unit_issue, wait_end
from tpu_sim.machine.fabric import Fabric, Links, LocalFabric
from tpu_sim.machine.faults import DmaRaceFault
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.race_detector import RaceDetector
from tpu_sim.machine.state import CoreState

U32 = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]


class BundleExecutor:
    """Runs the bundles of one kernel (or of main, `kernel` None) on `state` and `hbm`.

    `nan`: see `NumpyLanes`.
    """

    def __init__(
        self,
        state: CoreState,
        hbm: HbmMemory,
        kernel: Kernel | None,
        races: RaceDetector | None,
        nan: int | None = None,
        fabric: Fabric | None = None,
        links: Links | None = None,
    ) -> None:
        self._state = state
        fabric = fabric or LocalFabric(state.chip)
        self._core = NumpyCore(state, hbm, kernel, races, fabric, links)
        self._vector = NumpyLanes((SUBLANES, LANES), nan)
        self._scalar = NumpyLanes((1,))

    def execute(self, bundle: Bundle) -> None:
        """Issue one bundle; the clock stands at the cycle after it when this returns."""
        if bundle:
            self._stall(bundle)
            order = sorted(range(len(bundle)), key=lambda number: _rank(bundle[number].row))
            commits = {number: self._step(bundle[number]) for number in order}
            for number in sorted(commits, key=lambda n: (bundle[n].row.is_transfer, n)):
                for commit in commits[number]:
                    commit()
        self._state.now += 1

    def _stall(self, bundle: Bundle) -> None:
        state = self._state
        issue = state.now
        popped = [0] * state.chip.mxu_units
        for instr in bundle:
            row, operands = instr.row, instr.operands
            if FLAG in row.uses:
                base, sreg = operands[row.flag_index : row.flag_index + 2]
                flag = self._core.flag(base, state.sreg(sreg))
                if state.flag_pending[flag] > 0:
                    raise DmaRaceFault("a wait for another core stands behind other bundles")
                done = int(state.flag_done[flag])
                until = wait_end(issue, done, state.chip.dma_wait_cycles)
                state.dma_wait += until - state.now
                issue = self._wait(issue, until, Cause(state.flag_cause[flag]))
            elif row.pops == MRF:
                unit = operands[row.unit_index]
                oldest = int(state.mrf_popped[unit]) + popped[unit]
                ready = int(state.mrf_ready[unit, oldest % MOST_RESULTS])
                popped[unit] += 1
                issue = self._wait(issue, ready, Cause.MXU_RESULT)
            elif row.pushes == MRF:
                free = unit_issue(int(state.unit_free[operands[row.unit_index]]))
                issue = self._wait(issue, free, Cause.MXU)
        state.now = issue

    def _wait(self, issue: int, until: int, cause: Cause) -> int:
        """The later time; what the bundle waits longer for this than for those before."""
        self._state.causes[cause] += max(0, until - issue)
        return max(issue, until)

    def _step(self, instr: Instr) -> list[Commit]:
        """Let an instruction read; what is left to do."""
        row, core = instr.row, self._core
        if row.is_state:
            result = row.does(core, *self._sources(instr, self._state.sreg))
        else:
            lanes = self._scalar if row.slot is Slot.SCALAR else self._vector
            result = row.does(lanes, *self._sources(instr, self._sreg_lanes))
        commits, core.later = core.later, []
        if row.write is not None:
            commits.append(self._write(row.write.register_class, instr.operands[0], result))
        elif not row.is_state:
            queue = self._state.eup if row.pushes == EUP else self._state.xlu
            commits.append(lambda: queue.append(_vreg(result)))
        return commits

    def _sreg_lanes(self, number: int) -> U32:
        return self._state.sregs[number : number + 1].copy()

    def _sources(self, instr: Instr, sreg: Callable[[int], object]) -> list[object]:
        """The values of an instruction's sources, in row order."""
        found: list[object] = []
        for operand, value in zip(instr.row.operands, instr.operands, strict=True):
            match operand.kind:
                case Kind.VS:
                    found.append(self._state.vregs[value])
                case Kind.MS:
                    found.append(self._state.vmasks[value])
                case Kind.SS:
                    found.append(sreg(value))
                case Kind.VD | Kind.MD | Kind.SD:
                    pass
                case _:
                    found.append(value)
        return found

    def _write(self, register_class: str, number: int, result: object) -> Commit:
        state = self._state
        match register_class:
            case "v":
                return lambda: state.vregs.__setitem__(number, _vreg(result))
            case "m":
                return lambda: state.vmasks.__setitem__(number, _mask(result))
            case _:
                return lambda: state.sregs.__setitem__(number, _vreg(result)[0])


def _rank(row: Row) -> int:
    """When an instruction of a bundle reads, and so faults."""
    if row.is_transfer:
        return 3
    if row.slot is Slot.STORE or row.is_indexed:
        return 2
    return 0 if row.slot is Slot.LOAD else 1


def _vreg(value: object) -> U32:
    assert isinstance(value, np.ndarray) and value.dtype == np.uint32
    return value


def _mask(value: object) -> Mask:
    assert isinstance(value, np.ndarray) and value.dtype == np.bool_
    return value
