"""Sharding propagation: every instruction gets a ``sharding=``, from those that the program states.

Before it, shardings stand in the program as Shardy's or GSPMD's annotations; after it, each
instruction that runs as control flow has one `HloSharding`, a constraint that its operand does
not fulfil is a copy, and regions of device-own shapes lie between `SPMDFullToShardShape` and
`SPMDShardToFullShape`. See docs/sharding.md.
"""

from __future__ import annotations

from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.printer import print_module
from compiler.hlo.replica_groups import is_partitioned
from compiler.passes.call_inliner import inline_calls
from compiler.passes.context import PassContext
from compiler.passes.control_unsharing import unshare
from compiler.passes.sharding.constant_copies import merge_constants, split_constants
from compiler.passes.sharding.exporter import (
    export_shardings,
    settle_parameters,
    settle_results,
    stated_results,
)
from compiler.passes.sharding.importer import ImportedProgram, import_shardings
from compiler.passes.sharding.plan_cost import pricing_of
from compiler.passes.sharding.regions import mark_manual
from compiler.passes.sharding.turns import propagate_best
from compiler.sharding.mesh import TensorSharding
from compiler.sharding.propagation import (
    Direction,
    PropagationStep,
    step_of,
    step_of_edge,
)
from compiler.sharding.values import ShardedValue, Values, values_of


def propagate_shardings(module: HloModule, context: PassContext) -> bool:
    """Give every instruction the sharding that follows from what the program states."""
    if is_partitioned(module):
        return _drop_inner(module)
    before = print_module(module) if _is_all_stated(module) else None
    inline_calls(module, context)
    unshare(module)
    program = import_shardings(module)
    _apply_constraints(program)
    control = control_computations(module)
    copies = {
        computation: split_constants(computation, lambda instr: instr in program.stated)
        for computation in control
    }
    values = values_of(module)
    _state(program, values)
    mark_manual(program, values)
    steps = _steps(program, values, control)
    context.counts["steps"], way = propagate_best(
        [*steps.values(), *map(step_of_edge, values.edges)],
        values.all(),
        _borders(program, values),
        lambda: pricing_of(module, values, steps, context.chip, program.statements.device_count),
    )
    if way:
        context.remarks.append(f"shardings of arguments and results were spread otherwise: {way}")
    results, stated = values.of[module.entry.root_instruction], stated_results(program)
    export_shardings(program, values)
    context.counts["settled parameters"] = settle_parameters(program, values)
    context.counts["settled results"] = settle_results(program, results, stated)
    for computation, originals in copies.items():
        merge_constants(computation, originals)
        computation.sort()
    module.entry.sort()
    return before is None or print_module(module) != before


def _drop_inner(module: HloModule) -> bool:
    """Of shapes that are a device's own only the borders' shardings mean anything."""
    borders = {*module.entry.parameters, module.entry.root_instruction}
    found = [
        instr
        for computation in module.computations.values()
        for instr in computation
        if "sharding" in instr.attrs and instr not in borders
    ]
    for instr in found:
        del instr.attrs["sharding"]
    return bool(found)


def _is_all_stated(module: HloModule) -> bool:
    """Whether every instruction has a sharding already, so that perhaps nothing is left to do."""
    return all("sharding" in i.attrs for c in control_computations(module) for i in c)


def _apply_constraints(program: ImportedProgram) -> None:
    """What no other constraint uses is made as its closed constraint wants it."""
    for note in list(program.notes):
        (stated,) = program.stated[note]
        operand = note.operands[0]
        if stated is None or not _is_closed(stated) or note in program.barriers:
            continue
        others = [user for user in operand.users if user in program.notes and user is not note]
        if others or operand in program.stated or operand.opcode in _FLOW:
            continue
        program.stated[operand] = [stated]


_FLOW = frozenset({"parameter", "get-tuple-element", "opt-barrier", "constant", "iota"})


def _is_closed(sharding: TensorSharding) -> bool:
    return not any(dim.is_open or dim.priority for dim in sharding.dims)


def _state(program: ImportedProgram, values: Values) -> None:
    """Give values the shardings that are stated for them, and join those of a group.

    Those at the boundaries of manual regions come first: shapes inside follow from them.
    """
    borders = {*program.manual, *(instr.operands[0] for instr in program.manual)}
    for instr, stated in sorted(program.stated.items(), key=lambda item: item[0] not in borders):
        for value, sharding in zip(values.of[instr], stated, strict=True):
            if sharding is not None and not value.is_fixed:
                value.fix(sharding)
    for members in program.groups.values():
        _join(members, values)


def _join(members: list[HloInstruction], values: Values) -> None:
    """One value for all members of a sharding group."""
    own = [values.of[member][0] for member in members]
    kept = next((value for value in own if value.is_fixed), own[0])
    replaced = {value: kept for value in own if value is not kept}
    for instr, found in values.of.items():
        values.of[instr] = [replaced.get(value, value) for value in found]
    for edge in values.edges:
        edge.sources = [replaced.get(value, value) for value in edge.sources]
        edge.target = replaced.get(edge.target, edge.target)


def _steps(
    program: ImportedProgram, values: Values, control: list[HloComputation]
) -> dict[HloInstruction, PropagationStep]:
    """All operations through which shardings go, in the order of the program."""
    steps = {}
    for computation in reversed(control):
        for instr in computation:
            allowed = program.barriers.get(instr, Direction.BOTH)
            step = step_of(instr, values, allowed)
            if step is not None and (step.operands or step.results):
                steps[instr] = step
    return steps


def _borders(program: ImportedProgram, values: Values) -> list[ShardedValue]:
    """The arguments and results whose shardings the signature states, and what was made for these."""
    entry = program.module.entry
    ends = [*entry.parameters, *program.signed, *(n.operands[0] for n in program.signed)]
    found = [v for i in (*ends, entry.root_instruction) for v in values.of[i] if v.is_fixed]
    return list(dict.fromkeys(found))
