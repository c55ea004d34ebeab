"""Fusions that move lanes twice, and so look each element up: cut where what was moved once is stored.

    reshape(transpose(x), {0,2,1})                      another dimension along the lanes, and rows cut anew
    transpose(concatenate(every fifth lane of x), ..)   lanes picked, and another dimension along them

The backend has code for each of these moves: transpose units, rotations, strided loads. For two of them, one
after another, it has an indexed load of each register (128 cycles of a load slot on v5e). Whether that is so
is not known from shapes: the kernel is lowered, and its indexed loads are counted. So are those of its parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from compiler.analysis.tiled_layout import byte_size, is_bitcast
from compiler.analysis.window_config import read_config, write_config
from compiler.backend.kernel_library import KernelLibrary
from compiler.backend.kernel_options import KernelOptions, KernelTarget
from compiler.backend.smem_scratch import SmemScratch
from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.keys import Key
from compiler.hlo.shape import ArrayShape
from compiler.llo.ir import ARGUMENT_WORDS, LloBlock, LloNode
from compiler.passes.fusion_cuts import Judge, cuts_at
from compiler.passes.fusion_parts import FusionPart
from tpu_sim.isa.control_flow import If, Loop, While
from tpu_sim.isa.geometry import LANES
from tpu_sim.isa.instruction import Slot

_LEAST_ELEMENTS = 1 << 16
"""Of an array whose lanes are moved: 64 registers that are looked up take twice as long as a kernel more."""
_COPIES = 4
"""Of an array of moved lanes, from which on it may be better moved once (assumed)."""
_MOST_NODES = 40
"""Of a fusion that is lowered to see what it looks up: one of 46 that turns lanes in many places took a
second of the compiler's time, and what does little beside moving lanes is short."""
_LEAST_LAUNCHES = 4
"""Times a launch that looking up must take before cuts are tried: each of them is lowered (assumed)."""
_MOST_COSTED = 6
"""Cuts of a fusion that are lowered."""
_GAIN = 0.7
"""Of a kernel's cycles, what its parts may take in its place: as of other cuts."""
_KEPT_SHARE = 1 / 4
"""Of VMEM that an array may take that stays there between the kernels beside it (assumed)."""
_INDEXED = "vld.idx"


def moves_lanes_twice(fusion: HloInstruction) -> bool:
    """Whether a short kLoop fusion moves lanes of what it moved before, or for each copy of an array."""
    nodes = list(fusion.calls) if fusion.kind == "kLoop" else []
    is_short = len(nodes) <= _MOST_NODES
    return is_short and (any(True for _ in second_moves(nodes)) or bool(_repeated(nodes)))


@dataclass
class Lookups:
    """Counts what kernels look up, and finds cuts after which they look up less."""

    judge: Judge
    known: dict[Key, float] = field(default_factory=dict)

    def parts_of(self, part: FusionPart) -> list[FusionPart]:
        """Parts that take much less than the whole, which has windows; else the whole."""
        looked_up = self._looked_up(part)
        if looked_up < _LEAST_LAUNCHES * self.judge.launch:
            return [part]
        limit, best = _GAIN * max(looked_up, self.judge.cycles(part)), [part]
        for parts in _splits(part):
            if all(self.judge.kind(p) for p in parts):
                cycles = sum(max(self._looked_up(p), self.judge.cycles(p)) for p in parts)
                cycles -= self._kept_cycles(parts[-1].given - part.given)
                if cycles < limit:
                    best, limit = parts, cycles
        return best

    def _kept_cycles(self, stored: frozenset[HloInstruction]) -> float:
        """What writing and reading the arrays between parts takes less where they stay in VMEM."""
        chip = self.judge.planner.chip
        sizes = [byte_size(node.array) for node in stored]
        kept = sum(size for size in sizes if size < _KEPT_SHARE * chip.vmem_bytes)
        return 2 * kept / chip.hbm_bytes_per_cycle

    def _looked_up(self, part: FusionPart) -> float:
        """Cycles of load slots that the indexed loads of a part with windows take."""
        planner = self.judge.planner
        fusion = part.trial(self.judge.kind(part))
        key = planner.key(fusion)
        if key not in self.known:
            write_config(fusion, {**read_config(fusion), **planner.config(fusion)})
            smem = SmemScratch(ARGUMENT_WORDS, planner.chip.smem_words)
            target = KernelTarget(planner.chip, KernelOptions(planner.precision), smem)
            library = KernelLibrary(target)
            try:
                body = library.lower(library.kernel_for(fusion)).body
            except CompileError:  # lowering says why, if this is what is lowered in the end
                self.known[key] = math.inf
            else:
                chip = planner.chip
                each = chip.load_indexed_cycles / chip.slot_count(Slot.LOAD)
                self.known[key] = each * _indexed_loads(body)
        return self.known[key]


