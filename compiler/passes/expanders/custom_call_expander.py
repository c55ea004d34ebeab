"""Custom calls that frameworks emit for one device, by target; others are refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from compiler.analysis import vmem_shares
from compiler.diagnostics import UnsupportedError
from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import PRED, S32
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, TupleShape, leaves
from compiler.hlo.topk_calls import comparator_of, reduced_dimension
from compiler.passes.context import PassContext
from compiler.passes.expanders.driver import Expansion, expand
from compiler.passes.expanders.eigen import hermitian_eigen
from compiler.passes.expanders.factorizations import (
    lu_decomposition,
    product_of_reflectors,
    qr_decomposition,
)
from compiler.passes.expanders.first_of_sort import first_of_sort
from compiler.passes.expanders.lapack import lapack_results, results_as_declared
from compiler.passes.expanders.linear_algebra import working
from compiler.passes.expanders.topk_expander import MAX_K
from compiler.passes.expanders.topk_groups import (
    can_group,
    groups_cycles,
    rounds_cycles,
    saves_rounds,
    sort_cycles,
    topk_by_groups,
)
from compiler.passes.expanders.topk_halving import can_halve, halving_cycles, topk_by_halving
from compiler.rewrite.emitter import Emitter, result_of
from tpu_sim.isa.chips import Chip

Instr = HloInstruction
Target = Callable[[Emitter, Instr], Instr]
_HOST_LIBRARIES = ("lapack_", "blas_", "cusolver", "cublas", "hipsolver", "hipblas")
"""How targets of JAX's lowerings for CPUs and GPUs begin."""
_NOT_YET = {
    "tpu_custom_call": "a kernel written in Pallas, which tpuc does not compile; write it with jax.numpy",
    "CustomSPMDPartitioning": "what custom_partitioning wraps is cut by a function of Python; "
    "write the cut with jax.shard_map",
    "InspectSharding": "jax.debug.inspect_array_sharding calls Python with what propagation chose; "
    "look at a result's sharding outside of jit, or at the text of `tpuc opt`",
}
"""Targets of JAX that are not run, kernels and what calls back while a program is partitioned, and what to
write instead."""


def expand_custom_calls(module: HloModule, context: PassContext) -> bool:
    """Expand every custom call of a known target, `topk` of many elements, and sorts that are a `topk`."""
    chip = context.chip
    topk = partial(expand_topk, chip=chip)
    first = partial(first_of_sort, is_cheaper=lambda found: _way(found, chip) is not None)
    table: dict[str, Expansion] = {
        "custom-call": expand_custom_call,
        "topk": topk,
        "sort": first,
    }
    return expand(module, context, table)


def expand_custom_call(instr: Instr) -> Instr | None:
    """The result of the target's expansion; raises UnsupportedError for an unknown target."""
    target = instr.custom_call_target
    function = TARGETS.get(target)
    if function is None and target.startswith("lapack_"):
        function = _lapack
    if function is None:
        raise UnsupportedError(f"%{instr.name}: custom call {_refusal(target)}", instr.span)
    return function(Emitter.at(instr), instr)


def is_ordering_call(instr: Instr) -> bool:
    """Whether it is a custom call that puts elements in order."""
    is_call = instr.opcode == "custom-call"
    return is_call and TARGETS.get(instr.custom_call_target) in (_top_k, _approximate_top_k)


def _lapack(e: Emitter, instr: Instr) -> Instr:
    values = lapack_results(e, instr)
    if values is None:
        raise UnsupportedError(
            f"%{instr.name}: custom call {_refusal(instr.custom_call_target)}", instr.span
        )
    return result_of(e, instr, results_as_declared(e, instr, values))


def _refusal(target: str) -> str:
    """Why a target has no expansion, and what to do instead."""
    if target.startswith(_HOST_LIBRARIES):
        return (
            f"{target!r} calls a library of the host; lower the function for a TPU: "
            'jax.jit(f).trace(*args).lower(lowering_platforms=("tpu",))'
        )
    if target in _NOT_YET:
        return f"{target!r}: {_NOT_YET[target]}"
    return f"{target!r} is unknown; known are {', '.join(sorted(TARGETS))}"


def _typed(e: Emitter, instr: Instr, values: list[Instr]) -> Instr:
    """The values in the types the call declares."""
    shapes = instr.shape.elements if isinstance(instr.shape, TupleShape) else (instr.shape,)
    cast: list[Instr] = []
    for value, shape in zip(values, shapes, strict=True):
        assert isinstance(shape, ArrayShape)
        cast.append(e.cast(value, shape.dtype))
    return result_of(e, instr, cast)


def _lu(e: Emitter, instr: Instr) -> Instr:
    return _typed(e, instr, lu_decomposition(e, working(e, instr.operands[0])))


def _qr(e: Emitter, instr: Instr) -> Instr:
    return _typed(e, instr, qr_decomposition(e, working(e, instr.operands[0])))


def _reflectors(e: Emitter, instr: Instr) -> Instr:
    packed, scales = (working(e, operand) for operand in instr.operands)
    return _typed(e, instr, product_of_reflectors(e, packed, scales))


def _eigh(e: Emitter, instr: Instr) -> Instr:
    """``backend_config="lower,sorted,sweeps,tolerance"``: one triangle is read."""
    config = str(instr.attrs.get("backend_config", "1,1")).strip('"').split(",")
    is_lower = config[0].strip() != "0"
    matrix = working(e, instr.operands[0])
    return _typed(e, instr, hermitian_eigen(e, matrix, is_lower=is_lower))


