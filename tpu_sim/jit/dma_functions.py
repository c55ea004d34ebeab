"""DMA transfers as native functions: bounds check, then nested loops of row copies.

One function per shape of transfer: ``(ctx, src, dst, c0, c1, window, window_bytes, check) -> code``,
where 0 is done and other codes index `DMA_FAULTS`. `window` is the byte offset of the
descriptor's window in VMEM. Nothing is copied unless the whole transfer is valid. The copy itself
(`tpu_sim.jit.dma_copies`) may be shared between host threads; with `check` there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tpu_sim.isa.geometry import GRANULE_BYTES, WORD_BYTES
from tpu_sim.isa.program import HBM, MAX_CHUNKS, NO_ROUTE, SMEM, VMEM, DmaDescriptor, Kernel
from tpu_sim.jit.context import ROUTE_WORDS, RouteWord, Word
from tpu_sim.jit.dma_copies import COUNT_ARGUMENTS, count_value, emit_copy
from tpu_sim.jit.dma_shapes import CopyStep, copy_plan, target_spread, unit_bytes
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.hbm_windows import InPlace, WindowPieces, pieces_of, referred_rows
from tpu_sim.jit.post_kernels import POST
from tpu_sim.jit.scope import ModuleScope
from tpu_sim.jit.translated import FaultKind
from tpu_sim.jit.window_kernels import PROTECT, REFER, SETTLE

DMA_FAULTS = [FaultKind.MEMORY, FaultKind.DMA_COUNT, FaultKind.WINDOW]
"""What the codes 1, 2 and 3 mean."""
_OUT_OF_RANGE, _BAD_COUNT, _OUT_OF_WINDOW = 1, 2, 3
_PARAMETERS = (
    "ptr %ctx, i32 %src, i32 %dst, i32 %c0, i32 %c1, i64 %window, i64 %window_bytes, i1 %check"
)


class DmaFunctions:
    """The copy functions of a kernel's descriptors, shared between kernels of a module."""

    def __init__(
        self, module: ModuleScope, kernel: Kernel, in_place: Mapping[int, InPlace]
    ) -> None:
        """`in_place`: the windows of the kernel that are read in place."""
        self._module = module
        self._kernel = kernel
        self._in_place = in_place

    def function(self, number: int) -> str:
        """The name of the function of descriptor `number`, made at first use.

        For a window that is read in place the function has one more argument: the window's entry
        in the table of `tpu_sim.jit.hbm_windows`.
        """
        descriptor = self._kernel.descriptors[number]
        window = self._in_place.get(descriptor.window) if descriptor.dst_space == VMEM else None
        pieces = None if window is None else window.pieces
        shape = replace(descriptor, window=-1)
        key = (shape, pieces)
        name = self._module.dma_names.get(key)
        if name is None:
            name = self._module.dma_names[key] = f"dma{len(self._module.dma_names)}"
            function = _DmaFunction(shape, name, self._module, pieces)
            for text in function.define():
                self._module.emit(text)
        return name


def note_smem_end(e: FunctionEmitter, end: str) -> None:
    """Keep count of how far SMEM is written."""
    pointer = e.offset("%ctx", int(Word.SMEM_END) * 8)
    before = e.load("i64", pointer, 8)
    e.store("i64", e.value(f"call i64 @llvm.umax.i64(i64 {before}, i64 {end})"), pointer, 8)


@dataclass(frozen=True)
class _Side:
    """A side that was checked: its memory, and the first chunk, first byte and end in it, all i64."""

    space: int
    base: str
    start: str
    first: str
    end: str


