"""The MXU pass as native code: 16 rows of packed bf16 times 128x128 weights.

Weights lie as pairs: word (p, l) holds w[2p, l] low and w[2p + 1, l] high. For each pair,
ascending, the accumulator takes the odd product first, then the even one, each as a fused
multiply-add with denormals flushed. AVX-512's BF16 dot product does exactly that; two f32 FMAs do
it on any host, with flush-to-zero set for the duration of the call.
"""

from __future__ import annotations

from collections.abc import Callable

from tpu_sim.jit.emitter import Emitter

_FLOATS = "<16 x float>"
_CHUNK = "<16 x i32>"
_PAIRS = "<32 x bfloat>"
_ROW_BYTES = 512
_FLUSH_DENORMALS = 0x8040  # MXCSR: flush results to zero, read denormals as zero
_BLOCK_ROWS = 4
_BLOCK_CHUNKS = 4

Step = Callable[[Emitter, str, list[str], list[list[str]]], list[list[str]]]


def matmul_text(name: str, *, use_bf16_dot: bool) -> str:
    """``void name(low, high, lhs, weights)``: results of the low and of the high rows."""
    e = Emitter()
    e.do("%pairs = alloca [4096 x i8], align 64")
    e.do("%mode = alloca i32")
    e.do("%flushing = alloca i32")
    _pair_words(e)
    if not use_bf16_dot:
        _set_flushing(e)
    with e.loop(8 // _BLOCK_CHUNKS) as column, e.loop(8 * 2 // _BLOCK_ROWS) as block:
        _block(e, column, block, _bf16_step if use_bf16_dot else _fma_step)
    if not use_bf16_dot:
        e.do("call void @llvm.x86.sse.ldmxcsr(ptr %mode)")
    parameters = "ptr noalias %low, ptr noalias %high, ptr noalias %lhs, ptr noalias %weights"
    return f"define void @{name}({parameters}) #0 {{\nentry:\n{e.text()}\n ret void\n}}\n"


def _set_flushing(e: Emitter) -> None:
    e.do("call void @llvm.x86.sse.stmxcsr(ptr %mode)")
    flushing = e.value(f"or i32 {e.load('i32', '%mode', 4)}, {_FLUSH_DENORMALS}")
    e.store("i32", flushing, "%flushing", 4)
    e.do("call void @llvm.x86.sse.ldmxcsr(ptr %flushing)")


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
        e.store("<32 x i16>", paired, e.offset("%pairs", at), 64)


def _block(e: Emitter, column: str, block: str, step: Step) -> None:
    """A block of 4 rows (low and high of two sublanes) x 4 chunks, accumulators in registers."""
    column_bytes = e.value(f"mul i64 {column}, {_BLOCK_CHUNKS * 64}")
    weights = e.offset("%weights", column_bytes)
    row_bytes = e.value(f"mul i64 {block}, {_BLOCK_ROWS // 2 * _ROW_BYTES}")
    left = e.offset("%pairs", row_bytes)
    out_bytes = e.value(f"add i64 {column_bytes}, {row_bytes}")
    outs = [
        e.offset(e.offset(base, out_bytes), sublane * _ROW_BYTES)
        for sublane in range(_BLOCK_ROWS // 2)
        for base in ("%low", "%high")
    ]
    totals = _accumulate(e, left, weights, step)
    for row, out in enumerate(outs):
        for chunk in range(_BLOCK_CHUNKS):
            e.store(_FLOATS, totals[row][chunk], e.offset(out, chunk * 64), 64)


def _accumulate(e: Emitter, left: str, weights: str, step: Step) -> list[list[str]]:
    """Loop over the 64 pairs with one phi per accumulator."""
    head, done, before = e.new_label(), e.new_label(), e.block
    pair = e.fresh()
    sums = [[e.fresh() for _ in range(_BLOCK_CHUNKS)] for _ in range(_BLOCK_ROWS)]
    e.jump(head)
    e.place(head)
    phis = len(e.lines)
    e.lines.extend([""] * (1 + _BLOCK_ROWS * _BLOCK_CHUNKS))
    row_at = e.offset(weights, e.value(f"shl i64 {pair}, 9"))
    chunks = [e.load(_CHUNK, e.offset(row_at, c * 64), 64) for c in range(_BLOCK_CHUNKS)]
    left_at = e.offset(left, e.value(f"shl i64 {pair}, 3"))
    results = step(e, left_at, chunks, sums)
    following = e.value(f"add i64 {pair}, 1")
    e.lines[phis] = f" {pair} = phi i64 [0, %{before}], [{following}, %{head}]"
    for row in range(_BLOCK_ROWS):
        for c in range(_BLOCK_CHUNKS):
            e.lines[phis + 1 + row * _BLOCK_CHUNKS + c] = (
                f" {sums[row][c]} = phi {_FLOATS} [zeroinitializer, %{before}], "
                f"[{results[row][c]}, %{head}]"
            )
    e.branch(e.value(f"icmp ult i64 {following}, 64"), head, done)
    e.place(done)
    return results


def _left_word(e: Emitter, left_at: str, row: int) -> str:
    """The k pair of row `row` of the block (sublane row / 2, half row % 2) in every lane."""
    at = e.offset(left_at, row // 2 * _ROW_BYTES + row % 2 * 4)
    first = e.value(f"insertelement {_CHUNK} poison, i32 {e.load('i32', at, 4)}, i64 0")
    return e.value(f"shufflevector {_CHUNK} {first}, {_CHUNK} poison, {_CHUNK} zeroinitializer")


def _bf16_step(
    e: Emitter, left_at: str, chunks: list[str], sums: list[list[str]]
) -> list[list[str]]:
    pairs = [e.value(f"bitcast {_CHUNK} {chunk} to {_PAIRS}") for chunk in chunks]
    results = []
    for row, accumulators in enumerate(sums):
        word = e.value(f"bitcast {_CHUNK} {_left_word(e, left_at, row)} to {_PAIRS}")
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
    """f32 of the high and of the low bf16 of each word."""
    high = e.value(f"and {_CHUNK} {words}, splat (i32 -65536)")
    low = e.value(f"shl {_CHUNK} {words}, splat (i32 16)")
    cast = f"{_CHUNK} {{}} to {_FLOATS}"
    return e.value(f"bitcast {cast.format(high)}"), e.value(f"bitcast {cast.format(low)}")


def _fma_step(
    e: Emitter, left_at: str, chunks: list[str], sums: list[list[str]]
) -> list[list[str]]:
    weights = [_halves(e, chunk) for chunk in chunks]
    results = []
    for row, accumulators in enumerate(sums):
        left = _halves(e, _left_word(e, left_at, row))
        totals = list(accumulators)
        for half in (0, 1):
            totals = [
                e.value(
                    f"call {_FLOATS} @llvm.fma.v16f32({_FLOATS} {left[half]}, "
                    f"{_FLOATS} {weight[half]}, {_FLOATS} {total})"
                )
                for total, weight in zip(totals, weights, strict=True)
            ]
        results.append(totals)
    return results
