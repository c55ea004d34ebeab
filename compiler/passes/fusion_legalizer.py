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
taken. A single operation that has none becomes loops over parts of its result
(`looped_operations`). It needs a whole chip; with less than that (memory sizes alone) nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as replace_fields

from compiler.analysis.call_graph import control_computations, drop_unreachable
from compiler.analysis.fusion_body import fusion_body
from compiler.analysis.iteration_space import update_space
from compiler.analysis.window_planner import PLANNED_KINDS, WindowPlanner
from compiler.analysis.window_search import search
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape
from compiler.passes.context import PassContext
from compiler.passes.fusion import fuse
from compiler.passes.fusion_parts import Part, body_of, results_of
from compiler.passes.layout_assignment import assign_layouts, with_default_layout
from compiler.passes.looped_operations import inputs_of, looped_module
from compiler.passes.memory_space_assignment import is_scalar_fusion
from compiler.passes.wrap_fusions import fusion_kind, wrap_fusions
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
_MOST_NESTED = 4
"""Loops in loops that an operation may become."""
_MOST_REMARKS = 8

Cut = tuple[Part, Part]


def legalize_fusions(module: HloModule, context: PassContext) -> bool:
    """Split every fusion that has no windows."""
    if context.planner is None:
        return False
    _Legalizer(context).run(module)
    return bool(context.counts["split"])


class _Legalizer:
    """The pass on one module, or on one that an operation of it became (`depth` more than 0)."""

    def __init__(self, context: PassContext, depth: int = 0) -> None:
        assert context.planner is not None
        self.context = context
        self.judge = _Judge(context.planner)
        self.depth = depth

    def run(self, module: HloModule) -> None:
        """Split what has no windows."""
        for computation in control_computations(module):
            for fusion in list(computation):
                if _is_planned(fusion) and not self.judge.has_windows(fusion):
                    self.context.counts["split"] += self._split(fusion)
            computation.sort()
        drop_unreachable(module)

    def _split(self, fusion: HloInstruction) -> bool:
        """Put kernels with windows in place of a fusion; False where there are none to be had."""
        parts = _divided(Part(fusion, tuple(dict.fromkeys(results_of(fusion)))), self.judge)
        values: dict[HloInstruction, HloInstruction] = dict(
            zip(body_of(fusion).parameters, fusion.operands, strict=True)
        )
        name, results = fusion.name, results_of(fusion)
        looped: list[HloInstruction] = []
        for part in parts:
            if self.judge.kind(part):
                made = part.emit(self.judge.kind(part), values)
            else:
                found = self._looped(part, values)
                if found is None and len(parts) == 1:
                    return False
                made = part.emit(next(part.kinds()), values) if found is None else [found]
                looped += part.outputs if found is not None else ()
            values.update(zip(part.outputs, made, strict=True))
        _replace_results(fusion, [values[result] for result in results])
        what = _described(parts, results, looped, self.judge)
        self.context.remarks.append(f"%{name}: no windows of the whole fit VMEM; {what}")
        return True

    def _looped(
        self, part: Part, values: dict[HloInstruction, HloInstruction]
    ) -> HloInstruction | None:
        """The result of a part of one operation as loops; None where it has no such form."""
        node = _only_operation(part)
        if node is None or self.depth >= _MOST_NESTED:
            return None
        module = looped_module(node, self.judge.fits_alone)
        if module is None:
            return None
        context = PassContext(self.context.chip, planner=self.context.planner)
        fuse(module, context)
        wrap_fusions(module, context)
        assign_layouts(module, context)
        _Legalizer(context, self.depth + 1).run(module)
        self.context.remarks += context.remarks[:_MOST_REMARKS]
        return _spliced(module, part.fusion, [values[o] for o in inputs_of(node)])


def _is_planned(instr: HloInstruction) -> bool:
    is_kernel = instr.opcode == "fusion" and instr.attrs.get("kind") in PLANNED_KINDS
    return is_kernel and not is_scalar_fusion(instr)


