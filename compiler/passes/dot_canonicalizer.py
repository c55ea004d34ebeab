"""Dot canonicalizer: all dots become ``[B.., M, K] x [B.., K, N] -> [B.., M, N]``.

The right side may also be ``[B.., N, K]``. Transposes and reshapes around it bring operands
and result into that form; they are index arithmetic of the fused dot, not copies. Seven
choices are made here:

- a transpose that is the result's only user is absorbed when batch dimensions stay in front
  and each side's free dimensions stay together (the sides may swap: ``(AB)^T == B^T A^T``);
- a product that only another product reads keeps its free dimensions as its operands lie, where that
  one turns nothing then;
- a matrix times a vector is computed as the vector (one row) times the matrix, because a
  one-lane result would be padded 128-fold;
- the sides are swapped when that leaves the MXU less to transpose (`_is_better_swapped`): the left
  side is read along K, so one that lies the other way goes through the transpose unit;
- the right side is ``[K, N]`` or ``[N, K]``, whichever needs no transpose;
- free dimensions of the right side that lie before K, where the one that lies along the lanes fills no whole
  tiles, are batch dimensions, for each of which the left side is the same: of weights of 64 experts
  ``[64, 2048, 704]`` the columns ``[2048, 64 * 704]`` would be put together from parts of two tiles each;
- where several contracted dimensions become K, one that lies along the lanes of both sides gets zeros up to a
  whole tile: ``[27, 28, 28, 400] x [32, 28, 28, 400]`` has K = 28 * 28 * 512.

Products of many rows and few features (`keeps_rows_apart`) have their rows merged by a later run, the pass
`row-merging`: until then their dimensions may be put in another order, one of them along the lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as replace_fields

from compiler.analysis.lane_costs import OWN_COLUMNS
from compiler.analysis.packed_lanes import packed_rows, reads_packed
from compiler.analysis.window_config import has_choice, transposed_request
from compiler.hlo.call_graph import reachable
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.rewrite import make
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.graph import emit, replace
from tpu_sim.isa.geometry import LANES, SUBLANES, UNIT_DIM

Dims = tuple[int, ...]
_TRANSPOSE_KERNEL_BLOCKS = 32
"""128x128 blocks that the transpose unit takes in the time of a small kernel's launch and DMA."""
_LEAST_ROWS = 1024
"""Rows of a product from which their order matters."""
_LEAST_GAIN = 1.9
"""How many times smaller an array must be with rows along the lanes."""
_MOST_MORE = 1.34
"""How many times as long a contraction, or rows of a part of the result, may be with lanes of nothing."""
_MOST_MORE_LONG = 2.0
"""The same for one of more columns than a stage has code of its own for: there each register that is put
together takes tens of cycles, more than the MXU takes for zeros."""
_MOST_FILLED = 0.4
"""Of the lanes, what features may fill: arrays of 64 lose more by being turned than they waste."""


@dataclass(frozen=True)
class DotSide:
    """One operand of a dot: the instruction and the roles of its dimensions, in result order."""

    operand: HloInstruction
    batch: Dims
    free: Dims
    contracting: Dims

    def size(self, dims: Dims) -> int:
        """Number of elements over some of the operand's dimensions."""
        return math.prod(self.operand.array.dims[d] for d in dims)

    def is_ordered(self, order: Dims) -> bool:
        """Whether taking the dimensions in this order moves only dimensions of size 1."""
        large = [d for d in order if self.operand.array.dims[d] != 1]
        return large == sorted(large)

    def arranged(self, order: Dims, dims: Dims) -> HloInstruction:
        """The operand transposed to `order` and reshaped to `dims`."""
        if self.is_ordered(order):
            return make.reshape(self.operand, dims)
        return make.reshape(make.transpose(self.operand, order), dims)


def canonicalize_dots(module: HloModule, context: PassContext) -> bool:
    """Bring all dots into canonical form but those whose rows are kept apart."""
    return _canonicalize_all(module, context, lambda dot: not keeps_rows_apart(dot))


def merge_rows(module: HloModule, context: PassContext) -> bool:
    """Bring the others into canonical form, and what was made of them."""
    return _canonicalize_all(module, context, lambda dot: True)


