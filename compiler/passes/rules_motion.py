"""Laws that move splitting reshapes and broadcasts down through computation.

``f(reshape(a)) == reshape(f(a))`` for elementwise f, and likewise for reductions that reduce
whole groups. A model written on ``[batch, time, features]`` is so computed on
``[batch * time, features]``, the form its matrix products have, and statistics of rows are
vectors instead of ``[.., 1]`` columns. A reshape only ever moves towards the root.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.analysis.kernel_vmem import box_vreg_tiles
from compiler.analysis.reducers import has_identity_init, reducer_kind
from compiler.analysis.tiled_layout import is_cheap_regroup
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, is_elementwise, with_trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.rules_shape import plan_broadcast
from compiler.rewrite import make
from compiler.rewrite.dims import Dims, is_refinement, reshape_groups, without_ones
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op, Splat, X, Y
from compiler.rewrite.rewriter import ANY_ORDER, rule

_LEAST_DENSER = 2
"""Times fewer registers in which elements are repeated along lanes."""
_LEAST_REPEATED = 8
"""How often what is repeated within a merged dimension must be repeated along others."""
ELEMENTWISE = tuple(sorted(with_trait(Trait.ELEMENTWISE)))


# f(reshape(a), reshape(b), splat) == reshape(f(a, b, splat))
@rule(
    "sink-split-reshape",
    Op(ELEMENTWISE),
    examples=(
        Op(ELEMENTWISE, Op("reshape", X)),
        Op(ELEMENTWISE, Op("reshape", X), Y),
        Op(ELEMENTWISE, Op("reshape", X), Op("broadcast", Y)),
    ),
)
def sink_split_reshape(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Compute before splitting dimensions, when all operands can be had in the merged form."""
    dims = _merged_dims(instr)
    if dims is None:
        return None
    if not all(can_regroup(o, instr.array.dims, dims) for o in instr.operands):
        return None
    operands = [regroup(o, instr.array.dims, dims) for o in instr.operands]
    return make.reshape(make.elementwise(instr, operands, dims), instr.array.dims)


def _merged_dims(instr: HloInstruction) -> Dims | None:
    """The fewest dimensions some operand had before a splitting reshape."""
    found: Dims | None = None
    for operand in instr.operands:
        if operand.opcode != "reshape" or operand.array.dims != instr.array.dims:
            continue
        source = _before_splits(operand)
        if source and (found is None or len(source) < len(found)):
            found = source
    return found


def _before_splits(reshape: HloInstruction) -> Dims | None:
    """The dimensions that a reshape splits into its own, once it has merged those that it merges."""
    source, dims = reshape.operands[0].array.dims, reshape.array.dims
    if is_refinement(source, dims):
        return source
    if 0 in dims:
        return None
    found: list[int] = []
    for old, new in reshape_groups(source, dims):
        group = source if len(old) == 1 and new else dims
        found.extend(group[d] for d in (old if group is source else new))
    merged = tuple(found)
    is_split = len(without_ones(merged)) < len(without_ones(dims))
    return merged if is_split and is_refinement(merged, dims) else None


def can_regroup(operand: HloInstruction, dims: Dims, merged: Dims) -> bool:
    """Whether `operand` (of `dims`) is available with dimensions `merged` at no great cost."""
    if operand.array.dims != dims:
        return not operand.array.dims  # select's or clamp's scalar operand
    if operand.opcode == "reshape" and is_refinement(merged, dims):
        return True
    if operand.opcode == "broadcast" and plan_broadcast(operand, merged) is not None:
        return True
    if operand.opcode == "iota" and _iota_dimension(operand, merged) is not None:
        return True
    if operand.opcode == "broadcast" and plan_repeat(operand, merged) is not None:
        return True
    if operand.opcode == "broadcast" and _pays_in_lanes(operand, merged):
        return True
    return is_cheap_regroup(operand.array, merged)


def _pays_in_lanes(repeated: HloInstruction, merged: Dims) -> bool:
    """Whether it pays to repeat within lanes: registers of `merged` dimensions are less empty by far.

    Where what it is combined with stays in the split form for something else, such as the sum that
    was repeated, that form is at hand and nothing is won.
    """
    tiles = box_vreg_tiles(repeated.array.with_dims(merged), merged)
    if _LEAST_DENSER * tiles > box_vreg_tiles(repeated.array, repeated.array.dims):
        return False
    beside = {o for user in repeated.users for o in user.operands if o.opcode == "reshape"}
    return all(is_elementwise(user) for reshape in beside for user in reshape.users)


@dataclass(frozen=True)
class Repeat:
    """How a broadcast gets merged dimensions where a merged group holds repeated ones.

        f32[32,1024,16,8] broadcast(x[32,16]), dimensions={0,2}
    ->  f32[32,1024,128] broadcast(reshape(f32[32,16,8] broadcast(x), dimensions={0,1}))

    `dims` and `mapping` are those of the small broadcast, `merged` what it is reshaped to, `target`
    where those dimensions go.
    """

    dims: Dims
    mapping: Dims
    merged: Dims
    target: Dims

    def broadcast(self, operand: HloInstruction, dims: Dims) -> HloInstruction:
        """The value of the broadcast `operand` with dimensions `dims`."""
        small = make.broadcast(operand.operands[0], self.dims, self.mapping)
        return make.broadcast(make.reshape(small, self.merged), dims, self.target)


