"""Arrays of HLO instructions as they lie in the emulated memories, by buffer and layout.

An array is there from the instruction that makes it to the last that reads it; then its place is
somebody else's. What is asked for too early or too late is refused, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler.analysis.buffer_assignment import Allocation, BufferAssignment
from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape import ArrayShape, Layout, Tile, leaves
from compiler.llo.ir import ARGUMENT_WORDS
from runtime.storage import plane_shape, read_planes, stored_bytes
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import HBM, SMEM, VMEM
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.state import CoreState

HostArray = npt.NDArray[np.generic]
SPACES = {HBM: "HBM", VMEM: "VMEM", SMEM: "SMEM"}
_FORWARDS = with_trait(Trait.FORWARDS)


class NoValueError(ValueError):
    """There is no such value now; the message says why and where to look."""


@dataclass(frozen=True)
class ArrayBuffer:
    """Where an array lies: bytes from `offset` in a memory space."""

    space: int
    offset: int
    size_bytes: int
    shape: ArrayShape

    def meets(self, other: Allocation) -> bool:
        """Whether an allocation shares bytes with it."""
        return (
            self.space == other.space
            and self.offset < other.offset + other.size_bytes
            and other.offset < self.offset + self.size_bytes
        )

    def text(self) -> str:
        """``HBM 0x200 + 512``."""
        return f"{SPACES.get(self.space, '?')} {self.offset:#x} + {self.size_bytes}"


class ArrayValues:
    """Reads arrays of a compiled module's instructions."""

    def __init__(self, buffers: BufferAssignment) -> None:
        self._buffers = buffers

    def buffers(self, instr: HloInstruction) -> list[ArrayBuffer]:
        """Where each array of an instruction's result lies; none for what has no place of its own."""
        found = []
        for leaf, shape in enumerate(leaves(instr.shape)):
            if (instr, leaf) in self._buffers.slots:
                place = self._buffers.allocation(instr, leaf)
                found.append(ArrayBuffer(place.space, place.offset, place.size_bytes, shape))
        return found

    def expect_there(self, instr: HloInstruction, site: HloInstruction | None) -> None:
        """Raise `NoValueError` if the value is not there just before `site` runs (None: at the end)."""
        if site is None or instr.opcode in ("parameter", "constant"):
            return
        positions = self._buffers.positions
        if site not in positions or instr not in positions:
            return
        now, made = positions[site].start, positions[instr]
        if made.end >= now:
            text = f"%{instr.name} is not computed yet: %{site.name} runs first"
            raise NoValueError(f"{text} (evaluate it, or go on to it: break after {instr.name})")
        for buffer in self.buffers(instr):
            taker = self._taker(buffer, instr, made.end, now)
            if taker is not None:
                raise NoValueError(
                    f"%{instr.name} is gone: %{taker.name} took its place in {buffer.text()}; "
                    f"go back to see it: tbreak after {instr.name}, reverse-continue"
                )

    def _taker(
        self, buffer: ArrayBuffer, instr: HloInstruction, made: int, now: int
    ) -> HloInstruction | None:
        """Who wrote over a value between its making and now."""
        mine = {self._buffers.slots.get((instr, n)) for n in range(len(leaves(instr.shape)))}
        for other, at in self._buffers.positions.items():
            is_between = made < at.end < now and other is not instr
            if not is_between or other.opcode in _FORWARDS or other.opcode == "parameter":
                continue
            for leaf in range(len(leaves(other.shape))):
                slot = self._buffers.slots.get((other, leaf))
                if slot is None or (slot in mine and _hands_on(other, instr)):
                    continue
                if buffer.meets(self._buffers.allocations[slot]):
                    return other
        return None

    def read(self, buffer: ArrayBuffer, state: CoreState, hbm: HbmMemory) -> HostArray:
        """The logical array in a buffer."""
        return read_buffer(buffer, state, hbm)


def read_buffer(buffer: ArrayBuffer, state: CoreState, hbm: HbmMemory) -> HostArray:
    """The logical array in a buffer of any memory."""
    shape, at = buffer.shape, buffer.offset
    if buffer.space == SMEM:
        first = ARGUMENT_WORDS + at // 4
        return _from_words(state.smem[first : first + shape.element_count], shape)
    if buffer.space == VMEM:
        shape = _in_registers(shape)
        first = at // GRANULE_BYTES
        rows = state.vmem[first : first + -(-stored_bytes(shape) // GRANULE_BYTES)]
        return read_planes([rows.reshape(-1).view(np.uint8)[: stored_bytes(shape)]], shape)
    planes = stored_bytes(shape) // stored_bytes(plane_shape(shape)) if stored_bytes(shape) else 1
    size = stored_bytes(shape) // max(1, planes)
    return read_planes([hbm.view(at + n * size, size) for n in range(max(1, planes))], shape)


def is_bad(values: HostArray, kind: str) -> npt.NDArray[np.bool_]:
    """Where values of a float or complex type are "nan", or "inf"."""
    dtype = values.dtype
    if dtype.kind in "biu" or (dtype.kind == "V" and not _is_float(dtype)):
        return np.zeros(values.shape, np.bool_)
    wide = values if dtype.kind in "fc" else values.astype(np.float32)
    return np.isnan(wide) if kind == "nan" else np.isinf(wide)


def _is_float(dtype: np.dtype[np.generic]) -> bool:
    return "float" in dtype.name


def _hands_on(other: HloInstruction, instr: HloInstruction) -> bool:
    """Whether a loop or branch in the same place has the value among what it was given."""
    return other.opcode in ("while", "conditional", "call") and instr in other.operands


def _in_registers(shape: ArrayShape) -> ArrayShape:
    """The shape as VMEM holds it: whole registers, one tile after another."""
    dtype: DType = shape.dtype
    unit = 8 * dtype.packing
    packed = (Tile((dtype.packing, 1)),) if dtype.packing > 1 else ()
    order = tuple(reversed(range(shape.rank)))
    if shape.rank < 2:
        return shape.with_layout(
            Layout(order, (Tile((unit * 128,)), *((Tile((128,)), *packed) if packed else ())))
        )
    return shape.with_layout(Layout(order, (Tile((unit, 128)), *packed)))


def _from_words(words: npt.NDArray[np.uint32], shape: ArrayShape) -> HostArray:
    if shape.dtype.bits == 32:
        flat = words.view(shape.dtype.numpy)
    elif shape.dtype.kind == "pred":
        flat = words != 0
    else:
        flat = words.view(np.int32).astype(shape.dtype.numpy)
    return np.array(flat[: shape.element_count]).reshape(shape.dims)