def _canonicalize_all(
    module: HloModule, context: PassContext, is_due: Callable[[HloInstruction], bool]
) -> bool:
    for computation in reachable(module):
        dots = [i for i in computation if i.opcode == "dot" and not is_canonical(i) and is_due(i)]
        for dot in dots:
            _canonicalize(dot)
        if dots:
            computation.sort()
        context.counts["dots"] += len(dots)
    return bool(context.counts["dots"])


def dot_sides(dot: HloInstruction) -> tuple[DotSide, DotSide]:
    """The roles of both operands' dimensions."""
    left, right = (
        _side(
            operand,
            dot.ints(f"{name}_batch_dims"),
            dot.ints(f"{name}_contracting_dims"),
        )
        for name, operand in zip(("lhs", "rhs"), dot.operands, strict=True)
    )
    return left, right


def keeps_rows_apart(dot: HloInstruction) -> bool:
    """Whether a dot's rows, given or summed over, are of several dimensions and may lie along the lanes."""
    left, right = dot_sides(dot)
    if not is_narrow(dot):
        return False
    rows = [s.free for s in row_sides(left, right)] or [left.contracting]
    return len(rows[0]) > 1


def row_sides(left: DotSide, right: DotSide) -> tuple[DotSide, ...]:
    """The side whose rows a product keeps, none where it sums over the rows of both."""
    sides = sorted((left, right), key=lambda s: s.size(s.free))
    return () if left.size(left.contracting) > sides[1].size(sides[1].free) else (sides[1],)


def is_narrow(dot: HloInstruction) -> bool:
    """Whether a dot is of many rows and few features, which fill the lanes less than rows do."""
    left, right = dot_sides(dot)
    is_plain = dot.array.dtype.is_float and dot.array.dtype.bits <= 32 and 0 not in dot.array.dims
    if left.batch or not is_plain or not left.contracting or has_choice(dot):
        return False
    if packed_rows(dot) is not None or any(map(reads_packed, dot.operands)):
        return False
    kept = row_sides(left, right)
    if kept:
        small = right if kept[0] is left else left
        features = small.size(small.free), small.size(small.contracting)
        rows = tuple(kept[0].operand.array.dims[d] for d in kept[0].free)
    else:
        features = left.size(left.free), right.size(right.free)
        rows = tuple(left.operand.array.dims[d] for d in left.contracting)
    return rows_fill_lanes(rows, features)


def rows_fill_lanes(rows: Dims, features: Dims) -> bool:
    """Whether arrays of many rows with so many features are smaller with rows along the lanes."""
    longest = max(rows, key=_filled, default=0)
    return math.prod(rows) >= _LEAST_ROWS and dimension_fills_lanes(longest, features)


def dimension_fills_lanes(size: int, features: Dims) -> bool:
    """Whether a dimension fills the lanes half at least, and much better than so many features do."""
    filled = min(_rounded(n, SUBLANES) / _rounded(n, LANES) for n in features)
    is_full = 2 * _filled(size) >= 1
    return is_full and filled <= _MOST_FILLED and _filled(size) >= _LEAST_GAIN * filled


def _filled(size: int) -> float:
    return size / _rounded(size, LANES) if size else 0.0


def _rounded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _side(operand: HloInstruction, batch: Dims, contracting: Dims) -> DotSide:
    free = tuple(d for d in range(operand.array.rank) if d not in batch + contracting)
    return DotSide(operand, batch, free, contracting)


def _through_transpose(side: DotSide) -> DotSide:
    """The same side read from under a transpose, its dimensions named there."""
    if side.operand.opcode != "transpose":
        return side
    permutation = side.operand.dimensions
    roles = (
        tuple(permutation[d] for d in dims) for dims in (side.batch, side.free, side.contracting)
    )
    batch, free, contracting = roles
    return DotSide(side.operand.operands[0], batch, free, contracting)


def is_canonical(dot: HloInstruction) -> bool:
    """Whether a dot already has one M, one N, one K and leading batch dimensions larger than 1."""
    left, right = dot_sides(dot)
    count = len(left.batch)
    lead = tuple(range(count))
    if left.batch != lead or right.batch != lead:
        return False
    if any(dot.array.dims[d] == 1 for d in lead):
        return False
    if len(left.free) != 1 or len(right.free) != 1 or len(left.contracting) != 1:
        return False
    if left.contracting != (count + 1,):
        return False
    if right.size(right.free) == 1 and left.size(left.free) != 1:
        return False
    inner = _through_transpose(right)
    orders = _right_orders(inner)
    return inner is right or not any(inner.is_ordered(order) for order in orders)


