"""Laws of shape operations. Their direction: fewer operations; splitting reshapes and
broadcasts move towards the root, where they meet their inverses; what is left of them is
index arithmetic of the consumer."""

from __future__ import annotations

from compiler.hlo.ir import HloInstruction
from compiler.rewrite import make
from compiler.rewrite.dims import Dims, inverse, is_refinement, reshape_groups, without_ones
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op, Splat, X, Y, splat_value
from compiler.rewrite.rewriter import rule

Bounds = tuple[tuple[int, int, int], ...]


# a bitcast between bare shapes of one dtype is a reshape
@rule("bitcast-to-reshape", Op("bitcast", X))
def bitcast_to_reshape(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Turn a bitcast without layouts into the reshape it means."""
    if m["x"].array.dtype != instr.array.dtype:
        return None
    return make.reshape(m["x"], instr.array.dims)


# op(x) == x when it keeps dtype and dimensions
@rule("identity-shape-op", Op(("reshape", "bitcast", "copy", "convert"), X))
def identity_shape_op(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Drop a reshape, copy or convert that changes nothing."""
    return m["x"] if m["x"].array.is_same_array(instr.array) else None


# a scalar reshaped or an all-ones shape is a broadcast
@rule("reshape-of-scalar", Op("reshape", X))
def reshape_of_scalar(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """``reshape(s[])`` to ones is a broadcast, which folds further."""
    return make.broadcast(m["x"], instr.array.dims, ()) if not m["x"].array.dims else None


# transpose(x, identity) == x; moving only dimensions of size 1 is a reshape
@rule("trivial-transpose", Op("transpose", X))
def trivial_transpose(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """A transpose that keeps the order of the dimensions larger than 1 is a reshape."""
    dims = m["x"].array.dims
    moved = [p for p in instr.dimensions if dims[p] != 1]
    return make.reshape(m["x"], instr.array.dims) if moved == sorted(moved) else None


# broadcast(x, 0..n-1) to the same dimensions == x
@rule("identity-broadcast", Op("broadcast", X))
def identity_broadcast(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """A broadcast that repeats nothing is a reshape (or nothing at all)."""
    mapping = instr.dimensions
    if not m["x"].array.dims and instr.array.dims:
        return None  # a scalar's broadcast is the canonical form
    if m["x"].array.element_count != instr.array.element_count or mapping != tuple(sorted(mapping)):
        return None
    return make.reshape(m["x"], instr.array.dims)


# x[0:n:1, ...] == x
@rule("identity-slice", Op("slice", X))
def identity_slice(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """A slice of everything."""
    return m["x"] if m["x"].array.dims == instr.array.dims else None


# reverse of dimensions of size 1 == x
@rule("identity-reverse", Op("reverse", X))
def identity_reverse(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """A reverse that moves nothing."""
    return m["x"] if all(instr.array.dims[d] == 1 for d in instr.dimensions) else None


# pad(x, v, no padding) == x
@rule("identity-pad", Op("pad", X, Y))
def identity_pad(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """A pad that adds nothing."""
    return m["x"] if all(tuple(p) == (0, 0, 0) for p in triples(instr.padding)) else None


def triples(padding: tuple[object, ...]) -> Bounds:
    """Low, high and interior padding of each dimension."""
    found = []
    for item in padding:
        assert isinstance(item, tuple)
        found.append((int(item[0]), int(item[1]), int(item[2]) if len(item) > 2 else 0))
    return tuple(found)


# reshape(reshape(x)) == reshape(x)
@rule("reshape-of-reshape", Op("reshape", Op("reshape", X)))
def reshape_of_reshape(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """One reshape instead of two."""
    return make.reshape(m["x"], instr.array.dims)


# reshape(transpose(merge(x))) == reshape(transpose'(x)) when all that was merged is split again
@rule(
    "split-of-transposed-merge",
    Op("reshape", Op("transpose", Op("reshape", X, name="merge"), name="turn")),
)
def split_of_transposed_merge(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Turn the dimensions apart: what a transpose moves as one is no dimension of its own."""
    source = m["x"].array.dims
    parts: dict[int, Dims] = {}
    for old, new in reshape_groups(source, m["merge"].array.dims):
        if len(new) > 1:
            return None
        if new:
            parts[new[0]] = old
    lost = tuple(d for d in range(len(source)) if not any(d in p for p in parts.values()))
    order = (*lost, *(d for number in m["turn"].dimensions for d in parts[number]))
    dims = tuple(source[d] for d in order)
    for old, _ in reshape_groups(dims, instr.array.dims):
        if len([d for d in old if dims[d] != 1]) > 1:
            return None
    return make.reshape(make.transpose(m["x"], order), instr.array.dims)


# transpose(transpose(x, p), q)[i] reads x dim p[q[i]]
@rule("transpose-of-transpose", Op("transpose", Op("transpose", X, name="inner")))
def transpose_of_transpose(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """One transpose instead of two."""
    inner = m["inner"].dimensions
    return make.transpose(m["x"], tuple(inner[q] for q in instr.dimensions))


# broadcast(broadcast(x, p), q): dim i of x becomes dim q[p[i]]
@rule("broadcast-of-broadcast", Op("broadcast", Op("broadcast", X, name="inner")))
def broadcast_of_broadcast(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """One broadcast instead of two."""
    outer = instr.dimensions
    mapping = tuple(outer[p] for p in m["inner"].dimensions)
    return make.broadcast(m["x"], instr.array.dims, mapping)


# broadcast(iota(d), p) == iota(p[d]); transpose(iota(d), p) == iota(where d went)
@rule("iota-of-wanted-dimensions", Op(("broadcast", "transpose"), Op("iota", name="inner")))
def iota_of_wanted_dimensions(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Count in the array that is wanted: lanes and rows count for nothing, spreading them does not."""
    dim = m["inner"].iota_dimension
    is_spread = instr.opcode == "broadcast"
    to = instr.dimensions[dim] if is_spread else instr.dimensions.index(dim)
    return emit(instr, "iota", instr.array, (), {"iota_dimension": to})


# broadcast(reshape(x)) == broadcast(x') when the reshape only adds or drops ones
@rule("broadcast-of-reshape", Op("broadcast", Op("reshape", X, name="inner")))
def broadcast_of_reshape(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Broadcast from the dimensions that are not 1."""
    inner, source = m["inner"].array.dims, m["x"].array.dims
    if without_ones(inner) != source:
        return None
    mapping = tuple(d for d, n in zip(instr.dimensions, inner, strict=True) if n != 1)
    return make.broadcast(m["x"], instr.array.dims, mapping)


# reshape(broadcast(x)) == broadcast(reshape(x)) when no group mixes old and new dimensions
@rule("reshape-of-broadcast", Op("reshape", Op("broadcast", X, name="inner")))
def reshape_of_broadcast(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Reshape the small array, then broadcast."""
    return broadcast_in_other_dims(m["inner"], instr.array.dims)


def broadcast_in_other_dims(node: HloInstruction, dims: Dims) -> HloInstruction | None:
    """A broadcast's value with dimensions `dims`, as a broadcast, if it can be written so."""
    planned = plan_broadcast(node, dims)
    if planned is None:
        return None
    operand_dims, mapping = planned
    return make.broadcast(make.reshape(node.operands[0], operand_dims), dims, mapping)


def plan_broadcast(node: HloInstruction, dims: Dims) -> tuple[Dims, Dims] | None:
    """Operand dimensions and mapping that make `node`, a broadcast, have dimensions `dims`."""
    mapping = node.dimensions
    if 0 in dims or mapping != tuple(sorted(mapping)):
        return None
    operand_dims: list[int] = []
    target: list[int] = []
    for source_group, target_group in reshape_groups(node.array.dims, dims):
        old = [d for d in source_group if d in mapping]
        if not old:
            continue
        if any(node.array.dims[d] != 1 for d in source_group if d not in mapping):
            return None
        operand_dims.extend(dims[d] for d in target_group)
        target.extend(target_group)
    return tuple(operand_dims), tuple(target)


# transpose(broadcast(x, p), q) == broadcast(transpose(x))
@rule("transpose-of-broadcast", Op("transpose", Op("broadcast", X, name="inner")))
def transpose_of_broadcast(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Transpose the small array, then broadcast."""
    position = inverse(instr.dimensions)
    mapping = tuple(position[d] for d in m["inner"].dimensions)
    order = sorted(range(len(mapping)), key=lambda i: mapping[i])
    small = make.transpose(m["x"], tuple(order))
    return make.broadcast(small, instr.array.dims, tuple(mapping[i] for i in order))


# x[a:b:s][c:d:t] == x[a+c*s : ... : s*t]
@rule("slice-of-slice", Op("slice", Op("slice", X, name="inner")))
def slice_of_slice(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """One slice instead of two."""
    bounds = tuple(
        (a + c * s, a + (d - 1) * s + 1, s * t) if d > c else (a, a, 1)
        for (a, _, s), (c, d, t) in zip(_bounds(m["inner"]), _bounds(instr), strict=True)
    )
    return make.slice_(m["x"], bounds)


def _bounds(instr: HloInstruction) -> Bounds:
    return _slice_triples(instr.slice)


def _slice_triples(value: tuple[object, ...]) -> Bounds:
    found = []
    for item in value:
        assert isinstance(item, tuple)
        found.append((int(item[0]), int(item[1]), int(item[2]) if len(item) > 2 else 1))
    return tuple(found)


# a slice of a broadcast is a smaller broadcast where only new dimensions are cut
@rule("slice-of-broadcast", Op("slice", Op("broadcast", X, name="inner")))
def slice_of_broadcast(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Slice the broadcast's operand (where it is cut at all), then broadcast."""
    mapping, bounds = m["inner"].dimensions, _bounds(instr)
    small = make.slice_(m["x"], tuple(bounds[d] for d in mapping))
    return make.broadcast(small, instr.array.dims, mapping)


# concatenate(.., x, ..)[part inside x] == x[part]
@rule("slice-of-concatenate", Op("slice", Op("concatenate", name="inner")))
def slice_of_concatenate(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Slice the one operand the slice reads."""
    dim = m["inner"].dimensions[0]
    bounds = _bounds(instr)
    start, limit, stride = bounds[dim]
    offset = 0
    for part in m["inner"].operands:
        size = part.array.dims[dim]
        if offset <= start and limit <= offset + size:
            inside = (start - offset, limit - offset, stride)
            return make.slice_(part, (*bounds[:dim], inside, *bounds[dim + 1 :]))
        offset += size
    return None


# concatenate(x) == x; empty operands vanish; x[..a], x[a..] side by side join
@rule("concatenate-parts", Op("concatenate"))
def concatenate_parts(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Drop empty operands, join adjacent slices of one array and nested concatenates."""
    dim = instr.dimensions[0]
    parts: list[HloInstruction] = []
    for operand in instr.operands:
        if operand.array.dims[dim] == 0 and len(instr.operands) > 1:
            continue
        is_nested = operand.opcode == "concatenate" and operand.dimensions[0] == dim
        if is_nested and len(operand.users) == 1:
            parts.extend(operand.operands)
            continue
        joined = _join_slices(parts[-1], operand, dim) if parts else None
        if joined is None:
            parts.append(operand)
        else:
            parts[-1] = joined
    if not parts:
        return instr.operands[0]
    if len(parts) == 1:
        return parts[0]
    return None if parts == instr.operands else _concatenate(instr, parts, instr.array.dims)


def _concatenate(like: HloInstruction, parts: list[HloInstruction], dims: Dims) -> HloInstruction:
    return make.elementwise(like, parts, dims)


def _join_slices(left: HloInstruction, right: HloInstruction, dim: int) -> HloInstruction | None:
    if left.opcode != "slice" or right.opcode != "slice" or left is right:
        return None
    if left.operands[0] is not right.operands[0]:
        return None
    a, b = _bounds(left), _bounds(right)
    is_adjacent = a[dim][1] == b[dim][0] and a[dim][2] == b[dim][2] == 1
    if not is_adjacent or a[:dim] + a[dim + 1 :] != b[:dim] + b[dim + 1 :]:
        return None
    joined = (a[dim][0], b[dim][1], 1)
    return make.slice_(left.operands[0], (*a[:dim], joined, *a[dim + 1 :]))


# pad(empty, v) == splat v
@rule("pad-of-nothing", Op("pad", X, Y))
def pad_of_nothing(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Padding around an array without elements is all there is."""
    if 0 not in m["x"].array.dims:
        return None
    return make.broadcast(m["y"], instr.array.dims, ())


# pad(splat v, v) == splat v
@rule("pad-of-splat", Op("pad", Splat(name="x"), Splat(name="y")))
def pad_of_splat(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Padding a splat with its own value."""
    value, fill = splat_value(m["x"]), splat_value(m["y"])
    if value is None or fill is None or value.tobytes() != fill.tobytes():
        return None
    return make.splat(instr, instr.array, value)


# get-tuple-element(tuple(.., x, ..), i) == x
@rule("get-tuple-element-of-tuple", Op("get-tuple-element", Op("tuple", name="inner")))
def get_tuple_element_of_tuple(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Take the element directly."""
    return m["inner"].operands[instr.index]


# slice(reshape(x)) == reshape(slice(x)) when the split dimensions are taken whole
@rule("slice-of-split", Op("slice", Op("reshape", X, name="inner")))
def slice_of_split(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Slice before splitting dimensions."""
    source, middle = m["x"].array.dims, m["inner"].array.dims
    if not is_refinement(source, middle):
        return None
    bounds = _bounds(instr)
    planned: list[tuple[int, int, int]] = []
    for source_group, target_group in reshape_groups(source, middle):
        whole = all(bounds[d] == (0, middle[d], 1) for d in target_group)
        if whole:
            planned.extend((0, source[d], 1) for d in source_group)
        elif len(target_group) == len(source_group) == 1:
            planned.append(bounds[target_group[0]])
        else:
            return None
    return make.reshape(make.slice_(m["x"], tuple(planned)), instr.array.dims)