def plan_repeat(node: HloInstruction, dims: Dims) -> Repeat | None:
    """How `node`, a broadcast, gets the merged dimensions `dims`, if what is repeated is small."""
    mapping = node.dimensions
    if 0 in dims or not mapping or mapping != tuple(sorted(mapping)):
        return None
    source = node.array.dims
    kept: list[int] = []
    target: list[int] = []
    for old, new in reshape_groups(source, dims):
        if any(d in mapping for d in old):
            if len(new) > 1:
                return None
            kept.extend(old)
            target.extend(new)
    count = math.prod(source[d] for d in kept)
    if count * _LEAST_REPEATED > node.array.element_count:
        return None
    places = tuple(kept.index(d) for d in mapping)
    merged = tuple(dims[d] for d in target)
    return Repeat(tuple(source[d] for d in kept), places, merged, tuple(target))


def _iota_dimension(iota: HloInstruction, merged: Dims) -> int | None:
    """Which of the dimensions `merged` an iota counts along, if that one was not split."""
    dim = iota.iota_dimension
    for merged_group, group in reshape_groups(merged, iota.array.dims):
        if dim in group:
            return merged_group[0] if len(group) == len(merged_group) == 1 else None
    return None


def regroup(operand: HloInstruction, dims: Dims, merged: Dims) -> HloInstruction:
    """`operand` (of `dims`) with dimensions `merged`, where `can_regroup`."""
    if operand.array.dims != dims or not dims:
        return operand
    if operand.opcode == "iota":
        dim = _iota_dimension(operand, merged)
        if dim is not None:
            return emit(
                operand, "iota", operand.array.with_dims(merged), (), {"iota_dimension": dim}
            )
    if operand.opcode == "broadcast":
        planned = plan_broadcast(operand, merged)
        if planned is not None:
            small = make.reshape(operand.operands[0], planned[0])
            return make.broadcast(small, merged, planned[1])
        repeat = plan_repeat(operand, merged)
        if repeat is not None:
            return repeat.broadcast(operand, merged)
    return make.reshape(operand, merged)


