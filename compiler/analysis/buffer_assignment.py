"""Buffer assignment: an offset in HBM or SMEM for every array outside fusions.

    assignment = assign_buffers(module, chip)
    assignment.allocation(instr, leaf)         where array `leaf` of the instruction's value lies
    assignment.peak_bytes                      bytes of HBM the program needs, all included

Buffers that HLO's rules make one (`compiler.analysis.aliasing`) are one; the others are packed
by live range. Entry parameters lie first, in order, and are live throughout, unless donated.
HBM offsets and sizes are multiples of 512 bytes; SMEM offsets count bytes of 4-byte words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from compiler.analysis.aliasing import Slot, leaf_count, shared_slots
from compiler.analysis.async_flags import adds_up
from compiler.analysis.buffer_packing import Request, pack
from compiler.analysis.fusion_body import is_carried
from compiler.analysis.kernel_vmem import held_rows
from compiler.analysis.liveness import Liveness, LiveRange
from compiler.analysis.tiled_layout import byte_size, memory_space
from compiler.analysis.vmem_packing import VmemRows
from compiler.analysis.vmem_scope import SCALAR_KERNEL_BYTES, scoped_bytes, uses_vmem
from compiler.diagnostics import ResourceExhaustedError
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape, leaves
from compiler.hlo.shape_text import print_shape
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import HBM, SMEM, VMEM

HBM_ALIGNMENT = 512
SMEM_ALIGNMENT = 4
_REPORTED = 10


class HasMemorySizes(Protocol):
    """What buffer assignment asks of a chip."""

    @property
    def hbm_bytes(self) -> int:
        """Device memory, in bytes."""

    @property
    def vmem_bytes(self) -> int:
        """Vector memory, in bytes."""


@dataclass(frozen=True)
class Allocation:
    """A place in memory. `size_bytes` is what the arrays need, padding included.

    `parameter` is (number, leaf) of the entry parameter that lies here, `outputs` the leaves of
    the entry's result that do; `is_constant` marks data of the program.
    """

    space: int
    offset: int
    size_bytes: int
    live: tuple[int, int]
    parameter: tuple[int, int] | None = None
    outputs: tuple[int, ...] = ()
    is_constant: bool = False


@dataclass
class BufferAssignment:
    """The allocation of every slot; `peak_bytes` and `smem_bytes` are the memories' high water.

    `positions` are those of `Liveness`.
    """

    allocations: list[Allocation]
    slots: dict[Slot, int]
    peak_bytes: int
    smem_bytes: int
    parameter_bytes: int
    names: dict[int, str] = field(default_factory=dict)
    positions: dict[HloInstruction, LiveRange] = field(default_factory=dict)

    def allocation(self, instr: HloInstruction, leaf: int = 0) -> Allocation:
        """Where array `leaf` (in depth-first order) of the instruction's value lies."""
        return self.allocations[self.slots[instr, leaf]]

    def holds_vmem(self, instr: HloInstruction) -> bool:
        """Whether an array lies in VMEM while an instruction, or what it calls, runs."""
        at = self.positions[instr]
        return any(
            a.space == VMEM and a.live[0] <= at.end and at.start <= a.live[1]
            for a in self.allocations
        )

    def of(self, instr: HloInstruction, leaf: int = 0) -> Allocation:
        """Short for `allocation`."""
        return self.allocation(instr, leaf)


@dataclass
class _Buffer:
    """A set of slots that share memory, while its facts are gathered."""

    size_bytes: int = 0
    unpadded_bytes: int = 0
    space: int = HBM
    live: LiveRange = field(default_factory=lambda: LiveRange(0, 0))
    parameter: tuple[int, int] | None = None
    outputs: list[int] = field(default_factory=list)
    is_constant: bool = False
    is_carried: bool = False
    shape: ArrayShape | None = None
    name: str = ""