def _right_orders(right: DotSide) -> tuple[Dims, Dims]:
    """The two orders a right side may have: ``[B.., N, K]`` and ``[B.., K, N]``."""
    return (
        right.batch + right.free + right.contracting,
        right.batch + right.contracting + right.free,
    )


def _canonicalize(dot: HloInstruction) -> None:
    left, right = dot_sides(dot)
    result = dot
    is_swapped = is_turned = False
    user = next(iter(dot.users)) if len(dot.users) == 1 and not _is_root(dot) else None
    if user is not None and user.opcode == "transpose":
        absorbed = _absorb(left, right, user.dimensions)
        if absorbed is not None:
            left, right, is_swapped = absorbed
            result = user
        elif _is_better_swapped(left, right, user.dimensions):
            is_turned = True
    if result is dot and (is_turned or _is_cheaper_swapped(left, right)):
        left, right, is_swapped, is_turned = right, left, True, True
    is_vector = 1 in (left.size(left.free), right.size(right.free))
    if user is not None and user.opcode == "dot" and not is_turned and not is_vector:
        lying = _as_they_lie(left), _as_they_lie(right)
        order = _order_between((left, right), lying)
        if _is_read_in_order(dot, user, order):
            replace(dot, _in_order(dot, lying, order))
            return
    if right.size(right.free) == 1 and left.size(left.free) != 1:
        left, right, is_swapped = right, left, not is_swapped
    made = _emit_by_parts(dot, left, right)
    if is_swapped and has_choice(made):
        made.attrs["backend_config"] = transposed_request(dot, right.size(right.free))
    replace(result, _turned(made, dot) if is_turned else make.reshape(made, result.array.dims))


def _turned(made: HloInstruction, dot: HloInstruction) -> HloInstruction:
    """The result of `dot` out of the product of its sides swapped."""
    left, right = dot_sides(dot)
    batch, m = len(left.batch), len(left.free)
    n = len(right.free)
    order = (*range(batch), *range(batch + m, batch + m + n), *range(batch, batch + m))
    value = make.reshape(made, tuple(dot.array.dims[d] for d in order))
    back = (*range(batch), *range(batch + n, batch + n + m), *range(batch, batch + n))
    return make.transpose(value, back)


def _as_they_lie(side: DotSide) -> DotSide:
    """The side with its free dimensions in the order in which they lie before a transpose."""
    inner = _through_transpose(side)
    order = sorted(range(len(side.free)), key=lambda i: inner.free[i])
    return replace_fields(side, free=tuple(side.free[i] for i in order))


def _order_between(given: tuple[DotSide, DotSide], lying: tuple[DotSide, DotSide]) -> Dims:
    """For each dimension of the product of sides as they lie which one it is of the product given."""
    order = list(range(len(given[0].batch)))
    for before, after in zip(given, lying, strict=True):
        first = len(order)
        order += [first + before.free.index(d) for d in after.free]
    return tuple(order)


def _is_read_in_order(dot: HloInstruction, reader: HloInstruction, order: Dims) -> bool:
    """Whether a product that reads another one turns nothing if the dimensions of that are in another
    order: what is turned for the first would be turned back for the second."""
    if order == tuple(sorted(order)) or reader.operands[0] is reader.operands[1]:
        return False
    number = reader.operands.index(dot)
    side = dot_sides(reader)[number]
    roles = (side.batch, side.free, side.contracting)
    batch, free, contracting = ([order.index(d) for d in dims] for dims in roles)
    read = [batch + free + contracting] + ([batch + contracting + free] if number else [])
    large = [[d for d in places if dot.array.dims[order[d]] != 1] for places in read]
    return any(places == sorted(places) for places in large)


def _in_order(dot: HloInstruction, lying: tuple[DotSide, DotSide], order: Dims) -> HloInstruction:
    """A product of sides as they lie, with the dimensions of `dot` behind a transpose."""
    made = _emit_dot(dot, *lying)
    value = make.reshape(made, tuple(dot.array.dims[d] for d in order))
    return make.transpose(value, tuple(sorted(range(len(order)), key=order.__getitem__)))


