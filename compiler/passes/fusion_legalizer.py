"""Fusion legalizer: takes a dot's prologue apart again where no window of it fits VMEM.

Fusion lets a dot read its operands through any index arithmetic. Seldom the part of an operand
behind a step's window cannot be bounded well (a transpose of merged dimensions), and the whole
operand would have to be resident. Then that operand is made by a kernel of its own.

The judge is the window search itself, asked only about dots whose operands are more than plain
arrays. It needs a whole chip; with less than that (memory sizes alone) nothing is changed.
"""

from __future__ import annotations

from compiler.analysis.call_graph import control_computations, drop_unreachable
from compiler.analysis.window_planner import WindowPlanner
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.module_tools import structural_hash
from compiler.passes.context import PassContext
from compiler.passes.layout_assignment import with_default_layout
from compiler.rewrite.graph import emit, remove_dead, replace

_ATTEMPTS = ((0,), (1,), (0, 1))
_STORED = frozenset({"transpose", "concatenate", "pad"})
_INDEX_WORK = frozenset({"transpose", "reshape", "concatenate", "pad", "dynamic-slice", "reverse"})


def legalize_fusions(module: HloModule, context: PassContext) -> bool:
    """Split every dot fusion that has no window and can be had with one."""
    if context.planner is None:
        return False
    judge = _Judge(context.planner)
    for computation in control_computations(module):
        for fusion in list(computation):
            if _is_suspect(fusion) and not judge.has_window(fusion):
                context.counts["split"] += _split(fusion, judge)
        computation.sort()
    drop_unreachable(module)
    return bool(context.counts["split"])


class _Judge:
    """Asks the window planner, and remembers those that it finds no windows for."""

    def __init__(self, planner: WindowPlanner) -> None:
        self.planner = planner
        self.known: dict[str, bool] = {}

    def has_window(self, fusion: HloInstruction) -> bool:
        """Whether the windows of some plan fit VMEM."""
        key = structural_hash(_body(fusion))
        if key not in self.known:
            try:
                self.known[key] = self.planner.has_plan(fusion)
            except UnsupportedError:
                self.known[key] = False
        return self.known[key]


def _body(fusion: HloInstruction) -> HloComputation:
    called = fusion.attrs["calls"]
    assert isinstance(called, HloComputation)
    return called


def _dot(fusion: HloInstruction) -> HloInstruction:
    return next(i for i in _body(fusion) if i.opcode == "dot")


def _is_suspect(instr: HloInstruction) -> bool:
    """Whether this is a dot fusion with index arithmetic on an operand."""
    if instr.opcode != "fusion" or instr.attrs.get("kind") != "kOutput":
        return False
    if not any(i.opcode == "dot" for i in _body(instr)):
        return False
    return any(i.opcode in _INDEX_WORK for o in _dot(instr).operands for i in _cone(o))


def _cone(node: HloInstruction) -> list[HloInstruction]:
    """A node and all it depends on, operands first."""
    wanted, pending = {node}, [node]
    while pending:
        for operand in pending.pop().operands:
            if operand not in wanted:
                wanted.add(operand)
                pending.append(operand)
    assert node.computation is not None
    return [i for i in node.computation if i in wanted]


def _split(fusion: HloInstruction, judge: _Judge) -> bool:
    """Give one or both dot operands kernels of their own; False when that does not help."""
    for attempt in _ATTEMPTS:
        operands = _dot(fusion).operands
        if any(operands[n].opcode in ("parameter", "constant") for n in attempt):
            continue
        made = [_divided(_materialised(fusion, operands[n]), judge) for n in attempt]
        rest = _without(fusion, {operands[n]: m for n, m in zip(attempt, made, strict=True)})
        if all(judge.has_window(f) for f in (*made, rest)):
            replace(fusion, rest)
            return True
        remove_dead(rest)
    return False


def _divided(fusion: HloInstruction, judge: _Judge) -> HloInstruction:
    """A loop fusion without windows, with one of its inner arrays stored where that helps."""
    if judge.has_window(fusion):
        return fusion
    body = _body(fusion)
    for node in reversed(list(body)):
        if node.opcode not in _STORED or node is body.root_instruction:
            continue
        inner = _materialised(fusion, node)
        outer = _without(fusion, {node: inner})
        if judge.has_window(inner) and judge.has_window(outer):
            replace(fusion, outer)
            return outer
        remove_dead(outer)
    return fusion


def _materialised(fusion: HloInstruction, node: HloInstruction) -> HloInstruction:
    """A loop fusion that computes one node of a fusion's body."""
    body = HloComputation("fused_computation")
    operands: list[HloInstruction] = []
    made: dict[HloInstruction, HloInstruction] = {}
    for instr in _cone(node):
        if instr.opcode == "parameter":
            made[instr] = _parameter(body, instr, len(operands))
            operands.append(fusion.operands[_body(fusion).parameters.index(instr)])
        else:
            made[instr] = _copy(body, instr, made)
    return _fusion(fusion, body, made[node], operands, "kLoop")


def _without(
    fusion: HloInstruction, stored: dict[HloInstruction, HloInstruction]
) -> HloInstruction:
    """The fusion with some nodes of its body read from memory instead."""
    body = HloComputation("fused_computation")
    operands: list[HloInstruction] = []
    made: dict[HloInstruction, HloInstruction] = {}
    needed = _needed(_body(fusion).root_instruction, stored)
    for instr in [i for i in _body(fusion) if i in needed]:
        if instr in stored or instr.opcode == "parameter":
            made[instr] = _parameter(body, instr, len(operands))
            numbers = _body(fusion).parameters
            outside = stored[instr] if instr in stored else fusion.operands[numbers.index(instr)]
            operands.append(outside)
        else:
            made[instr] = _copy(body, instr, made)
    root = made[_body(fusion).root_instruction]
    kind = fusion.attrs["kind"]
    assert isinstance(kind, str)
    return _fusion(fusion, body, root, operands, kind)


def _needed(
    root: HloInstruction, stored: dict[HloInstruction, HloInstruction]
) -> set[HloInstruction]:
    """What the root depends on, not looking behind stored nodes."""
    found, pending = {root}, [root]
    while pending:
        current = pending.pop()
        for operand in () if current in stored else current.operands:
            if operand not in found:
                found.add(operand)
                pending.append(operand)
    return found


def _parameter(body: HloComputation, like: HloInstruction, number: int) -> HloInstruction:
    attrs: dict[str, object] = {"parameter_number": number}
    return body.add(HloInstruction("parameter", f"param_{number}", like.shape, (), attrs))


def _copy(
    body: HloComputation, instr: HloInstruction, made: dict[HloInstruction, HloInstruction]
) -> HloInstruction:
    operands = [made[o] for o in instr.operands]
    copy = HloInstruction(instr.opcode, instr.name, instr.shape, operands, dict(instr.attrs))
    copy.location = instr.location
    return body.add(copy)


def _fusion(
    near: HloInstruction,
    body: HloComputation,
    root: HloInstruction,
    operands: list[HloInstruction],
    kind: str,
) -> HloInstruction:
    body.root = root
    assert near.computation is not None
    assert near.computation.module is not None
    near.computation.module.add_computation(body)
    attrs: dict[str, object] = {"kind": kind, "calls": body}
    return emit(near, "fusion", with_default_layout(root.shape), operands, attrs, "fusion")