def _splits(part: FusionPart) -> Iterator[list[FusionPart]]:
    """Ways to store what is moved again: what is repeated first, then all of it level by level, or what was
    moved once; then each array by itself."""
    done, rest = _repeated_apart(part)
    for nodes_of in (_moved_again, _moved_once):
        found, last = list(done), rest
        while (stored := nodes_of(last)) and (cut := last.cut_at(stored)) is not None:
            found.append(cut[0])
            last = cut[1]
        if found:
            yield [*found, last]
    moved = [o for move in second_moves(part.nodes) for o in move.operands]
    alone = [*_repeated(part.nodes, least_lanes=1), *moved]
    yield from (list(cut) for cut in cuts_at(part, alone)[:_MOST_COSTED])


def _repeated_apart(part: FusionPart) -> tuple[list[FusionPart], FusionPart]:
    """Parts that make the arrays of moved lanes which are repeated many times, and the rest."""
    done: list[FusionPart] = []
    for value in _repeated(part.nodes):
        if (cut := part.cut_at((value,))) is not None:
            done.append(cut[0])
            part = cut[1]
    return done, part


def _repeated(nodes: Iterable[HloInstruction], least_lanes: int = LANES) -> list[HloInstruction]:
    """The arrays of moved lanes, at least so many, of which a broadcast makes large ones of many copies."""
    nodes = list(nodes)
    moved, found = _moved(nodes, least=0), dict[HloInstruction, None]()
    for node in nodes:
        if node.opcode == "broadcast" and node.array.element_count >= _LEAST_ELEMENTS:
            (value,) = node.operands
            is_row = value.array.dims[-1:] >= (least_lanes,)
            is_often = node.array.element_count >= _COPIES * value.array.element_count
            if value in moved and is_row and is_often:
                found[value] = None
    return list(found)


def _moved_again(part: FusionPart) -> tuple[HloInstruction, ...]:
    """The arrays that are moved a second time, of those that no such move was before."""
    seconds = dict.fromkeys(second_moves(part.nodes))
    later: set[HloInstruction] = set()
    found: dict[HloInstruction, None] = {}
    for node in part.nodes:
        is_first = later.isdisjoint(node.operands)
        if node in seconds and is_first:
            found.update((o, None) for o in node.operands if o in part.nodes)
        if node in seconds or not is_first:
            later.add(node)
    return tuple(found)


def _moved_once(part: FusionPart) -> tuple[HloInstruction, ...]:
    """The results of the moves that come before another one, if none is before them."""
    again = _moved_again(part)
    behind = part.behind(again) if again else set()
    moved = _moved(part.nodes)
    return tuple(
        node
        for node in part.nodes
        if node in behind and node in moved and moved.isdisjoint(node.operands)
    )


def second_moves(nodes: Iterable[HloInstruction]) -> Iterator[HloInstruction]:
    """Operations that move lanes of what was moved before, of nodes in order; what others make was not
    moved."""
    nodes = list(nodes)
    moved = _moved(nodes)
    for node in nodes:
        if _moves_lanes(node, _LEAST_ELEMENTS) and not moved.isdisjoint(node.operands):
            yield node


def _moved(nodes: Iterable[HloInstruction], least: int = _LEAST_ELEMENTS) -> set[HloInstruction]:
    """The nodes that moves, or what comes after one, make; moves of fewer than `least` elements aside."""
    found: set[HloInstruction] = set()
    for node in nodes:
        if not found.isdisjoint(node.operands) or _moves_lanes(node, least):
            found.add(node)
    return found


def _moves_lanes(node: HloInstruction, least: int) -> bool:
    """Whether an operation brings at least so many elements to other lanes."""
    if not isinstance(node.shape, ArrayShape) or node.array.element_count < max(least, 1):
        return False
    if node.opcode == "transpose":
        dims = node.operands[0].array.dims
        order = [d for d in node.dimensions if dims[d] != 1]
        return bool(order) and order[-1] != max(order)
    if node.opcode == "reshape" and not is_bitcast(node.operands[0].array, node.array):
        return node.operands[0].array.dims[-1:] != node.array.dims[-1:]
    if node.opcode == "slice":
        return bool(node.slice) and node.slice[-1][2] > 1
    if node.opcode == "concatenate":
        is_in_lanes = node.dimensions == (node.array.rank - 1,)
        return is_in_lanes and any(o.array.dims[-1] % LANES for o in node.operands)
    return False


def _indexed_loads(body: Iterable[LloNode]) -> float:
    """How many a kernel issues; branches are as likely, of loops whose trips are not known it is one turn."""
    total = 0.0
    for node in body:
        if isinstance(node, LloBlock):
            total += sum(instr.row.name == _INDEXED for instr in node.ops)
        elif isinstance(node, Loop):
            total += max(1, node.trip) * _indexed_loads(node.body)
        elif isinstance(node, If):
            total += (_indexed_loads(node.then) + _indexed_loads(node.orelse)) / 2
        elif isinstance(node, While):
            total += _indexed_loads(node.body)
    return total
