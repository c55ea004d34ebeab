"""DMA transfers as native functions: bounds check, then nested loops of row copies.

One function per descriptor: ``(ctx, src, dst, c0, c1) -> status``, 0 done, 1 an address outside
its memory, 2 a count out of range, 3 rows outside the window. Nothing is copied unless the whole
transfer is valid.
"""

from __future__ import annotations

from tpu_sim.isa.program import HBM, SMEM, VMEM, DmaDescriptor, Kernel
from tpu_sim.isa.timing import GRANULE_BYTES, WORD_BYTES
from tpu_sim.jit.context import Word
from tpu_sim.jit.emitter import Emitter

OUT_OF_RANGE, BAD_COUNT, OUT_OF_WINDOW = 1, 2, 3
MAX_CHUNKS = 1 << 26
MAX_STRIDE = 1 << 27
"""Limits that keep every byte offset within 63 bits."""
_COUNT_ARGUMENTS = {-1: "%c0", -2: "%c1"}


class DmaFunction:
    """Builds the function of one descriptor of a kernel."""

    def __init__(self, kernel: Kernel, descriptor: DmaDescriptor, name: str) -> None:
        self._kernel = kernel
        self._descriptor = descriptor
        self._name = name
        self._emitter = Emitter("d")
        has_smem = SMEM in (descriptor.src_space, descriptor.dst_space)
        self._chunk_bytes = descriptor.chunk * (WORD_BYTES if has_smem else GRANULE_BYTES)

    def define(self) -> str:
        """The function's text."""
        e = self._emitter
        self._check_counts()
        source = self._side(self._descriptor.src_space, "%src", 1)
        target = self._side(self._descriptor.dst_space, "%dst", 2)
        self._copy(0, source, target)
        return (
            f"define internal i32 @{self._name}(ptr %ctx, i32 %src, i32 %dst, i32 %c0, i32 %c1) "
            f"noinline #0 {{\nentry:\n{e.text()}\n ret i32 0\n}}\n"
        )

    def _check_counts(self) -> None:
        """Leave on a bad count, or at once if there is nothing to copy."""
        e = self._emitter
        chunks = "1"
        for dim in self._descriptor.dims:
            if dim.count < 0:
                count = _COUNT_ARGUMENTS[dim.count]
                self._leave_if(e.value(f"icmp ugt i32 {count}, {MAX_CHUNKS}"), BAD_COUNT)
        for dim in self._descriptor.dims:
            chunks = e.value(f"mul i64 {chunks}, {self._count(dim.count)}")
            self._leave_if(e.value(f"icmp ugt i64 {chunks}, {MAX_CHUNKS}"), BAD_COUNT)
        self._leave_if(e.value(f"icmp eq i64 {chunks}, 0"), 0)

    def _leave_if(self, condition: str, status: int) -> None:
        e = self._emitter
        leaving, following = e.new_label(), e.new_label()
        e.branch(condition, leaving, following)
        e.place(leaving)
        e.do(f"ret i32 {status}")
        e.place(following)

    def _count(self, count: int) -> str:
        if count >= 0:
            return str(count)
        return self._emitter.value(f"zext i32 {_COUNT_ARGUMENTS[count]} to i64")

    def _word(self, word: Word) -> str:
        return self._emitter.load("i64", self._emitter.offset("%ctx", int(word) * 8), 8)

    def _unit_bytes(self, space: int) -> int:
        return WORD_BYTES if space == SMEM else GRANULE_BYTES

    def _side(self, space: int, address: str, stride_of: int) -> str:
        """Check one side's range of bytes and return the pointer to its first chunk."""
        e = self._emitter
        unit = self._unit_bytes(space)
        wide = e.value(f"sext i32 {address} to i64")
        start = e.value(f"mul i64 {wide}, {unit}")
        low, high = start, e.value(f"add i64 {start}, {self._chunk_bytes}")
        for dim in self._descriptor.dims:
            stride = (dim.src_stride if stride_of == 1 else dim.dst_stride) * unit
            steps = e.value(f"sub i64 {self._count(dim.count)}, 1")
            reach = e.value(f"mul i64 {steps}, {stride}")
            if stride >= 0:
                high = e.value(f"add i64 {high}, {reach}")
            else:
                low = e.value(f"add i64 {low}, {reach}")
        base, limit = self._memory(space)
        status = OUT_OF_WINDOW if space == VMEM else OUT_OF_RANGE
        self._leave_if(e.value(f"icmp slt i64 {low}, 0"), status)
        self._leave_if(e.value(f"icmp sgt i64 {high}, {limit}"), status)
        return e.offset(base, start)

    def _memory(self, space: int) -> tuple[str, str]:
        """Base pointer and size in bytes of a side's memory or window."""
        e = self._emitter
        if space == VMEM:
            window = self._kernel.windows[self._descriptor.window]
            base = e.value(f"inttoptr i64 {self._word(Word.VMEM)} to ptr")
            return e.offset(base, window.base_row * GRANULE_BYTES), str(window.rows * GRANULE_BYTES)
        pointer, size, unit = (
            (Word.HBM, Word.HBM_GRANULES, GRANULE_BYTES)
            if space == HBM
            else (Word.SMEM, Word.SMEM_WORDS, WORD_BYTES)
        )
        base = e.value(f"inttoptr i64 {self._word(pointer)} to ptr")
        return base, e.value(f"mul i64 {self._word(size)}, {unit}")

    def _copy(self, level: int, source: str, target: str) -> None:
        e = self._emitter
        if level == len(self._descriptor.dims):
            same = self._descriptor.src_space == self._descriptor.dst_space
            intrinsic = "memmove" if same else "memcpy"
            e.do(
                f"call void @llvm.{intrinsic}.p0.p0.i64(ptr {target}, ptr {source}, "
                f"i64 {self._chunk_bytes}, i1 false)"
            )
            return
        dim = self._descriptor.dims[level]
        source_step = dim.src_stride * self._unit_bytes(self._descriptor.src_space)
        target_step = dim.dst_stride * self._unit_bytes(self._descriptor.dst_space)
        with e.loop(self._count(dim.count)) as i:
            following_source = e.offset(source, e.value(f"mul i64 {i}, {source_step}"))
            following_target = e.offset(target, e.value(f"mul i64 {i}, {target_step}"))
            self._copy(level + 1, following_source, following_target)
