"""VMEM residency: arrays that one kernel makes and later ones read stay in VMEM, ``S(1)``.

    a = f32[1024,1024]{1,0:T(8,128)S(1)} fusion(x), ...
    b = f32[1024,1024]{1,0:T(8,128)} fusion(a, y), ...

A window of such an array is a view of it: nothing is moved, there is no buffer, and a grid that only
hid transfers is not needed. Every kernel keeps a part of VMEM for itself (`vmem_scope`), from an eighth
up to all of it; the arrays of most use, bytes saved by rows and time taken, share the rest.

An array stays if everything that makes or reads it is a kernel of windows that reads its boxes as
runs of rows, a loop that is one kernel and has it in its state, or a gather, scatter or update that has it in
VMEM whole. Parameters, results and constants of the program and what other kernels touch lie in HBM.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace as replace_fields

from compiler.analysis.in_place import transform_of
from compiler.analysis.resident_arrays import (
    ResidentArray,
    ResidentArrays,
    instructions_inside,
    resident_arrays,
)
from compiler.analysis.tiled_layout import memory_space
from compiler.analysis.vmem_scope import set_scope
from compiler.analysis.window_planner import PLANNED_KINDS, WindowPlanner
from compiler.hlo.attributes import OutputOperandAlias
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import leaves
from compiler.passes.array_places import move_arrays
from compiler.passes.carried_results import carried_elements, drop_carried
from compiler.passes.context import PassContext
from compiler.passes.kernel_scopes import KernelScopes, write_windows
from compiler.passes.own_loops import loops_fit, own_loops
from compiler.passes.residency_choice import ResidencyChoice, crowded
from compiler.passes.scope_lowering import lower_scopes
from compiler.passes.vmem_copies import copy_invariants
from compiler.passes.vmem_twins import add_twins, drop_twins
from compiler.rewrite.graph import replace
from tpu_sim.isa.program import HBM, VMEM

_HOPEFUL_ROUNDS = 3
_ROUNDS = 4
_STAGES = 3
"""Kernels whose arrays stay in VMEM need less of it: how often more arrays are looked for."""


def keep_in_vmem(module: HloModule, context: PassContext) -> bool:
    """Choose what stays in VMEM and plan the kernels around it anew."""
    loops = own_loops(module, context.planner)
    overwritten = _part_transforms(module)
    kept = _keep(module, context.planner, loops)
    if not loops_fit(module, context.planner):
        release_vmem(module, context.planner)
        whole = dict.fromkeys(loops, context.planner.chip.vmem_bytes)
        kept = _keep(module, context.planner, whole)
    _join_transforms(overwritten)
    context.counts["arrays"] = len(kept)
    context.counts["bytes"] = sum(array.request.size_bytes for array in kept)
    for array in kept:
        instr, _ = array.slots[0]
        context.remarks.append(f"%{instr.name} stays in VMEM: saves {array.saved_bytes} bytes")
    return bool(kept)


def _part_transforms(module: HloModule) -> dict[HloInstruction, tuple[OutputOperandAlias, ...]]:
    """Let results of transforms lie apart from their operands: one may stay where the other does not.

    What they wrote over is returned.
    """
    overwritten = {
        instr: instr.output_to_operand_aliasing
        for computation in control_computations(module)
        for instr in computation
        if transform_of(instr) is not None and instr.output_to_operand_aliasing
    }
    for transform in overwritten:
        del transform.attrs["output_to_operand_aliasing"]
    return overwritten


def _join_transforms(overwritten: dict[HloInstruction, tuple[OutputOperandAlias, ...]]) -> None:
    """What stayed in HBM on both sides lies together again."""
    for transform, aliases in overwritten.items():
        results = leaves(transform.shape)
        rest = tuple(
            alias
            for alias in aliases
            if memory_space(transform.operands[alias.operand_number].array) == HBM
            and memory_space(results[alias.output_index[0] if alias.output_index else 0]) == HBM
        )
        if rest:
            transform.attrs["output_to_operand_aliasing"] = rest


def _keep(
    module: HloModule, planner: WindowPlanner, own_loops: dict[HloInstruction, int]
) -> list[ResidentArray]:
    copies = copy_invariants(module, planner.chip.vmem_bytes, own_loops)
    scopes = KernelScopes(module, planner)
    kept: list[ResidentArray] = []
    found = resident_arrays(module, own_loops, scopes.moves, copies)
    for _ in range(_STAGES):
        scopes.hope(found)
        new = _chosen(ResidencyChoice(scopes, found, own_loops))
        scopes.keep_hopes()
        if not new:
            break
        kept += new
        scopes.forget_moves(kernel for array in new for kernel in array.kernels)
        found = resident_arrays(module, own_loops, scopes.moves, copies)
        if not scopes.look_again(found.held):
            break
    found = _keep_twins(module, scopes, own_loops, copies, kept)
    requests = [array.request for array in found.held]
    vmem = scopes.vmem(found.liveness, own_loops)
    scopes.widen(found.liveness, vmem.lowest(requests, vmem.pack(requests)))
    taken = crowded(found)
    scopes.write(taken)
    for loop, size in own_loops.items():
        set_scope(loop, size if loop in taken else None)
    for copy in copies:
        if memory_space(copy.array) != VMEM:
            replace(copy, copy.operands[0])
    return kept


def _keep_twins(
    module: HloModule,
    scopes: KernelScopes,
    own_loops: dict[HloInstruction, int],
    copies: list[HloInstruction],
    kept: list[ResidentArray],
) -> ResidentArrays:
    """Keep results for their next readers in VMEM beside HBM; what could stay and does after that."""
    inside = {instr for loop in own_loops for instr in instructions_inside(loop)}
    kernels = scopes.planned.keys() - inside
    readers = kernels | (scopes.custom.keys() - inside)
    twins = add_twins(module, kernels, readers, scopes.planner.chip.vmem_bytes)
    for twin, number in twins.items():
        scopes.add_twin(twin.operands[0], number)
    if twins:
        found = _twins_alone(resident_arrays(module, own_loops, scopes.moves, copies, twins), twins)
        scopes.hope(found)
        lower_scopes(scopes, found)
        chosen = ResidencyChoice(scopes, found, own_loops).choose()
        wanted = {i for array in chosen for i, _ in array.slots} & twins.keys()
        _drop_twins(module, scopes, wanted)
        found = resident_arrays(module, own_loops, scopes.moves, copies, wanted)
        found = _twins_alone(found, wanted)
        new = _chosen(ResidencyChoice(scopes, found, own_loops))
        scopes.keep_hopes()
        kept += new
        _drop_twins(module, scopes, ())
        scopes.forget_moves(kernel for array in new for kernel in array.kernels)
    return resident_arrays(module, own_loops, scopes.moves, copies)


def _twins_alone(found: ResidentArrays, twins: Collection[HloInstruction]) -> ResidentArrays:
    """Without arrays that were not chosen before."""
    arrays = [a for a in found.arrays if any(instr in twins for instr, _ in a.slots)]
    return replace_fields(found, arrays=arrays)


def _drop_twins(module: HloModule, scopes: KernelScopes, but: Collection[HloInstruction]) -> None:
    for kernel, gone in drop_twins(module, but).items():
        scopes.drop_results(kernel, gone)


def _chosen(choice: ResidencyChoice) -> list[ResidentArray]:
    """The arrays that go to VMEM, which are there now."""
    for number in range(_HOPEFUL_ROUNDS + _ROUNDS):
        if number == _HOPEFUL_ROUNDS:
            choice.scopes.despair_of_all()
        lower_scopes(choice.scopes, choice.found)
        kept = choice.choose()
        if choice.apply(kept):
            return kept
        choice.undo(kept)
        if number + 2 == _HOPEFUL_ROUNDS + _ROUNDS:
            choice.refuse(kept)
    return []


def release_vmem(module: HloModule, planner: WindowPlanner) -> bool:
    """Put everything that stays in VMEM back into HBM; False where nothing does."""
    moved: dict[HloInstruction, None] = {}
    for element in carried_elements(module):
        kernel = element.operands[0]
        moved |= dict.fromkeys((kernel, *drop_carried(element)))
    for computation in control_computations(module):
        for instr in computation:
            set_scope(instr, None)
            for leaf, shape in enumerate(leaves(instr.shape)):
                if memory_space(shape) == VMEM:
                    move_arrays([(instr, leaf)], HBM)
                    moved |= dict.fromkeys((instr, *instr.users))
    moved |= dict.fromkeys(drop_twins(module))
    for kernel in moved:
        if kernel.attrs.get("kind") in PLANNED_KINDS:
            write_windows(kernel, None)
            write_windows(kernel, planner)
    return bool(moved)
