"""How many results of an MXU can be waiting at once: the size of the ring they lie in.

A small ring stays in the host's caches. Queues are empty when a kernel starts, and an iteration of a
loop leaves them as it found them, so the number waiting before each block is known.
"""

from __future__ import annotations

from collections import Counter

from tpu_sim.isa.control_flow import If, Loop, While
from tpu_sim.isa.program import Block, Node, rows_of
from tpu_sim.isa.resources import MRF


def ring_entries(body: list[Node]) -> int:
    """A power of two: most results of one unit that wait before a block or are pushed in it."""
    return 1 << (max(2, _most(body, Counter())) - 1).bit_length()


def _most(nodes: list[Node], waiting: Counter[int]) -> int:
    """The most entries that `nodes` need; `waiting` becomes the numbers after them."""
    most = 0
    for node in nodes:
        match node:
            case Block():
                pushed, popped = _pushes_and_pops(node)
                most = max([most, *(waiting[unit] + pushed[unit] for unit in pushed)])
                waiting.update(pushed)
                waiting.subtract(popped)
            case Loop():
                most = max(most, _most(node.body, waiting))
            case If():
                other = waiting.copy()
                most = max(most, _most(node.then, waiting), _most(node.orelse, other))
            case While():
                most = max(most, _most(node.test, waiting), _most(node.body, waiting.copy()))
    return most


def _pushes_and_pops(block: Block) -> tuple[Counter[int], Counter[int]]:
    pushed: Counter[int] = Counter()
    popped: Counter[int] = Counter()
    if not any(MRF in row.touches for row in rows_of(block)):
        return pushed, popped
    for bundle in block.bundles:
        for instr in bundle:
            row = instr.row
            if row.pushes == MRF:
                pushed[instr.operands[row.unit_index]] += 2
            elif row.pops == MRF:
                popped[instr.operands[row.unit_index]] += 1
    return pushed, popped
