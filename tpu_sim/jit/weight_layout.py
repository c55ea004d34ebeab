"""How latched weights lie in a block, and the kernels that push, transpose and clear them.

A block has 64 rows of 128 words; a word holds two weights of its column. Which two depends on what
the host's instructions multiply: rows come in steps of one or two, and a step has the weights of
twice as many k, the same in every step. Plain push n writes rows 8n .. 8n + 7 in every layout, and
transposed push n columns 16n .. 16n + 15.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpu_sim.isa.geometry import ROW_BYTES
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.host import Host
from tpu_sim.jit.lanes import CHUNK_BYTES

COLUMNS = 128
WEIGHT_ROWS = 64
_PUSH_ROWS = 8
_CHUNK_HALVES = 32


@dataclass(frozen=True)
class WeightLayout:
    """`halves[w]` are the k of a step whose weights word w of the step holds: low, high."""

    halves: tuple[tuple[int, int], ...]

    @property
    def words(self) -> int:
        """Words of a column in a step; a step has twice as many k."""
        return len(self.halves)

    @property
    def places(self) -> list[tuple[int, int]]:
        """Word and half (0 low, 1 high) of each k of a step, in order of k."""
        found = {k: (w, h) for w, pair in enumerate(self.halves) for h, k in enumerate(pair)}
        return [found[k] for k in sorted(found)]


PAIRS = WeightLayout(((0, 1),))
"""Neighbours in k, the even one low: what a matrix unit (x86's AMX) multiplies."""

CHAINS = WeightLayout(((2, 0), (3, 1)))
"""A row with two even k, then one with the two odd k between them; the earlier k is the high half.

A dot product of two bf16 that adds the high halves first (x86's ``vdpbf16ps``) is then two steps of
one of the MXU's chains.
"""


def layout_of(host: Host) -> WeightLayout:
    """The layout that all forms of the pass on `host` read."""
    return PAIRS if host.has_matrix_unit else CHAINS


def push_text(name: str, layout: WeightLayout) -> str:
    """``void name(target, source)``: 8 rows of packed weights, neighbours in k in a word."""
    e = FunctionEmitter()
    halves = f"<{_CHUNK_HALVES} x i16>"
    step_bytes = layout.words * ROW_BYTES
    with e.loop(_PUSH_ROWS // layout.words) as step, e.loop(ROW_BYTES // CHUNK_BYTES) as chunk:
        at = e.value(f"mul i64 {step}, {step_bytes}")
        at = e.value(f"add i64 {at}, {e.value(f'mul i64 {chunk}, {CHUNK_BYTES}')}")
        source, target = e.offset("%source", at), e.offset("%target", at)
        rows = [
            e.load(halves, e.offset(source, word * ROW_BYTES), CHUNK_BYTES)
            for word in range(layout.words)
        ]
        operands = f"{halves} {rows[0]}, {halves} {rows[1] if len(rows) > 1 else 'poison'}"
        for word, pair in enumerate(layout.halves):
            picks = [
                _CHUNK_HALVES * (k // 2) + 2 * column + k % 2
                for column in range(_CHUNK_HALVES // 2)
                for k in pair
            ]
            row = e.value(f"shufflevector {operands}, {_picks(picks)}")
            e.store(halves, row, e.offset(target, word * ROW_BYTES), CHUNK_BYTES)
    return _function(f"void @{name}(ptr noalias %target, ptr noalias %source)", e)


def push_transposed_text(name: str, layout: WeightLayout) -> str:
    """``void name(target, source)``: half h of a[s, k] is the weight of k in column 2s + h."""
    e = FunctionEmitter()
    k_count = 2 * layout.words
    halves = f"<{2 * k_count} x i16>"
    with e.loop(WEIGHT_ROWS // layout.words) as step:
        source = e.offset("%source", e.value(f"mul i64 {step}, {4 * k_count}"))
        target = e.offset("%target", e.value(f"mul i64 {step}, {layout.words * ROW_BYTES}"))
        for s in range(_PUSH_ROWS):
            values = e.load(halves, e.offset(source, s * ROW_BYTES), 4 * k_count)
            for word, pair in enumerate(layout.halves):
                picks = _picks([2 * k + half for half in (0, 1) for k in pair])
                row = e.value(f"shufflevector {halves} {values}, {halves} poison, {picks}")
                e.store("<4 x i16>", row, e.offset(target, word * ROW_BYTES + s * 8), 8)
    return _function(f"void @{name}(ptr noalias %target, ptr noalias %source)", e)


def settle_text(name: str) -> str:
    """``void name(weights, pushes)``: zero the words that neither kind of push wrote.

    Plain push n is bit n of `pushes`, transposed push n bit 8 + n.
    """
    e = FunctionEmitter()
    for shift in (0, 8):
        complete = e.value(f"and i64 %pushes, {255 << shift}")
        is_complete = e.value(f"icmp eq i64 {complete}, {255 << shift}")
        leaving, following = e.new_label(), e.new_label()
        e.branch(is_complete, leaving, following)
        e.place(leaving)
        e.do("ret void")
        e.place(following)
    with e.loop(512) as i:
        plain = e.value(f"lshr i64 {i}, 6")
        transposed = e.value(f"and i64 {i}, 7")
        transposed = e.value(f"add i64 {transposed}, 8")
        bits = [e.value(f"lshr i64 %pushes, {bit}") for bit in (plain, transposed)]
        written = e.value(f"and i64 {e.value(f'or i64 {bits[0]}, {bits[1]}')}, 1")
        with e.when(e.value(f"icmp eq i64 {written}, 0")):
            at = e.offset("%weights", e.value(f"shl i64 {i}, 6"))
            e.store("<16 x i32>", "zeroinitializer", at, CHUNK_BYTES)
    return _function(f"void @{name}(ptr %weights, i64 %pushes)", e)


def _picks(numbers: list[int]) -> str:
    return f"<{len(numbers)} x i32> <{', '.join(f'i32 {n}' for n in numbers)}>"


def _function(header: str, e: FunctionEmitter) -> str:
    return f"define {header} #0 {{\nentry:\n{e.text()}\n ret void\n}}\n"
