"""Precompiled kernels: machine-state operations on whole vregs, as LLVM IR text.

They are compiled once per host at a higher codegen level than translated programs, kept in the
code cache, and called by name from translated code.
"""

from __future__ import annotations

from tpu_sim.jit.calls import KERNELS as CALL_KERNELS
from tpu_sim.jit.clock_kernels import KERNELS as CLOCK_KERNELS
from tpu_sim.jit.command_kernels import (
    COPY_VREG,
    MATPUSH,
    MATPUSH_TRANSPOSED,
    PASS_POINTERS,
    SETTLE_WEIGHTS,
    TRANSPOSE,
    TRANSPOSE_HALVES,
)
from tpu_sim.jit.command_kernels import KERNELS as COMMAND_KERNELS
from tpu_sim.jit.crossing_kernels import (
    CROSSING_DECLARATIONS,
    CROSSING_FUNCTIONS,
    crossing_text,
)
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.fork_join import KERNELS as FORK_KERNELS
from tpu_sim.jit.fork_join import PUT_FUNCTIONS, SCHED_YIELD, put_declarations, put_text
from tpu_sim.jit.host import Host
from tpu_sim.jit.host_state import ENTER, LEAVE, PAUSE, host_state_text
from tpu_sim.jit.kernel_builtins import Native
from tpu_sim.jit.loop_ranges import run_range
from tpu_sim.jit.pass_forms import pass_forms
from tpu_sim.jit.post_kernels import KERNELS as POST_KERNELS
from tpu_sim.jit.repeat_kernels import KERNELS as REPEAT_KERNELS
from tpu_sim.jit.weight_layout import (
    layout_of,
    push_text,
    push_transposed_text,
    settle_text,
)
from tpu_sim.jit.window_kernels import KERNELS as WINDOW_KERNELS

LOAD_INDEXED = Native("tpuc_kernel_v1_load_indexed", ("ptr", "ptr", "i64", "i64", "ptr"), "i1")
STORE_INDEXED = Native(
    "tpuc_kernel_v1_store_indexed", ("ptr", "i64", "i64", "ptr", "ptr", "ptr"), "i1"
)
_KERNELS = (
    *FORK_KERNELS,
    *WINDOW_KERNELS,
    *CLOCK_KERNELS,
    *REPEAT_KERNELS,
    *CALL_KERNELS,
    *COMMAND_KERNELS,
    *POST_KERNELS,
    run_range,
)
"""Scalar code, written in `tpu_sim.jit.kernel_language`."""
_NATIVES = (
    MATPUSH, MATPUSH_TRANSPOSED, SETTLE_WEIGHTS, TRANSPOSE, TRANSPOSE_HALVES, COPY_VREG,
    LOAD_INDEXED, STORE_INDEXED, ENTER, LEAVE, PAUSE,
)  # fmt: skip
"""What works on vectors, or on the state of the processor."""

LIBRARY_FUNCTIONS = (
    *(one.symbol for one in (*_KERNELS, *_NATIVES)),
    *PUT_FUNCTIONS,
    *CROSSING_FUNCTIONS,
)
"""Functions with one form; those of MXU passes have several (`tpu_sim.jit.pass_forms`)."""

LIBRARY_DECLARATIONS = (
    "".join(one.declaration() for one in (*_KERNELS, *_NATIVES))
    + put_declarations()
    + CROSSING_DECLARATIONS
)

_CHUNK = "<16 x i32>"
_PAIRS = "<8 x i64>"


def library_text(host: Host) -> str:
    """The module of all kernels for `host`."""
    layout = layout_of(host)
    texts = [form.text() for forms in pass_forms(host).values() for form in forms]
    texts += [
        host_state_text(host),
        push_text(MATPUSH.symbol, layout),
        push_transposed_text(MATPUSH_TRANSPOSED.symbol, layout),
        settle_text(SETTLE_WEIGHTS.symbol),
        _transpose(),
        _transpose_halves(),
        _load_indexed(),
        _store_indexed(),
        _copy_vreg(),
        PASS_POINTERS.definition(),
        SCHED_YIELD.declaration(),
        *(one.text() for one in _KERNELS),
        put_text(),
        crossing_text(),
    ]
    return "\n".join(texts)


def _function(header: str, emitter: FunctionEmitter, end: str = "ret void") -> str:
    return f"define {header} #0 {{\nentry:\n{emitter.text()}\n {end}\n}}\n"


def _copy_vreg() -> str:
    e = FunctionEmitter()
    e.do(
        "call void @llvm.memcpy.p0.p0.i64(ptr align 64 %target, ptr align 64 %source, "
        "i64 4096, i1 false)"
    )
    return _function(f"void @{COPY_VREG.symbol}(ptr noalias %target, ptr noalias %source)", e)


def _transpose() -> str:
    """128x128 words, in 16x16 blocks: four layers of two-operand shuffles each."""
    e = FunctionEmitter()
    with e.loop(8) as block_row, e.loop(8) as block_column:
        source = _block_pointer(e, "%source", block_row, block_column)
        target = _block_pointer(e, "%target", block_column, block_row)
        rows = [e.load(_CHUNK, e.offset(source, r * 512), 64) for r in range(16)]
        for distance in (8, 4, 2, 1):
            rows = _exchange(e, rows, distance, _CHUNK)
        for r, row in enumerate(rows):
            e.store(_CHUNK, row, e.offset(target, r * 512), 64)
    return _function(f"void @{TRANSPOSE.symbol}(ptr noalias %target, ptr noalias %source)", e)