def _top_k(e: Emitter, instr: Instr) -> Instr:
    """The `topk` operation, whose k is in the result's shape."""
    assert isinstance(instr.shape, TupleShape)
    shape = instr.shape.elements[0]
    assert isinstance(shape, ArrayShape)
    attrs: dict[str, object] = {"k": shape.dims[-1], "largest": True}
    return e.instruction("topk", instr.operands[:1], attrs, instr.shape)


def _approximate_top_k(e: Emitter, instr: Instr) -> Instr:
    """Exactly the first elements, which any recall target allows."""
    count = len(instr.operands) // 2
    dim, size = reduced_dimension(instr), leaves(instr.shape)[0].dims
    ordered = e.sort(instr.operands[:count], dim, comparator_of(instr), stable=True)
    values = [ordered] if count == 1 else [e.get_tuple_element(ordered, i) for i in range(count)]
    return result_of(e, instr, [e.part(value, dim, 0, size[dim]) for value in values])


def expand_topk(instr: Instr, chip: Chip) -> Instr | None:
    """A topk of long rows, of the groups that matter; another that is too large for rounds of
    maximum: sorted groups that are halved, or a stable sort in total order, cut."""
    operand, k = instr.operands[0], instr.k
    is_largest = instr.largest
    if operand.array.dtype == PRED:
        return _topk_of_flags(instr)
    way = _way(instr, chip)
    if way is not None:
        return way(instr)
    e = Emitter.at(instr)
    dim = operand.array.rank - 1
    place = e.positions(operand.array.dims, dim)
    comparator = _total_order(e, operand.array, is_descending=is_largest)
    ordered = e.sort((operand, place), dim, comparator, stable=True)
    return e.tuple([e.part(e.get_tuple_element(ordered, i), dim, 0, k) for i in (0, 1)])


def _way(instr: Instr, chip: Chip) -> Callable[[Instr], Instr | None] | None:
    """How a topk is made; None where that is a sort. Rounds of maximum are made later (`topk_expander`)."""
    if not instr.operands[0].array.element_count:
        return None
    room, k = int(vmem_shares.SORTED_PARTS * chip.vmem_bytes), instr.k
    by_rounds = instr.largest and 0 < k <= MAX_K and _saves_by_rounds(instr, room, chip)
    if not by_rounds and can_halve(instr, room) and _saves_sorting(instr, chip):
        return partial(topk_by_halving, room=room)
    if can_group(instr) and (saves_rounds if by_rounds else _saves_rows)(instr, chip):
        return topk_by_groups
    return _leave if by_rounds else None


def _leave(_: Instr) -> None:
    """For the pass that makes rounds."""


def _saves_sorting(instr: Instr, chip: Chip) -> bool:
    """Whether halving is estimated to be cheaper than a sort, of whole rows or of groups."""
    *major, size = instr.operands[0].array.dims
    rows = math.prod(major)
    others = sort_cycles(rows, size, chip)
    if can_group(instr):
        others = min(others, groups_cycles(rows, size, instr.k, chip))
    return halving_cycles(rows, size, instr.k, chip) < others


def _saves_by_rounds(instr: Instr, room: int, chip: Chip) -> bool:
    """Whether rounds of maximum are estimated to be cheaper than halving sorted groups or a sort."""
    *major, size = instr.operands[0].array.dims
    rows = math.prod(major)
    others = sort_cycles(rows, size, chip)
    if can_halve(instr, room):
        others = min(others, halving_cycles(rows, size, instr.k, chip))
    return rounds_cycles(rows, size, instr.k, chip) <= others


def _saves_rows(instr: Instr, chip: Chip) -> bool:
    """Whether groups are estimated to be cheaper than a sort of whole rows."""
    *major, size = instr.operands[0].array.dims
    rows = math.prod(major)
    return groups_cycles(rows, size, instr.k, chip) < sort_cycles(rows, size, chip)


def _topk_of_flags(instr: Instr) -> Instr:
    """true is more than false: as numbers."""
    e = Emitter.at(instr)
    assert isinstance(instr.shape, TupleShape)
    values, places = instr.shape.elements
    assert isinstance(values, ArrayShape)
    shape = TupleShape((values.with_dtype(S32), places))
    numbers = e.cast(instr.operands[0], S32)
    found = e.instruction("topk", (numbers,), dict(instr.attrs), shape)
    flags = e.cast(e.get_tuple_element(found, 0), PRED)
    return e.tuple([flags, e.get_tuple_element(found, 1)])


def _total_order(e: Emitter, array: ArrayShape, *, is_descending: bool) -> HloComputation:
    """A comparator of keys; positions are not looked at."""
    b = HloBuilder("total_order", e.module)
    key = ArrayShape(array.dtype, ())
    place = ArrayShape(S32, ())
    x, y = b.parameter(key), b.parameter(key)
    b.parameter(place)
    b.parameter(place)
    attrs: dict[str, object] = {"direction": "GT" if is_descending else "LT"}
    if array.dtype.is_float:
        attrs["type"] = "TOTALORDER"
    return b.build(b.instruction("compare", (x, y), attrs))


def _buffer(e: Emitter, instr: Instr) -> Instr:
    """An array that is written before it is read, as far as it counts: zeros."""
    return result_of(e, instr, [e.full(leaf.dtype, leaf.dims, 0) for leaf in leaves(instr.shape)])


TARGETS: dict[str, Target] = {
    "AllocateBuffer": _buffer,
    "ApproxTopK": _approximate_top_k,
    "Eigh": _eigh,
    "LuDecomposition": _lu,
    "PartialReduce": _approximate_top_k,
    "ProductOfElementaryHouseholderReflectors": _reflectors,
    "Qr": _qr,
    "QrDecomposition": _qr,
    "TopK": _top_k,
}
