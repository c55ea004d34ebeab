"""Why two groups are fused or not: a decision with its reason, and the limits it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.analysis import vmem_shares
from compiler.analysis.fusion_body import turns_lanes
from compiler.analysis.iteration_space import whole_reduction_block
from compiler.analysis.lane_costs import STAGED, lane_ops
from compiler.analysis.packed_lanes import packed_rows
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.passes.fusion_groups import FusionKind, Group, GroupGraph
from compiler.passes.fusion_roles import Access, FusionNode, Role
from compiler.passes.repeated_work import is_better_done_once, is_stacked_once
from compiler.passes.summed_copies import is_copied_into_sum
from compiler.passes.turned_images import is_first_turn, is_turned_image
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, SUBLANES

MAX_OPERANDS = 24
"""Each has a window, most two buffers: of more, none is of a size that transfers well (assumed)."""
MAX_OUTPUTS = 8
"""The same of results, which are stored in one slot (assumed)."""
MAX_SUMS = 64  # where all results are reductions, which take one pass together
MAX_ROW_REDUCTIONS = 48  # of one kernel: each computes anew what lies before it
MAX_ROW_ELEMENTS = 32768  # of a row reduction in a loop fusion
MAX_DOT_ROW_ELEMENTS = 8192  # of a row reduction after a dot: the row must stay in VMEM
VECTOR_TILE = 1024  # elements of a vector's tile
WINDOW_ROWS = 32  # rows of the smallest window worth having
_MOVING_OPS = 32  # of a vreg that is put together of parts, moved by a padding, or turned
_PACKED_TURN_OPS = (
    64  # of a vreg of 16-bit elements turned beside a sum; stored ones are turned as blocks
)
PASS_OPS = 32  # VALU operations per vreg that take as long as to move it
REPLAY_BUDGET = 45  # VALU operations per vreg that a dot's prologue may cost in all
REPLAY_WINDOW = 1024  # columns of the other operand that one pass over a prologue serves


@dataclass(frozen=True)
class FusionDecision:
    """Whether to fuse; `reason` says why not (empty when fused).

    `is_crowded`: because of results, which are fewer when their readers are in the same group.
    """

    is_fused: bool
    reason: str = ""
    is_crowded: bool = False

    @staticmethod
    def refuse(reason: str) -> FusionDecision:
        """A refusal."""
        return FusionDecision(is_fused=False, reason=reason)


FUSE = FusionDecision(is_fused=True)


_NONE = Access(0)


class Legality:
    """Decides merges, from the nodes' accesses and the groups' kinds, boxes and limits."""

    def __init__(
        self,
        graph: GroupGraph,
        nodes: dict[HloInstruction, FusionNode],
        readers: dict[HloInstruction, list[HloInstruction]],
        hard: set[HloInstruction],
        starts: dict[HloInstruction, frozenset[HloInstruction]],
        chip: Chip,
    ) -> None:
        self.chip = chip
        self.starts = starts
        self.graph = graph
        self.nodes = nodes
        self.readers = readers
        self.hard = hard

    def can_join(self, instr: HloInstruction, group: Group) -> FusionDecision:
        """Whether an elementwise or shape instruction may be computed inside `group`."""
        if any(leaf in group.nodes for leaf in self.starts[instr]):
            return FusionDecision.refuse("a slice starts at a result of it")
        if group.kind not in (FusionKind.LOOP, FusionKind.OUTPUT):
            return FusionDecision.refuse(f"a {group.kind.value} fusion takes no epilogue")
        used = [(p, how) for p, how in self.nodes[instr].leaves.items() if p in group.nodes]
        if all(self._is_aligned(instr, p, how, group) for p, how in used):
            return self._row_limit(group)
        return self._can_join_shifted(instr, group, [p for p, _ in used])

    def _is_aligned(
        self, instr: HloInstruction, leaf: HloInstruction, access: Access, group: Group
    ) -> bool:
        if leaf not in group.aligned or (leaf.opcode == "reduce" and not leaf_is_array(leaf)):
            return False
        dims, leaf_dims = instr.array.dims, leaf.array.dims
        if access is Access.SAME:
            return dims == leaf_dims and dims in (group.box, group.row_box)
        is_row = access is Access.ROW and leaf_dims == group.row_box and dims == group.box
        return is_row and len(group.box) > 1

    def _can_join_shifted(
        self, instr: HloInstruction, group: Group, leaves: list[HloInstruction]
    ) -> FusionDecision:
        """A producer read at another index may be recomputed there if nothing else needs it."""
        if group.kind is FusionKind.OUTPUT and self._is_packed(instr, group, leaves):
            return FUSE
        if group.kind is not FusionKind.LOOP or group.has_row_reduction:
            return FusionDecision.refuse("read at another index than it is computed at")
        if any(is_first_turn(leaf) for leaf in leaves):
            return FusionDecision.refuse("rows are picked of what is turned before")
        if any(is_stacked_once(leaf) for leaf in leaves):
            return FusionDecision.refuse("rows are stacked before they are turned")
        outputs = self.outputs(group, besides=instr)
        if outputs:
            return FusionDecision.refuse("read at another index, and needed elsewhere")
        elements = sum(p.array.element_count for p in leaves)
        if group.op_count and instr.array.element_count > 2 * elements:
            return FusionDecision.refuse("every element would be recomputed several times")
        if (self.repeats(instr, group) - 1) * group.repeat_count > 2 * PASS_OPS:
            return FusionDecision.refuse("read at several indices, and too much work to repeat")
        return FUSE

    def _is_packed(self, instr: HloInstruction, group: Group, leaves: list[HloInstruction]) -> bool:
        """Whether an instruction is the first to read a product, its rows side by side in lanes."""
        if leaves != [group.dot] or self.outputs(group, besides=instr):
            return False
        packed = packed_rows(leaves[0])
        if packed is None:
            return False
        pending = [packed]
        while pending:
            value = pending.pop()
            if value is instr:
                return True
            pending += [
                user
                for user in value.users
                if user is instr or self.nodes[user].role is Role.VIRTUAL
                if OPCODES[user.opcode].has(Trait.ELEMENTWISE)
            ]
        return False

    def repeats(self, instr: HloInstruction, group: Group) -> int:
        """Along how many paths an instruction reads a group's values."""
        paths = self.nodes[instr].paths
        return sum(paths.get(p, 1) for p in self.nodes[instr].leaves if p in group.nodes)

    def can_merge(self, group: Group, other: Group) -> FusionDecision:
        """Whether two groups may become one (they share a box, or one holds the other's rows)."""
        if group is other:
            return FusionDecision.refuse("already one fusion")
        kinds = {group.kind, other.kind}
        if (
            not kinds <= {FusionKind.LOOP, FusionKind.OUTPUT}
            or group.kind is other.kind is FusionKind.OUTPUT
        ):
            return FusionDecision.refuse(f"{group.kind.value} and {other.kind.value} do not mix")
        if not self._boxes_match(group, other):
            return FusionDecision.refuse("results have different dimensions")
        limit = self._row_limit(group if group.kind is FusionKind.OUTPUT else other)
        if not limit.is_fused:
            return limit
        if max(self._shifted_ops(group, other), self._shifted_ops(other, group)) > PASS_OPS:
            return FusionDecision.refuse("reads the other at other indices, too much to repeat")
        return self.fits(group, other)

    def _shifted_ops(self, group: Group, reader: Group) -> int:
        """Operations per element of `group` that `reader` would do anew, for what it reads at other
        indices than it is computed at."""
        paths = 0
        for leaf in reader.reads:
            if leaf not in group.nodes:
                continue
            nodes = [self.nodes[r] for r in self.readers.get(leaf, ()) if r in reader.nodes]
            paths += sum(n.paths[leaf] for n in nodes if Access.OTHER in n.leaves.get(leaf, _NONE))
        return paths * group.repeat_count

    def _boxes_match(self, group: Group, other: Group) -> bool:
        if group.box == other.box:
            return True
        big, small = (group, other) if len(group.box) > len(other.box) else (other, group)
        is_rows = big.has_row_reduction and small.kind is FusionKind.LOOP
        return is_rows and not small.has_row_reduction and small.box == big.row_box

    def _row_limit(self, group: Group) -> FusionDecision:
        return (
            FUSE if group.box or group.kind is FusionKind.LOOP else FusionDecision.refuse("rank 0")
        )

    def can_hold_rows(self, group: Group) -> FusionDecision:
        """Whether `group` may hold a reduction of its box over the last dimension."""
        most = MAX_DOT_ROW_ELEMENTS if group.kind is FusionKind.OUTPUT else MAX_ROW_ELEMENTS
        if group.kind not in (FusionKind.LOOP, FusionKind.OUTPUT):
            return FusionDecision.refuse(f"a {group.kind.value} fusion holds no row reduction")
        if group.box[-1] > most:
            return FusionDecision.refuse(f"a row of {group.box[-1]} elements is over {most}")
        return FUSE

    def fits(self, group: Group, other: Group) -> FusionDecision:
        """Limits on operands, outputs and cycles of the merged group."""
        operands = _operands(group, other)
        if len(operands) > MAX_OPERANDS:
            return FusionDecision.refuse(f"{len(operands)} operands are over {MAX_OPERANDS}")
        outputs = self._outputs_of_both(group, other)
        most = MAX_SUMS if all(o.opcode == "reduce" for o in outputs) else MAX_OUTPUTS
        if len(outputs) > most:
            reason = f"{len(outputs)} results are over {most}"
            return FusionDecision(is_fused=False, reason=reason, is_crowded=True)
        if group.has_row_reduction or other.has_row_reduction:
            rows = self._rows_fit(group, other, [*operands, *outputs], outputs)
            if not rows.is_fused:
                return rows
        if self.graph.would_cycle(group, other):
            return FusionDecision.refuse("a third fusion lies between the two")
        if self._starts_from_result(group, other) or self._starts_from_result(other, group):
            return FusionDecision.refuse("a reduce starts from a result of the other")
        if self._slices_at_result(group, other) or self._slices_at_result(other, group):
            return FusionDecision.refuse("a slice starts at a result of the other")
        return FUSE

    def _slices_at_result(self, group: Group, other: Group) -> bool:
        """Whether a slice in `group` starts at a value of `other`, which must be in memory before."""
        return any(leaf in other.nodes for leaf in group.starts)

    def _starts_from_result(self, group: Group, other: Group) -> bool:
        """Whether a start value of a reduce in `group` is, or is made of, a value of `other`.

        Start values are computed where they are added; no window holds another stage's result
        for them.
        """
        return any(leaf in other.nodes for leaf in group.inits)

    def can_hold_sums(self, group: Group, other: Group) -> FusionDecision:
        """Whether kInput groups can be one although one may read the sums of the other.

        Then the grid cuts nothing that is reduced, and windows of all of it must fit VMEM.
        """
        if not (group.ancestors & other.bits or other.ancestors & group.bits):
            return FUSE
        found = [*_operands(group, other), *self._outputs_of_both(group, other)]
        arrays = [n.array for n in found if leaf_is_array(n)]
        reduces = group.reduces + other.reduces
        operand = reduces[0].operands[0].array
        block = whole_reduction_block(operand, group.reduced, arrays)
        *lead, rows, columns = (1, *block)
        tile = math.prod(lead) * -(-rows // SUBLANES) * -(-columns // LANES) * 4096
        wide = sum(a.dims == operand.dims for a in arrays)
        needed = (2 * wide + len(reduces)) * tile  # buffers of what is read, and some scratch
        if needed > vmem_shares.ROW_REDUCTIONS * self.chip.vmem_bytes:
            return FusionDecision.refuse("it reads sums of the other, which do not fit VMEM whole")
        return FUSE

    def _rows_fit(
        self,
        group: Group,
        other: Group,
        arrays: list[HloInstruction],
        outputs: list[HloInstruction],
    ) -> FusionDecision:
        """Whether the row reductions are few, and windows of whole rows fit VMEM, double-buffered.

        A stored vector of one value per row lies in tiles of 1024, so its windows have that
        many rows; without one, a window may be as low as a tile.
        """
        if len(group.reduces) + len(other.reduces) > MAX_ROW_REDUCTIONS:
            return FusionDecision.refuse(f"more than {MAX_ROW_REDUCTIONS} row reductions")
        box = max((group.box, other.box), key=len)
        for part in (group, other):
            held = self.can_hold_rows(part) if part.box == box else FUSE
            if not held.is_fused:
                return held
        has_vector = len(box) == 2 and any(o.array.dims == box[:1] for o in outputs)
        rows = min(VECTOR_TILE, box[-2]) if has_vector else WINDOW_ROWS
        wide = [a for a in arrays if leaf_is_array(a) and a.array.dims == box]
        row_bytes = sum(4 * box[-1] for _ in wide) + 4 * box[-1]
        needed = 2 * rows * row_bytes
        for dot in (group.dot, other.dot):
            if dot is not None:
                depth = dot.operands[0].array.dims[-1]
                needed += 2 * 4 * depth * rows + 2 * 2 * depth * box[-1]
        if needed > vmem_shares.ROW_REDUCTIONS * self.chip.vmem_bytes:
            return FusionDecision.refuse(f"windows of {rows} whole rows do not fit VMEM")
        return FUSE

    def open(self, group: Group, instr: HloInstruction) -> None:
        """Note where the one instruction of a new group starts, if it slices or reduces."""
        group.starts.update(self.starts[instr])
        if instr.opcode == "reduce":
            group.reduces.append(instr)
            for init in instr.operands[len(instr.operands) // 2 :]:
                group.inits.update((init, *self.nodes[init].leaves))

    def add_reader(self, value: HloInstruction, reader: HloInstruction) -> None:
        """From now on `reader` reads `value`."""
        if reader not in self.readers.setdefault(value, []):
            self.readers[value].append(reader)
        group = self.graph.find(value)
        if group is not None and value not in group.results:
            group.results = dict.fromkeys(group.nodes)

    def _is_output(self, instr: HloInstruction, group: Group, other: Group) -> bool:
        if instr.opcode == "reduce" and not leaf_is_array(instr):
            return False
        if instr in self.hard:
            return True
        inside, too = group.nodes, other.nodes
        return any(r not in inside and r not in too for r in self.readers.get(instr, ()))

    def _outputs_of_both(self, group: Group, other: Group) -> list[HloInstruction]:
        """What something outside both groups reads."""
        found = [*self.outputs(group), *self.outputs(other)]
        return [n for n in found if self._is_output(n, group, other)]

    def outputs(self, group: Group, besides: HloInstruction | None = None) -> list[HloInstruction]:
        """The instructions of a group that something outside it (but not `besides`) reads."""
        found = [n for n in group.results if self._is_output(n, group, group)]
        group.results = dict.fromkeys(found)
        if besides is None:
            return found
        return [n for n in found if n in self.hard or self._is_read(n, group, besides)]

    def _is_read(self, instr: HloInstruction, group: Group, besides: HloInstruction) -> bool:
        readers = self.readers.get(instr, ())
        return any(r not in group.nodes and r is not besides for r in readers)

    def can_be_prologue(self, producer: Group, dot: Group, leaf: HloInstruction) -> FusionDecision:
        """Whether `producer`, whose only result is `leaf`, is recomputed inside a dot's loads."""
        if producer.kind is not FusionKind.LOOP or producer.has_row_reduction:
            return FusionDecision.refuse("only elementwise work can be a dot's prologue")
        if any(n not in (leaf,) for n in self.outputs(producer)):
            return FusionDecision.refuse("the producer has other results")
        if any(self.graph.find(r) is not dot for r in self.readers.get(leaf, ())):
            return FusionDecision.refuse("the operand has other users, so it is stored anyway")
        if leaf in self.hard:
            return FusionDecision.refuse("the operand is needed in memory")
        if is_turned_image(leaf, self.nodes) or is_stacked_once(leaf):
            return FusionDecision.refuse("rows would be moved anew in many places")
        if is_better_done_once(leaf, self.nodes[leaf].repeat_count, self.chip):
            return FusionDecision.refuse("it would be computed anew for every copy of an element")
        replays = self._replays(dot, leaf)
        parts = self._parts(leaf)
        work = producer.op_count if parts == 1 else parts * producer.repeat_count
        if replays * self._places(leaf) * work > REPLAY_BUDGET:
            return FusionDecision.refuse(
                f"{producer.op_count} operations would be repeated {replays} times"
            )
        stored = leaf.array.byte_count * (1 + replays)
        elements = leaf.array.element_count
        # Of a longer array a part is read, such as one layer's weights of all that are stacked.
        read = replays * sum(
            min(elements, r.array.element_count) * r.array.dtype.bits // 8
            for r in producer.reads
            if leaf_is_array(r)
        )
        if read > 1.5 * stored:
            return FusionDecision.refuse("re-reading the producer's operands costs more")
        return self.fits(producer, dot)

    def _places(self, leaf: HloInstruction) -> int:
        """At how many indices the readers of a value read it; as one where they differ little."""
        nodes = [self.nodes[r] for r in self.readers.get(leaf, ())]
        paths = [n.paths.get(leaf, 1) for n in nodes if n.leaves.get(leaf) is Access.OTHER]
        return max(1, sum(paths))

    def _parts(self, leaf: HloInstruction) -> int:
        """How many parts of a value's lanes are read as rows: each computes all of its register."""
        pending, seen, most = [leaf], {leaf}, 1
        (lanes,) = leaf.array.dims[-1:] or (1,)
        while pending:
            value = pending.pop()
            for user in value.users:
                if user in seen or self.nodes[user].role is not Role.VIRTUAL:
                    continue
                seen.add(user)
                if OPCODES[user.opcode].has(Trait.ELEMENTWISE):
                    pending.append(user)
                elif user.opcode == "reshape":
                    (rows,) = user.array.dims[-1:] or (1,)
                    most = max(most, lanes // rows) if 0 < rows < LANES else most
        return most

    def _replays(self, dot_group: Group, leaf: HloInstruction) -> int:
        """How many passes over an operand a dot makes: one per window of the other side."""
        dot = dot_group.dot
        assert dot is not None
        m, n = dot.array.dims[-2:]
        right = self.nodes[dot.operands[1]]
        is_right = leaf is dot.operands[1] or leaf in right.leaves
        return max(1, -(-(m if is_right else n) // REPLAY_WINDOW))

    def can_feed_reduce(
        self, producer: Group, reduce: Group, leaf: HloInstruction
    ) -> FusionDecision:
        """Whether `producer`, whose only result is `leaf`, is computed inside a kInput reduce."""
        if producer.kind is not FusionKind.LOOP or producer.has_row_reduction:
            return FusionDecision.refuse("only elementwise work can feed a kInput reduce")
        if any(n is not leaf for n in self.outputs(producer)) or leaf in self.hard:
            return FusionDecision.refuse("the producer has other results")
        if any(self.graph.find(r) is not reduce for r in self.readers.get(leaf, ())):
            return FusionDecision.refuse("the operand has other users, so it is stored anyway")
        if is_copied_into_sum(leaf, producer.repeat_count, self.chip):
            return FusionDecision.refuse("it would be computed anew for every copy of an element")
        return self.fits(producer, reduce)

    def can_sum_beside(self, producer: Group, sums: Group, leaf: HloInstruction) -> FusionDecision:
        """Whether kInput reduces that read `leaf` are computed in the pass that makes it.

        What is stored anyway is then not read again, and what only they read is not stored. The
        producer's work is done once more for each of the reduces.
        """
        if producer.kind is FusionKind.INPUT:
            if producer.reduced != sums.reduced:
                return FusionDecision.refuse("sums over other dimensions")
            held = self.can_hold_sums(producer, sums)
            if self._reads_sums(sums, producer) and not held.is_fused:
                return held
        elif producer.kind is not FusionKind.LOOP or producer.has_row_reduction:
            return FusionDecision.refuse("only elementwise work has sums beside it")
        if producer.box != sums.box or leaf.array.dims != sums.box:
            return FusionDecision.refuse("the sums are over other dimensions than it has")
        if any(r.opcode == "get-tuple-element" for r in sums.nodes):
            return FusionDecision.refuse("a variadic reduce stands alone")
        readers = self.readers.get(leaf, ())
        is_dropped = leaf not in self.hard and all(
            r in sums.nodes or r in producer.nodes for r in readers
        )
        passes = 2 if is_dropped else 1
        repeated = self._again(leaf, producer)
        if repeated > passes * PASS_OPS:
            return FusionDecision.refuse(f"{repeated} operations more, for {passes} arrays less")
        return self.fits(producer, sums)

    def _again(self, value: HloInstruction, group: Group) -> int:
        """Operations per vreg to compute a value of `group` once more, from what lies in VMEM."""
        pending, seen, total = [value], {value}, 0
        while pending:
            node = pending.pop()
            cost = lane_ops(node) if node.array.dims == value.array.dims else 0
            if cost >= STAGED and OPCODES[node.opcode].has(Trait.ELEMENTWISE):
                continue  # its value stays in VMEM for all that read it
            total += cost
            if turns_lanes(node):
                total += _PACKED_TURN_OPS if node.array.dtype.bits == 16 else _MOVING_OPS
            elif OPCODES[node.opcode].has(Trait.PIECEWISE):
                total += _MOVING_OPS
            for operand in node.operands:
                is_inside = operand in group.nodes or self.nodes[operand].role is Role.VIRTUAL
                if is_inside and operand not in seen:
                    seen.add(operand)
                    pending.append(operand)
        return total

    def _reads_sums(self, group: Group, other: Group) -> bool:
        """Whether something in `group` reads a reduction of `other`."""
        return any(
            leaf in other.nodes and not (leaf_is_array(leaf) and leaf.array.dims == other.box)
            for node in group.nodes
            for leaf in self.nodes[node].leaves
        )


def _operands(group: Group, other: Group) -> list[HloInstruction]:
    """What both groups together read from memory."""
    reads = group.reads | other.reads
    return [leaf for leaf in reads if leaf not in group.nodes and leaf not in other.nodes]


def leaf_is_array(instr: HloInstruction) -> bool:
    """Whether the instruction is an array (a variadic reduce is not)."""
    return hasattr(instr.shape, "dims")