def assign_buffers(module: HloModule, chip: HasMemorySizes) -> BufferAssignment:
    """Assign all buffers; raises ResourceExhaustedError when HBM is too small."""
    sets = shared_slots(module)
    liveness = Liveness(module, sets)
    numbers: dict[Slot, int] = {}
    buffers: list[_Buffer] = []
    slots: dict[Slot, int] = {}
    for computation in control_computations(module):
        for instr in computation:
            for leaf, shape in enumerate(leaves(instr.shape)):
                root = sets.find((instr, leaf))
                if root not in numbers:
                    numbers[root] = len(buffers)
                    buffers.append(_Buffer(live=liveness.ranges.get(root, LiveRange(0, 0))))
                slots[instr, leaf] = numbers[root]
                _note(buffers[numbers[root]], instr, leaf, shape)
    _mark_interface(module, buffers, slots)
    assignment = _place(
        buffers, slots, VmemRows(chip.vmem_bytes // GRANULE_BYTES, _scopes(liveness, chip))
    )
    assignment.positions = liveness.positions
    if assignment.peak_bytes > chip.hbm_bytes:
        raise _exhausted(module, buffers, assignment, chip.hbm_bytes)
    return assignment


def _scopes(liveness: Liveness, chip: HasMemorySizes) -> list[int]:
    """Rows of VMEM that kernels have for themselves, by position."""
    scopes = [0] * (liveness.length + 1)
    for instr, at in liveness.positions.items():
        if OPCODES[instr.opcode].has(Trait.KERNEL) or adds_up(instr):
            size = scoped_bytes(instr) if uses_vmem(instr) else SCALAR_KERNEL_BYTES
            size = chip.vmem_bytes if size is None else min(size, chip.vmem_bytes)
            scopes[at.start] = size // GRANULE_BYTES
    for instr, at in liveness.positions.items():
        size = scoped_bytes(instr) if instr.opcode == "while" else None
        if size is not None:  # the loop is a kernel
            for position in range(at.start, at.end + 1):
                scopes[position] = max(scopes[position], size // GRANULE_BYTES)
    return scopes


def _note(buffer: _Buffer, instr: HloInstruction, leaf: int, shape: ArrayShape) -> None:
    size = _byte_size(shape)
    if size > buffer.size_bytes or buffer.shape is None:
        buffer.size_bytes, buffer.shape, buffer.name = size, shape, instr.name
        buffer.unpadded_bytes = shape.byte_count
    if shape.layout is not None:
        buffer.space = shape.layout.memory_space
    buffer.is_constant |= instr.opcode == "constant"
    buffer.is_carried |= is_carried(instr, leaf)


def _byte_size(shape: ArrayShape) -> int:
    """Bytes where the array lies; VMEM holds whole registers, and rows after them."""
    if memory_space(shape) == VMEM:
        return held_rows(shape, shape.dims) * GRANULE_BYTES
    return byte_size(shape)


def _mark_interface(module: HloModule, buffers: list[_Buffer], slots: dict[Slot, int]) -> None:
    for number, parameter in enumerate(module.entry.parameters):
        for leaf in range(leaf_count(parameter.shape)):
            buffers[slots[parameter, leaf]].parameter = (number, leaf)
    root = module.entry.root_instruction
    for leaf in range(leaf_count(root.shape)):
        buffers[slots[root, leaf]].outputs.append(leaf)


def _place(buffers: list[_Buffer], slots: dict[Slot, int], vmem_rows: VmemRows) -> BufferAssignment:
    offsets: dict[int, int] = {}
    hbm_base = 0
    for number, buffer in enumerate(buffers):
        if buffer.parameter is not None and buffer.space == HBM:
            offsets[number] = hbm_base
            hbm_base += -(-buffer.size_bytes // HBM_ALIGNMENT) * HBM_ALIGNMENT
    whole = max((b.live.end for b in buffers), default=0)
    temporary: list[Request] = []
    smem: list[Request] = []
    vmem: list[Request] = []
    for number, buffer in enumerate(buffers):
        if number in offsets:
            continue
        start, end = buffer.live.start, buffer.live.end
        if buffer.is_constant:
            start, end = 0, whole
        request = Request(number, buffer.size_bytes, start, end, buffer.is_carried)
        {HBM: temporary, VMEM: vmem, SMEM: smem}[buffer.space].append(request)
    placed, peak = pack(temporary, hbm_base, HBM_ALIGNMENT)
    in_smem, smem_bytes = pack(smem, 0, SMEM_ALIGNMENT)
    offsets.update(placed)
    offsets.update(in_smem)
    offsets.update({n: row * GRANULE_BYTES for n, row in vmem_rows.pack(vmem).items()})
    for request in vmem:
        if request.key not in offsets:
            raise ResourceExhaustedError(
                f"%{buffers[request.key].name}: {request.size_bytes} bytes of VMEM are not free "
                "between the kernels that make and read it; give it memory space 0"
            )
    allocations = [_allocation(b, offsets[n]) for n, b in enumerate(buffers)]
    names = {n: b.name for n, b in enumerate(buffers)}
    return BufferAssignment(allocations, slots, peak, smem_bytes, hbm_base, names)


def _allocation(buffer: _Buffer, offset: int) -> Allocation:
    return Allocation(
        buffer.space,
        offset,
        buffer.size_bytes,
        (buffer.live.start, buffer.live.end),
        buffer.parameter,
        tuple(buffer.outputs),
        buffer.is_constant,
    )


def _exhausted(
    module: HloModule, buffers: list[_Buffer], assignment: BufferAssignment, capacity: int
) -> ResourceExhaustedError:
    """The error: what is needed, and the largest buffers alive at the fullest moment."""
    moment = _fullest_moment([b for b in buffers if b.space == HBM])
    alive = [b for b in buffers if b.space == HBM and b.live.start <= moment <= b.live.end]
    alive.sort(key=lambda b: -b.size_bytes)
    summary = (
        f"{module.name} needs {assignment.peak_bytes:,} bytes of HBM, the chip has {capacity:,} "
        f"(parameters {assignment.parameter_bytes:,})"
    )
    lines = [f"RESOURCE_EXHAUSTED: {summary}. Largest buffers when it is fullest:"]
    for buffer in alive[:_REPORTED]:
        waste = buffer.size_bytes - buffer.unpadded_bytes
        shape = print_shape(buffer.shape) if buffer.shape is not None else ""
        lines.append(
            f"  {buffer.size_bytes:>15,} bytes ({waste:,} padding)  %{buffer.name} {shape}"
        )
    lines.append("Use a smaller batch, a narrower type or more chips.")
    return ResourceExhaustedError(
        "\n".join(lines), summary=summary, needed_bytes=assignment.peak_bytes
    )


def _fullest_moment(buffers: list[_Buffer]) -> int:
    changes: list[tuple[int, int]] = []
    for buffer in buffers:
        changes.append((buffer.live.start, buffer.size_bytes))
        changes.append((buffer.live.end + 1, -buffer.size_bytes))
    best = moment = total = 0
    for position, change in sorted(changes):
        total += change
        if total > best:
            best, moment = total, position
    return moment
