"""Fusion legalizer: splits every fusion for which no windows fit VMEM until windows do.

Fusion judges by the shapes of a few cases what a kernel can hold. Whether there are windows is known
to the window search alone: what a step reads through an index expression may not be bounded well
(a transpose of merged dimensions), results whose tiles differ may ask for whole dimensions, rows
that are summed may be long, and VMEM may be small. So every fusion is shown to the search. One
without windows is cut in two: some value of its body is stored by a first kernel and read by a
second one, and so on with each of the two that still has none. Cuts are tried in this order:

    1  at a dot, its operands, and reduces, and between results
    2  at index operations and what they read
    3  anywhere

Of the cuts of one class that leave two kernels with windows, the one that moves the fewest bytes is
taken. It needs a whole chip; with less than that (memory sizes alone) nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.analysis.call_graph import control_computations, drop_unreachable
from compiler.analysis.window_planner import PLANNED_KINDS, WindowPlanner
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape
from compiler.passes.context import PassContext
from compiler.passes.fusion_parts import Part, body_of, results_of
from compiler.passes.memory_space_assignment import is_scalar_fusion
from compiler.rewrite.graph import emit, remove_dead, replace

_INDEX_WORK = frozenset(
    {
        "transpose",
        "reshape",
        "concatenate",
        "pad",
        "slice",
        "dynamic-slice",
        "reverse",
        "broadcast",
    }
)
_NEVER_STORED = frozenset({"parameter", "constant", "iota", "tuple", "get-tuple-element"})
_MOST_CUTS = 32
"""Cuts of a class that are tried."""

Cut = tuple[Part, Part]


def legalize_fusions(module: HloModule, context: PassContext) -> bool:
    """Split every fusion that has no windows."""
    if context.planner is None:
        return False
    judge = _Judge(context.planner)
    for computation in control_computations(module):
        for fusion in list(computation):
            if _is_planned(fusion) and not judge.has_windows(fusion):
                context.counts["split"] += _split(fusion, judge, context.remarks)
        computation.sort()
    drop_unreachable(module)
    return bool(context.counts["split"])


def _is_planned(instr: HloInstruction) -> bool:
    is_kernel = instr.opcode == "fusion" and instr.attrs.get("kind") in PLANNED_KINDS
    return is_kernel and not is_scalar_fusion(instr)


def _split(fusion: HloInstruction, judge: _Judge, remarks: list[str]) -> bool:
    """Put kernels with windows in place of a fusion; False where there are none to be had."""
    parts = _divided(Part(fusion, tuple(dict.fromkeys(results_of(fusion)))), judge)
    if len(parts) == 1:
        return False
    values: dict[HloInstruction, HloInstruction] = dict(
        zip(body_of(fusion).parameters, fusion.operands, strict=True)
    )
    name, results = fusion.name, results_of(fusion)
    for part in parts:
        made = part.emit(judge.kind(part) or next(part.kinds()), values)
        values.update(zip(part.outputs, made, strict=True))
    stored = [n for part in parts for n in part.outputs if n not in results]
    _replace_results(fusion, [values[result] for result in results])
    remarks.append(
        f"%{name}: no windows of the whole fit VMEM; {len(parts)} kernels instead, which store "
        + (", ".join(f"%{n.name} {n.shape}" for n in stored) or "its results one by one")
    )
    return True


def _replace_results(fusion: HloInstruction, values: list[HloInstruction]) -> None:
    """Make all users of a fusion use these values instead."""
    if isinstance(fusion.shape, ArrayShape):
        replace(fusion, values[0])
        return
    for user in [u for u in fusion.users if u.opcode == "get-tuple-element"]:
        index = user.attrs["index"]
        assert isinstance(index, int)
        replace(user, values[index])
    if fusion.computation is not None and (fusion.users or fusion.computation.root is fusion):
        replace(fusion, emit(fusion, "tuple", fusion.shape, values))
    remove_dead(fusion)


class _Judge:
    """Asks the window planner for which fusions there are windows."""

    def __init__(self, planner: WindowPlanner) -> None:
        self.planner = planner
        self.known: dict[tuple[tuple[HloInstruction, ...], frozenset[HloInstruction]], str] = {}

    def has_windows(self, fusion: HloInstruction) -> bool:
        """Whether the windows of some plan fit VMEM."""
        try:
            return self.planner.has_plan(fusion)
        except UnsupportedError:
            return False

    def kind(self, part: Part) -> str:
        """The kind of fusion as which a part has windows; empty when there is none."""
        key = (part.outputs, part.given)
        if key not in self.known:
            kinds = (k for k in part.kinds() if self.has_windows(part.trial(k)))
            self.known[key] = next(kinds, "")
        return self.known[key]


def _divided(part: Part, judge: _Judge) -> list[Part]:
    """Parts with windows that make the same results, producers before users.

    What cannot be cut any further stays as it is, windows or not.
    """
    if judge.kind(part):
        return [part]
    best: Cut | None = None
    for cuts in _classes(part):
        good = [cut for cut in cuts if judge.kind(cut[0]) and judge.kind(cut[1])]
        if good:
            return list(min(good, key=_traffic))
        best = min([*cuts, *([best] if best else [])], key=lambda c: _left(c, judge), default=None)
    if best is None:
        return [part]
    return [*_divided(best[0], judge), *_divided(best[1], judge)]


def _traffic(cut: Cut) -> int:
    """Bytes that its kernels move; a dot that both compute is never worth it."""
    first, second = cut
    is_repeated = any(n.opcode == "dot" for n in first.nodes) and any(
        n.opcode == "dot" for n in second.nodes
    )
    return (first.traffic + second.traffic) << (16 if is_repeated else 0)


def _left(cut: Cut, judge: _Judge) -> tuple[int, int]:
    """How much of a cut still is without windows."""
    sizes = [len(part.nodes) for part in cut if not judge.kind(part)]
    return max(sizes, default=0), _traffic(cut)


def _classes(part: Part) -> Iterator[list[Cut]]:
    """The cuts of a part, class by class."""
    readers = [n for n in part.nodes if n.opcode in ("dot", "reduce")]
    near = [n for r in readers if r.opcode == "dot" for n in r.operands] + readers
    first = _cuts_at(part, near)
    if len(part.outputs) > 1:
        first += [part.without(output) for output in part.outputs]
    yield first
    moved = [n for n in part.nodes if n.opcode in _INDEX_WORK]
    yield _cuts_at(part, [n for m in moved for n in (*m.operands, m)])
    yield _cuts_at(part, list(part.nodes))


def _cuts_at(part: Part, nodes: list[HloInstruction]) -> list[Cut]:
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
    return cuts[:: -(-len(cuts) // _MOST_CUTS)] if cuts else []


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
