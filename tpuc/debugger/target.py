"""What is debugged: a compiled program with its arguments in HBM, on cores of its own, and its places.

Nothing of the devices that other calls run on is touched.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import CompileError
from compiler.driver import CompiledModule
from compiler.hlo.ir import HloInstruction
from runtime.allocator import in_granules
from runtime.arguments import checked_shape
from runtime.executable import Executable
from runtime.ports import Port
from runtime.program_store import compiled_module
from runtime.slice_executable import SliceExecutable
from runtime.storage import read_planes, write_planes
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import Program
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.node_table import MAIN
from tpu_sim.machine.state import CoreWords
from tpu_sim.system.machine import create_machine
from tpu_sim.system.stepper import Stepper
from tpuc.debugger.breakpoints import DebuggerError
from tpuc.debugger.program_map import LoopSpan, ProgramMap
from tpuc.debugger.values import ArrayValues

HostArray = npt.NDArray[np.generic]


def _expect_one_core(program: Program) -> None:
    """Where cores share a kernel a cycle passes for each of them, and is no place."""
    shared = next((kernel.name for kernel in program.kernels.values() if kernel.cores > 1), None)
    if shared is not None:
        raise CompileError(
            f"kernel {shared} is shared by the cores of a device; debug the program for one of them: "
            "--set cores_per_device=1"
        )


class Target:
    """See above. `compiled` is None for a saved program, which has no HLO."""

    def __init__(
        self, executable: Executable, arguments: Sequence[npt.ArrayLike], machine: str
    ) -> None:
        executable.expect_count(len(arguments))
        self.executable = executable
        self.program: Program = executable.program
        self.chip: Chip = executable.device.chip
        _expect_one_core(self.program)
        compiled = compiled_module(executable)
        self.compiled = compiled if isinstance(compiled, CompiledModule) else None
        rows = _pieces(executable, arguments)
        self.hbms = [self._memory(executable.inputs, row) for row in rows]
        machines = [create_machine(self.chip, machine) for _ in rows]
        self.stepper = Stepper(self.program, self.chip, machines, self.hbms)
        module = None if self.compiled is None else self.compiled.module
        self.map = ProgramMap(self.program, self.stepper.table, module)
        self.values = None if self.compiled is None else ArrayValues(self.compiled.buffers)
        self.precision = self.program.metadata.get("precision", "default")

    def _memory(self, ports: Sequence[Port], values: Sequence[HostArray]) -> HbmMemory:
        hbm = HbmMemory(max(GRANULE_BYTES, in_granules(self.program.hbm_bytes)))
        for place, constant in self.program.constants:
            hbm.write(place, constant)
        for port, value in zip(ports, values, strict=True):
            write_planes(
                value, port.shape, [hbm.view(b.offset_bytes, b.size_bytes) for b in port.buffers]
            )
        return hbm

    def outputs(self, core: int) -> list[HostArray]:
        """What lies in a core's output buffers."""
        hbm = self.hbms[core]
        return [
            read_planes([hbm.view(b.offset_bytes, b.size_bytes) for b in port.buffers], port.shape)
            for port in self.executable.outputs
        ]

    # where a core stands

    def site(self, core: int) -> str | None:
        """The call under way; None in main."""
        state = self.stepper.words(core)
        return None if state.body == MAIN else self.map.sites[state.call]

    def site_instr(self, core: int) -> HloInstruction | None:
        """The HLO instruction of the call under way, or in main of the next call in the text."""
        _, node, _ = self.stepper.place(core)
        site = self.site(core)
        if site is None:
            nodes = self.stepper.table.bodies[MAIN].nodes[node:]
            number = next((flat.call for flat in nodes if flat.call >= 0), None)
            site = None if number is None else self.map.sites[number]
        return None if site is None else self.map.controlled.get(site)

    def loops(self, core: int) -> list[LoopSpan]:
        """The loops around the place in its own body, outermost first."""
        body, node, _ = self.stepper.place(core)
        return self.map.bodies[body].around(node)

    def main_loops(self, core: int) -> list[LoopSpan]:
        """The loops of main around the place, or around the call under way."""
        state = self.stepper.words(core)
        node = state.node if state.body == MAIN else state.return_node - 1
        return self.map.bodies[MAIN].around(node)

    def step(self, core: int) -> int | None:
        """The iteration of a kernel's outermost loop."""
        state = self.stepper.words(core)
        loops = self.loops(core)
        return None if state.body == MAIN or not loops else count_of(state, loops[0])

    def iteration(self, core: int) -> int | None:
        """The iteration of the innermost `while` of main, or else of the kernel's outermost one."""
        state = self.stepper.words(core)
        outer = [loop for loop in self.main_loops(core) if loop.is_while]
        if outer:
            return count_of(state, outer[-1])
        inner = [] if state.body == MAIN else [loop for loop in self.loops(core) if loop.is_while]
        return count_of(state, inner[0]) if inner else None

    def instruction(self, name: str) -> HloInstruction:
        """An HLO instruction by name; raises `DebuggerError`."""
        found = self.map.instructions.get(name.removeprefix("%"))
        if found is None:
            if self.map.module is None:
                raise DebuggerError("a saved program holds no HLO: debug the model it came from")
            raise DebuggerError(f"no HLO instruction {name!r}{near(name, self.map.instructions)}")
        return found


@dataclass(frozen=True)
class Mark:
    """What tells steps of a kernel apart."""

    call: int
    body: int
    step: int | None


def count_of(state: CoreWords, loop: LoopSpan) -> int:
    """How many iterations of a loop are done."""
    return int(state.counters[loop.counter])


def near(name: str, names: Sequence[str] | dict[str, HloInstruction]) -> str:
    """``; near: a, b`` if there are names like it."""
    found = difflib.get_close_matches(name.removeprefix("%"), list(dict.fromkeys(names)), n=3)
    return f"; near: {', '.join(found)}" if found else ""


def _pieces(executable: Executable, arguments: Sequence[npt.ArrayLike]) -> list[list[HostArray]]:
    """What each core gets of the arguments."""
    spreads = executable.spreads_in if isinstance(executable, SliceExecutable) else None
    hosts = [
        checked_shape(n, value, port, port.shape if spreads is None else spreads[n].shape)
        for n, (value, port) in enumerate(zip(arguments, executable.inputs, strict=True))
    ]
    if spreads is None:
        return [hosts]
    cut = [list(spread.cut(host)) for spread, host in zip(spreads, hosts, strict=True)]
    return [[piece[core] for piece in cut] for core in range(executable.device_count)]
