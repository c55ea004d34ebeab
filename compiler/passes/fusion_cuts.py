"""Where a fusion is cut in two: so that there are windows, or so that they move fewer bytes.

A cut stores some value of the fusion's body: a first kernel makes it, a second one reads it. Cuts
come in classes, the likeliest to help first:

    1  at a dot, its operands, and reduces, and between results
    2  at index operations and what they read
    3  anywhere
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace as replace_fields
from itertools import islice

from compiler.analysis.code_costs import KernelCosts
from compiler.analysis.fusion_body import fusion_body
from compiler.analysis.tiled_layout import byte_size
from compiler.analysis.window_cost import window_moves
from compiler.analysis.window_planner import WindowPlanner
from compiler.analysis.window_search import plan_update
from compiler.backend.custom_places import gather_fits
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_any, with_trait
from compiler.hlo.shape import ArrayShape, TupleShape, leaves
from compiler.passes.fusion_parts import FusionPart
from compiler.passes.fusion_waist import cut_at_waist
from compiler.passes.layout_assignment import with_default_layout
from compiler.passes.wrap_fusions import fusion_kind
from tpu_sim.isa.chips import Chip

_INDEX_WORK = with_trait(Trait.INDEX_MAP) | {"concatenate", "pad"}
_NEVER_STORED = with_any(Trait.GIVEN | Trait.FORWARDS) | {"iota"}
_MOST_CUTS = 32
"""Cuts of a class that are tried."""
_LEAST_CUTS = 4
"""Cuts of a class that are tried however large a part is."""
_MOST_LOOKED_AT = 16_384
"""Operations in the parts of a class's cuts: each of them is walked through to look for windows."""
_MOST_COSTED = 6
"""Cuts of a class whose windows are searched for."""
_WASTE = 3
"""How many times the least bytes a plan moves before a cut is thought of."""
_LEAST_CYCLES = 50_000
"""Of a kernel that it is worth looking at."""
_GAIN = 0.7
"""Of a kernel's cycles, what two may take in its place."""
_MOST_OPERANDS = 32
"""Of a kernel whose operands are apart."""
_MOST_DEEP = 4
"""How often what was cut is cut again."""
_MANY_NODES = 128
"""Of a part without windows that is halved where it is thinnest, before any other cut is tried."""

_MOST_LEFT = 0.75
"""Of a part's nodes: the best cut that leaves more without windows takes one node off after another, each
time with all cuts tried; the part is halved instead."""

Cut = tuple[FusionPart, FusionPart]


class Judge:
    """Asks the window planner for which fusions there are windows."""

    def __init__(self, planner: WindowPlanner) -> None:
        self.planner = planner
        self.known: dict[FusionPart, str] = {}
        self.launch = int(KernelCosts.of(planner.chip).launch)

    def has_windows(self, fusion: HloInstruction, *, is_planned_next: bool = False) -> bool:
        """Whether the windows of some plan fit VMEM.

        Where the plan is asked for next, the cheapest one is searched for at once.
        """
        try:
            if not is_planned_next:
                return self.planner.has_plan(fusion)
            if self.planner.is_refused(fusion):
                return False
            self.planner.facts(fusion)
        except UnsupportedError:
            return False
        return True

    def fits_alone(self, node: HloInstruction) -> bool:
        """Whether an operation has windows in a fusion of its own."""
        if node.opcode == "dynamic-update-slice":
            return self.kernel_fits(_alone(node, "kCustom"))
        kinds = {fusion_kind(node), "kInput" if node.opcode == "reduce" else "kLoop"}
        kinds -= {"kLoop"} if node.opcode == "dot" else set()
        return any(self.has_windows(_alone(node, kind)) for kind in sorted(kinds))

    def kernel_fits(self, fusion: HloInstruction) -> bool:
        """Whether VMEM holds what the kernel of a kCustom fusion does, as far as that is known."""
        fits = _OWN_KERNELS.get(fusion.calls.root_instruction.opcode)
        return fits is None or fits(fusion, self.planner.chip)

    def cycles(self, part: FusionPart) -> int:
        """What a part with windows is estimated to take."""
        return self.planner.facts(part.trial(self.kind(part))).cycles + self.launch

    def cycles_below(self, limit: float, parts: Sequence[FusionPart]) -> int:
        """What parts take together; where that reaches a limit, some number that does."""
        total = 0
        for part in parts:
            total += self.cycles(part)
            if total >= limit:
                break
        return total

    def wasted(self, part: FusionPart) -> set[HloInstruction]:
        """The inputs of a part with windows that it fetches again and again."""
        plan = self.planner.plan(part.trial(self.kind(part)))
        found: set[HloInstruction] = set()
        for window in plan.inputs:
            if window_moves(plan, window) > _WASTE * byte_size(window.shape):
                found.add(part.operands[window.node.parameter_number][0])
        return found

    def is_wasteful(self, fusion: HloInstruction) -> bool:
        """Whether a kernel spends its time on moving what it needs to move but once."""
        traffic = self.planner.facts(fusion).traffic
        if traffic.cost.cycles < _LEAST_CYCLES or traffic.moved < _WASTE * traffic.least:
            return False
        return traffic.moved / self.planner.chip.hbm_bytes_per_cycle > traffic.cost.cycles / 2

    def is_off_period(self, fusion: HloInstruction) -> bool:
        """Whether the rows of a fusion with windows are found anew in each block (`row_periods`)."""
        return self.planner.facts(fusion).is_off_period

    def kind(self, part: FusionPart) -> str:
        """The kind of fusion as which a part has windows; empty when there is none.

        What computes all that a refused fusion does has none: its kernel would be no smaller.
        """
        if part.is_all and self.planner.is_refused(part.fusion):
            return ""
        if part not in self.known:
            kinds = (k for k in part.kinds() if self.has_windows(part.trial(k)))
            self.known[part] = next(kinds, "")
        return self.known[part]


