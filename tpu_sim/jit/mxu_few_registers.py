"""The MXU pass with f32 FMAs where there are 16 vector registers: one chain at a time.

The order is that of `mxu_chains`. Both chains of a block of outputs would leave registers for 2 rows of
2 vectors, and each weight would be made f32 for every 2 rows. One chain leaves them for 4 rows, and the
weights of 32 k and 2 vectors are made f32 once: the first 4 rows store them, the others load them.

Contractions shorter than 128 are filled up with zeros. Where a left side is zero in all of 32 k and the
weights are finite, the chains are zeros of some sign and their sum is +0: it is added as that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tpu_sim.isa.geometry import ROW_BYTES
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.mxu_chains import (
    BLOCK_PAIRS,
    K_BLOCKS,
    ROWS,
    Vector,
    expand_rows,
    flushing_by_mxcsr,
    fma,
    halves_of,
    pass_function,
    spread,
)
from tpu_sim.jit.weight_layout import WeightLayout

_ROWS = 4
_VECTORS = 2
_STEPS_TOGETHER = 4
_FLOAT_BYTES = 4
_MAGNITUDES = 0x7FFF
_EXPONENT = 0x7F80
"""Of a bf16: all ones in what is not finite."""


@dataclass(frozen=True)
class _Group:
    """Pointers to what 4 rows need of 32 k: their left side, and where totals come from and go to.

    `weights` are the words, for the group that makes f32 of them.
    """

    left: str
    before: str
    out: str
    weights: str = ""


class _Pass:
    def __init__(self, lanes: int, layout: WeightLayout) -> None:
        self.e = FunctionEmitter()
        self.vector = Vector(lanes)
        self.layout = layout
        self.width = _FLOAT_BYTES * lanes
        self.chunk_bytes = _VECTORS * self.width
        self.steps = BLOCK_PAIRS // layout.words

    def write(self) -> None:
        """Chunks of columns outermost, then blocks of k, then groups of rows."""
        e, size = self.e, ROWS * ROW_BYTES
        e.do(f"%left = alloca [{size} x i8], align 64")
        e.do(f"%wide = alloca [{2 * BLOCK_PAIRS * self.chunk_bytes} x i8], align 64")
        e.do(f"%even = alloca [{_ROWS * self.chunk_bytes} x i8], align 64")
        expand_rows(e, self.vector, partial(halves_of, self.vector))
        e.do(f"%zeros = alloca [{(_ROWS - 1) * ROW_BYTES + self.chunk_bytes} x i8], align 64")
        for number in range(_ROWS * _VECTORS):
            zero = e.offset("%zeros", self._place(number))
            e.store(self.vector.floats, "zeroinitializer", zero, self.width)
        self._find_zeros()
        with e.loop(ROW_BYTES // self.chunk_bytes) as column, e.loop(K_BLOCKS) as block:
            columns = e.value(f"mul i64 {column}, {self.chunk_bytes}")
            out = e.offset("%out", columns)
            weights = e.value(f"mul i64 {block}, {BLOCK_PAIRS * ROW_BYTES}")
            weights = e.offset(e.offset("%weights", columns), weights)
            left = e.offset("%left", e.value(f"mul i64 {block}, {2 * BLOCK_PAIRS * _FLOAT_BYTES}"))
            is_first = e.value(f"icmp eq i64 {block}, 0")
            is_zero = e.load("i1", e.offset("%is_zero", block))
            with e.when(is_zero):
                self._add_zeros(is_first, out)
            with e.when(e.value(f"xor i1 {is_zero}, true")):
                self._group(_Group(left, self._before(is_first, out), out, weights))
                with e.loop(ROWS // _ROWS - 1) as group:
                    following = e.value(f"add i64 {group}, 1")
                    below = e.value(f"mul i64 {following}, {_ROWS * ROW_BYTES}")
                    own = e.offset(out, below)
                    before = self._before(is_first, own)
                    self._group(_Group(e.offset(left, below), before, own))

    def _find_zeros(self) -> None:
        """Which blocks of k add +0, in ``%is_zero``: a left side of zeros, weights that are finite."""
        e = self.e
        e.do(f"%is_zero = alloca [{K_BLOCKS} x i1]")
        with e.loop(K_BLOCKS) as block:
            flag = e.offset("%is_zero", block)
            e.store("i1", "false", flag)
            size = ROW_BYTES // K_BLOCKS
            left = e.offset("%lhs", e.value(f"mul i64 {block}, {size}"))
            found = self._folded(left, (ROWS // 2, ROW_BYTES), size, "or", _MAGNITUDES)
            with e.when(e.value(f"icmp eq i16 {found}, 0")):
                first = e.value(f"mul i64 {block}, {BLOCK_PAIRS * ROW_BYTES}")
                weights = e.offset("%weights", first)
                most = self._folded(weights, (BLOCK_PAIRS, ROW_BYTES), ROW_BYTES, "umax", _EXPONENT)
                e.store("i1", e.value(f"icmp ult i16 {most}, {_EXPONENT}"), flag)

    def _folded(
        self, start: str, rows: tuple[int, int], size: int, operation: str, bits: int
    ) -> str:
        """Those `bits` of all bf16 in `size` bytes of each row, folded: an i16."""
        e, lanes = self.e, 2 * self.vector.lanes
        halves = f"<{lanes} x i16>"
        count, stride = rows
        with e.folding(count, halves, ["zeroinitializer"]) as (row, totals, nexts):
            source = e.offset(start, e.value(f"mul i64 {row}, {stride}"))
            total = totals[0]
            for at in range(0, size, self.width):
                loaded = e.load(halves, e.offset(source, at), self.width)
                kept = e.value(f"and {halves} {loaded}, splat (i16 {bits})")
                total = e.value(self._fold_text(operation, halves, total, kept))
            nexts.append(total)
        return e.value(f"call i16 @llvm.vector.reduce.{operation}.v{lanes}i16({halves} {nexts[0]})")

    def _fold_text(self, operation: str, halves: str, a: str, b: str) -> str:
        if operation == "or":
            return f"or {halves} {a}, {b}"
        name = f"llvm.{operation}.v{2 * self.vector.lanes}i16"
        return f"call {halves} @{name}({halves} {a}, {halves} {b})"

    def _add_zeros(self, is_first: str, out: str) -> None:
        """A block whose chains are zeros: totals of -0 become +0."""
        e, floats = self.e, self.vector.floats
        with e.loop(ROWS // _ROWS) as group:
            own = e.offset(out, e.value(f"mul i64 {group}, {_ROWS * ROW_BYTES}"))
            before = self._before(is_first, own)
            for number in range(_ROWS * _VECTORS):
                at = self._place(number)
                total = e.load(floats, e.offset(before, at), self.width)
                total = e.value(f"fadd {floats} {total}, zeroinitializer")
                e.store(floats, total, e.offset(own, at), self.width)

    def _before(self, is_first: str, out: str) -> str:
        return self.e.value(f"select i1 {is_first}, ptr %zeros, ptr {out}")

    def _place(self, number: int) -> int:
        """Where a row and vector of a group lies among totals."""
        row, chunk = divmod(number, _VECTORS)
        return row * ROW_BYTES + chunk * self.width

    def _group(self, group: _Group) -> None:
        """Both chains of 32 k, added to the totals in ``%out``."""
        e, floats = self.e, self.vector.floats
        for number, even in enumerate(self._chain(group, 0)):
            e.store(floats, even, e.offset("%even", number * self.width), self.width)
        for number, odd in enumerate(self._chain(group, 1)):
            even = e.load(floats, e.offset("%even", number * self.width), self.width)
            both = e.value(f"fadd {floats} {even}, {odd}")
            at = self._place(number)
            before = e.load(floats, e.offset(group.before, at), self.width)
            total = e.value(f"fadd {floats} {before}, {both}")
            e.store(floats, total, e.offset(group.out, at), self.width)

    def _chain(self, group: _Group, parity: int) -> list[str]:
        """The chain over the k of a parity, for each row and vector."""
        e = self.e
        together = min(_STEPS_TOGETHER, self.steps)
        k_count = 2 * self.layout.words
        starts = ["zeroinitializer"] * (_ROWS * _VECTORS)
        with e.folding(self.steps // together, self.vector.floats, starts) as (i, sums, results):
            results += sums
            left = e.offset(
                group.left, e.value(f"mul i64 {i}, {together * k_count * _FLOAT_BYTES}")
            )
            for number in range(together * self.layout.words):
                step, of_step = divmod(number, self.layout.words)
                k = 2 * of_step + parity
                factors = self._factors(group, i, (step, k), together)
                for row in range(_ROWS):
                    at = row * ROW_BYTES + _FLOAT_BYTES * (step * k_count + k)
                    value = spread(e, self.vector, left, at)
                    for chunk, factor in enumerate(factors):
                        sum_ = row * _VECTORS + chunk
                        results[sum_] = fma(self.vector, e, value, factor, results[sum_])
        return list(results)

    def _factors(
        self, group: _Group, trip: str, place: tuple[int, int], together: int
    ) -> list[str]:
        """The weights of k of a step as f32: made and stored by the first group, else loaded."""
        e, (step, k) = self.e, place
        words = self.layout.words
        wide = e.offset("%wide", e.value(f"mul i64 {trip}, {together * words * self.chunk_bytes}"))
        wide = e.offset(wide, ((k % 2) * BLOCK_PAIRS + step * words + k // 2) * self.chunk_bytes)
        floats, width = self.vector.floats, self.width
        if not group.weights:
            return [e.load(floats, e.offset(wide, n * width), width) for n in range(_VECTORS)]
        word, half = self.layout.places[k]
        rows = e.value(f"mul i64 {trip}, {together * words * ROW_BYTES}")
        source = e.offset(e.offset(group.weights, rows), (step * words + word) * ROW_BYTES)
        found = []
        for at in range(0, self.chunk_bytes, width):
            both = halves_of(self.vector, e, e.load(self.vector.words, e.offset(source, at), width))
            e.store(floats, both[half], e.offset(wide, at), width)
            found.append(both[half])
        return found


def single_chain_text(name: str, lanes: int, layout: WeightLayout) -> str:
    """``void name(out, lhs, weights, next)`` for x86 without AVX-512."""
    code = _Pass(lanes, layout)
    with flushing_by_mxcsr(code.e):
        code.write()
    return pass_function(name, code.e, lanes)
