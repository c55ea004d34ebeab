"""What the bundles of a kernel say as a whole: swaps, weights nobody pushed, spills between blocks."""

from __future__ import annotations

from collections import Counter

from tpu_sim.isa.control_flow import If, Loop, While
from tpu_sim.isa.program import Block, Node, blocks_of, rows_of
from tpu_sim.isa.resources import ACTIVE, SPILL, TRANSPOSED


def most_swaps(body: list[Node]) -> int:
    """Most swaps of a transpose unit in one block."""
    return max((_swaps(block) for block in blocks_of(body)), default=0)


def _swaps(block: Block) -> int:
    if not any(TRANSPOSED in row.defines for row in rows_of(block)):
        return 0
    units = [
        instr.operands[instr.row.unit_index]
        for bundle in block.bundles
        for instr in bundle
        if TRANSPOSED in instr.row.defines
    ]
    return max(Counter(units).values(), default=0)


def unswapped_units(body: list[Node]) -> set[int]:
    """MXU units that may multiply, on some path, before a swap gave them weights."""
    found: set[int] = set()
    _follow(body, set(), found)
    return found


def _follow(nodes: list[Node], swapped: set[int], found: set[int]) -> None:
    """Add to `found`; `swapped` are the units swapped on every path, before and then behind."""
    for node in nodes:
        match node:
            case Block():
                _follow_block(node, swapped, found)
            case Loop():
                _follow(node.body, swapped if node.trip > 0 else set(swapped), found)
            case If():
                other = set(swapped)
                _follow(node.then, swapped, found)
                _follow(node.orelse, other, found)
                swapped &= other
            case While():
                _follow(node.test, swapped, found)
                _follow(node.body, set(swapped), found)


def _follow_block(block: Block, swapped: set[int], found: set[int]) -> None:
    if not any(ACTIVE in row.touches for row in rows_of(block)):
        return
    for bundle in block.bundles:
        for instr in bundle:
            if ACTIVE in instr.row.uses and instr.operands[0] not in swapped:
                found.add(instr.operands[0])
        swapped.update(i.operands[0] for i in bundle if ACTIVE in i.row.defines)


def carried_slots(body: list[Node]) -> frozenset[int]:
    """The spill slots that a block reads before it writes them: they carry values between blocks."""
    carried: set[int] = set()
    for block in blocks_of(body):
        if not any(SPILL in row.uses for row in rows_of(block)):
            continue
        written: set[int] = set()
        for bundle in block.bundles:
            for instr in bundle:
                if SPILL in instr.row.uses:
                    carried.update({instr.operands[instr.row.slot_index]} - written)
            written.update(i.operands[i.row.slot_index] for i in bundle if SPILL in i.row.defines)
    return frozenset(carried)
