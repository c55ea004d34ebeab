"""Which parallel loops may be cut into ranges of iterations that run on several host threads.

The mark `Loop.parallel` says that iterations are independent as the compiler sees them; here that is
proved from the bundles, because a wrong answer would make results depend on timing. Row addresses are
followed through the scalar code as ``base + step * index + [low, high]``: a window that the body
writes must be touched by every iteration in rows of its own. The body must not start transfers, touch
the MXUs, write SMEM, or hand an sreg to the next iteration; the transpose unit is allowed where every
block fills it before it reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from tpu_sim.isa.control_flow import If, Loop, While
from tpu_sim.isa.instruction import SREG, Instr, Row
from tpu_sim.isa.program import Block, Bundle, Node, blocks_of, rows_of
from tpu_sim.isa.resources import (
    LANE_QUEUES,
    SMEM,
    SPILL,
    TRANSPOSE_INPUT,
    TRANSPOSE_UNIT,
    TRANSPOSED,
    VMEM,
)

MIN_WORK = 400
"""Vreg operations (some ten nanoseconds each) of a loop from which sharing it pays."""
_TRANSPOSE_PUSHES = 16
_MAX_ROWS = 1 << 31
_SWAP_WORK, _INDEXED_WORK = 60, 30
_OWN = frozenset({VMEM, SPILL}) | LANE_QUEUES | TRANSPOSE_UNIT
"""What an iteration may define, if it proves to be its own; it may use SMEM, too."""


@dataclass(frozen=True, slots=True)
class _Affine:
    """``base + step * index + x`` for an x in low..high; base counts invariant unknowns."""

    base: frozenset[tuple[object, int]] = frozenset()
    step: int = 0
    low: int = 0
    high: int = 0

    @property
    def is_fixed(self) -> bool:
        return self.step == 0 and self.low == self.high

    def plus(self, other: _Affine, sign: int = 1) -> _Affine:
        scaled = other.times(sign)
        counts = dict(self.base)
        for symbol, count in scaled.base:
            counts[symbol] = counts.get(symbol, 0) + count
        base = frozenset((s, n) for s, n in counts.items() if n)
        return _Affine(
            base, self.step + scaled.step, self.low + scaled.low, self.high + scaled.high
        )

    def times(self, factor: int) -> _Affine:
        ends = sorted((self.low * factor, self.high * factor))
        base = frozenset((s, n * factor) for s, n in self.base if factor)
        return _Affine(base, self.step * factor, ends[0], ends[1])

    def number(self) -> int | None:
        """The value, if it is a known number."""
        return self.low if self.is_fixed and not self.base else None


_Value = _Affine | None
"""None: anything, and different from one iteration to the next."""


def _constant(number: int) -> _Affine:
    return _Affine(low=number, high=number)


def _union(a: _Value, b: _Value) -> _Value:
    if a is None or b is None or a.base != b.base or a.step != b.step:
        return None
    return _Affine(a.base, a.step, min(a.low, b.low), max(a.high, b.high))


def work_to_share(
    loop: Loop[Block], may_transpose: Callable[[], bool], carried_slots: frozenset[int]
) -> int:
    """Vreg operations of `loop`; 0 if it may not be cut or does too little.

    `may_transpose`: the kernel's `fills_transpose`, which is looked at only if it matters.
    `carried_slots`: its spill slots that carry values between blocks, through memory.
    """
    if not loop.parallel or loop.trip < 2:
        return 0
    if carried_slots and carried_slots & _slots(loop):
        return 0
    walk = _Walk(loop, may_transpose)
    walk.nodes(loop.body, 1)
    work = walk.work * loop.trip
    if not walk.is_separable or work < MIN_WORK or walk.live_in & walk.written:
        return 0
    if not all(_is_apart(accesses, loop.trip) for accesses in walk.stored_accesses()):
        return 0
    return work


def _slots(loop: Loop[Block]) -> set[int]:
    """The spill slots that a loop names."""
    return {
        instr.operands[row.slot_index]
        for block in blocks_of(loop.body)
        if any(SPILL in row.touches for row in rows_of(block))
        for bundle in block.bundles
        for instr in bundle
        if SPILL in (row := instr.row).touches
    }


def _is_apart(accesses: list[_Value], trip: int) -> bool:
    """Whether different iterations touch different rows."""
    total = accesses[0]
    for access in accesses:
        total = _union(total, access)
    if total is None or total.step == 0 or abs(total.step) * trip >= _MAX_ROWS:
        return False
    return total.high - total.low < abs(total.step)


def uses_transpose(block: Block) -> bool:
    """Whether a block has steps of a transpose unit."""
    return any(not TRANSPOSE_UNIT.isdisjoint(row.touches) for row in rows_of(block))


def fills_transpose(nodes: list[Node]) -> bool:
    """Whether every block pushes all rows before it swaps, and swaps before it reads."""
    for node in nodes:
        match node:
            case Block():
                if uses_transpose(node) and not _block_fills_transpose(node.bundles):
                    return False
            case Loop():
                if not fills_transpose(node.body):
                    return False
            case If():
                if not (fills_transpose(node.then) and fills_transpose(node.orelse)):
                    return False
            case While():
                if not (fills_transpose(node.test) and fills_transpose(node.body)):
                    return False
    return True


def _block_fills_transpose(bundles: list[Bundle]) -> bool:
    pushed: dict[int, set[int]] = {}
    swapped: set[int] = set()
    for bundle in bundles:
        steps = [i for i in bundle if not TRANSPOSE_UNIT.isdisjoint(i.row.touches)]
        if any(TRANSPOSED in i.row.uses and _unit(i) not in swapped for i in steps):
            return False
        for instr in steps:
            if TRANSPOSED in instr.row.defines:
                if len(pushed.get(_unit(instr), ())) < _TRANSPOSE_PUSHES:
                    return False
                swapped.add(_unit(instr))
        for instr in steps:
            if TRANSPOSE_INPUT in instr.row.defines:
                row = instr.operands[instr.row.operand_index("row")]
                pushed.setdefault(_unit(instr), set()).add(row)
    return True


def _unit(instr: Instr) -> int:
    return instr.operands[instr.row.unit_index]


@cache
def _is_separable(row: Row) -> bool:
    return row.defines <= _OWN and row.uses <= _OWN | {SMEM}


@cache
def _work(row: Row) -> int:
    """Vreg operations that an instruction takes as long as."""
    if row.is_indexed:
        return _INDEXED_WORK
    return _SWAP_WORK if TRANSPOSED in row.defines else 1


@dataclass
class _Walk:
    """One pass over a loop's body."""

    loop: Loop[Block]
    may_transpose: Callable[[], bool]
    is_separable: bool = True
    work: int = 0
    live_in: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    values: dict[int, _Value] = field(default_factory=dict)
    accesses: dict[int, list[_Value]] = field(default_factory=dict)
    stored: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.values[0] = _constant(0)
        self.values[self.loop.index] = _Affine(step=1)

    def stored_accesses(self) -> list[list[_Value]]:
        """The accesses of each window that is written."""
        return [self.accesses[window] for window in sorted(self.stored)]

    def nodes(self, nodes: list[Node], times: int) -> None:
        """Follow a list of nodes that runs up to `times` times an iteration."""
        for node in nodes:
            if not self.is_separable:
                return
            match node:
                case Block():
                    for bundle in node.bundles:
                        self._bundle(bundle, times)
                case Loop() if node.trip >= 0:
                    self._inner_loop(node, times)
                case If():
                    self._if(node, times)
                case _:
                    self.is_separable = False

    def _inner_loop(self, loop: Loop[Block], times: int) -> None:
        if loop.trip == 0:
            return
        carried = _Walk(loop, self.may_transpose)
        carried.nodes(loop.body, 1)
        self.is_separable &= carried.is_separable
        for sreg in carried.live_in & carried.written:
            self._read(sreg)
            self.values[sreg] = None
        self.written.add(loop.index)
        self.values[loop.index] = _Affine(high=loop.trip - 1)
        self.nodes(loop.body, times * loop.trip)

    def _if(self, node: If[Block], times: int) -> None:
        self._read(node.condition)
        before = dict(self.values)
        self.nodes(node.then, times)
        after_then, self.values = self.values, dict(before)
        self.nodes(node.orelse, times)
        merged: dict[int, _Value] = {}
        for sreg in after_then.keys() & self.values.keys():
            merged[sreg] = _union(after_then[sreg], self.values[sreg])
        self.values = merged  # what one branch alone defines counts as read from outside

    def _read(self, sreg: int) -> _Value:
        if sreg not in self.values:
            self.live_in.add(sreg)
            self.values[sreg] = _Affine(frozenset({(("s", sreg), 1)}))
        return self.values[sreg]

    def _bundle(self, bundle: Bundle, times: int) -> None:
        results: dict[int, _Value] = {}
        for instr in bundle:
            row = instr.row
            is_transpose = row.is_unit_step and not TRANSPOSE_UNIT.isdisjoint(row.touches)
            if not _is_separable(row) or (is_transpose and not self.may_transpose()):
                self.is_separable = False
                return
            sources = [self._read(instr.operands[r.index]) for r in row.reads
                       if r.register_class == SREG]  # fmt: skip
            if row.write is not None and row.write.register_class == SREG:
                is_known = all(r.register_class == SREG for r in row.reads)
                result = _evaluate(instr, sources) if is_known else None
                results[instr.operands[row.write.index]] = result
            else:
                self.work += times * _work(row)
            if row.window_index >= 0:
                self._access(instr, sources)
        self.values.update(results)
        self.written.update(results)

    def _access(self, instr: Instr, sources: list[_Value]) -> None:
        """Note the rows an instruction may touch."""
        window = instr.operands[instr.row.window_index]
        rows: _Value = None
        base = sources[0]
        if not instr.row.is_indexed and base is not None:
            offset = instr.operands[instr.row.offset_index]
            reach = 7 * instr.operands[instr.row.stride_index]
            rows = base.plus(_Affine(low=offset + min(0, reach), high=offset + max(0, reach)))
        self.accesses.setdefault(window, []).append(rows)
        if VMEM in instr.row.defines:
            self.stored.add(window)