def _has_update(fusion: HloInstruction, chip: Chip) -> bool:
    """Whether the kernel of a dynamic-update-slice has windows."""
    body = fusion_body(fusion)
    try:
        plan_update(fusion, body, chip)
    except UnsupportedError:
        return False
    return True


_OWN_KERNELS: dict[str, Callable[[HloInstruction, Chip], bool]] = {
    "dynamic-update-slice": _has_update,
    "gather": gather_fits,
}
"""Operations with a kernel of their own that have other forms, and whether VMEM holds what it does."""


def _alone(node: HloInstruction, kind: str) -> HloInstruction:
    """A fusion of one operation, in no module."""
    body = HloComputation("fused_computation")
    made: dict[HloInstruction, HloInstruction] = {}
    operands: list[HloInstruction] = []
    for operand in dict.fromkeys(node.operands):
        attrs = dict(operand.attrs)
        if operand.opcode != "constant":
            attrs = {"parameter_number": len(operands)}
            shape = with_default_layout(operand.array)
            operands.append(HloInstruction("parameter", "value", shape, (), attrs))
        opcode = "constant" if operand.opcode == "constant" else "parameter"
        made[operand] = body.add(HloInstruction(opcode, "value", operand.array, (), attrs))
    root = HloInstruction(
        node.opcode, node.name, node.shape, [made[o] for o in node.operands], dict(node.attrs)
    )
    body.root = body.add(root)
    if isinstance(node.shape, TupleShape):
        body.root = body.add(HloInstruction("tuple", "tuple", node.shape, _results(root, body)))
    attrs = {"kind": kind, "calls": body}
    shape = with_default_layout(node.shape)
    return HloInstruction("fusion", node.name, shape, operands, attrs)


def _results(node: HloInstruction, body: HloComputation) -> list[HloInstruction]:
    """Each result of a variadic reduce."""
    return [
        body.add(HloInstruction("get-tuple-element", "part", shape, (node,), {"index": number}))
        for number, shape in enumerate(leaves(node.shape))
    ]


def divided(part: FusionPart, judge: Judge) -> list[FusionPart]:
    """Parts with windows that make the same results, producers before users.

    What cannot be cut any further stays as it is, windows or not.
    """
    if judge.kind(part):
        return [part]
    for (apart,) in _apart(part):
        if judge.kind(apart):
            return [apart]
    if len(part.nodes) > _MANY_NODES and (halves := cut_at_waist(part)) is not None:
        return [p for half in halves for p in divided(half, judge)]
    best: Cut | None = None
    for cuts in _classes(part):
        chosen = next(_with_windows(sorted(cuts, key=_traffic), judge), None)
        if chosen is not None:
            return list(chosen)
        kept = [best] if best else []
        best = min([*cuts, *kept], key=lambda cut: _left(cut, judge), default=None)
    if best is None:
        return [part]
    if _left(best, judge)[0] > _MOST_LEFT * len(part.nodes):
        best = cut_at_waist(part) or best
    return [*divided(best[0], judge), *divided(best[1], judge)]