def _transpose_halves() -> str:
    """256x128 half-words into two 128x128 blocks of packed rows.

    Each block, seen as 64x64 pairs of words, is a transpose with the four halves of every pair
    transposed as well.
    """
    e = FunctionEmitter()
    mask = ", ".join(f"i32 {4 * i + k}" for i in range(8) for k in (0, 2, 1, 3))
    with e.loop(2) as block, e.loop(8) as block_row, e.loop(8) as block_column:
        first = e.value(f"shl i64 {block}, 3")
        pointers = (
            _block_pointer(e, base, e.value(f"add i64 {first}, {row}"), column, 8)
            for base, row, column in (
                ("%source", block_row, block_column),
                ("%target", block_column, block_row),
            )
        )
        source, target = pointers
        rows = []
        for r in range(8):
            halves = e.load("<32 x i16>", e.offset(source, r * 512), 64)
            turned = e.value(
                f"shufflevector <32 x i16> {halves}, <32 x i16> poison, <32 x i32> <{mask}>"
            )
            rows.append(e.value(f"bitcast <32 x i16> {turned} to {_PAIRS}"))
        for distance in (4, 2, 1):
            rows = _exchange(e, rows, distance, _PAIRS)
        for r, row in enumerate(rows):
            e.store(_PAIRS, row, e.offset(target, r * 512), 64)
    return _function(
        f"void @{TRANSPOSE_HALVES.symbol}(ptr noalias %target, ptr noalias %source)", e
    )


def _block_pointer(e: FunctionEmitter, base: str, row: str, column: str, rows: int = 16) -> str:
    row_bytes = e.value(f"mul i64 {row}, {rows * 512}")
    column_bytes = e.value(f"shl i64 {column}, 6")
    return e.offset(e.offset(base, row_bytes), column_bytes)


def _exchange(e: FunctionEmitter, rows: list[str], distance: int, kind: str) -> list[str]:
    """Swap the off-diagonal `distance`-sized sub-blocks of each pair of row groups."""
    result, size = list(rows), len(rows)
    low = [i if not i & distance else i + size - distance for i in range(size)]
    high = [i + size if i & distance else i + distance for i in range(size)]
    for r in range(size):
        if r & distance:
            continue
        first, second = rows[r], rows[r + distance]
        for position, picks in ((r, low), (r + distance, high)):
            mask = ", ".join(f"i32 {pick}" for pick in picks)
            result[position] = e.value(
                f"shufflevector {kind} {first}, {kind} {second}, <{size} x i32> <{mask}>"
            )
    return result


def _splat64(e: FunctionEmitter, scalar: str) -> str:
    first = e.value(f"insertelement <16 x i64> poison, i64 {scalar}, i64 0")
    return e.value(
        f"shufflevector <16 x i64> {first}, <16 x i64> poison, <16 x i32> zeroinitializer"
    )


def _load_indexed() -> str:
    """Gather words; false, with nothing written past that chunk, if one lies outside."""
    e = FunctionEmitter()
    first, limit = _splat64(e, "%first"), _splat64(e, "%limit")
    with e.loop(64) as i:
        byte_offset = e.value(f"shl i64 {i}, 6")
        index = e.load(_CHUNK, e.offset("%index", byte_offset), 64)
        wide = e.value(f"sext {_CHUNK} {index} to <16 x i64>")
        words = e.value(f"add <16 x i64> {wide}, {first}")
        outside = e.value(f"icmp uge <16 x i64> {words}, {limit}")
        any_outside = e.value(f"bitcast <16 x i1> {outside} to i16")
        leaving, following = e.new_label(), e.new_label()
        e.branch(e.value(f"icmp ne i16 {any_outside}, 0"), leaving, following)
        e.place(leaving)
        e.do("ret i1 false")
        e.place(following)
        pointers = e.value(f"getelementptr i32, ptr %window, <16 x i64> {words}")
        loaded = e.value(
            f"call {_CHUNK} @llvm.masked.gather.v16i32.v16p0(<16 x ptr> align 4 {pointers}, "
            f"<16 x i1> splat (i1 true), {_CHUNK} zeroinitializer)"
        )
        e.store(_CHUNK, loaded, e.offset("%target", byte_offset), 64)
    header = (
        f"i1 @{LOAD_INDEXED.symbol}(ptr %target, ptr %window, i64 %first, i64 %limit, ptr %index)"
    )
    return _function(header, e, "ret i1 true")


def _store_indexed() -> str:
    """Scatter words where the mask is set, in order; false at the first word outside."""
    e = FunctionEmitter()
    with e.loop(1024) as i:
        mask_byte = e.load("i8", e.offset("%mask", e.value(f"lshr i64 {i}, 3")), 1)
        bit = e.value(f"trunc i64 {e.value(f'and i64 {i}, 7')} to i8")
        shifted = e.value(f"lshr i8 {mask_byte}, {bit}")
        with e.when(e.value(f"trunc i8 {shifted} to i1")):
            byte_offset = e.value(f"shl i64 {i}, 2")
            index = e.load("i32", e.offset("%index", byte_offset), 4)
            word = e.value(f"add i64 {e.value(f'sext i32 {index} to i64')}, %first")
            leaving, following = e.new_label(), e.new_label()
            e.branch(e.value(f"icmp uge i64 {word}, %limit"), leaving, following)
            e.place(leaving)
            e.do("ret i1 false")
            e.place(following)
            at = e.offset("%window", e.value(f"shl i64 {word}, 2"))
            e.store("i32", e.load("i32", e.offset("%source", byte_offset), 4), at, 4)
    parameters = "ptr %window, i64 %first, i64 %limit, ptr %index, ptr %source, ptr %mask"
    return _function(f"i1 @{STORE_INDEXED.symbol}({parameters})", e, "ret i1 true")
