"""MXU passes of 8-bit integers as native code: 16 rows of 128 pairs times 128x128 pairs of weights.

Words of the left side hold two pairs, a low and a high row's; words of the weights two pairs of
their column (`tpu_sim.jit.weight_layout`). All sums are exact, in a matrix unit's integers as in f32:
256 products below 2^16 stay below 2^24.
"""

from __future__ import annotations

from itertools import product

from tpu_sim.isa.geometry import ROW_BYTES
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.mxu_chains import ROWS, Vector, fma, plain_function
from tpu_sim.jit.weight_layout import WEIGHT_ROWS, WeightLayout

_BYTES = 4
_ROWS_AT_ONCE = {16: 8, 8: 4, 4: 4}


def portable_text(name: str, lanes: int, layout: WeightLayout, *, is_signed: bool) -> str:
    """``void name(out, lhs, weights, next)`` for bytes of one signedness, on any host."""
    return _Portable(lanes, layout, is_signed).text(name)


class _Portable:
    """f32 fused multiply-adds, `_ROWS_AT_ONCE` rows by one vector of columns at a time."""

    def __init__(self, lanes: int, layout: WeightLayout, is_signed: bool) -> None:
        self.layout = layout
        self.lanes = lanes
        self.is_signed = is_signed
        self.words = f"<{lanes} x i32>"
        self.floats = f"<{lanes} x float>"
        self.width = 4 * lanes
        self.rows = _ROWS_AT_ONCE[lanes]

    def text(self, name: str) -> str:
        """The function."""
        e = FunctionEmitter()
        e.do(f"%left = alloca [{2 * ROWS * ROW_BYTES} x i8], align 64")
        self._expand_rows(e)
        with (
            e.loop(ROW_BYTES // self.width) as column,
            e.loop(ROWS // self.rows) as group,
        ):
            columns = e.value(f"mul i64 {column}, {self.width}")
            rows = e.value(f"mul i64 {group}, {self.rows * ROW_BYTES}")
            sums = self._sums(e, e.offset("%left", rows), e.offset("%weights", columns))
            out = e.offset("%out", e.value(f"add i64 {rows}, {columns}"))
            for row, total in enumerate(sums):
                whole = e.value(f"fptosi {self.floats} {total} to {self.words}")
                e.store(self.words, whole, e.offset(out, row * ROW_BYTES), self.width)
        return plain_function(name, e)

    def _bytes(self, e: FunctionEmitter, words: str) -> list[str]:
        """The four bytes of each word as f32."""
        found = []
        for number in range(_BYTES):
            up = 32 - 8 * (number + 1)
            top = e.value(f"shl {self.words} {words}, splat (i32 {up})")
            shift, cast = ("ashr", "sitofp") if self.is_signed else ("lshr", "uitofp")
            value = e.value(f"{shift} {self.words} {top}, splat (i32 24)")
            found.append(e.value(f"{cast} {self.words} {value} to {self.floats}"))
        return found

    def _expand_rows(self, e: FunctionEmitter) -> None:
        """Two planes of 16 rows in f32, of the low and the high byte of each pair."""
        with e.loop(ROWS * ROW_BYTES // 2 // self.width) as i:
            at = e.value(f"mul i64 {i}, {self.width}")
            words = e.load(self.words, e.offset("%lhs", at), self.width)
            target = e.offset("%left", at)
            for number, value in enumerate(self._bytes(e, words)):
                half, plane = divmod(number, 2)
                place = half * ROWS * ROW_BYTES // 2 + plane * ROWS * ROW_BYTES
                e.store(self.floats, value, e.offset(target, place), self.width)

    def _sums(self, e: FunctionEmitter, left: str, weights: str) -> list[str]:
        """The sums of each row over all words of weights."""
        layout = self.layout
        starts = ["zeroinitializer"] * (2 * self.rows)  # for each row one for each plane
        with e.folding(WEIGHT_ROWS // layout.words, self.floats, starts) as (step, sums, results):
            results += sums
            at = e.offset(weights, e.value(f"mul i64 {step}, {layout.words * ROW_BYTES}"))
            factors = [
                self._bytes(e, e.load(self.words, e.offset(at, word * ROW_BYTES), self.width))
                for word in range(layout.words)
            ]
            left_at = e.offset(left, e.value(f"mul i64 {step}, {8 * layout.words}"))
            for row, k, plane in product(range(self.rows), range(2 * layout.words), (0, 1)):
                word, half = layout.places[k]
                place = row * ROW_BYTES + plane * ROWS * ROW_BYTES + 4 * k
                value = self._spread(e, left_at, place)
                chain = 2 * row + plane
                factor = factors[word][2 * half + plane]
                results[chain] = fma(Vector(self.lanes), e, value, factor, results[chain])
        pairs = zip(results[::2], results[1::2], strict=True)
        return [e.value(f"fadd {self.floats} {low}, {high}") for low, high in pairs]

    def _spread(self, e: FunctionEmitter, base: str, byte_offset: int) -> str:
        loaded = e.load("float", e.offset(base, byte_offset), 4)
        first = e.value(f"insertelement {self.floats} poison, float {loaded}, i64 0")
        return e.value(
            f"shufflevector {self.floats} {first}, {self.floats} poison, {self.words} "
            "zeroinitializer"
        )
