"""Fusion legalizer: splits fusions for which no windows fit VMEM, and those whose windows waste.

Fusion judges by the shapes of a few cases what a kernel can hold. Whether there are windows is known
to the window search alone: what a step reads through an index expression may not be bounded well
(a transpose of merged dimensions), results whose tiles differ may ask for whole dimensions, rows
that are summed may be long, and VMEM may be small. So every fusion is shown to the search. One
without windows is cut in two: some value of its body is stored by a first kernel and read by a
second one, and so on with each of the two that still has none (`fusion_cuts` says where). A single
operation that has none becomes loops over parts of its result (`looped`).

A fusion with windows is cut too where it moves its operands again and again, or its blocks begin anywhere
in the groups of rows that move together, or it moves lanes in two ways and looks each element up
(`looked_up_moves`), and two kernels are estimated to take much less.

It needs a whole chip; with less than that (memory sizes alone) nothing is changed.
"""

from __future__ import annotations

from compiler.hlo.call_graph import control_computations, drop_unreachable
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.context import PassContext
from compiler.passes.fusion import fuse
from compiler.passes.fusion_cuts import Judge, cheaper, divided, in_periods
from compiler.passes.fusion_parts import FusionPart
from compiler.passes.layout_assignment import assign_layouts
from compiler.passes.looked_up_moves import Lookups, moves_lanes_twice
from compiler.passes.looped.forms import inputs_of, is_given, looped_module
from compiler.passes.memory_space_assignment import is_planned
from compiler.passes.wrap_fusions import wrap_fusions
from compiler.rewrite.graph import emit, remove_dead, replace

_MOST_NESTED = 4
"""Loops in loops that an operation may become."""
_MOST_REMARKS = 8
"""Of a loop that stands for one operation: its kernels repeat each other's."""


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
        self.judge = Judge(context.planner)
        self.lookups = Lookups(self.judge)
        self.depth = depth

    def run(self, module: HloModule) -> None:
        """Split what has no windows, or much dearer ones than its parts."""
        for computation in control_computations(module):
            for fusion in [f for f in computation if is_planned(f)]:
                part = FusionPart(fusion, tuple(dict.fromkeys(fusion.calls.results)))
                if not self.judge.has_windows(fusion, is_planned_next=True):
                    parts, why = self._divided(part), "no windows of the whole fit VMEM"
                else:
                    parts, why = self._cheaper(fusion, part)
                    if parts == [part]:
                        continue
                self.context.counts["split"] += self._split(fusion, parts, why)
            for fusion in [f for f in computation if self._is_too_large(f)]:
                self.context.counts["split"] += self._split(
                    fusion, self._operation_apart(fusion), "no windows of it fit VMEM"
                )
            computation.sort()
        drop_unreachable(module)

    def _cheaper(self, fusion: HloInstruction, part: FusionPart) -> tuple[list[FusionPart], str]:
        """Parts that take much less than a fusion with windows, and why; else the whole."""
        is_wasteful = self.judge.is_wasteful(fusion)
        is_off_period = not is_wasteful and self.judge.is_off_period(fusion)
        is_worth_cutting = is_wasteful or is_off_period or moves_lanes_twice(fusion)
        if not is_worth_cutting or not self.judge.kind(part):
            return [part], ""
        if is_wasteful:
            return cheaper(part, self.judge), "the whole reads its operands too often"
        if is_off_period:
            return in_periods(part, self.judge), "blocks of the whole begin anywhere"
        return self.lookups.parts_of(
            part
        ), "lanes move more than once, so that elements are looked up"

    def _is_too_large(self, fusion: HloInstruction) -> bool:
        """Whether this is an operation with a kernel of its own that has no windows."""
        if fusion.opcode != "fusion" or fusion.kind != "kCustom":
            return False
        return not self.judge.kernel_fits(fusion)

    def _operation_apart(self, fusion: HloInstruction) -> list[FusionPart]:
        """The operation of such a kernel, and before it what makes its operands."""
        root = fusion.calls.root_instruction
        made = tuple(o for o in dict.fromkeys(root.operands) if _is_computed(o))
        cut = FusionPart(fusion, (root,)).cut_at(made) if made else None
        return [FusionPart(fusion, (root,))] if cut is None else [*self._divided(cut[0]), cut[1]]

    def _divided(self, part: FusionPart) -> list[FusionPart]:
        """Parts with windows where there are any, and not wasteful ones."""
        found: list[FusionPart] = []
        for made in divided(part, self.judge):
            found += cheaper(made, self.judge) if self.judge.kind(made) else [made]
        return found

    def _split(self, fusion: HloInstruction, parts: list[FusionPart], why: str) -> bool:
        """Put parts in place of a fusion; False where it is one that cannot be made."""
        values: dict[HloInstruction, HloInstruction] = dict(
            zip(fusion.calls.parameters, fusion.operands, strict=True)
        )
        name, results = fusion.name, fusion.calls.results
        looped: list[HloInstruction] = []
        for part in parts:
            if self.judge.kind(part):
                made = part.emit(self.judge.kind(part), values)
            else:
                found = self._looped(part, values)
                if found is None and len(parts) == 1:
                    return False
                made = part.emit(next(part.kinds(), "kCustom"), values) if found is None else found
                looped += part.outputs if found is not None else ()
            values.update(zip(part.outputs, made, strict=True))
        _replace_results(fusion, [values[result] for result in results])
        what = _described(parts, results, looped, self.judge)
        self.context.fallbacks.append(f"%{name}: {why}; {what}")
        return True

    def _looped(
        self, part: FusionPart, values: dict[HloInstruction, HloInstruction]
    ) -> list[HloInstruction] | None:
        """The results of a part of one operation as loops all of whose kernels have windows; None
        without such a form."""
        node = _only_operation(part)
        if node is None or self.depth >= _MOST_NESTED:
            return None
        module = looped_module(node, self.judge.fits_alone)
        if module is None:
            return None
        for step in (fuse, wrap_fusions, assign_layouts):
            step(module, PassContext(self.context.chip, shared_planner=self.context.planner))
        context = PassContext(self.context.chip, shared_planner=self.context.planner)
        inner = _Legalizer(context, self.depth + 1)
        inner.run(module)
        if not inner.have_windows(module):
            return None
        self.context.fallbacks += context.fallbacks[:_MOST_REMARKS]
        made = _spliced(module, part.fusion, [values[o] for o in inputs_of(node)])
        return [made[o.index if o.opcode == "get-tuple-element" else 0] for o in part.outputs]

    def have_windows(self, module: HloModule) -> bool:
        """Whether all kernels of a module have windows."""
        fusions = [f for c in control_computations(module) for f in c]
        planned = all(self.judge.has_windows(f) for f in fusions if is_planned(f))
        return planned and not any(self._is_too_large(f) for f in fusions)


