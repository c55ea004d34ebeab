"""Shapes of opcodes whose indices are data: gather, scatter, dynamic slices.

Dimension roles follow XLA's documentation of Gather and Scatter, batching dimensions included.
"""

from __future__ import annotations

from compiler.hlo.ir import HloInstruction
from compiler.hlo.ops.declaration import APPLY, AttributeRow, Op, flags, variadic, words
from compiler.hlo.ops.declaration import Trait as T
from compiler.hlo.ops.inference import Inference, applied, dims_text, one_or_tuple, plain
from compiler.hlo.shape import ArrayShape, Shape


def _check_starts(q: Inference, starts: list[ArrayShape], rank: int) -> None:
    """Start indices are one integer scalar per dimension, or one rank-1 array (older form)."""
    if len(starts) == 1 and starts[0].rank == 1:
        q.require(starts[0].dims == (rank,), f"want {rank} start indices")
    else:
        q.require(len(starts) == rank, f"want {rank} start indices, found {len(starts)}")
        q.require(all(s.rank == 0 for s in starts), "start indices must be scalars")
    q.require(all(s.dtype.is_integer for s in starts), "start indices must be integers")


def _dynamic_slice(q: Inference) -> Shape:
    operand = q.array(0)
    _check_starts(q, q.arrays()[1:], operand.rank)
    sizes = q.ints("dynamic_slice_sizes")
    fits = len(sizes) == operand.rank and all(
        0 <= s <= d for s, d in zip(sizes, operand.dims, strict=True)
    )
    q.require(fits, f"dynamic_slice_sizes {list(sizes)} do not fit {dims_text(operand)}")
    return plain(operand.dtype, sizes)


def _dynamic_update_slice(q: Inference) -> Shape:
    operand, update = q.array(0), q.array(1)
    q.same_dtype(operand, update)
    _check_starts(q, q.arrays()[2:], operand.rank)
    fits = update.rank == operand.rank and all(
        u <= d for u, d in zip(update.dims, operand.dims, strict=True)
    )
    q.require(fits, f"update {dims_text(update)} does not fit {dims_text(operand)}")
    return operand


def _index_batch_dims(q: Inference, indices: ArrayShape) -> list[int]:
    """The sizes of the index array's dimensions other than index_vector_dim."""
    vector_dim = q.integer("index_vector_dim")
    q.require(0 <= vector_dim <= indices.rank, f"index_vector_dim={vector_dim} is out of range")
    return [size for dim, size in enumerate(indices.dims) if dim != vector_dim]


def _index_vector_size(q: Inference, indices: ArrayShape) -> int:
    vector_dim = q.integer("index_vector_dim")
    return 1 if vector_dim == indices.rank else indices.dims[vector_dim]


def _check_batching(
    q: Inference,
    operand: ArrayShape,
    indices: ArrayShape,
    sides: tuple[str, str],
    others: set[int],
) -> None:
    """Batching dimensions go in pairs of one size and are nothing else, nor the index vector."""
    left = q.dims_in_range(f"{sides[0]}_batching_dims", operand.rank)
    right = q.dims_in_range(f"{sides[1]}_batching_dims", indices.rank)
    sizes = [operand.dims[d] for d in left], [indices.dims[d] for d in right]
    q.require(sizes[0] == sizes[1], f"batching dimensions have sizes {sizes[0]} and {sizes[1]}")
    q.require(q.integer("index_vector_dim") not in right, "the index vector is no batch")
    q.require(not others & set(left), "an operand's batching dimension has another role")


def _gather(q: Inference) -> Shape:
    operand, indices = q.array(0), q.array(1)
    q.require(indices.dtype.is_integer, f"indices are {dims_text(indices)}, want integers")
    batch = _index_batch_dims(q, indices)
    sizes = q.ints("slice_sizes")
    collapsed = q.dims_in_range("collapsed_slice_dims", operand.rank)
    batching = q.dims_in_range("operand_batching_dims", operand.rank)
    start_map = q.dims_in_range("start_index_map", operand.rank)
    _check_batching(q, operand, indices, ("operand", "start_indices"), {*collapsed, *start_map})
    fits = len(sizes) == operand.rank and all(
        0 <= s <= d for s, d in zip(sizes, operand.dims, strict=True)
    )
    q.require(fits, f"slice_sizes {list(sizes)} do not fit {dims_text(operand)}")
    if len(start_map) != _index_vector_size(q, indices):
        q.fail(f"start_index_map has {len(start_map)} entries, not one per index component")
    dropped = {*collapsed, *batching}
    q.require(all(sizes[d] <= 1 for d in dropped), "collapsed and batching slices must be 1")
    kept = [size for dim, size in enumerate(sizes) if dim not in dropped]
    rank = len(kept) + len(batch)
    offset_dims = q.dims_in_range("offset_dims", rank)
    if len(offset_dims) != len(kept):
        q.fail(f"offset_dims has {len(offset_dims)} entries, the slices keep {len(kept)}")
    rest, offsets = iter(batch), iter(kept)
    return plain(operand.dtype, [next(offsets if d in offset_dims else rest) for d in range(rank)])


