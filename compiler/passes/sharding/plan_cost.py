"""What a program would cost with the shardings that its values have: cycles of a device, about.

Each operation is looked at by itself, as the partitioner does: it is done in the cut of its result, in that
of one of its operands, or as a whole, whichever is cheapest. What moves is counted by the ring formulas, once
for all users of an array who want it in one cut; what is computed by the MXU's and HBM's rates. A
loop's body counts as often as it runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from compiler.analysis.trip_count import expected_trips
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait, with_any
from compiler.hlo.shape import ArrayShape
from compiler.partitioner.sizes import padding
from compiler.passes.sharding.whole_dims import free_factors
from compiler.sharding.mesh import Axes
from compiler.sharding.projection import common_prefix, product, project
from compiler.sharding.propagation import PropagationStep
from compiler.sharding.rule import DimFactors, FactorKind, ShardingRule
from compiler.sharding.values import Edge, ShardedValue, Values, leaf_shapes
from tpu_sim.isa.chips import Chip

Given: TypeAlias = dict[int, Axes]
"""The axes of each factor that is cut."""
Tiles: TypeAlias = tuple[Axes, ...]
"""The axes of each dimension."""

_UNKNOWN_TRIPS = 10
"""Turns of a loop that says nothing of them (assumed)."""
_FUSED = 0.1
"""How much of what an elementwise operation or a reduction reads and writes passes HBM: the rest is handed on
within a kernel (fitted: steps of transformers and of pair stacks on one chip, within a factor of two)."""
_PART_FUSED = 0.5
"""The same of a contraction (fitted together)."""
_LAUNCH_HOPS = 2
"""Hops that an exchange takes however small it is: a barrier and its first transfer."""
_PACKED_FACTOR = 1.25
_PACKING = 3.0
"""How many times the bytes in which a tile of few lanes lies pass HBM until they are in a full plane, or
back (fitted: gathers and all-to-alls of 16 lanes of f32 and bf16, within a factor of two)."""
_ROW_CYCLES = {"gather": 10.0, "scatter": 45.0}
"""Cycles of each row that is looked up (fitted: 65,536 rows of 128 on v5e)."""
_FREE = with_any(Trait.INDEX_MAP | Trait.REARRANGES | Trait.SYMBOLIC)
"""What becomes part of other kernels."""
_PARTS = with_any(Trait.TAKES_PART | Trait.UPDATES)
"""What passes as many bytes as the smallest of its arrays that has several elements has."""


@dataclass
class Priced:
    """A step, how often it runs, its multiplications, how much of its bytes passes HBM, whether it reads or
    writes a small part of a large array, cycles for the rows that it looks up, whether it only moves
    elements, and what it costs to cut its factors, where joined rows come from neighbours."""

    step: PropagationStep
    trips: float
    products: float
    share: float
    is_part: bool
    rows: float
    moves: bool
    kinds: tuple[FactorKind, ...]


@dataclass
class SpreadCost:
    """Cycles of a device: of exchanges, and of its own work."""

    moved: float = 0.0
    work: float = 0.0

    @property
    def total(self) -> float:
        """One after the other."""
        return self.moved + self.work


@dataclass
class Pricing:
    """All that does not depend on shardings: steps and edges, and by a value's number the bytes of an
    element and how often it is made."""

    chip: Chip
    devices: int
    steps: list[Priced]
    edges: list[Edge]
    widths: dict[int, int]
    trips: dict[int, float]
    _sent: set[tuple[int, Tiles]] = field(default_factory=set)

    def cost(self, most: float = math.inf) -> SpreadCost:
        """With the axes that the values have now; of more than `most` a part that is not below it."""
        self._sent.clear()
        total = SpreadCost()
        for priced in self.steps:
            found = self._step(priced)
            total.moved += found.moved * priced.trips
            total.work += found.work * priced.trips
            if total.total >= most:
                return total
        for edge in self.edges:
            for source in edge.sources:
                cycles = self._moved(source, tuple(source.axes), tuple(edge.target.axes))
                total.moved += cycles * self.trips[source.number]
        return total

    def whole_work(self) -> float:
        """Cycles of one device that does it all, whatever axes the values have."""
        return sum(self._assigned(p, {}, is_held=True).work * p.trips for p in self.steps)

    def _step(self, priced: Priced) -> SpreadCost:
        step, rule = priced.step, priced.step.rule
        operands = [_factors(v, m, rule) for v, m in zip(step.operands, rule.operands, strict=True)]
        results = [_factors(v, m, rule) for v, m in zip(step.results, rule.results, strict=True)]
        best: tuple[SpreadCost, Given] | None = None
        ways = [*_assignments(priced.kinds, operands, results), *_turned(rule, operands), {}]
        for given in ways:
            found = self._assigned(priced, given)
            if best is None or found.total < best[0].total:
                best = found, given
            if not found.moved and given:
                break
        assert best is not None
        for value, mapping in zip(step.operands, rule.operands, strict=True):
            self._sent.add((value.number, _tiles(mapping, best[1])))
        return best[0]

    def _assigned(self, priced: Priced, given: Given, *, is_held: bool = False) -> SpreadCost:
        """Of an operation done in these tiles; with `is_held` nothing is moved."""
        step, rule = priced.step, priced.step.rule
        found, passed = SpreadCost(), []
        for value, mapping in zip(step.operands, rule.operands, strict=True):
            goal = _tiles(mapping, given)
            if not is_held and (value.number, goal) not in self._sent:
                found.moved += self._moved(value, tuple(value.axes), goal)
            if value.dims:
                passed.append(self._bytes(value, goal))
        sums = tuple(
            a for f, axes in given.items() if rule.kinds[f] is FactorKind.REDUCE for a in axes
        )
        for value, mapping in zip(step.results, rule.results, strict=True):
            made = _tiles(mapping, given)
            passed.append(self._bytes(value, made))
            found.moved += 0.0 if is_held else self._summed(value, made, sums)
            found.moved += self._shifted(value, mapping, given, priced)
        cut_by = math.prod(product(axes) for axes in given.values())
        chip = self.chip
        mxu = 2 * priced.products / cut_by * chip.clock_hz / chip.peak_flops
        read = 2 * min(passed, default=0) if priced.is_part else sum(passed)
        found.work = max(mxu, read * priced.share / chip.hbm_bytes_per_cycle)
        if priced.rows:
            looked_up = {f for factors in rule.operands[1] for f in factors}
            cut = (product(axes) for f, axes in given.items() if f in looked_up)
            found.work += priced.rows / math.prod(cut)
        return found

    def _summed(self, value: ShardedValue, made: Tiles, sums: Axes) -> float:
        """Making sums of partial ones, as tiles where they are wanted so, and moving the result."""
        goal = tuple(value.axes)
        if not sums:
            return self._moved(value, made, goal)
        wanted = {axis for axes in goal for axis in axes}
        is_scattered = all(axis in wanted for axis in sums)
        n = product(sums)
        sent = self._content(value, made) * (1 if is_scattered else 2) * (n - 1) / n
        kept = tuple(tuple(a for a in axes if a not in sums) for axes in goal)
        packed = self._packed(value, made)
        return self._exchange(sent) + packed + self._moved(value, made, kept)

    def _shifted(
        self, value: ShardedValue, mapping: DimFactors, given: Given, priced: Priced
    ) -> float:
        """Rows that neighbours hold: of a result whose tiles begin elsewhere than those of the operand."""
        step, rule, cycles = priced.step, priced.step.rule, 0.0
        for (factor, *rest), size in zip(mapping, value.dims, strict=True):
            if rest or priced.kinds[factor] is not FactorKind.PERMUTE or factor not in given:
                continue
            tiles = _tiles(mapping, given)
            before = max(
                (
                    d
                    for v, m in zip(step.operands, rule.operands, strict=True)
                    for d, factors in zip(v.dims, m, strict=True)
                    if factor in factors
                ),
                default=size,
            )
            share = priced.moves * min(
                1.0, abs(before - size) * product(given[factor]) / max(1, size)
            )
            cycles += self._exchange(share * self._content(value, tiles))
            cycles += 2 * share * self._packed(value, tiles)
        return cycles

    def _moved(self, value: ShardedValue, held: Tiles, goal: Tiles) -> float:
        """From one cut to another: nothing where tiles are only cut further."""
        kept = tuple(common_prefix(a, b) for a, b in zip(held, goal, strict=True))
        lost = [a for axes, k in zip(held, kept, strict=True) for a in axes[len(k) :]]
        if not lost:
            return 0.0
        n = product(lost)
        wanted = {axis for axes in goal for axis in axes}
        is_turned = all(axis in wanted for axis in lost)
        sent = (2 / n if is_turned else 1) * (n - 1) * self._content(value, held)
        return self._exchange(sent) + self._packed(value, held) + self._packed(value, goal)

    def _packed(self, value: ShardedValue, tiles: Tiles) -> float:
        """What it takes to bring a tile of few lanes into a full plane, or back."""
        content, lies = self._content(value, tiles), self._bytes(value, tiles)
        is_packed = lies > _PACKED_FACTOR * content
        return _PACKING * lies / self.chip.hbm_bytes_per_cycle if is_packed else 0.0

    def _exchange(self, sent: float) -> float:
        chip = self.chip
        return _LAUNCH_HOPS * chip.ici_hop_cycles + sent / (2 * chip.ici_bytes_per_cycle)

    def _content(self, value: ShardedValue, tiles: Tiles) -> float:
        """Bytes of a tile: exchanges pack what has few lanes."""
        return self.widths[value.number] * math.prod(_local(value, tiles))

    def _bytes(self, value: ShardedValue, tiles: Tiles) -> float:
        """Bytes of a tile where it lies."""
        return self._content(value, tiles) + padding(
            _local(value, tiles), self.widths[value.number]
        )


def _local(value: ShardedValue, tiles: Tiles) -> tuple[int, ...]:
    return tuple(-(-s // product(a)) for s, a in zip(value.dims, tiles, strict=True))


def _factors(value: ShardedValue, mapping: DimFactors, rule: ShardingRule) -> Given:
    found = project(value, mapping, rule.sizes).axes
    return {factor: axes for factor, axes in found.items() if axes}


def _tiles(mapping: DimFactors, given: Given) -> Tiles:
    return tuple(tuple(a for f in factors for a in given.get(f, ())) for factors in mapping)


def _assignments(
    kinds: Sequence[FactorKind], operands: Sequence[Given], results: Sequence[Given]
) -> Iterator[Given]:
    """The ways worth a look: all wishes, each operand's before the others', the results' last and first."""
    orders = [[*results, *operands], *([one, *results, *operands] for one in operands if one)]
    seen: list[Given] = []
    for order in orders:
        for wishes in (order, order[:1]):
            given: Given = {}
            for wish in wishes:
                _add(given, wish, kinds)
            if given not in seen:
                seen.append(given)
                yield given