# f(broadcast(a), broadcast(b), splat) == broadcast(f(a, b, splat))
@rule(
    "sink-broadcast",
    Op(ELEMENTWISE),
    examples=(
        Op(ELEMENTWISE, Op("broadcast", X)),
        Op(ELEMENTWISE, Op("broadcast", X), Splat()),
        Op(ELEMENTWISE, Op("broadcast", X), Op("broadcast", X)),
    ),
)
def sink_broadcast(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Compute on the small array, then broadcast."""
    if not instr.operands or not instr.array.dims:
        return None
    if any(o.opcode != "broadcast" for o in instr.operands if o.array.dims):
        return None
    wide = [o for o in instr.operands if o.opcode == "broadcast" and o.operands[0].array.dims]
    inputs = {(o.operands[0].array.dims, o.dimensions) for o in wide}
    if len(inputs) > 1:
        return None
    dims, mapping = next(iter(inputs)) if inputs else ((), ())
    operands = [_small_operand(o, dims) for o in instr.operands]
    return make.broadcast(make.elementwise(instr, operands, dims), instr.array.dims, mapping)


def _small_operand(operand: HloInstruction, dims: Dims) -> HloInstruction:
    if not operand.array.dims:
        return operand
    inner = operand.operands[0]
    return inner if inner.array.dims else make.broadcast(inner, dims, ())


# reshape(f(broadcast, iota, ..)) == f(broadcast', iota', ..)
@rule(
    "raise-reshape",
    Op("reshape", Op(ELEMENTWISE, name="inner")),
    examples=(
        Op("reshape", Op(ELEMENTWISE, Op("broadcast", X))),
        Op("reshape", Op(ELEMENTWISE, Op("iota"), Op("broadcast", X))),
    ),
)
def raise_reshape(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Compute masks and the like, made of broadcasts and iotas alone, in the wanted form."""
    dims = instr.array.dims
    if not m["inner"].array.dims or not _is_regroupable(m["inner"], dims, depth=6):
        return None
    return _regrouped(m["inner"], dims)


def _is_regroupable(instr: HloInstruction, dims: Dims, depth: int) -> bool:
    """Whether the value is made of broadcasts, iotas and splats that can have other dimensions."""
    if instr.opcode == "broadcast":
        return plan_broadcast(instr, dims) is not None
    if instr.opcode == "iota":
        return _iota_dimension(instr, dims) is not None
    if not is_elementwise(instr) or not depth or not instr.operands:
        return False
    return all(
        not o.array.dims
        or (o.array.dims == instr.array.dims and _is_regroupable(o, dims, depth - 1))
        for o in instr.operands
    )


def _regrouped(instr: HloInstruction, dims: Dims) -> HloInstruction:
    if not instr.array.dims or OPCODES[instr.opcode].has(Trait.SYMBOLIC):
        return regroup(instr, instr.array.dims, dims)
    operands = [o if not o.array.dims else _regrouped(o, dims) for o in instr.operands]
    return make.elementwise(instr, operands, dims)


# reduce(reshape(a), dims) == reshape(reduce(a, dims')) when whole groups are reduced
@rule(
    "sink-reshape-through-reduce",
    Op("reduce"),
    ANY_ORDER,
    examples=(Op("reduce", Op("reshape", X), Y),),
)
def sink_reshape_through_reduce(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Reduce before splitting dimensions."""
    if len(instr.operands) != 2 or not isinstance(instr.shape, ArrayShape):
        return None
    operand, init = instr.operands
    if operand.opcode != "reshape":
        return None
    source = operand.operands[0]
    planned = _reduced_before(source.array.dims, operand.array.dims, instr.dimensions)
    if planned is None:
        return None
    kept = tuple(n for d, n in enumerate(source.array.dims) if d not in planned)
    attrs = {**instr.attrs, "dimensions": planned}
    reduced = emit(instr, "reduce", instr.array.with_dims(kept), (source, init), attrs)
    return make.reshape(reduced, instr.array.dims)


def _reduced_before(source: Dims, middle: Dims, reduced: Dims) -> Dims | None:
    """Which source dimensions a reduction of the reshaped array reduces; None if it cuts one."""
    if not is_refinement(source, middle):
        return None
    planned: list[int] = []
    for source_group, target_group in reshape_groups(source, middle):
        count = sum(d in reduced for d in target_group if middle[d] != 1)
        total = sum(middle[d] != 1 for d in target_group)
        if count not in (0, total):
            return None
        if total and count:
            planned.extend(source_group)
    return tuple(planned)


# reduce(split(a) over s and c) == reduce(split(reduce(a over s)) over c) where a dimension is split
@rule(
    "reduce-before-split",
    Op("reduce"),
    ANY_ORDER,
    examples=(Op("reduce", Op("reshape", X), Y),),
)
def reduce_before_split(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Reduce whole dimensions before the last one is split, of which a part is reduced.

    Statistics of groups of features: what is split then is one row, and not every one.
    """
    if len(instr.operands) != 2 or not isinstance(instr.shape, ArrayShape):
        return None
    operand, init = instr.operands
    kind = reducer_kind(instr.to_apply)
    if operand.opcode != "reshape" or kind in (None, "multiply") or not has_identity_init(instr):
        return None  # products in another order overflow where they did not
    middle, reduced = operand.array.dims, instr.dimensions
    source = _before_splits(operand)
    if source is None:
        return None
    first: list[int] = []
    second: list[int] = []
    for old, new in reshape_groups(source, middle):
        cut = [d for d in new if d in reduced]
        is_whole = all(d in reduced for d in new if middle[d] != 1)
        if old and cut and is_whole:
            first.extend(old)
        else:
            second.extend(cut)
    if not second or math.prod(source[d] for d in first) < _LEAST_REPEATED:
        return None
    kept = tuple(n for d, n in enumerate(source) if d not in first)
    attrs = {**instr.attrs, "dimensions": tuple(first)}
    whole = make.reshape(operand.operands[0], source)
    total = emit(instr, "reduce", instr.array.with_dims(kept), (whole, init), attrs)
    places = [d for d in range(len(middle)) if d not in reduced or d in second]
    split = make.reshape(total, tuple(middle[d] for d in places))
    rest = {**instr.attrs, "dimensions": tuple(places.index(d) for d in second)}
    return emit(instr, "reduce", instr.array, (split, init), rest)


# concatenate(reshape(a), reshape(b)) == reshape(concatenate(a, b)) along an unsplit dimension
@rule("sink-reshape-through-concatenate", Op("concatenate"))
def sink_reshape_through_concatenate(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Concatenate before splitting other dimensions."""
    if any(o.opcode != "reshape" for o in instr.operands):
        return None
    dim = instr.dimensions[0]
    position: int | None = None
    sources = [o.operands[0].array.dims for o in instr.operands]
    for source, operand in zip(sources, instr.operands, strict=True):
        if not is_refinement(source, operand.array.dims):
            return None
        group = next(g for g in reshape_groups(source, operand.array.dims) if dim in g[1])
        if len(group[0]) != 1 or len(group[1]) != 1 or position not in (None, group[0][0]):
            return None
        position = group[0][0]
    assert position is not None
    rest = {s[:position] + s[position + 1 :] for s in sources}
    if len(rest) != 1:
        return None
    total = sum(s[position] for s in sources)
    dims = (*sources[0][:position], total, *sources[0][position + 1 :])
    shape = instr.array.with_dims(dims)
    parts = [o.operands[0] for o in instr.operands]
    joined = emit(instr, "concatenate", shape, parts, {"dimensions": (position,)})
    return make.reshape(joined, instr.array.dims)