def _scatter(q: Inference) -> Shape:
    shapes = q.arrays()
    count = len(shapes) // 2
    q.require(len(shapes) == 2 * count + 1, "want N operands, indices, N updates")
    operands, indices, updates = shapes[:count], shapes[count], shapes[count + 1 :]
    q.require(indices.dtype.is_integer, f"indices are {dims_text(indices)}, want integers")
    for operand, update in zip(operands, updates, strict=True):
        q.same_dtype(operand, update)
        _check_update(q, operand, indices, update)
    applied(q, "to_apply", 2 * count, count)
    return one_or_tuple([plain(o.dtype, o.dims) for o in operands])


def _check_update(
    q: Inference, operand: ArrayShape, indices: ArrayShape, update: ArrayShape
) -> None:
    batch = _index_batch_dims(q, indices)
    window = q.dims_in_range("update_window_dims", update.rank)
    inserted = q.dims_in_range("inserted_window_dims", operand.rank)
    batching = q.dims_in_range("input_batching_dims", operand.rank)
    index_map = q.dims_in_range("scatter_dims_to_operand_dims", operand.rank)
    _check_batching(q, operand, indices, ("input", "scatter_indices"), {*inserted, *index_map})
    if len(index_map) != _index_vector_size(q, indices):
        q.fail(f"scatter_dims_to_operand_dims has {len(index_map)} entries, not one per component")
    kept = [size for d, size in enumerate(operand.dims) if d not in (*inserted, *batching)]
    if len(window) != len(kept):
        q.fail(f"update_window_dims has {len(window)} entries, the operand keeps {len(kept)}")
    for dim, bound in zip(sorted(window), kept, strict=True):
        q.require(update.dims[dim] <= bound, f"update dimension {dim} is larger than {bound}")
    found = [size for d, size in enumerate(update.dims) if d not in window]
    q.require(found == batch, f"updates scatter over {found}, the indices over {batch}")


def index_operands(instr: HloInstruction) -> range:
    """Which operands are indices into operand 0: those of a gather, scatter or dynamic slice."""
    count = len(instr.operands)
    match instr.opcode:
        case "gather":
            return range(1, 2)
        case "scatter":
            return range(count // 2, count // 2 + 1)
        case "dynamic-slice":
            return range(1, count)
        case "dynamic-update-slice":
            return range(2, count)
    return range(0)


OPS = (
    variadic(
        "dynamic-slice",
        1,
        _dynamic_slice,
        T.DATA_MOVEMENT | T.TAKES_PART | T.INDEX_MAP | T.BOX,
        words("dynamic_slice_sizes"),
    ),
    variadic(
        "dynamic-update-slice",
        2,
        _dynamic_update_slice,
        T.DATA_MOVEMENT | T.PIECEWISE | T.UPDATES | T.BOX,
    ),
    Op(
        "gather",
        2,
        _gather,
        T.DATA_MOVEMENT | T.TAKES_PART,
        (
            *words("offset_dims collapsed_slice_dims start_index_map"),
            AttributeRow("operand_batching_dims", omitted=()),
            AttributeRow("start_indices_batching_dims", omitted=()),
            *words("index_vector_dim slice_sizes"),
            *flags("indices_are_sorted"),
        ),
    ),
    variadic(
        "scatter",
        3,
        _scatter,
        T.CALLS | T.UPDATES | T.COMBINES,
        (
            *words("update_window_dims inserted_window_dims scatter_dims_to_operand_dims"),
            AttributeRow("input_batching_dims", omitted=()),
            AttributeRow("scatter_indices_batching_dims", omitted=()),
            *words("index_vector_dim"),
            *flags("indices_are_sorted unique_indices"),
            *APPLY,
        ),
    ),
)