def _is_root(instr: HloInstruction) -> bool:
    return instr.computation is not None and instr.computation.root is instr


def _absorb(
    left: DotSide, right: DotSide, permutation: Dims
) -> tuple[DotSide, DotSide, bool] | None:
    """The sides, reordered and perhaps swapped (then True), so that the dot's result is the
    transpose's."""
    batch = len(left.batch)
    split = batch + len(left.free)
    lead, rest = permutation[:batch], permutation[batch:]
    if any(p >= batch for p in lead):
        return None
    is_left = [p < split for p in rest]
    if is_left != sorted(is_left) and is_left != sorted(is_left, reverse=True):
        return None
    new_left = DotSide(
        left.operand,
        tuple(left.batch[p] for p in lead),
        tuple(left.free[p - batch] for p in rest if p < split),
        left.contracting,
    )
    new_right = DotSide(
        right.operand,
        tuple(right.batch[p] for p in lead),
        tuple(right.free[p - split] for p in rest if p >= split),
        right.contracting,
    )
    is_swapped = bool(is_left) and not is_left[0] and any(is_left)
    return (new_right, new_left, True) if is_swapped else (new_left, new_right, False)


def _is_better_swapped(left: DotSide, right: DotSide, permutation: Dims) -> bool:
    """Whether the sides lie as the product of right and left wants them, and its result as the
    transpose that takes it does: its minor dimension is one of the left side."""
    batch = len(left.batch)
    minor = permutation[-1]
    is_left = batch <= minor < batch + len(left.free)
    return is_left and not _lies_along_k(left) and _lies_along_k(right)