def cheaper(part: FusionPart, judge: Judge, depth: int = 0) -> list[FusionPart]:
    """Parts that take much fewer cycles than the whole, which has windows; else the whole."""
    limit = judge.cycles(part) * _GAIN
    if depth >= _MOST_DEEP or not judge.is_wasteful(part.trial(judge.kind(part))):
        return [part]
    best: tuple[FusionPart, ...] = (part,)
    wasted = judge.wasted(part)
    ways: list[Sequence[tuple[FusionPart, ...]]] = [_apart(part), *_classes(part)]
    for cuts in ways:
        helpful = [cut for cut in cuts if len(cut) == 1 or not wasted.issubset(cut[1].inputs)]
        helpful.sort(key=lambda cut: (len(wasted.intersection(cut[-1].inputs)), _traffic(cut)))
        for cut in islice(_with_windows(helpful, judge), _MOST_COSTED):
            cycles = judge.cycles_below(limit, cut)
            if cycles < limit:
                best, limit = cut, cycles
    if best == (part,):
        return [part]
    return [p for chosen in best for p in cheaper(chosen, judge, depth + 1)]


def in_periods(part: FusionPart, judge: Judge) -> list[FusionPart]:
    """Parts whose blocks all hold whole periods of rows, if they take much fewer cycles; else the whole.

    Results of one value a row have blocks of 1,024 rows, which windows of 49 do not divide.
    """
    limit = judge.cycles(part) * _GAIN
    best = [part]
    for cuts in _classes(part):
        for cut in islice(_with_windows(sorted(cuts, key=_traffic), judge), _MOST_COSTED):
            if not any(judge.is_off_period(p.trial(judge.kind(p))) for p in cut):
                cycles = judge.cycles_below(limit, cut)
                if cycles < limit:
                    best, limit = list(cut), cycles
    return best


def _with_windows(
    cuts: Sequence[tuple[FusionPart, ...]], judge: Judge
) -> Iterator[tuple[FusionPart, ...]]:
    """The cuts all of whose parts have windows, looked for one by one: to know that is dear."""
    return (cut for cut in cuts if all(judge.kind(part) for part in cut))


def _apart(part: FusionPart) -> list[tuple[FusionPart]]:
    """The whole with an operand for each reading, where that is another kernel."""
    apart = replace_fields(part, is_apart=True)
    is_other = len(part.operands) < len(apart.operands) <= _MOST_OPERANDS
    return [(apart,)] if is_other else []


def _traffic(cut: Sequence[FusionPart]) -> int:
    """Bytes that its kernels move; a dot that both compute is never worth it."""
    dots = sum(any(n.opcode == "dot" for n in part.nodes) for part in cut)
    return sum(part.traffic for part in cut) << (16 if dots > 1 else 0)


def _left(cut: Cut, judge: Judge) -> tuple[int, int]:
    """How much of a cut still is without windows."""
    sizes = [len(part.nodes) for part in cut if not judge.kind(part)]
    return max(sizes, default=0), _traffic(cut)


def _classes(part: FusionPart) -> Iterator[list[Cut]]:
    """The cuts of a part, class by class."""
    readers = [n for n in part.nodes if OPCODES[n.opcode].has(Trait.STAGE)]
    near = [n for r in readers if r.opcode == "dot" for n in r.operands] + readers
    first = cuts_at(part, near)
    if len(part.outputs) > 1:
        first += [part.without(output) for output in part.outputs]
    yield first
    moved = [n for n in part.nodes if n.opcode in _INDEX_WORK]
    yield cuts_at(part, [n for m in moved for n in (*m.operands, m)])
    yield cuts_at(part, list(part.nodes))


def cuts_at(part: FusionPart, nodes: list[HloInstruction]) -> list[Cut]:
    """Cuts that store one of the nodes; evenly chosen ones where there are many."""
    inside = set(part.nodes)
    found: dict[tuple[HloInstruction, ...], Cut] = {}
    for node in dict.fromkeys(nodes):
        stored = _stored_with(node)
        if not inside.issuperset(stored) or not all(_is_storable(n) for n in stored):
            continue
        cut = part.cut_at(stored)
        if cut is not None:
            found[stored] = cut
    cuts = list(found.values())
    most = max(_LEAST_CUTS, min(_MOST_CUTS, _MOST_LOOKED_AT // len(part.nodes)))
    return cuts[:: -(-len(cuts) // most)] if cuts else []


def _stored_with(node: HloInstruction) -> tuple[HloInstruction, ...]:
    """What is stored to keep a node: itself, or all results of a variadic reduce."""
    return (node,) if isinstance(node.shape, ArrayShape) else tuple(node.users)


def _is_storable(node: HloInstruction) -> bool:
    """Whether a kernel can leave this in memory for another to gain something."""
    if node.opcode == "get-tuple-element":
        return True
    if node.opcode in _NEVER_STORED or (node.array.rank == 0 and node.opcode != "reduce"):
        return False
    return node.opcode != "broadcast" or node.operands[0].array.rank > 0