def _turned(rule: ShardingRule, operands: Sequence[Given]) -> Iterator[Given]:
    """Where an operand is cut along what must be whole, another of its dimensions cut instead."""
    for mapping, held in zip(rule.operands, operands, strict=True):
        for factor, axes in held.items():
            if rule.kinds[factor] is FactorKind.REPLICATE:
                kept = {f: a for f, a in held.items() if rule.kinds[f] is not FactorKind.REPLICATE}
                free = [f for f in free_factors(rule, mapping, axes) if f not in kept]
                yield from ({**kept, f: axes} for f in free[:1])


def _add(given: Given, wish: Given, kinds: Sequence[FactorKind]) -> None:
    for factor, axes in wish.items():
        is_kind = kinds[factor] is not FactorKind.REPLICATE
        taken = any(a.overlaps(b) for have in given.values() for b in have for a in axes)
        if is_kind and factor not in given and not taken:
            given[factor] = axes


def pricing_of(
    module: HloModule,
    values: Values,
    steps: dict[HloInstruction, PropagationStep],
    chip: Chip,
    devices: int,
) -> Pricing:
    """What the steps of a module cost, each of the instruction that it is the step of."""
    found = Pricing(chip, devices, [], values.edges, {}, {})
    _walk(module.entry, 1.0, values, steps, found)
    return found


