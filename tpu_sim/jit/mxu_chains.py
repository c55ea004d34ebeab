"""The MXU pass with vectors: two chains of fused multiply-adds per output and block of 32 k.

The order is that of `tpu_sim.isa.rows.mxu`, and so is the flushing of denormals, where a number is
tiny if it would be below the smallest normal number after rounding with an unbounded exponent.
x86 flushes just so. aarch64 flushes before rounding, which differs in a sliver below the smallest
normal number: there the pass is repeated in exact arithmetic if anything was flushed at all.

CPUs give NaN a sign and payload by rules of their own, so every form ends by writing the MXU's one
NaN (`CANONICAL_NAN`) over whatever NaN it got.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from tpu_sim.isa.geometry import ROW_BYTES
from tpu_sim.isa.rows.mxu import CANONICAL_NAN
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.host import Arch, Host
from tpu_sim.jit.weight_layout import WeightLayout

ROWS = 16
_PARAMETERS = "ptr noalias %out, ptr noalias %lhs, ptr noalias %weights, ptr noalias %next"

K_BLOCKS = 4
BLOCK_PAIRS = 16  # of k in a block, and rows of weights
_FLUSHING_MXCSR = 0x8040  # flush results to zero, read denormals as zero
_FLUSHING_FPCR = 1 << 24
_UNDERFLOW_FPSR = 1 << 3
_INFINITE = 0x7F800000
_SIGN = -0x80000000
_TINY_BELOW = "0x380FFFFFF0000000"  # 2**-126 - 2**-151 rounds up with an unbounded exponent
_EXACT_LANES = 8


Halves = Callable[[FunctionEmitter, str], tuple[str, str]]
"""The f32 of the low and of the high bf16 of each word."""


@dataclass(frozen=True)
class Vector:
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

    layout: WeightLayout
    vector: Vector
    rows: int
    vectors: int
    halves: Halves
    fma: Callable[[FunctionEmitter, str, str, str], str]
    add: Callable[[FunctionEmitter, str, str], str]


def fma_text(name: str, host: Host, layout: WeightLayout, exact: str) -> str:
    """``void name(out, lhs, weights, next)`` with f32 FMAs; `exact` names the form for rare cases."""
    vector = Vector(host.vector_lanes)
    rows, vectors = {16: (4, 2), 8: (2, 2), 4: (4, 2)}[vector.lanes]
    arithmetic = _Arithmetic(
        layout,
        vector,
        rows,
        vectors,
        partial(halves_of, vector),
        partial(fma, vector),
        partial(_add, vector),
    )
    e = FunctionEmitter()
    if host.arch is Arch.X86_64:
        with flushing_by_mxcsr(e):
            _pass(e, arithmetic)
    else:
        _flush_with_fpcr(e, arithmetic, exact)
    return pass_function(name, e, vector.lanes)


def exact_text(name: str, layout: WeightLayout) -> str:
    """``void name(out, lhs, weights, next)`` on any host: f64 arithmetic with explicit flushing."""
    vector = Vector(_EXACT_LANES)
    e = FunctionEmitter()
    _pass(
        e,
        _Arithmetic(
            layout, vector, 2, 1, partial(_flushed_halves, vector), partial(_exact_fma, vector),
            lambda e, a, b: _flushed(vector, e, _add(vector, e, a, b)),
        ),
    )  # fmt: skip
    return pass_function(name, e, _EXACT_LANES)


def pass_function(name: str, e: FunctionEmitter, lanes: int) -> str:
    """The function of a pass whose arithmetic `e` has: NaN results become the MXU's one NaN."""
    vector = Vector(lanes)
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


def plain_function(name: str, e: FunctionEmitter) -> str:
    """The function of a pass that leaves its results as `e` writes them."""
    return f"define void @{name}({_PARAMETERS}) #0 {{\nentry:\n{e.text()}\n ret void\n}}\n"


@contextmanager
def flushing_by_mxcsr(e: FunctionEmitter) -> Iterator[None]:
    """Code for x86 whose f32 arithmetic flushes denormals."""
    e.do("%mode = alloca i32")
    e.do("%flushing = alloca i32")
    e.do("call void @llvm.x86.sse.stmxcsr(ptr %mode)")
    flushing = e.value(f"or i32 {e.load('i32', '%mode', 4)}, {_FLUSHING_MXCSR}")
    e.store("i32", flushing, "%flushing", 4)
    e.do("call void @llvm.x86.sse.ldmxcsr(ptr %flushing)")
    yield
    e.do("call void @llvm.x86.sse.ldmxcsr(ptr %mode)")


def _flush_with_fpcr(e: FunctionEmitter, arithmetic: _Arithmetic, exact: str) -> None:
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