def _is_computed(node: HloInstruction) -> bool:
    return not OPCODES[node.opcode].has(Trait.GIVEN)


def _only_operation(part: FusionPart) -> HloInstruction | None:
    """The operation that a part consists of, all of whose operands are inputs or made of nothing."""
    found = [n for n in part.nodes if is_given(n)]
    if not found:
        return None
    node, *results = found
    is_several = isinstance(node.shape, TupleShape)
    return node if set(part.outputs) == set(results if is_several else [node]) else None


def _spliced(
    module: HloModule, near: HloInstruction, values: list[HloInstruction]
) -> list[HloInstruction]:
    """Put a module's entry beside an instruction, its computations into that one's module; its results."""
    entry = module.entry
    for computation in list(module.computations.values()):
        if computation is not entry:
            near.home.owner.add_computation(computation)
    made = dict(zip(entry.parameters, values, strict=True))
    results = entry.results
    for instr in entry:
        if instr.opcode != "parameter" and (instr is not entry.root or instr in results):
            operands = [made[o] for o in instr.operands]
            attrs = dict(instr.attrs)
            made[instr] = emit(near, instr.opcode, instr.shape, operands, attrs, instr.name)
    return [made[result] for result in results]


def _operation_of(result: HloInstruction) -> HloInstruction:
    """What makes a result: of several, what they are taken from."""
    return result.operands[0] if result.opcode == "get-tuple-element" else result


def _described(
    parts: list[FusionPart],
    results: list[HloInstruction],
    looped: list[HloInstruction],
    judge: Judge,
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
        operations = dict.fromkeys(_operation_of(n) for n in looped)
        said.append("in parts, by loops: " + ", ".join(f"%{n.name} {n.opcode}" for n in operations))
    has_sums = any(node.opcode == "reduce" for node in parts[0].nodes)
    changed = "its sums are cut" if has_sums else "all of the result is made"
    return "; ".join(said) or f"{changed} ({judge.kind(parts[0])})"


def _replace_results(fusion: HloInstruction, values: list[HloInstruction]) -> None:
    """Make all users of a fusion use these values instead."""
    if isinstance(fusion.shape, ArrayShape):
        replace(fusion, values[0])
        return
    for user in [u for u in fusion.users if u.opcode == "get-tuple-element"]:
        replace(user, values[user.index])
    if fusion.computation is not None and (fusion.users or fusion.computation.root is fusion):
        replace(fusion, emit(fusion, "tuple", fusion.shape, values))
    remove_dead(fusion)