def _evaluate(instr: Instr, sources: list[_Value]) -> _Value:
    """The value of a scalar instruction."""
    known = [source for source in sources if source is not None]
    if len(known) < len(sources):
        return _bounded(instr)
    linear = _linear(instr, known)
    if linear is not None:
        return linear
    if all(source.is_fixed for source in known):
        immediates = _immediates(instr)
        return _Affine(frozenset({((instr.row.name, tuple(known), immediates), 1)}))
    return _bounded(instr)


def _immediates(instr: Instr) -> tuple[int, ...]:
    row = instr.row
    registers = {r.index for r in row.reads}
    if row.write is not None:
        registers.add(row.write.index)
    return tuple(v for i, v in enumerate(instr.operands) if i not in registers)


def _bounded(instr: Instr) -> _Value:
    """A value of which only the range is known."""
    if instr.row.name.startswith("scmp."):
        return _Affine(high=1)
    if instr.row.name == "sandi" and instr.operands[-1] >= 0:
        return _Affine(high=instr.operands[-1])
    return None


def _linear(instr: Instr, sources: list[_Affine]) -> _Affine | None:
    """Sums, differences and multiples by known numbers."""
    immediate = instr.operands[-1]
    match instr.row.name:
        case "smovi":
            return _constant(immediate)
        case "smov":
            return sources[0]
        case "saddi.s32":
            return sources[0].plus(_constant(immediate))
        case "sadd.s32":
            return sources[0].plus(sources[1])
        case "ssub.s32":
            return sources[0].plus(sources[1], -1)
        case "smuli.s32":
            return sources[0].times(immediate)
        case "sshli" if 0 <= immediate < 32:
            return sources[0].times(1 << immediate)
        case "smul.s32":
            for one, other in (sources, reversed(sources)):
                number = other.number()
                if number is not None:
                    return one.times(number)
    return None
