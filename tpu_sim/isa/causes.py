"""Why cycles pass: every cycle of a kernel call has exactly one cause.

A cycle in which a bundle issues is classified by where the bundle stands, once and for all
(`IssueCauses`); a stall by what the bundle waited for; launch and loop overhead are causes of
their own. Both machines count by these rules, so the counts of a call add up to its cycles.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache

from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import Call, If, Loop, While
from tpu_sim.isa.instruction import Row, Slot
from tpu_sim.isa.program import HBM, NO_ROUTE, Block, Bundle, DmaDescriptor, Node


class Cause(IntEnum):
    """What a cycle went to; the value is its place in `KernelRun.causes`."""

    LAUNCH = 0  # overhead of the call
    LOOP = 1  # overhead of loop iterations
    DMA_IN = 2  # stalled in dma.wait on a transfer into VMEM or SMEM
    DMA_OUT = 3  # stalled in dma.wait on a transfer to HBM
    MXU = 4  # an MXU pass in flight, or stalled because the MXU is occupied
    MXU_RESULT = 5  # stalled in vpop.mrf: fill and drain of the array that nothing hides
    MXU_WEIGHTS = 6  # weights go into an MXU while no pass is in flight
    VECTOR = 7  # vector instructions issue
    SCALAR = 8  # scalar, DMA and sync instructions issue alone
    LATENCY = 9  # empty bundles: a latency that the schedule could not hide
    ICI = 10  # stalled in dma.wait on a transfer between chips

    @property
    def label(self) -> str:
        """The name in reports and JSON."""
        return self.name.lower()


LOWERED = Cause.DMA_IN
"""What a wait for a flag counts as if nothing was started on it since the last one."""
_RANKED = (Cause.LATENCY, Cause.SCALAR, Cause.VECTOR, Cause.MXU_WEIGHTS, Cause.MXU)
"""What a bundle counts as by what is in it: the last that some instruction stands for."""
_MULTIPLIES = _RANKED.index(Cause.MXU)


Counts = list[tuple[Cause, int]]
"""Cycles by cause, without causes of none."""


class IssueCauses:
    """The causes of what issues in a kernel (or in main), found from its text alone.

    A pass counts as in flight for `Chip.matmul_cycles` bundles from its ``vmatmul``, on through
    the following blocks and iterations: exact where nothing stalls in between. The first iteration
    of a loop is taken to be like the others.
    """

    def __init__(self, nodes: list[Node], chip: Chip) -> None:
        self._chip = chip
        self._counts: dict[int, Counts] = {}
        self._walk(nodes, 0)

    def of_block(self, block: Block) -> Counts:
        """Bundles of a block by cause."""
        return self._counts[id(block)]

    def of_iteration(self, loop: Loop[Block] | While[Block]) -> Counts:
        """Overhead cycles of an iteration by cause."""
        return self._counts[id(loop)]

    def _walk(self, nodes: list[Node], busy: int) -> None:
        """Count in nodes that a pass with `busy` cycles to go enters."""
        for node in nodes:
            match node:
                case Block():
                    self._counts[id(node)] = self._block(node, busy)
                case Loop():
                    self._loop(node, node.body, busy if node.trip == 1 else 0)
                case While():
                    self._loop(node, [*node.test, *node.body], 0)
                case If():
                    self._walk(node.then, busy)
                    self._walk(node.orelse, busy)
            busy = self._left(node, busy)

    def _loop(self, loop: Loop[Block] | While[Block], body: list[Node], busy: int) -> None:
        overhead = self._chip.loop_overhead_cycles
        left = self._left_of_all(body, 0)
        self._walk(body, max(busy, left - overhead))
        covered = min(left, overhead)
        split = ((Cause.LOOP, overhead - covered), (Cause.MXU, covered))
        self._counts[id(loop)] = [(cause, cycles) for cause, cycles in split if cycles]

    def _block(self, block: Block, busy: int) -> Counts:
        counts = [0] * len(_RANKED)
        for bundle in block.bundles:
            rank = _bundle_rank(bundle)
            if rank == _MULTIPLIES:
                busy = self._chip.matmul_cycles
            counts[_MULTIPLIES if busy > 0 else rank] += 1
            busy -= 1
        return sorted((cause, n) for cause, n in zip(_RANKED, counts, strict=True) if n)

    def _left_of_all(self, nodes: list[Node], busy: int) -> int:
        for node in nodes:
            busy = self._left(node, busy)
        return busy

    def _left(self, node: Node, busy: int) -> int:
        """Cycles that the last pass has still to go after a node."""
        match node:
            case Block():
                occupied = self._chip.matmul_cycles
                tail = node.bundles[-occupied:]
                since = next(
                    (i for i, b in enumerate(reversed(tail)) if _bundle_rank(b) == _MULTIPLIES),
                    None,
                )
                if since is None:
                    return max(0, busy - len(node.bundles))
                return occupied - 1 - since
            case Loop():
                return max(0, self._left_of_all(node.body, 0) - self._chip.loop_overhead_cycles)
            case If():
                branches = (node.then, node.orelse)
                return min(self._left_of_all(branch, busy) for branch in branches)
            case While():
                return self._left_of_all(node.test, 0)
            case Call():
                return 0


def _bundle_rank(bundle: Bundle) -> int:
    """The place in `_RANKED` of what a bundle counts as by itself."""
    return max([_row_rank(instr.row) for instr in bundle]) if bundle else 0


@cache
def _row_rank(row: Row) -> int:
    if row.slot is Slot.MXU:
        return _MULTIPLIES if row.pushes else _RANKED.index(Cause.MXU_WEIGHTS)
    is_quiet = row.slot in (Slot.SCALAR, Slot.MISC)
    return _RANKED.index(Cause.SCALAR if is_quiet else Cause.VECTOR)


def transfer_cause(descriptor: DmaDescriptor) -> Cause:
    """What a wait for a transfer counts as."""
    if descriptor.route != NO_ROUTE:
        return Cause.ICI
    return Cause.DMA_OUT if descriptor.dst_space == HBM else Cause.DMA_IN
