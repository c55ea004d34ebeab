"""Custom calls that frameworks emit, by target name; any other target is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from compiler.hlo.evaluator import factorizations
from compiler.hlo.evaluator.context import Context, Handler, Operands, Value, unsupported
from compiler.hlo.evaluator.lapack import LAPACK_ROUTINES, lapack_call
from compiler.hlo.evaluator.sorting import approximate_top_k, top_k
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import TupleShape, leaves

CustomCall: TypeAlias = Callable[[HloInstruction, Operands], Value]


def _identity(instr: HloInstruction, operands: Operands) -> Value:
    """Annotations: they say where data lies, not what it is."""
    wanted = [shape.dims for shape in leaves(instr.shape)]
    found = [np.shape(operand) for operand in operands[: len(wanted)]]
    if wanted != found:
        raise unsupported(
            instr,
            "it changes shapes between the devices of a mesh; evaluate the partitioned module",
        )
    return tuple(operands) if isinstance(instr.shape, TupleShape) else operands[0]


def _buffer(instr: HloInstruction, operands: Operands) -> Value:
    """What nobody has written yet: zeros."""
    zeros = [np.zeros(leaf.dims, leaf.dtype.numpy) for leaf in leaves(instr.shape)]
    return tuple(zeros) if isinstance(instr.shape, TupleShape) else zeros[0]


def _top_k(instr: HloInstruction, operands: Operands) -> Value:
    count = leaves(instr.shape)[0].dims[-1]
    return top_k(operands[0], count)


_TARGETS: dict[str, CustomCall] = {
    "AllocateBuffer": _buffer,
    "AssumeGatherIndicesInBound": _identity,
    "Eigh": factorizations.symmetric_eigenproblem,
    "LayoutConstraint": _identity,
    "LuDecomposition": factorizations.lu_decomposition,
    "MoveToDevice": _identity,
    "MoveToHost": _identity,
    "ProductOfElementaryHouseholderReflectors": factorizations.product_of_reflectors,
    "Qr": factorizations.qr_decomposition,
    "QrDecomposition": factorizations.qr_decomposition,
    "SPMDFullToShardShape": _identity,
    "SPMDShardToFullShape": _identity,
    "Sharding": _identity,
    "TopK": _top_k,
    "annotate_device_placement": _identity,
    "xla.sdy.FuncResultSharding": _identity,
    "xla.sdy.GlobalToLocalShape": _identity,
    "xla.sdy.LocalToGlobalShape": _identity,
    "xla.sdy.PropagationBarrier": _identity,
    "xla.sdy.ShardingGroup": _identity,
}


_OF_COMPUTATIONS: dict[str, Handler] = {
    "ApproxTopK": approximate_top_k,
    "PartialReduce": approximate_top_k,
}
"""Targets that name computations."""

KNOWN_TARGETS = frozenset({*_TARGETS, *_OF_COMPUTATIONS})
"""All that are evaluated, without the routines of LAPACK."""


def _custom_call(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    target = instr.custom_call_target
    if target in _OF_COMPUTATIONS:
        return _OF_COMPUTATIONS[target](ctx, instr, operands)
    function = _TARGETS.get(target)
    if function is None:
        found = lapack_call(instr, operands)
        if found is not None:
            return found
        known = ", ".join(sorted(KNOWN_TARGETS))
        routines = ", ".join(LAPACK_ROUTINES)
        message = f"target {target!r} is unknown; known are {known}, and of LAPACK {routines}"
        raise unsupported(instr, message)
    return function(instr, operands)


CUSTOM_CALL_HANDLERS: dict[str, Handler] = {"custom-call": _custom_call}