def _pass(e: FunctionEmitter, arithmetic: _Arithmetic) -> None:
    """Blocks of k outermost: the totals lie in ``%out``, the chains of a block in registers."""
    e.do(f"%left = alloca [{ROWS * ROW_BYTES} x i8], align 64")
    expand_rows(e, arithmetic.vector, arithmetic.halves)
    size = ROWS * ROW_BYTES
    e.do(f"call void @llvm.memset.p0.i64(ptr align 64 %out, i8 0, i64 {size}, i1 false)")
    chunk_bytes = 4 * arithmetic.vector.lanes * arithmetic.vectors
    with (
        e.loop(K_BLOCKS) as block,
        e.loop(ROW_BYTES // chunk_bytes) as column,
        e.loop(ROWS // arithmetic.rows) as group,
    ):
        columns = e.value(f"mul i64 {column}, {chunk_bytes}")
        rows = e.value(f"mul i64 {group}, {arithmetic.rows * ROW_BYTES}")
        pairs = e.value(f"mul i64 {block}, {BLOCK_PAIRS * ROW_BYTES}")
        left = e.offset("%left", rows)
        left = e.offset(left, e.value(f"mul i64 {block}, {BLOCK_PAIRS * 8}"))
        weights = e.offset("%weights", e.value(f"add i64 {pairs}, {columns}"))
        chains = _chains(e, arithmetic, left, weights)
        _add_to_totals(
            e, arithmetic, e.offset("%out", e.value(f"add i64 {rows}, {columns}")), chains
        )


def _add_to_totals(
    e: FunctionEmitter, a: _Arithmetic, out: str, chains: list[tuple[str, str]]
) -> None:
    floats, align = a.vector.floats, 4 * a.vector.lanes
    for number, (even, odd) in enumerate(chains):
        row, chunk = divmod(number, a.vectors)
        at = e.offset(out, row * ROW_BYTES + chunk * 4 * a.vector.lanes)
        total = a.add(e, e.load(floats, at, align), a.add(e, even, odd))
        e.store(floats, total, at, align)


def _chains(e: FunctionEmitter, a: _Arithmetic, left: str, weights: str) -> list[tuple[str, str]]:
    """Even and odd chain of each row and vector over the 32 k of a block."""
    words, width, step_words = a.vector.words, 4 * a.vector.lanes, a.layout.words
    starts = ["zeroinitializer"] * (2 * a.rows * a.vectors)
    with e.folding(BLOCK_PAIRS // step_words, a.vector.floats, starts) as (step, sums, results):
        results += sums
        weights_at = e.offset(weights, e.value(f"mul i64 {step}, {step_words * ROW_BYTES}"))
        halves = [
            [
                a.halves(e, e.load(words, e.offset(weights_at, word * ROW_BYTES + at), width))
                for word in range(step_words)
            ]
            for at in range(0, a.vectors * width, width)
        ]
        left_at = e.offset(left, e.value(f"mul i64 {step}, {8 * step_words}"))
        for row in range(a.rows):
            for k, (word, half) in enumerate(a.layout.places):
                factor = spread(e, a.vector, left_at, row * ROW_BYTES + 4 * k)
                for chunk in range(a.vectors):
                    chain = 2 * (row * a.vectors + chunk) + k % 2
                    results[chain] = a.fma(e, factor, halves[chunk][word][half], results[chain])
    return list(zip(results[::2], results[1::2], strict=True))


def expand_rows(e: FunctionEmitter, vector: Vector, halves: Halves) -> None:
    """The left side as f32 in ``%left``: 8 low rows, then 8 high rows."""
    width = 4 * vector.lanes
    with e.loop(ROWS * ROW_BYTES // 2 // width) as i:
        at = e.value(f"mul i64 {i}, {width}")
        words = e.load(vector.words, e.offset("%lhs", at), width)
        target = e.offset("%left", at)
        for half, floats in enumerate(halves(e, words)):
            place = e.offset(target, half * ROWS * ROW_BYTES // 2)
            e.store(vector.floats, floats, place, width)


def spread(e: FunctionEmitter, vector: Vector, base: str, byte_offset: int) -> str:
    """One f32 of memory in every lane."""
    loaded = e.load("float", e.offset(base, byte_offset), 4)
    first = e.value(f"insertelement {vector.floats} poison, float {loaded}, i64 0")
    return e.value(
        f"shufflevector {vector.floats} {first}, {vector.floats} poison, "
        f"{vector.words} zeroinitializer"
    )


# f32 arithmetic, flushed by the CPU


def halves_of(vector: Vector, e: FunctionEmitter, words: str) -> tuple[str, str]:
    """The f32 of the low and of the high bf16 of each word."""
    low = e.value(f"shl {vector.words} {words}, splat (i32 16)")
    high = e.value(f"and {vector.words} {words}, splat (i32 -65536)")
    return _as_floats(vector, e, low), _as_floats(vector, e, high)


def _as_floats(vector: Vector, e: FunctionEmitter, words: str) -> str:
    return e.value(f"bitcast {vector.words} {words} to {vector.floats}")


def fma(vector: Vector, e: FunctionEmitter, a: str, b: str, c: str) -> str:
    """``a * b + c`` by the CPU."""
    typed = ", ".join(f"{vector.floats} {x}" for x in (a, b, c))
    return e.value(f"call {vector.floats} @llvm.fma.v{vector.lanes}f32({typed})")


def _add(vector: Vector, e: FunctionEmitter, a: str, b: str) -> str:
    return e.value(f"fadd {vector.floats} {a}, {b}")


# exact arithmetic, flushed here


def _flushed(vector: Vector, e: FunctionEmitter, floats: str) -> str:
    """Denormals become zeros of their sign."""
    words = e.value(f"bitcast {vector.floats} {floats} to {vector.words}")
    exponent = e.value(f"and {vector.words} {words}, splat (i32 {_INFINITE})")
    is_tiny = e.value(f"icmp eq {vector.words} {exponent}, zeroinitializer")
    sign = e.value(f"and {vector.words} {words}, splat (i32 {_SIGN})")
    kept = e.value(
        f"select {vector.of('i1')} {is_tiny}, {vector.words} {sign}, {vector.words} {words}"
    )
    return _as_floats(vector, e, kept)


def _flushed_halves(vector: Vector, e: FunctionEmitter, words: str) -> tuple[str, str]:
    low, high = halves_of(vector, e, words)
    return _flushed(vector, e, low), _flushed(vector, e, high)


def _exact_fma(vector: Vector, e: FunctionEmitter, a: str, b: str, c: str) -> str:
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
