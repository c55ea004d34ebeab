"""MXU passes of 8-bit integers as native code: 16 rows of 128 pairs times 128x128 pairs of weights.

Words of the left side hold two pairs, a low and a high row's; words of the weights two pairs one
below the other (`tpu_sim.jit.mxu_kernels`). All sums are exact, in a matrix unit's integers as in f32:
256 products below 2^16 stay below 2^24.
"""

from __future__ import annotations

from tpu_sim.jit.emitter import Emitter
from tpu_sim.jit.host import Host
from tpu_sim.jit.mxu_chains import ROW_BYTES, ROWS, plain_function
from tpu_sim.jit.mxu_kernels import integer_tiles_text

_BYTES = 4
_WORDS = 64  # rows of weight words
_ROWS_AT_ONCE = {16: 8, 8: 4, 4: 4}


def integer_pass_text(name: str, host: Host, *, is_signed: bool) -> str:
    """``void name(out, lhs, weights, next)`` for bytes of one signedness."""
    if host.has_matrix_unit and "+amx-int8" in host.features.split(","):
        return integer_tiles_text(name, is_signed=is_signed)
    return _Portable(host.vector_lanes, is_signed).text(name)


class _Portable:
    """f32 fused multiply-adds, `_ROWS_AT_ONCE` rows by one vector of columns at a time."""

    def __init__(self, lanes: int, is_signed: bool) -> None:
        self.lanes = lanes
        self.is_signed = is_signed
        self.words = f"<{lanes} x i32>"
        self.floats = f"<{lanes} x float>"
        self.width = 4 * lanes
        self.rows = _ROWS_AT_ONCE[lanes]

    def text(self, name: str) -> str:
        """The function."""
        e = Emitter()
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

    def _bytes(self, e: Emitter, words: str) -> list[str]:
        """The four bytes of each word as f32."""
        found = []
        for number in range(_BYTES):
            up = 32 - 8 * (number + 1)
            top = e.value(f"shl {self.words} {words}, splat (i32 {up})")
            shift, cast = ("ashr", "sitofp") if self.is_signed else ("lshr", "uitofp")
            value = e.value(f"{shift} {self.words} {top}, splat (i32 24)")
            found.append(e.value(f"{cast} {self.words} {value} to {self.floats}"))
        return found

    def _expand_rows(self, e: Emitter) -> None:
        """Two planes of 16 rows in f32, of the low and the high byte of each pair."""
        with e.loop(ROWS * ROW_BYTES // 2 // self.width) as i:
            at = e.value(f"mul i64 {i}, {self.width}")
            words = e.load(self.words, e.offset("%lhs", at), self.width)
            target = e.offset("%left", at)
            for number, value in enumerate(self._bytes(e, words)):
                half, plane = divmod(number, 2)
                place = half * ROWS * ROW_BYTES // 2 + plane * ROWS * ROW_BYTES
                e.store(self.floats, value, e.offset(target, place), self.width)

    def _sums(self, e: Emitter, left: str, weights: str) -> list[str]:
        """The sums of each row over all words of weights."""
        head, done, before = e.new_label(), e.new_label(), e.block
        word = e.fresh()
        sums = [(e.fresh(), e.fresh()) for _ in range(self.rows)]
        e.jump(head)
        e.place(head)
        phis = len(e.lines)
        e.lines.append("")
        at = e.offset(weights, e.value(f"shl i64 {word}, 9"))
        factors = self._bytes(e, e.load(self.words, at, self.width))
        left_at = e.offset(left, e.value(f"shl i64 {word}, 3"))
        results = []
        for row, totals in enumerate(sums):
            chains = list(totals)  # one for each plane
            for number, factor in enumerate(factors):
                pair, plane = divmod(number, 2)
                place = row * ROW_BYTES + plane * ROWS * ROW_BYTES + 4 * pair
                value = self._spread(e, left_at, place)
                chains[plane] = self._fma(e, value, factor, chains[plane])
            results.append(chains)
        following = e.value(f"add i64 {word}, 1")
        lines = [f" {word} = phi i64 [0, %{before}], [{following}, %{e.block}]"]
        for totals, chains in zip(sums, results, strict=True):
            for total, result in zip(totals, chains, strict=True):
                edges = f"[zeroinitializer, %{before}], [{result}, %{e.block}]"
                lines.append(f" {total} = phi {self.floats} {edges}")
        e.lines[phis] = "\n".join(lines)
        e.branch(e.value(f"icmp ult i64 {following}, {_WORDS}"), head, done)
        e.place(done)
        return [e.value(f"fadd {self.floats} {low}, {high}") for low, high in results]

    def _spread(self, e: Emitter, base: str, byte_offset: int) -> str:
        loaded = e.load("float", e.offset(base, byte_offset), 4)
        first = e.value(f"insertelement {self.floats} poison, float {loaded}, i64 0")
        return e.value(
            f"shufflevector {self.floats} {first}, {self.floats} poison, {self.words} "
            "zeroinitializer"
        )

    def _fma(self, e: Emitter, a: str, b: str, c: str) -> str:
        typed = ", ".join(f"{self.floats} {x}" for x in (a, b, c))
        return e.value(f"call {self.floats} @llvm.fma.v{self.lanes}f32({typed})")
