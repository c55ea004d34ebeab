"""The MXU pass with vectors: two chains of fused multiply-adds per output and block of 32 k.

The order is that of `tpu_sim.isa.rows.mxu`, and so is the flushing of denormals, where a number is
tiny if it would be below the smallest normal number after rounding with an unbounded exponent.
x86 flushes just so. aarch64 flushes before rounding, which differs in a sliver below the smallest
normal number: there the pass is repeated in exact arithmetic if anything was flushed at all.

CPUs give NaN a sign and payload by rules of their own, so every form ends by writing the MXU's one
NaN (`CANONICAL_NAN`) over whatever NaN it got.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tpu_sim.isa.rows.mxu import CANONICAL_NAN
from tpu_sim.jit.emitter import Emitter
from tpu_sim.jit.host import Arch, Host

ROWS = 16
ROW_BYTES = 512
_PARAMETERS = "ptr noalias %out, ptr noalias %lhs, ptr noalias %weights, ptr noalias %next"

_K_BLOCKS = 4
_PAIRS = 16  # of k in a block
_FLUSHING_MXCSR = 0x8040  # flush results to zero, read denormals as zero
_FLUSHING_FPCR = 1 << 24
_UNDERFLOW_FPSR = 1 << 3
_INFINITE = 0x7F800000
_SIGN = -0x80000000
_TINY_BELOW = "0x380FFFFFF0000000"  # 2**-126 - 2**-151 rounds up with an unbounded exponent
_EXACT_LANES = 8


@dataclass(frozen=True)
class _Vector:
    """LLVM types of `lanes` lanes."""

    lanes: int

    def of(self, element: str) -> str:
        """A vector of `element`."""
        return f"<{self.lanes} x {element}>"

    @property
    def floats(self) -> str:
        """f32."""
        return self.of("float")

    @property
    def words(self) -> str:
        """i32."""
        return self.of("i32")


@dataclass(frozen=True)
class _Arithmetic:
    """How a form computes: its register block of `rows` x `vectors`, and its operations.

    `halves` gives the f32 of the low and of the high bf16 of each word.
    """

    vector: _Vector
    rows: int
    vectors: int
    halves: Callable[[Emitter, str], tuple[str, str]]
    fma: Callable[[Emitter, str, str, str], str]
    add: Callable[[Emitter, str, str], str]


def fma_text(name: str, host: Host, exact: str) -> str:
    """``void name(out, lhs, weights, next)`` with f32 FMAs; `exact` names the form for rare cases."""
    vector = _Vector(host.vector_lanes)
    rows, vectors = {16: (8, 1), 8: (4, 1), 4: (4, 2)}[vector.lanes]
    arithmetic = _Arithmetic(
        vector,
        rows,
        vectors,
        partial(_halves, vector),
        partial(_fma, vector),
        partial(_add, vector),
    )
    e = Emitter()
    if host.arch is Arch.X86_64:
        _flush_with_mxcsr(e, arithmetic)
    else:
        _flush_with_fpcr(e, arithmetic, exact)
    return pass_function(name, e, vector.lanes)


def exact_text(name: str) -> str:
    """``void name(out, lhs, weights, next)`` on any host: f64 arithmetic with explicit flushing."""
    vector = _Vector(_EXACT_LANES)
    e = Emitter()
    _pass(
        e,
        _Arithmetic(
            vector, 2, 1, partial(_flushed_halves, vector), partial(_exact_fma, vector),
            lambda e, a, b: _flushed(vector, e, _add(vector, e, a, b)),
        ),
    )  # fmt: skip
    return pass_function(name, e, _EXACT_LANES)


def pass_function(name: str, e: Emitter, lanes: int) -> str:
    """The function of a pass whose arithmetic `e` has: NaN results become the MXU's one NaN."""
    vector = _Vector(lanes)
    width = 4 * lanes
    with e.loop(ROWS * ROW_BYTES // width) as i:
        at = e.offset("%out", e.value(f"mul i64 {i}, {width}"))
        result = e.load(vector.floats, at, width)
        is_nan = e.value(f"fcmp uno {vector.floats} {result}, zeroinitializer")
        words = e.value(f"bitcast {vector.floats} {result} to {vector.words}")
        settled = e.value(
            f"select {vector.of('i1')} {is_nan}, {vector.words} splat (i32 {CANONICAL_NAN}), "
            f"{vector.words} {words}"
        )
        e.store(vector.words, settled, at, width)
    return plain_function(name, e)


def plain_function(name: str, e: Emitter) -> str:
    """The function of a pass that leaves its results as `e` writes them."""
    return f"define void @{name}({_PARAMETERS}) #0 {{\nentry:\n{e.text()}\n ret void\n}}\n"


def _flush_with_mxcsr(e: Emitter, arithmetic: _Arithmetic) -> None:
    """The pass with denormals flushed by the CPU."""
    e.do("%mode = alloca i32")
    e.do("%flushing = alloca i32")
    e.do("call void @llvm.x86.sse.stmxcsr(ptr %mode)")
    flushing = e.value(f"or i32 {e.load('i32', '%mode', 4)}, {_FLUSHING_MXCSR}")
    e.store("i32", flushing, "%flushing", 4)
    e.do("call void @llvm.x86.sse.ldmxcsr(ptr %flushing)")
    _pass(e, arithmetic)
    e.do("call void @llvm.x86.sse.ldmxcsr(ptr %mode)")


def _flush_with_fpcr(e: Emitter, arithmetic: _Arithmetic, exact: str) -> None:
    """The pass with denormals flushed by the CPU, done again exactly if a result was flushed."""
    mode = e.value("call i64 @llvm.aarch64.get.fpcr()")
    e.do(f"call void @llvm.aarch64.set.fpcr(i64 {e.value(f'or i64 {mode}, {_FLUSHING_FPCR}')})")
    status = e.value("call i64 @llvm.aarch64.get.fpsr()")
    cleared = e.value(f"and i64 {status}, {~_UNDERFLOW_FPSR}")
    e.do(f"call void @llvm.aarch64.set.fpsr(i64 {cleared})")
    _pass(e, arithmetic)
    status = e.value("call i64 @llvm.aarch64.get.fpsr()")
    e.do(f"call void @llvm.aarch64.set.fpcr(i64 {mode})")
    flushed = e.value(f"and i64 {status}, {_UNDERFLOW_FPSR}")
    with e.when(e.value(f"icmp ne i64 {flushed}, 0")):
        e.do(f"call void @{exact}(ptr %out, ptr %lhs, ptr %weights, ptr %next)")


# the loops


def _pass(e: Emitter, arithmetic: _Arithmetic) -> None:
    """Blocks of k outermost: the totals lie in ``%out``, the chains of a block in registers."""
    e.do(f"%left = alloca [{ROWS * ROW_BYTES} x i8], align 64")
    _expand_rows(e, arithmetic)
    size = ROWS * ROW_BYTES
    e.do(f"call void @llvm.memset.p0.i64(ptr align 64 %out, i8 0, i64 {size}, i1 false)")
    chunk_bytes = 4 * arithmetic.vector.lanes * arithmetic.vectors
    with (
        e.loop(_K_BLOCKS) as block,
        e.loop(ROW_BYTES // chunk_bytes) as column,
        e.loop(ROWS // arithmetic.rows) as group,
    ):
        columns = e.value(f"mul i64 {column}, {chunk_bytes}")
        rows = e.value(f"mul i64 {group}, {arithmetic.rows * ROW_BYTES}")
        pairs = e.value(f"mul i64 {block}, {_PAIRS * ROW_BYTES}")
        left = e.offset("%left", rows)
        left = e.offset(left, e.value(f"mul i64 {block}, {_PAIRS * 8}"))
        weights = e.offset("%weights", e.value(f"add i64 {pairs}, {columns}"))
        chains = _chains(e, arithmetic, left, weights)
        _add_to_totals(
            e, arithmetic, e.offset("%out", e.value(f"add i64 {rows}, {columns}")), chains
        )


def _add_to_totals(e: Emitter, a: _Arithmetic, out: str, chains: list[tuple[str, str]]) -> None:
    floats, align = a.vector.floats, 4 * a.vector.lanes
    for number, (even, odd) in enumerate(chains):
        row, chunk = divmod(number, a.vectors)
        at = e.offset(out, row * ROW_BYTES + chunk * 4 * a.vector.lanes)
        total = a.add(e, e.load(floats, at, align), a.add(e, even, odd))
        e.store(floats, total, at, align)


def _chains(e: Emitter, a: _Arithmetic, left: str, weights: str) -> list[tuple[str, str]]:
    """Even and odd chain of each row and vector over the 16 pairs of a block."""
    floats, words = a.vector.floats, a.vector.words
    head, done, before = e.new_label(), e.new_label(), e.block
    pair = e.fresh()
    sums = [(e.fresh(), e.fresh()) for _ in range(a.rows * a.vectors)]
    e.jump(head)
    e.place(head)
    phis = len(e.lines)
    e.lines.append("")
    weights_at = e.offset(weights, e.value(f"shl i64 {pair}, 9"))
    width = 4 * a.vector.lanes
    halves = [
        a.halves(e, e.load(words, e.offset(weights_at, chunk * width), width))
        for chunk in range(a.vectors)
    ]
    left_at = e.offset(left, e.value(f"shl i64 {pair}, 3"))
    results: list[tuple[str, str]] = []
    for row in range(a.rows):
        factors = [_spread(e, a.vector, left_at, row * ROW_BYTES + 4 * half) for half in (0, 1)]
        for chunk in range(a.vectors):
            totals = sums[row * a.vectors + chunk]
            even, odd = (
                a.fma(e, factors[half], halves[chunk][half], totals[half]) for half in (0, 1)
            )
            results.append((even, odd))
    following = e.value(f"add i64 {pair}, 1")
    lines = [f" {pair} = phi i64 [0, %{before}], [{following}, %{e.block}]"]
    for chains, nexts in zip(sums, results, strict=True):
        for total, result in zip(chains, nexts, strict=True):
            edges = f"[zeroinitializer, %{before}], [{result}, %{e.block}]"
            lines.append(f" {total} = phi {floats} {edges}")
    e.lines[phis] = "\n".join(lines)
    e.branch(e.value(f"icmp ult i64 {following}, {_PAIRS}"), head, done)
    e.place(done)
    return results


def _expand_rows(e: Emitter, a: _Arithmetic) -> None:
    """The left side as f32: 8 low rows, then 8 high rows."""
    width = 4 * a.vector.lanes
    with e.loop(ROWS * ROW_BYTES // 2 // width) as i:
        at = e.value(f"mul i64 {i}, {width}")
        words = e.load(a.vector.words, e.offset("%lhs", at), width)
        target = e.offset("%left", at)
        for half, floats in enumerate(a.halves(e, words)):
            place = e.offset(target, half * ROWS * ROW_BYTES // 2)
            e.store(a.vector.floats, floats, place, width)


def _spread(e: Emitter, vector: _Vector, base: str, byte_offset: int) -> str:
    """One f32 of memory in every lane."""
    loaded = e.load("float", e.offset(base, byte_offset), 4)
    first = e.value(f"insertelement {vector.floats} poison, float {loaded}, i64 0")
    return e.value(
        f"shufflevector {vector.floats} {first}, {vector.floats} poison, "
        f"{vector.words} zeroinitializer"
    )


# f32 arithmetic, flushed by the CPU


def _halves(vector: _Vector, e: Emitter, words: str) -> tuple[str, str]:
    low = e.value(f"shl {vector.words} {words}, splat (i32 16)")
    high = e.value(f"and {vector.words} {words}, splat (i32 -65536)")
    return _as_floats(vector, e, low), _as_floats(vector, e, high)


def _as_floats(vector: _Vector, e: Emitter, words: str) -> str:
    return e.value(f"bitcast {vector.words} {words} to {vector.floats}")


def _fma(vector: _Vector, e: Emitter, a: str, b: str, c: str) -> str:
    typed = ", ".join(f"{vector.floats} {x}" for x in (a, b, c))
    return e.value(f"call {vector.floats} @llvm.fma.v{vector.lanes}f32({typed})")


def _add(vector: _Vector, e: Emitter, a: str, b: str) -> str:
    return e.value(f"fadd {vector.floats} {a}, {b}")


# exact arithmetic, flushed here


def _flushed(vector: _Vector, e: Emitter, floats: str) -> str:
    """Denormals become zeros of their sign."""
    words = e.value(f"bitcast {vector.floats} {floats} to {vector.words}")
    exponent = e.value(f"and {vector.words} {words}, splat (i32 {_INFINITE})")
    is_tiny = e.value(f"icmp eq {vector.words} {exponent}, zeroinitializer")
    sign = e.value(f"and {vector.words} {words}, splat (i32 {_SIGN})")
    kept = e.value(
        f"select {vector.of('i1')} {is_tiny}, {vector.words} {sign}, {vector.words} {words}"
    )
    return _as_floats(vector, e, kept)


def _flushed_halves(vector: _Vector, e: Emitter, words: str) -> tuple[str, str]:
    low, high = _halves(vector, e, words)
    return _flushed(vector, e, low), _flushed(vector, e, high)


def _exact_fma(vector: _Vector, e: Emitter, a: str, b: str, c: str) -> str:
    """``a * b + c`` rounded to odd in f64, then to f32, then flushed.

    The product is exact in f64, and the two-sum's error says whether the sum is not: if so and its
    last bit is 0, its neighbour on the error's side has last bit 1.
    """
    doubles, longs, masks = vector.of("double"), vector.of("i64"), vector.of("i1")

    def calculate(opcode: str, x: str, y: str) -> str:
        return e.value(f"{opcode} {doubles} {x}, {y}")

    wide_a, wide_b, addend = (e.value(f"fpext {vector.floats} {x} to {doubles}") for x in (a, b, c))
    product = calculate("fmul", wide_a, wide_b)
    total = calculate("fadd", product, addend)
    back = calculate("fsub", total, product)
    lost = calculate("fsub", product, calculate("fsub", total, back))
    error = calculate("fadd", lost, calculate("fsub", addend, back))
    bits = e.value(f"bitcast {doubles} {total} to {longs}")
    is_inexact = e.value(f"fcmp one {doubles} {error}, zeroinitializer")  # false for NaN
    last = e.value(f"trunc {longs} {bits} to {masks}")
    wrong = e.value(f"and {masks} {is_inexact}, {e.value(f'xor {masks} {last}, splat (i1 true)')}")
    signs = [e.value(f"fcmp ogt {doubles} {x}, zeroinitializer") for x in (error, total)]
    inward = e.value(f"xor {masks} {signs[0]}, {signs[1]}")
    away = e.value(f"select {masks} {inward}, {longs} splat (i64 -1), {longs} splat (i64 1)")
    moved = e.value(f"add {longs} {bits}, {away}")
    bits = e.value(f"select {masks} {wrong}, {longs} {moved}, {longs} {bits}")
    wide = e.value(f"bitcast {longs} {bits} to {doubles}")
    size = e.value(f"call {doubles} @llvm.fabs.v{vector.lanes}f64({doubles} {wide})")
    is_tiny = e.value(f"fcmp olt {doubles} {size}, splat (double {_TINY_BELOW})")
    zero = e.value(f"lshr {longs} {bits}, splat (i64 32)")
    zero = e.value(f"trunc {longs} {zero} to {vector.words}")
    zero = _as_floats(vector, e, e.value(f"and {vector.words} {zero}, splat (i32 {_SIGN})"))
    narrow = e.value(f"fptrunc {doubles} {wide} to {vector.floats}")
    return e.value(f"select {masks} {is_tiny}, {vector.floats} {zero}, {vector.floats} {narrow}")