def _walk(
    computation: HloComputation,
    trips: float,
    values: Values,
    steps: dict[HloInstruction, PropagationStep],
    found: Pricing,
) -> None:
    for instr in computation:
        for leaf, value in zip(leaf_shapes(instr.shape), values.of[instr], strict=True):
            bits = leaf.dtype.bits if isinstance(leaf, ArrayShape) else 8
            found.widths.setdefault(value.number, max(1, bits // 8))
            found.trips.setdefault(value.number, trips)
        turns = (expected_trips(instr) or _UNKNOWN_TRIPS) if instr.opcode == "while" else 1
        if OPCODES[instr.opcode].has(Trait.HANDS_STATE):
            for called in instr.called_computations():
                _walk(called, trips * turns, values, steps, found)
        step = steps.get(instr)
        if step is not None:
            found.steps.append(_priced(instr, step, trips))


def _priced(instr: HloInstruction, step: PropagationStep, trips: float) -> Priced:
    kinds = step.rule.kinds
    if instr.opcode == "concatenate":
        kinds = tuple(FactorKind.PERMUTE if k is FactorKind.REPLICATE else k for k in kinds)
    return Priced(
        step,
        trips,
        products=_products(instr, step.rule),
        share=_share(instr),
        is_part=instr.opcode in _PARTS,
        rows=_rows(instr),
        moves=OPCODES[instr.opcode].has(Trait.DATA_MOVEMENT),
        kinds=kinds,
    )


def _share(instr: HloInstruction) -> float:
    if instr.opcode in _FREE:
        return 0.0
    if instr.opcode == "reduce" or OPCODES[instr.opcode].has(Trait.ELEMENTWISE):
        return _FUSED
    return _PART_FUSED if instr.opcode == "dot" else 1.0


def _products(instr: HloInstruction, rule: ShardingRule) -> float:
    """Multiplications of a contraction."""
    if instr.opcode == "dot":
        return float(math.prod(rule.sizes))
    if instr.opcode == "convolution":
        kernel = instr.operands[1].array
        return instr.array.element_count * kernel.element_count / max(1, max(kernel.dims[-1:]))
    return 0.0


def _rows(instr: HloInstruction) -> float:
    """Cycles for the rows of a table that are read, or added to, one by one."""
    cycles = _ROW_CYCLES.get(instr.opcode)
    if cycles is None:
        return 0.0
    indices = instr.operands[1].array
    rows = [size for dim, size in enumerate(indices.dims) if dim != instr.index_vector_dim]
    return cycles * math.prod(rows)
