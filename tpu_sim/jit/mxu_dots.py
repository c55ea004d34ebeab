"""MXU passes with x86's dot products: a lane adds the products of the parts of a word.

``vdpbf16ps`` adds two products of bf16 to an f32, the high halves' first, each rounded as by a fused
multiply-add that flushes denormals: two steps of one chain of the MXU, where the two halves of a
word are neighbours in that chain (`weight_layout.CHAINS`). ``vpdpbusd`` adds four products of an
unsigned and a signed byte to an s32, ``vpmaddwd`` makes an s32 of two products of s16; both are
exact.

The left side is rearranged once a pass, so that a word of it has the k of a word of the weights.
"""

from __future__ import annotations

from collections.abc import Sequence

from tpu_sim.isa.geometry import ROW_BYTES
from tpu_sim.isa.rows.mxu import CANONICAL_NAN
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.lanes import CHUNK_BYTES
from tpu_sim.jit.mxu_chains import ROWS, flushing_by_mxcsr, plain_function
from tpu_sim.jit.weight_layout import CHAINS, WEIGHT_ROWS, WeightLayout

_LEFT_ROW_BYTES = 4 * WEIGHT_ROWS
_LEFT_BYTES = ROWS * _LEFT_ROW_BYTES
_K_BLOCKS = 4
_MOVED = -0x7F7F7F80
"""Flips the top bit of each byte: 128 more or less."""


