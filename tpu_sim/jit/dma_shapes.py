"""The shape of a transfer: its steps after merging, and how the bytes of either side lie."""

from __future__ import annotations

from dataclasses import dataclass

from tpu_sim.isa.geometry import GRANULE_BYTES, WORD_BYTES
from tpu_sim.isa.program import HBM, SMEM, DmaDescriptor


@dataclass(frozen=True)
class CopyStep:
    """One loop of a copy; strides in bytes, `count` as in `DmaDim`."""

    count: int
    source: int
    target: int


@dataclass(frozen=True)
class CopyPlan:
    """A copy after merging: loops outermost first around chunks of `size` bytes."""

    steps: tuple[CopyStep, ...]
    size: int
    in_order: bool  # both sides lie in one memory and may overlap
    is_aligned: bool  # SMEM is addressed by words, other memories by granules
    to_hbm: bool

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole copy, 0 if a count is dynamic."""
        total = self.size
        for step in self.steps:
            total *= max(step.count, 0)
        return total


def unit_bytes(space: int) -> int:
    """Bytes of one address unit of a memory."""
    return WORD_BYTES if space == SMEM else GRANULE_BYTES


def copy_plan(descriptor: DmaDescriptor) -> CopyPlan:
    """The loops of a transfer; steps that follow each other without a gap become one longer chunk."""
    has_smem = SMEM in (descriptor.src_space, descriptor.dst_space)
    size = descriptor.chunk * (WORD_BYTES if has_smem else GRANULE_BYTES)
    steps = [
        CopyStep(
            dim.count,
            dim.src_stride * unit_bytes(descriptor.src_space),
            dim.dst_stride * unit_bytes(descriptor.dst_space),
        )
        for dim in descriptor.dims
        if dim.count != 1
    ]
    in_order = descriptor.src_space == descriptor.dst_space
    while not in_order and steps and steps[-1].count > 0:
        last = steps[-1]
        if (last.source, last.target) != (size, size):
            break
        size *= steps.pop().count
    return CopyPlan(tuple(steps), size, in_order, not has_smem, descriptor.dst_space == HBM)


@dataclass(frozen=True)
class EvenPieces:
    """Bytes that lie in equal pieces: `stride` bytes from one to the next, 0 for a single piece."""

    size: int
    count: int
    stride: int


def source_of_dense(descriptor: DmaDescriptor) -> EvenPieces | None:
    """How the source lies of a transfer between memories that fills one dense range; else None."""
    plan = copy_plan(descriptor)
    if plan.in_order or len(plan.steps) > 1:
        return None
    if not plan.steps:
        return EvenPieces(plan.size, 1, 0)
    step = plan.steps[0]
    is_dense = step.count > 0 and step.target == plan.size and step.source >= plan.size
    return EvenPieces(plan.size, step.count, step.source) if is_dense else None


def target_spread(descriptor: DmaDescriptor) -> EvenPieces | None:
    """How what a transfer writes lies; None if in no such way."""
    plan = copy_plan(descriptor)
    if not plan.steps:
        return EvenPieces(plan.size, 1, 0)
    step = plan.steps[0]
    if len(plan.steps) > 1 or step.count <= 0 or step.target < plan.size:
        return None
    return EvenPieces(plan.size, step.count, step.target)
