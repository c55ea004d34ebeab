"""The copy of a transfer as native code: vector loops, ranges for several threads.

A large copy between two memories is cut at its outermost dimension into tasks
(`tpu_sim.jit.fork_join`). Large writes to HBM bypass the caches: what a kernel streams out is not
read again soon.
"""

from __future__ import annotations

from dataclasses import replace

from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import DmaDescriptor
from tpu_sim.jit.context import Word
from tpu_sim.jit.dma_shapes import CopyPlan, CopyStep, copy_plan
from tpu_sim.jit.emitter import NON_TEMPORAL_USE, FunctionEmitter
from tpu_sim.jit.lanes import CHUNK_BYTES
from tpu_sim.jit.scope import ModuleScope
from tpu_sim.jit.task_table import TaskTable

COUNT_ARGUMENTS = {-1: "%c0", -2: "%c1"}
"""The mark of streaming stores, and the metadata node it names, which a module defines once."""
_SHARED_BYTES = 1 << 16
"""Size from which handing a part of a copy to another thread pays."""
_STREAMED_BYTES = 1 << 20
_TASK_BYTES = 1 << 15
_BLOCK_BYTES = 4096


def count_value(emitter: FunctionEmitter, count: int) -> str:
    """A count of a descriptor as i64: itself, or the argument that a negative one stands for."""
    if count >= 0:
        return str(count)
    return emitter.value(f"zext i32 {COUNT_ARGUMENTS[count]} to i64")


def emit_copy(
    emitter: FunctionEmitter,
    descriptor: DmaDescriptor,
    name: str,
    source: str,
    target: str,
    module: ModuleScope,
) -> list[str]:
    """Append the copy of a checked transfer; returns the functions that its tasks run."""
    plan = copy_plan(descriptor)
    may_share = module.threads > 1 and plan.is_aligned and not plan.in_order
    if may_share and plan.total_bytes >= _SHARED_BYTES:
        if not plan.steps:
            blocks = plan.size // _BLOCK_BYTES
            done = blocks * _BLOCK_BYTES
            step = CopyStep(blocks, _BLOCK_BYTES, _BLOCK_BYTES)
            rest = [emitter.offset(side, done) for side in (source, target)]
            _Copy(emitter, plan).chunk(rest[0], rest[1], plan.size - done)
            plan = replace(plan, steps=(step,), size=_BLOCK_BYTES)
        if plan.steps[0].count > 1 and _is_apart(plan):
            return [_shared(emitter, plan, name, (source, target), module)]
    copy = _Copy(emitter, plan)
    copy.steps(plan.steps, source, target)
    copy.settle()
    return []


def _is_apart(plan: CopyPlan) -> bool:
    """Whether the iterations of the outermost step write bytes of their own, in any order."""
    outer, *inner = plan.steps
    reach = sum((step.count - 1) * abs(step.target) for step in inner)
    return abs(outer.target) >= reach + plan.size


def _is_streamed(plan: CopyPlan) -> bool:
    """Whether its stores bypass the caches."""
    is_plain = plan.is_aligned and not plan.in_order
    return plan.to_hbm and is_plain and plan.total_bytes >= _STREAMED_BYTES


def _shared(
    emitter: FunctionEmitter, plan: CopyPlan, name: str, sides: tuple[str, str], module: ModuleScope
) -> str:
    """Append a fork over ranges of the outermost step; returns the function of its tasks."""
    for memory, word in (("tasks", Word.TASKS), ("scratch", Word.SCRATCH)):
        emitter.do(f"%{memory} = load ptr, ptr {emitter.offset('%ctx', int(word) * 8)}")
    outer = plan.steps[0]
    count = min(outer.count, 2 * module.threads, max(2, plan.total_bytes // _TASK_BYTES))
    table = TaskTable(emitter)
    for number in range(count):
        first, end = (outer.count * n // count for n in (number, number + 1))
        ranges = (f"i64 {first}", f"i64 {end - first}")
        table.add_commands([(f"{name}_part", (f"ptr {sides[0]}", f"ptr {sides[1]}", *ranges))])
    table.run()
    module.task_bytes = max(module.task_bytes, table.peak_bytes)
    e = FunctionEmitter("d")
    source = e.offset("%source", e.value(f"mul i64 %first, {outer.source}"))
    target = e.offset("%target", e.value(f"mul i64 %first, {outer.target}"))
    copy = _Copy(e, plan)
    copy.steps(plan.steps, source, target, "%count")
    copy.settle()
    return (
        f"define void @{name}_part(ptr %source, ptr %target, i64 %first, i64 %count) "
        f"noinline #0 {{\nentry:\n{e.text()}\n ret void\n}}\n"
    )


class _Copy:
    """Emits the loops of a copy."""

    def __init__(self, emitter: FunctionEmitter, plan: CopyPlan) -> None:
        self._emitter = emitter
        self._plan = plan
        self._hint = f", {NON_TEMPORAL_USE}" if _is_streamed(plan) else ""

    def settle(self) -> None:
        """Streaming stores are visible to other threads only after a fence."""
        if self._hint:
            self._emitter.do("fence seq_cst")

    def steps(self, steps: tuple[CopyStep, ...], source: str, target: str, count: str = "") -> None:
        """The loops of `steps`, the outermost of them with `count` trips where that is given."""
        e = self._emitter
        if not steps:
            self.chunk(source, target, self._plan.size)
            return
        trips = count or count_value(self._emitter, steps[0].count)
        with e.loop(trips) as i:
            following = [
                e.offset(side, e.value(f"mul i64 {i}, {stride}"))
                for side, stride in ((source, steps[0].source), (target, steps[0].target))
            ]
            self.steps(steps[1:], following[0], following[1])

    def chunk(self, source: str, target: str, size_bytes: int) -> None:
        """Copy contiguous bytes."""
        e = self._emitter
        if self._plan.in_order or not self._plan.is_aligned:
            kind = "memmove" if self._plan.in_order else "memcpy"
            e.do(
                f"call void @llvm.{kind}.p0.p0.i64(ptr {target}, ptr {source}, "
                f"i64 {size_bytes}, i1 false)"
            )
        elif size_bytes > GRANULE_BYTES:
            with e.loop(size_bytes, GRANULE_BYTES) as at:
                self._granule(e.offset(source, at), e.offset(target, at))
        elif size_bytes:
            self._granule(source, target)

    def _granule(self, source: str, target: str) -> None:
        e = self._emitter
        offsets = range(0, GRANULE_BYTES, CHUNK_BYTES)
        chunks = [e.load("<16 x i32>", e.offset(source, k), CHUNK_BYTES) for k in offsets]
        for k, chunk in zip(offsets, chunks, strict=True):
            pointer = e.offset(target, k)
            e.do(f"store <16 x i32> {chunk}, ptr {pointer}, align {CHUNK_BYTES}{self._hint}")
