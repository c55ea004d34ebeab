"""What has nothing to do on one device: collectives of one participant, placement notes, halves
of asynchronous operations. And what becomes calls, so that it must precede the inliner: scans.

Collectives with several participants are left alone; so is everything in a module that is made
for several devices.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.diagnostics import DeviceCountError, UnsupportedError
from compiler.hlo.call_graph import drop_unreachable, reachable
from compiler.hlo.dtypes import U32
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.replica_groups import (
    DeviceCounts,
    device_counts,
    device_groups,
    device_pairs,
    named_devices,
)
from compiler.hlo.shape import Shape, TupleShape, is_compatible, leaves
from compiler.hlo.shape_text import print_shape
from compiler.passes.context import PassContext
from compiler.passes.expanders.driver import Expansion, expand
from compiler.passes.expanders.element_loops import map_by_elements, reduce_by_elements
from compiler.passes.expanders.scan_expander import scan_expansion
from compiler.rewrite.emitter import Emitter, result_of

Instr = HloInstruction

NOTES = frozenset(
    {
        "AssumeGatherIndicesInBound",
        "LayoutConstraint",
        "MoveToDevice",
        "MoveToHost",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "Sharding",
        "annotate_device_placement",
        "xla.sdy.FuncResultSharding",
        "xla.sdy.GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
        "xla.sdy.ShardingGroup",
        "xla.sdy.PropagationBarrier",
    }
)
"""Custom calls that say where data lies, not what it is."""


def speaks_of_devices(module: HloModule) -> bool:
    """Whether a program says itself what each of its devices does: it asks for their numbers, exchanges
    data, or has regions of device-own shapes."""
    return any(
        OPCODES[instr.opcode].has(Trait.COLLECTIVE)
        or (instr.attrs.get("custom_call_target") in NOTES and _changes_dims(instr))
        for computation in reachable(module)
        for instr in computation
    )


def _changes_dims(instr: Instr) -> bool:
    given = [leaf.dims for operand in instr.operands for leaf in leaves(operand.shape)]
    return [leaf.dims for leaf in leaves(instr.shape)] != given


def simplify_single_device(module: HloModule, context: PassContext) -> bool:
    """Remove what only matters between devices or threads of execution."""
    is_changed = expand(module, context, _TABLE)
    _require_static(module)
    _require_devices(module)
    if is_changed:
        for computation in reachable(module):
            for instr in reversed(list(computation)):
                if instr.opcode in _HALVES and not instr.users and instr is not computation.root:
                    computation.remove(instr)
        drop_unreachable(module)
    return is_changed


def _require_static(module: HloModule) -> None:
    """Kernels work on all of an array: a size that is known only at run time would not be seen."""
    for computation in reachable(module):
        for instr in computation:
            if any(any(leaf.dynamic) for leaf in leaves(instr.shape)):
                raise UnsupportedError(
                    f"%{instr.name} is {print_shape(instr.shape, False)}: a size that is known only "
                    "at run time; use static shapes (a padded array and a mask)",
                    instr.span,
                )


def _require_devices(module: HloModule) -> None:
    """A collective between devices that do not run the program would wait for them for ever."""
    counts = device_counts(module)
    for computation in reachable(module):
        for instr in computation:
            missing = [d for d in named_devices(instr, counts) if d >= counts.devices]
            if missing:
                raise UnsupportedError(
                    f"%{instr.name} names device {missing[0]}, and the module runs on {counts.devices} "
                    f"(replica_count={counts.replicas}, num_partitions={counts.partitions}); state in its "
                    "first line how many there are",
                    instr.span,
                )


def _is_alone(instr: Instr) -> bool:
    """Whether every device is in a group of its own."""
    counts = _counts(instr)
    return sorted(device_groups(instr, counts)) == [(d,) for d in range(counts.devices)]


def _counts(instr: Instr) -> DeviceCounts:
    return device_counts(instr.home.owner)


def _same(instr: Instr) -> Instr | None:
    """The operands; None also where a group of one is said to make more of them."""
    given = [operand.shape for operand in instr.operands]
    made = instr.shape.elements if isinstance(instr.shape, TupleShape) else (instr.shape,)
    if not _is_alone(instr) or not all(map(is_compatible, made, given)):
        return None
    return result_of(Emitter.at(instr), instr, instr.operands)


def _permuted(instr: Instr) -> Instr | None:
    """Devices that send to themselves keep their data, and get zeros when nothing is sent at all."""
    e = Emitter.at(instr)
    if _is_to_itself(instr):
        return result_of(e, instr, instr.operands)
    if instr.source_target_pairs:
        return None
    return result_of(e, instr, [e.like(operand, 0) for operand in instr.operands])


def _is_to_itself(instr: Instr) -> bool:
    counts = _counts(instr)
    return sorted(device_pairs(instr, counts)) == [(d, d) for d in range(counts.devices)]


def _number(instr: Instr) -> Instr | None:
    """The only device is number 0."""
    if _counts(instr).devices != 1:
        return None
    return Emitter.at(instr).constant(U32, 0)


def _done(instr: Instr) -> Instr | None:
    """The result of the operation that was started."""
    start = instr.operands[0]
    while start.opcode == "async-update":
        start = start.operands[0]
    begin = _STARTS.get(start.opcode)
    return None if begin is None else begin(start, instr)


def _copy_start(start: Instr, done: Instr) -> Instr | None:
    return Emitter.at(done).instruction("copy", start.operands[:1])


def _async_start(start: Instr, done: Instr) -> Instr | None:
    callee = start.attrs.get("calls", done.attrs.get("calls"))
    if not isinstance(callee, HloComputation):
        raise UnsupportedError(f"%{start.name}: async-start without a computation", start.span)
    return Emitter.at(done).call(callee, start.operands)


def _collective_start(start: Instr, done: Instr) -> Instr | None:
    if not _is_alone(start):
        return None
    return result_of(Emitter.at(done), done, start.operands)


def _permute_start(start: Instr, done: Instr) -> Instr | None:
    if not _is_to_itself(start):
        return None
    return result_of(Emitter.at(done), done, start.operands)


_STARTS: dict[str, Callable[[Instr, Instr], Instr | None]] = {
    "all-gather-start": _collective_start,
    "all-reduce-start": _collective_start,
    "async-start": _async_start,
    "collective-permute-start": _permute_start,
    "copy-start": _copy_start,
}

_HALVES = frozenset({*_STARTS, "async-update"})


def _note(instr: Instr) -> Instr | None:
    """The operands of a placement note."""
    if instr.custom_call_target not in NOTES:
        return None
    if not _has_operand_shapes(instr):
        raise DeviceCountError(
            f"%{instr.name}: {instr.attrs['custom_call_target']} enters or leaves a part that is written for "
            "each device of a mesh (shard_map, sdy.manual_computation); compile for a slice of as many "
            "chips, as in --target v5e-8 or tpuc.compile(..., target='v5e-8')",
            instr.span,
        )
    return result_of(Emitter.at(instr), instr, instr.operands)


def _has_operand_shapes(instr: Instr) -> bool:
    shapes: tuple[Shape, ...] = (instr.shape,)
    if isinstance(instr.shape, TupleShape):
        shapes = instr.shape.elements
    found = [operand.shape for operand in instr.operands]
    return len(shapes) == len(found) and all(
        is_compatible(a, b) for a, b in zip(shapes, found, strict=True)
    )


def size_of_dimension(instr: Instr) -> Instr | None:
    """The size of a static dimension."""
    (dim,) = instr.dimensions
    operand = instr.operands[0].array
    if any(operand.dynamic):
        raise UnsupportedError(f"%{instr.name}: dynamic dimensions; use static ones", instr.span)
    return Emitter.at(instr).constant(instr.array.dtype, operand.dims[dim])


def _dynamic(instr: Instr) -> Instr | None:
    raise UnsupportedError(
        f"%{instr.name}: {instr.opcode}: sizes that are known only at run time; "
        "use static shapes (a padded array and a mask)",
        instr.span,
    )


def _device_transfer(instr: Instr) -> Instr | None:
    """Between devices it is joined with its other end later (`collectives.flattening`)."""
    has_others = device_counts(instr.home.owner).devices > 1
    return None if has_others and not instr.attrs.get("is_host_transfer") else _host_transfer(instr)


def _host_transfer(instr: Instr) -> Instr | None:
    raise UnsupportedError(
        f"%{instr.name}: {instr.opcode}: transfers with the host or another device during a run; "
        "make the value a parameter or a result",
        instr.span,
    )


def _no_lowering(instr: Instr) -> Instr | None:
    raise UnsupportedError(
        f"%{instr.name}: {instr.opcode} has no kernel; rewrite it with operations that have",
        instr.span,
    )


def first_operand(instr: Instr) -> Instr | None:
    """What an instruction that only orders or places hands on."""
    return instr.operands[0]


_TABLE: dict[str, Expansion] = {
    "add-dependency": first_operand,
    "all-gather": _same,
    "all-gather-done": _done,
    "all-reduce": _same,
    "all-reduce-done": _done,
    "all-to-all": _same,
    "async-done": _done,
    "collective-broadcast": _same,
    "collective-permute": _permuted,
    "collective-permute-done": _done,
    "collective-reduce": _same,
    "copy-done": _done,
    "custom-call": _note,
    "domain": first_operand,
    "dynamic-reshape": _dynamic,
    "get-dimension-size": size_of_dimension,
    "infeed": _host_transfer,
    "map": map_by_elements,
    "outfeed": _host_transfer,
    "partition-id": _number,
    "recv": _device_transfer,
    "reduce": reduce_by_elements,
    "reduce-scatter": _same,
    "replica-id": _number,
    "scan": scan_expansion,
    "send": _device_transfer,
    "set-dimension-size": _dynamic,
    "shuffle": _no_lowering,
}