class _DotPass:
    """The loops of a pass: blocks of `rows` rows by `vectors` vectors of columns."""

    rows = 4
    vectors = 2

    def __init__(self, lanes: int, layout: WeightLayout) -> None:
        self.e = FunctionEmitter()
        self.lanes = lanes
        self.layout = layout
        self.words = f"<{lanes} x i32>"
        self.width = 4 * lanes

    @property
    def totals(self) -> int:
        """Vectors of results in a block."""
        return self.rows * self.vectors

    def blocks(self, left_planes: Sequence[str]) -> None:
        """Loop over blocks; `block` computes each."""
        e = self.e
        chunk_bytes = self.vectors * self.width
        with e.loop(ROW_BYTES // chunk_bytes) as column, e.loop(ROWS // self.rows) as group:
            columns = e.value(f"mul i64 {column}, {chunk_bytes}")
            left_at = e.value(f"mul i64 {group}, {self.rows * _LEFT_ROW_BYTES}")
            lefts = [e.offset(plane, left_at) for plane in left_planes]
            results = self.block(lefts, e.offset("%weights", columns))
            at = e.value(f"mul i64 {group}, {self.rows * ROW_BYTES}")
            out = e.offset("%out", e.value(f"add i64 {at}, {columns}"))
            for number, result in enumerate(results):
                row, chunk = divmod(number, self.vectors)
                place = e.offset(out, row * ROW_BYTES + chunk * self.width)
                e.store(self.words, result, place, self.width)

    def block(self, lefts: Sequence[str], weights: str) -> list[str]:
        """The results of a block, as words, by row and vector."""
        raise NotImplementedError

    def rearranged_left(self) -> None:
        """Write the left side to ``%left`` as 16 rows of words, the 8 low rows first."""
        e = self.e
        halves, half_chunk = "<32 x i16>", "<16 x i16>"
        step_k = 2 * self.layout.words
        with (
            e.loop(ROWS // 2) as sublane,
            e.loop(ROW_BYTES // CHUNK_BYTES) as chunk,
        ):
            at = e.value(f"mul i64 {sublane}, {ROW_BYTES}")
            at = e.value(f"add i64 {at}, {e.value(f'mul i64 {chunk}, {CHUNK_BYTES}')}")
            both = e.load(halves, e.offset("%lhs", at), CHUNK_BYTES)
            # the same place in a row of half the size
            target = e.offset("%left", e.value(f"lshr i64 {at}, 1"))
            for half in (0, 1):
                picks = [
                    2 * (first + k) + half
                    for first in range(0, CHUNK_BYTES // 4, step_k)
                    for pair in self.layout.halves
                    for k in pair
                ]
                text = ", ".join(f"i32 {pick}" for pick in picks)
                row = e.value(
                    f"shufflevector {halves} {both}, {halves} poison, <16 x i32> <{text}>"
                )
                to = e.offset(target, half * _LEFT_BYTES // 2)
                e.store(half_chunk, row, to, CHUNK_BYTES // 2)

    def left_word(self, left: str, row: int, word: int) -> str:
        """A word of the left side in every lane."""
        e = self.e
        loaded = e.load("i32", e.offset(left, row * _LEFT_ROW_BYTES + 4 * word), 4)
        first = e.value(f"insertelement {self.words} poison, i32 {loaded}, i64 0")
        return e.value(
            f"shufflevector {self.words} {first}, {self.words} poison, {self.words} zeroinitializer"
        )

    def cast(self, value: str, source: str, target: str) -> str:
        """`value` as another type of the same size."""
        return self.e.value(f"bitcast {source} {value} to {target}")


class _Bf16Dot(_DotPass):
    """Words of even k are steps of the even chain, words of odd k of the odd one."""

    def block(self, lefts: Sequence[str], weights: str) -> list[str]:
        """Chains of 32 k in registers, added to totals that stay there too."""
        e, floats = self.e, f"<{self.lanes} x float>"
        block_bytes = WEIGHT_ROWS // _K_BLOCKS * ROW_BYTES
        zeros = ["zeroinitializer"] * self.totals
        with e.folding(_K_BLOCKS, floats, zeros) as (block, totals, nexts):
            left = e.offset(lefts[0], e.value(f"mul i64 {block}, {_LEFT_ROW_BYTES // _K_BLOCKS}"))
            chains = self._chains(
                left, e.offset(weights, e.value(f"mul i64 {block}, {block_bytes}"))
            )
            for total, even, odd in zip(totals, chains[::2], chains[1::2], strict=True):
                both = e.value(f"fadd {floats} {even}, {odd}")
                nexts.append(e.value(f"fadd {floats} {total}, {both}"))
        return [self._with_one_nan(total) for total in nexts]

    def _chains(self, left: str, weights: str) -> list[str]:
        """The even and the odd chain of each row and vector."""
        e, floats, pairs = self.e, f"<{self.lanes} x float>", f"<{2 * self.lanes} x bfloat>"
        step_words = self.layout.words
        zeros = ["zeroinitializer"] * (2 * self.totals)
        with e.folding(WEIGHT_ROWS // _K_BLOCKS // step_words, floats, zeros) as (i, sums, nexts):
            nexts += sums
            left_at = e.offset(left, e.value(f"mul i64 {i}, {4 * step_words}"))
            at = e.offset(weights, e.value(f"mul i64 {i}, {step_words * ROW_BYTES}"))
            for word in range(step_words):
                places = range(
                    word * ROW_BYTES, word * ROW_BYTES + self.vectors * self.width, self.width
                )
                factors = [e.load(pairs, e.offset(at, place), self.width) for place in places]
                for row in range(self.rows):
                    value = self.cast(self.left_word(left_at, row, word), self.words, pairs)
                    for chunk, factor in enumerate(factors):
                        chain = 2 * (row * self.vectors + chunk) + word
                        nexts[chain] = e.value(
                            f"call {floats} @llvm.x86.avx512bf16.dpbf16ps.{32 * self.lanes}("
                            f"{floats} {nexts[chain]}, {pairs} {value}, {pairs} {factor})"
                        )
        return nexts

    def _with_one_nan(self, total: str) -> str:
        floats, masks = f"<{self.lanes} x float>", f"<{self.lanes} x i1>"
        is_nan = self.e.value(f"fcmp uno {floats} {total}, zeroinitializer")
        words = self.cast(total, floats, self.words)
        return self.e.value(
            f"select {masks} {is_nan}, {self.words} splat (i32 {CANONICAL_NAN}), "
            f"{self.words} {words}"
        )


class _ByteDot(_DotPass):
    """``vpdpbusd`` of weights and left side, one of them moved by 128 to the other's signedness.

    The weights are moved, whichever sign they have: what that adds to a sum is 128 times the sum of
    the row of the left side, which the sums start without.
    """

    def __init__(self, lanes: int, layout: WeightLayout, is_signed: bool) -> None:
        super().__init__(lanes, layout)
        self.is_signed = is_signed

    def block(self, lefts: Sequence[str], weights: str) -> list[str]:
        """Two sums for each result, over the even and the odd rows of weights."""
        e = self.e
        starts: list[str] = []
        for row in range(self.rows):
            starts += [self._start(lefts[0], row), "zeroinitializer"] * self.vectors
        with e.folding(WEIGHT_ROWS // 2, self.words, starts) as (i, sums, nexts):
            left = e.offset(lefts[0], e.value(f"shl i64 {i}, 3"))
            at = e.offset(weights, e.value(f"mul i64 {i}, {2 * ROW_BYTES}"))
            nexts += sums
            for word in (0, 1):
                factors = []
                for chunk in range(self.vectors):
                    place = e.offset(at, word * ROW_BYTES + chunk * self.width)
                    loaded = e.load(self.words, place, self.width)
                    factors.append(e.value(f"xor {self.words} {loaded}, splat (i32 {_MOVED})"))
                for row in range(self.rows):
                    value = self.left_word(left, row, word)
                    for chunk, factor in enumerate(factors):
                        number = 2 * (row * self.vectors + chunk) + word
                        nexts[number] = self._product(nexts[number], value, factor)
        pairs = zip(nexts[::2], nexts[1::2], strict=True)
        return [e.value(f"add {self.words} {a}, {b}") for a, b in pairs]

    def _product(self, total: str, left: str, weights: str) -> str:
        unsigned, signed = (weights, left) if self.is_signed else (left, weights)
        return self.e.value(
            f"call {self.words} @llvm.x86.avx512.vpdpbusd.{32 * self.lanes}("
            f"{self.words} {total}, {self.words} {unsigned}, {self.words} {signed})"
        )

    def _start(self, left: str, row: int) -> str:
        """What the moved weights add too much, taken away."""
        e = self.e
        total = "zeroinitializer"
        ones = f"splat (i32 {0x01010101})"
        for at in range(0, _LEFT_ROW_BYTES, self.width):
            words = e.load(self.words, e.offset(left, row * _LEFT_ROW_BYTES + at), self.width)
            total = self._product(total, words, ones)
        whole = e.value(f"call i32 @llvm.vector.reduce.add.v{self.lanes}i32({self.words} {total})")
        # signed weights w are read as w + 128, unsigned ones as w - 128
        start = e.value(f"mul i32 {whole}, {-128 if self.is_signed else 128}")
        first = e.value(f"insertelement {self.words} poison, i32 {start}, i64 0")
        return e.value(
            f"shufflevector {self.words} {first}, {self.words} poison, {self.words} zeroinitializer"
        )


class _WordDot(_DotPass):
    """``vpmaddwd`` of the bytes as s16: the low bytes of a word's halves, then the high ones."""

    def __init__(self, lanes: int, layout: WeightLayout, is_signed: bool) -> None:
        super().__init__(lanes, layout)
        self.is_signed = is_signed
        self.halves = f"<{2 * lanes} x i16>"

    def split_left(self, place: str, low: str, high: str) -> None:
        """The low and the high bytes of a rearranged left side, as s16."""
        e = self.e
        with e.loop(_LEFT_BYTES // self.width) as i:
            at = e.value(f"mul i64 {i}, {self.width}")
            words = e.load(self.halves, e.offset(place, at), self.width)
            for part, plane in zip(self._bytes(words), (low, high), strict=True):
                e.store(self.halves, part, e.offset(plane, at), self.width)

    def _bytes(self, halves: str) -> list[str]:
        e, shift = self.e, "ashr" if self.is_signed else "lshr"
        top = e.value(f"shl {self.halves} {halves}, splat (i16 8)")
        return [e.value(f"{shift} {self.halves} {value}, splat (i16 8)") for value in (top, halves)]

    def block(self, lefts: Sequence[str], weights: str) -> list[str]:
        """One sum for each result."""
        e = self.e
        starts = ["zeroinitializer"] * self.totals
        with e.folding(WEIGHT_ROWS, self.words, starts) as (i, sums, nexts):
            nexts += sums
            offset = e.value(f"shl i64 {i}, 2")
            planes = [e.offset(left, offset) for left in lefts]
            at = e.offset(weights, e.value(f"mul i64 {i}, {ROW_BYTES}"))
            factors = [
                self._bytes(e.load(self.halves, e.offset(at, chunk * self.width), self.width))
                for chunk in range(self.vectors)
            ]
            for row in range(self.rows):
                for part, plane in enumerate(planes):
                    value = self.cast(self.left_word(plane, row, 0), self.words, self.halves)
                    for chunk, factor in enumerate(factors):
                        number = row * self.vectors + chunk
                        nexts[number] = self._added(nexts[number], value, factor[part])
        return list(nexts)

    def _added(self, total: str, left: str, weights: str) -> str:
        e = self.e
        name = {8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[self.lanes]
        typed = f"{self.halves} {left}, {self.halves} {weights}"
        product = e.value(f"call {self.words} @llvm.x86.{name}({typed})")
        return e.value(f"add {self.words} {total}, {product}")


def byte_dot_text(name: str, lanes: int, layout: WeightLayout, *, is_signed: bool) -> str:
    """``void name(out, lhs, weights, next)`` of bytes with ``vpdpbusd``."""
    code = _ByteDot(lanes, layout, is_signed)
    code.e.do(f"%left = alloca [{_LEFT_BYTES} x i8], align 64")
    code.rearranged_left()
    code.blocks(["%left"])
    return plain_function(name, code.e)


def word_dot_text(name: str, lanes: int, layout: WeightLayout, *, is_signed: bool) -> str:
    """``void name(out, lhs, weights, next)`` of bytes with ``vpmaddwd``."""
    code = _WordDot(lanes, layout, is_signed)
    for plane in ("%left", "%low", "%high"):
        code.e.do(f"{plane} = alloca [{_LEFT_BYTES} x i8], align 64")
    code.rearranged_left()
    code.split_left("%left", "%low", "%high")
    code.blocks(["%low", "%high"])
    return plain_function(name, code.e)


def bf16_dot_text(name: str) -> str:
    """``void name(out, lhs, weights, next)`` with ``vdpbf16ps``, for weights laid out as `CHAINS`."""
    code = _Bf16Dot(16, CHAINS)
    e = code.e
    e.do(f"%left = alloca [{_LEFT_BYTES} x i8], align 64")
    code.rearranged_left()
    with flushing_by_mxcsr(e):
        code.blocks(["%left"])
    return plain_function(name, e)
