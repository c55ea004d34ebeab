"""Runs single kernels on given VMEM: scheduled, in LLO source order, or for time only."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import replace

import ml_dtypes
import numpy as np
import numpy.typing as npt

from compiler.llo.ir import LloBlock, LloKernel, LloNode
from tpu_sim.interp.bundle_executor import BundleExecutor
from tpu_sim.isa.checker import check_kernel
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import Call, If, Loop, While
from tpu_sim.isa.program import Block, Bundle, Kernel, Node, Window
from tpu_sim.isa.resources import MRF
from tpu_sim.isa.timing import result_ready_cycles
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.race_detector import RaceDetector
from tpu_sim.machine.state import CoreState

Rows = npt.NDArray[np.uint32]
VmemContents = Mapping[int, Rows]
_MANY = 8192


def run_kernel(kernel: Kernel, chip: Chip, vmem: VmemContents) -> CoreState:
    """Check and run a kernel whose windows (by id) hold `vmem`."""
    check_kernel(kernel, chip)
    return _execute(kernel, chip, vmem)


def run_watched(kernel: Kernel, chip: Chip, vmem: VmemContents) -> CoreState:
    """The same, with a fault if rows outside `vmem` are read before they are written."""
    check_kernel(kernel, chip)
    races = RaceDetector(chip.vmem_rows)
    races.enter_kernel(kernel.windows)
    for window in vmem:
        at = kernel.windows[window]
        races.write_rows(np.arange(at.base_row, at.base_row + at.rows, dtype=np.int64))
    return _execute(kernel, chip, vmem, races)


def run_in_source_order(llo: LloKernel, chip: Chip, vmem: VmemContents) -> CoreState:
    """Run LLO one operation a bundle, with as many registers as it names."""
    kernel = Kernel(
        llo.name, llo.arg_count, place(llo), llo.descriptors, _bundled(llo.body), flags=llo.flags
    )
    return _execute(kernel, replace(chip, sregs=_MANY), vmem)


def place(llo: LloKernel) -> list[Window]:
    """Windows one after another."""
    windows: list[Window] = []
    row = 0
    for window in llo.windows:
        windows.append(Window(window.name, row, window.rows))
        row += window.rows
    return windows


def window_rows(state: CoreState, kernel: Kernel | LloKernel, window: int) -> Rows:
    """What a window holds after a run."""
    windows = place(kernel) if isinstance(kernel, LloKernel) else kernel.windows
    at = windows[window]
    return state.vmem[at.base_row : at.base_row + at.rows]


def _execute(
    kernel: Kernel, chip: Chip, vmem: VmemContents, races: RaceDetector | None = None
) -> CoreState:
    state = CoreState(chip)
    state.enter_kernel()
    for window, rows in vmem.items():
        base = kernel.windows[window].base_row
        state.vmem[base : base + len(rows)] = rows
    executor = BundleExecutor(state, HbmMemory(512), kernel, races)
    with np.errstate(all="ignore"):
        _run_nodes(kernel.body, state, executor)
    return state


def _run_nodes(body: list[Node], state: CoreState, executor: BundleExecutor) -> None:
    for node in body:
        match node:
            case Block():
                for bundle in node.bundles:
                    executor.execute(bundle)
            case Loop():
                trip = node.trip if node.trip >= 0 else state.sreg(node.trip_sreg)
                for index in range(trip):
                    state.sregs[node.index] = index
                    _run_nodes(node.body, state, executor)
                    state.now += state.chip.loop_overhead_cycles
            case If():
                taken = node.then if state.sreg(node.condition) else node.orelse
                _run_nodes(taken, state, executor)
            case While():
                _run_nodes(node.test, state, executor)
                while state.sreg(node.condition):
                    _run_nodes(node.body, state, executor)
                    _run_nodes(node.test, state, executor)


def _bundled(body: list[LloNode]) -> list[Node]:
    out: list[Node] = []
    for node in body:
        match node:
            case LloBlock():
                out.append(Block([(op,) for op in node.ops]))
            case Loop():
                out.append(Loop(node.trip, node.index, _bundled(node.body), node.trip_sreg))
            case If():
                out.append(If(node.condition, _bundled(node.then), _bundled(node.orelse)))
            case While():
                out.append(While(_bundled(node.test), node.condition, _bundled(node.body)))
            case Call():
                out.append(node)
    return out


class CycleCounter:
    """Cycles and matmuls of a kernel with MXU stalls, without computing values."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.now = 0
        self.matmuls = 0
        self._free: dict[int, int] = defaultdict(int)
        self._ready: dict[int, deque[int]] = defaultdict(deque)

    @property
    def occupancy(self) -> float:
        """Share of the cycles in which the MXUs are busy."""
        busy = self.matmuls * self.chip.matmul_cycles / self.chip.mxu_units
        return busy / self.now

    def count(self, body: list[Node]) -> CycleCounter:
        for node in body:
            match node:
                case Block():
                    for bundle in node.bundles:
                        self._bundle(bundle)
                case Loop():
                    for _ in range(node.trip):
                        self.count(node.body)
                        self.now += self.chip.loop_overhead_cycles
        return self

    def _bundle(self, bundle: Bundle) -> None:
        matmuls = [instr.operands[0] for instr in bundle if instr.row.pushes == MRF]
        for unit in matmuls:
            self.now = max(self.now, self._free[unit])
        for instr in bundle:
            if instr.row.pops == MRF:
                self.now = max(self.now, self._ready[instr.operands[1]].popleft())
        for unit in matmuls:
            self._free[unit] = self.now + self.chip.matmul_cycles
            self._ready[unit].extend(self.now + c for c in result_ready_cycles(self.chip))
            self.matmuls += 1
        self.now += 1


def bf16_rows(matrix: npt.ArrayLike) -> Rows:
    """A matrix as packed bf16 tiles [R/16][C/128], padded with zeros."""
    values = np.asarray(matrix, np.float32).astype(ml_dtypes.bfloat16)
    rows, cols = values.shape
    row_tiles, col_tiles = -(-rows // 16), -(-cols // 128)
    padded = np.zeros((row_tiles * 16, col_tiles * 128), np.uint16)
    padded[:rows, :cols] = values.view(np.uint16)
    words = padded[0::2].astype(np.uint32) | (padded[1::2].astype(np.uint32) << 16)
    return words.reshape(row_tiles, 8, col_tiles, 128).transpose(0, 2, 1, 3).reshape(-1, 128)


def f32_rows(matrix: npt.ArrayLike) -> Rows:
    """A matrix as f32 tiles [R/8][C/128], padded with zeros."""
    values = np.asarray(matrix, np.float32)
    rows, cols = values.shape
    row_tiles, col_tiles = -(-rows // 8), -(-cols // 128)
    padded = np.zeros((row_tiles * 8, col_tiles * 128), np.float32)
    padded[:rows, :cols] = values
    tiles = padded.view(np.uint32).reshape(row_tiles, 8, col_tiles, 128)
    return tiles.transpose(0, 2, 1, 3).reshape(-1, 128)


def f32_matrix(tiles: Rows, rows: int, cols: int) -> npt.NDArray[np.float32]:
    """The matrix that f32 tiles hold."""
    row_tiles, col_tiles = -(-rows // 8), -(-cols // 128)
    held = np.ascontiguousarray(tiles[: row_tiles * col_tiles * 8]).view(np.float32)
    matrix = held.reshape(row_tiles, col_tiles, 8, 128).transpose(0, 2, 1, 3)
    return matrix.reshape(row_tiles * 8, col_tiles * 128)[:rows, :cols]