class _DmaFunction:
    """Builds the function of one descriptor, whose window is left to the caller."""

    def __init__(
        self, descriptor: DmaDescriptor, name: str, module: ModuleScope, pieces: WindowPieces | None
    ) -> None:
        """`pieces`: how the data of the window lie if it is read in place."""
        self._descriptor = descriptor
        self._pieces = pieces
        self._name = name
        self._module = module
        self._emitter = FunctionEmitter("d")
        self._peer = "%ctx"
        has_smem = SMEM in (descriptor.src_space, descriptor.dst_space)
        self._chunk_bytes = descriptor.chunk * (WORD_BYTES if has_smem else GRANULE_BYTES)

    def define(self) -> list[str]:
        """The texts of the function, and of the one its tasks run, if any."""
        self._check_counts()
        if self._descriptor.route != NO_ROUTE:
            self._find_peer()
        strides = [[d.src_stride, d.dst_stride] for d in self._descriptor.dims]
        sides = [
            self._side(self._descriptor.src_space, "%src", [s[0] for s in strides]),
            self._side(self._descriptor.dst_space, "%dst", [s[1] for s in strides], self._peer),
        ]
        self._leave_if("%check", 0)
        source, target = (self._emitter.offset(side.base, side.start) for side in sides)
        self._announce(sides[1])
        if self._descriptor.route != NO_ROUTE:
            self._post(sides[1].start)
        if self._pieces is not None:
            self._refer(source, target)
        tasks = emit_copy(self._emitter, self._descriptor, self._name, source, target, self._module)
        entry = ", ptr %slots" if self._pieces is not None else ""
        return [
            *tasks,
            f"define i32 @{self._name}({_PARAMETERS}{entry}) noinline #0 {{\nentry:\n"
            f"{self._emitter.text()}\n ret i32 0\n}}\n",
        ]

    def _check_counts(self) -> None:
        """Leave on a bad count, or at once if there is nothing to copy."""
        e = self._emitter
        static, dynamic = 1, ""
        for dim in self._descriptor.dims:
            if dim.count >= 0:
                static *= dim.count
                continue
            count = COUNT_ARGUMENTS[dim.count]
            self._leave_if(e.value(f"icmp ugt i32 {count}, {MAX_CHUNKS}"), _BAD_COUNT)
            wide = count_value(self._emitter, dim.count)
            if dynamic:  # no product of counts may wrap
                product = e.value(f"mul i64 {dynamic}, {wide}")
                limits = f"i64 {product}, i64 {2 * MAX_CHUNKS}"
                wide = e.value(f"call i64 @llvm.umin.i64({limits})")
            dynamic = wide
        if static == 0:
            self._leave_if("true", 0)
        elif dynamic:
            chunks = e.value(f"mul i64 {dynamic}, {static}")
            self._leave_if(e.value(f"icmp ugt i64 {dynamic}, {MAX_CHUNKS}"), _BAD_COUNT)
            self._leave_if(e.value(f"icmp ugt i64 {chunks}, {MAX_CHUNKS}"), _BAD_COUNT)
            self._leave_if(e.value(f"icmp eq i64 {chunks}, 0"), 0)

    def _find_peer(self) -> None:
        """Leave if the route leads nowhere from here; else ``%peer`` is the context of its core."""
        e = self._emitter
        offset = 8 * (ROUTE_WORDS * self._descriptor.route + RouteWord.PEER)
        peer = e.load("ptr", e.offset(self._word(Word.LINKS, "ptr"), offset), 8)
        self._leave_if(e.value(f"icmp eq ptr {peer}, null"), 0)
        self._peer = peer

    def _leave_if(self, condition: str, code: int) -> None:
        e = self._emitter
        leaving, following = e.new_label(), e.new_label()
        e.branch(condition, leaving, following)
        e.place(leaving)
        e.do(f"ret i32 {code}")
        e.place(following)

    def _word(self, word: Word, llvm_type: str, context: str = "%ctx") -> str:
        return self._emitter.load(llvm_type, self._emitter.offset(context, int(word) * 8), 8)

    def _side(self, space: int, address: str, strides: list[int], context: str = "%ctx") -> _Side:
        """Check one side's range of bytes in the memory of a core."""
        e = self._emitter
        unit = unit_bytes(space)
        start = e.value(f"mul i64 {e.value(f'sext i32 {address} to i64')}, {unit}")
        below, above = 0, self._chunk_bytes
        low = high = start
        for dim, stride in zip(self._descriptor.dims, strides, strict=True):
            if dim.count >= 0:
                reach = (dim.count - 1) * stride * unit
                below, above = below + min(reach, 0), above + max(reach, 0)
                continue
            steps = e.value(f"sub i64 {count_value(self._emitter, dim.count)}, 1")
            moved = e.value(f"mul i64 {steps}, {stride * unit}")
            if stride >= 0:
                high = e.value(f"add i64 {high}, {moved}")
            else:
                low = e.value(f"add i64 {low}, {moved}")
        base, limit = self._memory(space, context)
        code = _OUT_OF_WINDOW if space == VMEM else _OUT_OF_RANGE
        first, end = e.value(f"add i64 {low}, {below}"), e.value(f"add i64 {high}, {above}")
        self._leave_if(e.value(f"icmp slt i64 {first}, 0"), code)
        self._leave_if(e.value(f"icmp sgt i64 {end}, {limit}"), code)
        return _Side(space, base, start, first, end)

    def _announce(self, target: _Side) -> None:
        """Tell what is going to be written to those who keep count of it."""
        e = self._emitter
        if target.space == SMEM:
            note_smem_end(e, e.value(f"udiv i64 {target.end}, {WORD_BYTES}"))
        if target.space == HBM and self._descriptor.route == NO_ROUTE:
            whole = e.value(f"ptrtoint ptr {target.base} to i64")
            low, high = (e.value(f"add i64 {whole}, {at}") for at in (target.first, target.end))
            pieces = self._written(low, high)
            e.do(f"call void @{PROTECT}(ptr %ctx, i64 {low}, i64 {high}, {pieces})")

    def _post(self, start: str) -> None:
        """If the peer is a core of another process: note each chunk that it gets."""
        e = self._emitter
        posts = self._word(Word.POSTS, "ptr", self._peer)
        plan = copy_plan(self._descriptor)
        with e.when(e.value(f"icmp ne ptr {posts}, null")):
            self._post_steps(posts, plan.steps, start, plan.size)

    def _post_steps(self, posts: str, steps: tuple[CopyStep, ...], start: str, size: int) -> None:
        e = self._emitter
        if not steps:
            e.do(f"call void @{POST}(ptr {posts}, i64 {start}, i64 {size})")
            return
        with e.loop(count_value(e, steps[0].count)) as i:
            moved = e.value(f"mul i64 {i}, {steps[0].target}")
            self._post_steps(posts, steps[1:], e.value(f"add i64 {start}, {moved}"), size)

    def _written(self, low: str, high: str) -> str:
        """Size and stride of the pieces that are written, as typed arguments."""
        spread = target_spread(self._descriptor)
        if spread is None:
            return f"i64 {self._emitter.value(f'sub i64 {high}, {low}')}, i64 -1"
        return f"i64 {spread.size}, i64 {spread.stride}"

    def _refer(self, source: str, target: str) -> None:
        """Leave without copying if the window may refer to the source."""
        e = self._emitter
        if pieces_of(self._descriptor) != self._pieces:
            e.do(f"call void @{SETTLE}(ptr %ctx, ptr %slots)")
            return
        ends = [e.value(f"ptrtoint ptr {side} to i64") for side in (source, target)]
        delta = e.value(f"sub i64 {ends[0]}, {ends[1]}")
        first = e.value("sext i32 %dst to i64")
        rows = referred_rows(self._descriptor)
        arguments = f"ptr %ctx, ptr %slots, i64 {first}, i64 {rows}, i64 {delta}"
        self._leave_if(e.value(f"call i1 @{REFER}({arguments})"), 0)

    def _memory(self, space: int, context: str) -> tuple[str, str]:
        """Base pointer and size in bytes of a side's memory or window."""
        e = self._emitter
        if space == VMEM:
            return e.offset(self._word(Word.VMEM, "ptr"), "%window"), "%window_bytes"
        pointer, size = (
            (Word.HBM, Word.HBM_GRANULES) if space == HBM else (Word.SMEM, Word.SMEM_WORDS)
        )
        count = self._word(size, "i64", context)
        return self._word(pointer, "ptr", context), e.value(f"mul i64 {count}, {unit_bytes(space)}")
