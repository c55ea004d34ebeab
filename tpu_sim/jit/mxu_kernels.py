"""The MXU pass as native code: 16 rows of packed bf16 times 128x128 weights.

Weights lie as pairs: word (p, l) holds w[2p, l] low and w[2p + 1, l] high. For each pair,
ascending, the accumulator takes the odd product first, then the even one, each as a fused
multiply-add with denormals flushed. AVX-512's BF16 dot product does exactly that; two f32 FMAs do
it on any host, with flush-to-zero set for the duration of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tpu_sim.jit.emitter import Emitter

_FLOATS = "<16 x float>"
_CHUNK = "<16 x i32>"
_PAIRS = "<32 x bfloat>"
_ROW_BYTES = 512
_FLUSH_DENORMALS = 0x8040  # MXCSR: flush results to zero, read denormals as zero


@dataclass(frozen=True)
class _Form:
    """One form of the kernel: its register block, and how a pair is multiplied.

    `rows` counts low and high rows: row r is half r % 2 of sublane r / 2. `prepare` regroups the
    left side in ``%left``; `row_offset` finds a row there, whose pairs follow at 8 bytes each.
    """

    rows: int
    chunks: int
    prepare: Callable[[Emitter], None]
    row_offset: Callable[[int], int]
    step: Callable[[Emitter, list[str], list[str], list[list[str]]], list[list[str]]]


def matmul_text(name: str, *, use_bf16_dot: bool) -> str:
    """``void name(low, high, lhs, weights)``: results of the low and of the high rows."""
    form = _BF16_FORM if use_bf16_dot else _FMA_FORM
    e = Emitter()
    e.do(f"%left = alloca [{16 * _ROW_BYTES} x i8], align 64")
    e.do("%mode = alloca i32")
    e.do("%flushing = alloca i32")
    form.prepare(e)
    if not use_bf16_dot:
        _set_flushing(e)
    with e.loop(8 // form.chunks) as column, e.loop(16 // form.rows) as block:
        _block(e, form, column, block)
    if not use_bf16_dot:
        e.do("call void @llvm.x86.sse.ldmxcsr(ptr %mode)")
    parameters = "ptr noalias %low, ptr noalias %high, ptr noalias %lhs, ptr noalias %weights"
    return f"define void @{name}({parameters}) #0 {{\nentry:\n{e.text()}\n ret void\n}}\n"


def _set_flushing(e: Emitter) -> None:
    e.do("call void @llvm.x86.sse.stmxcsr(ptr %mode)")
    flushing = e.value(f"or i32 {e.load('i32', '%mode', 4)}, {_FLUSH_DENORMALS}")
    e.store("i32", flushing, "%flushing", 4)
    e.do("call void @llvm.x86.sse.ldmxcsr(ptr %flushing)")


def _block(e: Emitter, form: _Form, column: str, block: str) -> None:
    """A block of rows x chunks with its accumulators in registers."""
    column_bytes = e.value(f"mul i64 {column}, {form.chunks * 64}")
    weights = e.offset("%weights", column_bytes)
    sublane_bytes = e.value(f"mul i64 {block}, {form.rows // 2 * _ROW_BYTES}")
    left = e.offset("%left", e.value(f"mul i64 {block}, {form.row_offset(form.rows)}"))
    out_bytes = e.value(f"add i64 {column_bytes}, {sublane_bytes}")
    outs = [
        e.offset(e.offset(base, out_bytes), sublane * _ROW_BYTES)
        for sublane in range(form.rows // 2)
        for base in ("%low", "%high")
    ]
    totals = _accumulate(e, form, left, weights)
    for row, out in enumerate(outs):
        for chunk in range(form.chunks):
            e.store(_FLOATS, totals[row][chunk], e.offset(out, chunk * 64), 64)


def _accumulate(e: Emitter, form: _Form, left: str, weights: str) -> list[list[str]]:
    """Loop over the 64 pairs with one phi per accumulator."""
    head, done, before = e.new_label(), e.new_label(), e.block
    pair = e.fresh()
    sums = [[e.fresh() for _ in range(form.chunks)] for _ in range(form.rows)]
    e.jump(head)
    e.place(head)
    phis = len(e.lines)
    e.lines.extend([""] * (1 + form.rows * form.chunks))
    row_at = e.offset(weights, e.value(f"shl i64 {pair}, 9"))
    chunks = [e.load(_CHUNK, e.offset(row_at, c * 64), 64) for c in range(form.chunks)]
    left_at = e.offset(left, e.value(f"shl i64 {pair}, 3"))
    rows = [e.offset(left_at, form.row_offset(row)) for row in range(form.rows)]
    results = form.step(e, rows, chunks, sums)
    following = e.value(f"add i64 {pair}, 1")
    e.lines[phis] = f" {pair} = phi i64 [0, %{before}], [{following}, %{head}]"
    for row in range(form.rows):
        for c in range(form.chunks):
            e.lines[phis + 1 + row * form.chunks + c] = (
                f" {sums[row][c]} = phi {_FLOATS} [zeroinitializer, %{before}], "
                f"[{results[row][c]}, %{head}]"
            )
    e.branch(e.value(f"icmp ult i64 {following}, 64"), head, done)
    e.place(done)
    return results


def _spread(e: Emitter, element: str, pointer: str) -> str:
    """One 32-bit element of memory in every lane."""
    vector = f"<16 x {element}>"
    loaded = e.load(element, pointer, 4)
    first = e.value(f"insertelement {vector} poison, {element} {loaded}, i64 0")
    return e.value(f"shufflevector {vector} {first}, {vector} poison, <16 x i32> zeroinitializer")


def _pair_words(e: Emitter) -> None:
    """Regroup halves: per sublane and pair two words, k pairs of the low and of the high row."""
    picks = [pick for q in range(8) for pick in (4 * q, 4 * q + 2, 4 * q + 1, 4 * q + 3)]
    mask = ", ".join(f"i32 {pick}" for pick in picks)
    with e.loop(64) as i:
        at = e.value(f"shl i64 {i}, 6")
        packed = e.load("<32 x i16>", e.offset("%lhs", at), 64)
        paired = e.value(
            f"shufflevector <32 x i16> {packed}, <32 x i16> poison, <32 x i32> <{mask}>"
        )
        e.store("<32 x i16>", paired, e.offset("%left", at), 64)


def _bf16_step(
    e: Emitter, rows: list[str], chunks: list[str], sums: list[list[str]]
) -> list[list[str]]:
    pairs = [e.value(f"bitcast {_CHUNK} {chunk} to {_PAIRS}") for chunk in chunks]
    results = []
    for row, accumulators in zip(rows, sums, strict=True):
        word = e.value(f"bitcast {_CHUNK} {_spread(e, 'i32', row)} to {_PAIRS}")
        results.append(
            [
                e.value(
                    f"call {_FLOATS} @llvm.x86.avx512bf16.dpbf16ps.512({_FLOATS} {total}, "
                    f"{_PAIRS} {word}, {_PAIRS} {pair})"
                )
                for total, pair in zip(accumulators, pairs, strict=True)
            ]
        )
    return results


def _halves(e: Emitter, words: str) -> tuple[str, str]:
    """f32 of the low and of the high bf16 of each word."""
    low = e.value(f"shl {_CHUNK} {words}, splat (i32 16)")
    high = e.value(f"and {_CHUNK} {words}, splat (i32 -65536)")
    cast = f"{_CHUNK} {{}} to {_FLOATS}"
    return e.value(f"bitcast {cast.format(low)}"), e.value(f"bitcast {cast.format(high)}")


def _expand_rows(e: Emitter) -> None:
    """Both rows of each sublane as f32, one after the other."""
    with e.loop(8) as sublane:
        source = e.offset("%lhs", e.value(f"shl i64 {sublane}, 9"))
        target = e.offset("%left", e.value(f"shl i64 {sublane}, 10"))
        for chunk in range(8):
            words = e.load(_CHUNK, e.offset(source, chunk * 64), 64)
            for half, floats in enumerate(_halves(e, words)):
                e.store(_FLOATS, floats, e.offset(target, half * _ROW_BYTES + chunk * 64), 64)


def _fma_step(
    e: Emitter, rows: list[str], chunks: list[str], sums: list[list[str]]
) -> list[list[str]]:
    weights = [_halves(e, chunk) for chunk in chunks]
    results = []
    for row, accumulators in zip(rows, sums, strict=True):
        totals = list(accumulators)
        for half in (1, 0):
            left = _spread(e, "float", e.offset(row, 4 * half))
            totals = [
                e.value(
                    f"call {_FLOATS} @llvm.fma.v16f32({_FLOATS} {left}, "
                    f"{_FLOATS} {weight[half]}, {_FLOATS} {total})"
                )
                for total, weight in zip(totals, weights, strict=True)
            ]
        results.append(totals)
    return results


_BF16_FORM = _Form(4, 4, _pair_words, lambda row: row // 2 * _ROW_BYTES + row % 2 * 4, _bf16_step)
_FMA_FORM = _Form(8, 2, _expand_rows, lambda row: row * _ROW_BYTES, _fma_step)
"""Eight rows by two chunks: splitting the weights into halves then costs an eighth of the FMAs."""
