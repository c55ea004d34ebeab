"""Runs LLO directly, block by block, with the meanings of the rows: vector code before scheduling.

Also puts arrays into VMEM windows by the convention of `compiler.backend.vector.arrays`.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from compiler.backend.vector.arrays import VmemArray
from compiler.llo.ir import LloBlock, LloKernel, LloNode
from tpu_sim.interp.numpy_lanes import NumpyLanes
from tpu_sim.interp.transpose import transposed_halves
from tpu_sim.isa.control_flow import If, Loop
from tpu_sim.isa.instruction import Instr, Kind, Slot
from tpu_sim.isa.resources import EUP, XLU, Resource

_READS = {Kind.VS, Kind.MS, Kind.SS}
_WRITES = {Kind.VD, Kind.MD, Kind.SD}


class LloMachine:
    """`windows[i]` is the memory of window i: uint32 [rows, 128], filled with a NaN pattern."""

    def __init__(self, kernel: LloKernel, smem: dict[int, int] | None = None) -> None:
        self.kernel = kernel
        self.windows = [np.full((w.rows, 128), 0x7FBADBAD, np.uint32) for w in kernel.windows]
        self.smem = smem or {}
        self.counts: dict[str, int] = {}
        self._vector = NumpyLanes((8, 128))
        self._scalar = NumpyLanes((1,))
        self._registers: dict[tuple[Kind, int], object] = {}
        self._queues: dict[str, deque[object]] = {EUP: deque(), XLU: deque()}
        self._shadow = np.zeros((4, 128, 128), np.uint32)
        self._active = np.zeros((4, 128, 128), np.uint32)

    def run(self) -> None:
        with np.errstate(all="ignore"):
            self._nodes(self.kernel.body)

    def _nodes(self, nodes: list[LloNode]) -> None:
        for node in nodes:
            match node:
                case LloBlock():
                    for instr in node.ops:
                        self._execute(instr)
                    assert not any(self._queues.values())
                case Loop():
                    trips = node.trip if node.trip >= 0 else self._sreg(node.trip_sreg)
                    for i in range(trips):
                        self._registers[Kind.SD, node.index] = np.array([i], np.uint32)
                        self._nodes(node.body)
                case If():
                    taken = self._sreg(node.condition) != 0
                    self._nodes(node.then if taken else node.orelse)
                case _:
                    raise NotImplementedError(node)

    def _sreg(self, number: int) -> int:
        if number == 0:
            return 0
        return int(np.asarray(self._registers[Kind.SD, number]).view(np.int32)[0])

    def _source(self, kind: Kind, number: int) -> object:
        match kind:
            case Kind.VS:
                return self._registers[Kind.VD, number]
            case Kind.MS:
                return self._registers[Kind.MD, number]
            case Kind.SS:
                if number == 0:
                    return np.zeros(1, np.uint32)
                return self._registers[Kind.SD, number]
        return number

    def _execute(self, instr: Instr) -> None:
        row = instr.row
        self.counts[row.name] = self.counts.get(row.name, 0) + 1
        values = [
            self._source(o.kind, n)
            for o, n in zip(row.operands, instr.operands, strict=True)
            if o.kind not in _WRITES
        ]
        if row.is_state:
            result = row.does(self, *values)
        else:
            lanes = self._scalar if row.slot is Slot.SCALAR else self._vector
            result = row.does(lanes, *values)
        if row.pushes in self._queues:
            self._queues[row.pushes].append(result)
        elif row.operands and row.operands[0].kind in _WRITES:
            self._registers[row.operands[0].kind, instr.operands[0]] = result

    # `tpu_sim.isa.effects.CorePrimitives`, as far as vector code before scheduling uses it

    def pop(self, queue: Resource, unit: int) -> object:
        return self._queues[queue].popleft()

    def _rows(self, win: int, s: object, k: int, stride: int) -> npt.NDArray[np.int64]:
        base = int(np.asarray(s).view(np.int32)[0])
        rows = base + k + stride * np.arange(8)
        limit = len(self.windows[win])
        name = self.kernel.windows[win].name
        assert rows.min() >= 0 and rows.max() < limit, f"window {name}: rows {rows} of {limit}"
        return rows

    def load_rows(self, win: int, s: object, k: int, stride: int) -> object:
        return self.windows[win][self._rows(win, s, k, stride)]

    def load_words(self, win: int, s: object, index: npt.NDArray[np.uint32]) -> object:
        words = index.view(np.int32).astype(np.int64) + int(np.asarray(s)[0]) * 128
        assert words.min() >= 0 and words.max() < self.windows[win].size, "indexed load"
        return self.windows[win].reshape(-1)[words]

    def store_rows(
        self, win: int, s: object, k: int, stride: int, a: object, m: object = None
    ) -> None:
        for i, row in enumerate(self._rows(win, s, k, stride)):
            mask = slice(None) if m is None else np.asarray(m)[i]
            self.windows[win][row][mask] = np.asarray(a)[i][mask]

    def store_words(
        self, win: int, s: object, a: npt.NDArray[np.uint32], b: object, m: object
    ) -> None:
        words = a.view(np.int32).astype(np.int64) + int(np.asarray(s)[0]) * 128
        mask = np.asarray(m)
        assert words[mask].min(initial=0) >= 0
        assert words[mask].max(initial=0) < self.windows[win].size, "indexed store"
        self.windows[win].reshape(-1)[words[mask]] = np.asarray(b)[mask]

    def push_block(self, unit: int, a: object, row: int) -> None:
        self._shadow[unit, 8 * row : 8 * row + 8] = a

    def transpose(self, unit: int, element_bits: int) -> None:
        block = self._shadow[unit]
        self._active[unit] = block.T.copy() if element_bits == 32 else transposed_halves(block)

    def read_block(self, unit: int, row: int) -> object:
        return self._active[unit, 8 * row : 8 * row + 8].copy()

    def load_smem(self, s: object, k: int) -> object:
        at = int(np.asarray(s)[0]) + k
        return np.array([self.smem[at] & 0xFFFFFFFF], np.uint32)


def put(
    machine: LloMachine, array: VmemArray, values: npt.NDArray[np.generic], at: int = 0
) -> None:
    """Write the box of `values` (already cut to the extent) to word row `at` of its window."""
    words = to_words(array, values)
    machine.windows[array.window][at : at + len(words)] = words


def take(machine: LloMachine, array: VmemArray, at: int = 0) -> npt.NDArray[np.generic]:
    """Read the box back."""
    words = machine.windows[array.window][at : at + array.word_rows]
    p, bits = array.packing, array.shape.dtype.bits
    carrier = np.dtype(f"u{bits // 8}")
    m = int(np.prod(array.majors, dtype=int))
    parts = words.view(carrier).reshape(m, array.row_tiles, array.col_tiles, 8, 128, p)
    full = parts.transpose(0, 1, 3, 5, 2, 4).reshape(
        m, array.row_tiles * 8 * p, array.col_tiles * 128
    )
    dtype = array.shape.dtype.numpy
    if array.shape.rank == 0:
        return full[0, 0, 0].view(dtype)
    if array.replicated:
        return full[:, : array.rows, 0].reshape(array.extent).view(dtype)
    if array.shape.rank == 1:
        return full.reshape(-1)[: array.extent[0]].copy().view(dtype)
    cut = full[:, : array.rows, : array.cols].reshape(array.extent)
    return np.ascontiguousarray(cut).view(dtype)


def to_words(array: VmemArray, values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint32]:
    """The words of a buffer; padding is filled with a pattern that is NaN in every float type."""
    p, bits = array.packing, array.shape.dtype.bits
    carrier = np.dtype(f"u{bits // 8}")
    m = int(np.prod(array.majors, dtype=int))
    full = np.full((m, array.row_tiles * 8 * p, array.col_tiles * 128), 0x7F, carrier)
    raw = np.ascontiguousarray(np.asarray(values, array.shape.dtype.numpy)).view(carrier)
    if array.shape.rank == 1 and not array.replicated:
        flat = full.reshape(-1)
        flat[: raw.size] = raw
    elif array.replicated:
        full[:, : array.rows] = raw.reshape(m, array.rows, 1)
    else:
        full[:, : array.rows, : array.cols] = raw.reshape(m, array.rows, array.cols)
    split = full.reshape(m, array.row_tiles, 8, p, array.col_tiles, 128)
    words = np.ascontiguousarray(split.transpose(0, 1, 4, 2, 5, 3))
    return words.view(np.uint32).reshape(-1, 128)