def _is_cheaper_swapped(left: DotSide, right: DotSide) -> bool:
    """Whether the left side lies across K, and transposing the right one, if it does too, and the result
    takes much less than transposing the left one: so it is with the gradient of a convolution's kernel."""
    if left.batch or not left.contracting or _lies_along_k(left):
        return False
    k = left.size(left.contracting)
    m, n = left.size(left.free), right.size(right.free)
    depth, rows, columns = (-(-size // UNIT_DIM) for size in (k, m, n))
    saved = depth * (rows if _lies_along_k(right) else rows - columns)
    spent = rows * columns + _TRANSPOSE_KERNEL_BLOCKS
    return saved > 2 * spent and min(m, n) > 1


def _lies_along_k(side: DotSide) -> bool:
    """Whether the minor dimension of the side in memory is contracted."""
    inner = _through_transpose(side)
    dims = inner.operand.array.dims
    large = [d for d in range(len(dims)) if dims[d] != 1]
    return bool(large) and large[-1] in inner.contracting


def _emit_by_parts(dot: HloInstruction, left: DotSide, right: DotSide) -> HloInstruction:
    """The canonical dot of two sides, free dimensions of the right one that it cannot merge with its last
    one without moving lanes made batch dimensions: then dimensions are the batch, the left side's free
    ones and the right side's, as given."""
    inner = _through_transpose(right)
    count = len(inner.free) - 1
    parts, lanes = inner.free[:count], inner.free[count:]
    dims = inner.operand.array.dims
    if not _is_split_by_tiles(inner, parts, lanes) or has_choice(dot) or left.size(left.free) == 1:
        return _emit_dot(dot, left, right)
    batch, sizes = len(left.batch), tuple(dims[d] for d in parts)
    operand = left.operand.array.dims
    repeated = make.broadcast(
        left.operand, sizes + operand, tuple(range(count, count + len(operand)))
    )
    batch_dims, free, contracting = (
        tuple(d + count for d in roles) for roles in (left.batch, left.free, left.contracting)
    )
    wide = DotSide(repeated, batch_dims + tuple(range(count)), free, contracting)
    made = _emit_dot(dot, wide, replace_fields(inner, batch=inner.batch + parts, free=lanes))
    lead = tuple(operand[d] for d in left.batch)
    rows = tuple(operand[d] for d in left.free)
    apart = make.reshape(made, (*lead, *sizes, *rows, dims[lanes[0]]))
    first = batch + count
    order = (
        *range(batch),
        *range(first, first + len(rows)),
        *range(batch, first),
        first + len(rows),
    )
    return make.transpose(apart, order)


def _is_split_by_tiles(right: DotSide, parts: Dims, lanes: Dims) -> bool:
    """Whether a right side lies as ``[B.., parts.., K, lanes]``, its last dimension no whole tiles of lanes
    and not much less, so that merging the free ones would move nearly all its elements along the lanes."""
    dims = right.operand.array.dims
    if (
        not parts
        or not right.contracting
        or right.size(parts) == 1
        or right.size(right.contracting) == 1
    ):
        return False
    size = dims[lanes[0]]
    filled = _rounded(size, LANES)
    if size == filled or filled > _MOST_MORE * size:
        return False
    return right.is_ordered(right.batch + parts + right.contracting + lanes)


def _emit_dot(dot: HloInstruction, left: DotSide, right: DotSide) -> HloInstruction:
    """The canonical dot of two sides."""
    left, right = _through_transpose(left), _through_transpose(right)
    left, right = _with_whole_lanes(dot, *_with_ordered_contraction(left, right))
    batch = tuple(left.operand.array.dims[d] for d in left.batch if left.operand.array.dims[d] != 1)
    m, n, k = left.size(left.free), right.size(right.free), left.size(left.contracting)
    lhs = left.arranged(left.batch + left.free + left.contracting, (*batch, m, k))
    k_minor, n_minor = _right_orders(right)
    is_k_minor = _prefers_k_minor(right, k_minor, n_minor)
    rhs_dims = (*batch, n, k) if is_k_minor else (*batch, k, n)
    rhs = right.arranged(k_minor if is_k_minor else n_minor, rhs_dims)
    lead = tuple(range(len(batch)))
    attrs = {name: value for name, value in dot.attrs.items() if not name.endswith("_dims")}
    if lead:
        attrs.update(lhs_batch_dims=lead, rhs_batch_dims=lead)
    attrs["lhs_contracting_dims"] = (len(batch) + 1,)
    attrs["rhs_contracting_dims"] = (len(batch) + (1 if is_k_minor else 0),)
    return emit(dot, "dot", dot.array.with_dims((*batch, m, n)), (lhs, rhs), attrs)


def _with_ordered_contraction(left: DotSide, right: DotSide) -> tuple[DotSide, DotSide]:
    """Order several contracted dimensions as they lie on the left (the sides stay paired)."""
    order = sorted(range(len(left.contracting)), key=lambda i: left.contracting[i])
    return (
        DotSide(left.operand, left.batch, left.free, tuple(left.contracting[i] for i in order)),
        DotSide(right.operand, right.batch, right.free, tuple(right.contracting[i] for i in order)),
    )


def _with_whole_lanes(
    dot: HloInstruction, left: DotSide, right: DotSide
) -> tuple[DotSide, DotSide]:
    """The sides with zeros where several dimensions are contracted and the last one, which lies along the
    lanes of both, does not fill its tiles: else each register of K is put together from parts of two."""
    sides = left, right
    if any(side.size(side.contracting[:-1]) == 1 for side in sides):
        return sides
    size = left.size(left.contracting[-1:])
    filled = _rounded(size, LANES)
    columns = left.size(left.contracting[:-1]) * filled // LANES
    most = _MOST_MORE if columns <= OWN_COLUMNS else _MOST_MORE_LONG
    if size == filled or filled > most * size or not all(map(_ends_with_k, sides)):
        return sides
    e = Emitter.at(dot)
    made = [
        replace_fields(s, operand=e.pad_dim(s.operand, s.contracting[-1], 0, filled - size))
        for s in sides
    ]
    return made[0], made[1]


def _ends_with_k(side: DotSide) -> bool:
    """Whether the dimension that is contracted last is the minor one of the side in memory."""
    dims = side.operand.array.dims
    return [d for d in range(len(dims)) if dims[d] != 1][-1:] == [side.contracting[-1]]


def _prefers_k_minor(right: DotSide, k_minor: Dims, n_minor: Dims) -> bool:
    """Whether the right side lies (or is cheaper to read) as ``[B.., N, K]``."""
    if right.size(right.free) == 1:
        return True
    if right.is_ordered(n_minor):
        return False
    if right.is_ordered(k_minor):
        return True
    large = [d for d in range(right.operand.array.rank) if right.operand.array.dims[d] != 1]
    return bool(large) and large[-1] in right.contracting