def _only_operation(part: Part) -> HloInstruction | None:
    """The operation that a part consists of, all of whose operands are inputs or constants."""
    (*rest, node) = part.nodes or (None,)
    if node is None or part.outputs != (node,):
        return None
    is_alone = all(n is not None and n.opcode == "constant" for n in rest)
    return node if is_alone else None


def _spliced(
    module: HloModule, near: HloInstruction, values: list[HloInstruction]
) -> HloInstruction:
    """Put a module's entry beside an instruction, its computations into that one's module."""
    assert near.computation is not None
    assert near.computation.module is not None
    entry = module.entry
    for computation in list(module.computations.values()):
        if computation is not entry:
            near.computation.module.add_computation(computation)
    made = dict(zip(entry.parameters, values, strict=True))
    for instr in entry:
        if instr.opcode != "parameter":
            operands = [made[o] for o in instr.operands]
            attrs = dict(instr.attrs)
            made[instr] = emit(near, instr.opcode, instr.shape, operands, attrs, instr.name)
    return made[entry.root_instruction]


def _described(
    parts: list[Part],
    results: list[HloInstruction],
    looped: list[HloInstruction],
    judge: _Judge,
) -> str:
    """What became of a fusion, for people."""
    said: list[str] = []
    stored = [n for part in parts for n in part.outputs if n not in results]
    if len(parts) > 1:
        what = ", ".join(f"%{n.name} {n.array.dtype.name}{list(n.array.dims)}" for n in stored)
        said.append(f"{len(parts)} kernels store {what or 'its results one by one'}")
    if any(part.is_apart for part in parts):
        said.append("operands that are read twice are fetched twice")
    if looped:
        said.append("in parts, by loops: " + ", ".join(f"%{n.name} {n.opcode}" for n in looped))
    return "; ".join(said) or f"its sums are cut ({judge.kind(parts[0])})"


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
        self.known: dict[Part, str] = {}

    def has_windows(self, fusion: HloInstruction) -> bool:
        """Whether the windows of some plan fit VMEM."""
        try:
            return self.planner.has_plan(fusion)
        except UnsupportedError:
            return False

    def fits_alone(self, node: HloInstruction) -> bool:
        """Whether an operation has windows in a fusion of its own."""
        if node.opcode == "dynamic-update-slice":
            return self._updates(_alone(node, "kCustom"))
        kinds = {fusion_kind(node), "kInput" if node.opcode == "reduce" else "kLoop"}
        kinds -= {"kLoop"} if node.opcode == "dot" else set()
        return any(self.has_windows(_alone(node, kind)) for kind in sorted(kinds))

    def _updates(self, fusion: HloInstruction) -> bool:
        body = fusion_body(fusion)
        try:
            search(fusion, body, update_space(body.roots[0]), self.planner.chip)
        except UnsupportedError:
            return False
        return True

    def kind(self, part: Part) -> str:
        """The kind of fusion as which a part has windows; empty when there is none.

        What computes all that a refused fusion does has none: its kernel would be no smaller.
        """
        if part.is_all and self.planner.is_refused(part.fusion):
            return ""
        if part not in self.known:
            kinds = (k for k in part.kinds() if self.has_windows(part.trial(k)))
            self.known[part] = next(kinds, "")
        return self.known[part]


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
        node.opcode, node.name, node.array, [made[o] for o in node.operands], dict(node.attrs)
    )
    body.root = body.add(root)
    attrs = {"kind": kind, "calls": body}
    shape = with_default_layout(node.array)
    return HloInstruction("fusion", node.name, shape, operands, attrs)


def _divided(part: Part, judge: _Judge) -> list[Part]:
    """Parts with windows that make the same results, producers before users.

    What cannot be cut any further stays as it is, windows or not.
    """
    if judge.kind(part):
        return [part]
    apart = replace_fields(part, is_apart=True)
    if len(apart.operands) > len(part.operands) and judge.kind(apart):
        return [apart]
    best: Cut | None = None
    for cuts in _classes(part):
        good = [cut for cut in cuts if judge.kind(cut[0]) and judge.kind(cut[1])]
        if good:
            first, second = min(good, key=_traffic)
            return [first, second]
        kept = [best] if best else []
        best = min([*cuts, *kept], key=lambda cut: _left(cut, judge), default=None)
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
