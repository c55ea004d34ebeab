"""Batching of opcodes whose indices are data: batched indices are a batch dimension of gather and scatter."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.autodiff.scatter import take_update
from compiler.autodiff.values import Instr, Value
from compiler.batching.step import BatchedStep, Rule, local, plus_batch, shifted


def _starts(step: BatchedStep, first: int) -> Instr:
    """Batched start indices as s32[size, rank] (or their own integer type)."""
    e = step.e
    starts = [step.batched(i) for i in range(first, len(step.xs))]
    if len(starts) == 1 and starts[0].array.rank == 2:
        return starts[0]
    return e.join([e.reshape(s, (step.size, 1)) for s in starts], 1)


def _is_fixed(step: BatchedStep, first: int) -> bool:
    return not any(step.flags[first:])


def _with_zero(step: BatchedStep, first: int) -> list[Instr]:
    """Start indices that are the same for all examples, behind the batch's own zero."""
    starts = step.xs[first:]
    if len(starts) == 1 and starts[0].array.rank == 1:
        zero = step.e.constant(starts[0].array.dtype, [0])
        return [step.e.join([zero, starts[0]], 0)]
    dtype = starts[0].array.dtype if starts else step.xs[0].array.dtype
    return [step.e.constant(dtype, 0), *starts] if starts else []


def _box(rank: int, sizes: Sequence[int]) -> dict[str, object]:
    """A gather that takes one box of each example."""
    dims = tuple(range(1, rank + 1))
    return {
        "offset_dims": dims,
        "collapsed_slice_dims": (),
        "start_index_map": dims,
        "operand_batching_dims": (0,),
        "start_indices_batching_dims": (0,),
        "index_vector_dim": 1,
        "slice_sizes": (1, *sizes),
    }


def _dynamic_slice(step: BatchedStep) -> Value:
    sizes = step.instr.dynamic_slice_sizes
    x = step.batched(0)
    if _is_fixed(step, 1):
        return step.again([x, *_with_zero(step, 1)], {"dynamic_slice_sizes": (step.size, *sizes)})
    return step.e.gather(x, _starts(step, 1), **_box(len(sizes), sizes))


def _dynamic_update_slice(step: BatchedStep) -> Value:
    """With batched starts a scatter, whose indices are clamped as a slice's are."""
    e, x, update = step.e, step.batched(0), step.batched(1)
    if _is_fixed(step, 2):
        return step.again([x, update, *_with_zero(step, 2)])
    indices, sizes = _starts(step, 2), update.array.dims[1:]
    limits = [n - m for n, m in zip(x.array.dims[1:], sizes, strict=True)]
    most = e.broadcast(e.table(indices.array.dtype, limits), indices.array.dims, (1,))
    inside = e.clamp(e.like(indices, 0), indices, most)
    body = take_update(e, x.array.dtype)
    dims = tuple(range(1, len(sizes) + 1))
    return e.scatter(
        (x,), inside, (update,), body, update_window_dims=dims, inserted_window_dims=(),
        scatter_dims_to_operand_dims=dims, input_batching_dims=(0,),
        scatter_indices_batching_dims=(0,), index_vector_dim=1, unique_indices=True,
    )  # fmt: skip


def _gather(step: BatchedStep) -> Value:
    i = step.instr
    if not step.flags[1]:
        attrs: dict[str, object] = {
            "offset_dims": plus_batch(i.offset_dims),
            "collapsed_slice_dims": shifted(i.collapsed_slice_dims),
            "start_index_map": shifted(i.start_index_map),
            "operand_batching_dims": shifted(i.operand_batching_dims),
            "slice_sizes": (step.size, *i.slice_sizes),
        }
        return step.again(step.xs, attrs)
    attrs = {
        "offset_dims": shifted(i.offset_dims),
        "index_vector_dim": i.index_vector_dim + 1,
        "start_indices_batching_dims": shifted(i.start_indices_batching_dims),
        "indices_are_sorted": False,
    }
    if step.flags[0]:
        attrs |= {
            "collapsed_slice_dims": shifted(i.collapsed_slice_dims),
            "start_index_map": shifted(i.start_index_map),
            "operand_batching_dims": plus_batch(i.operand_batching_dims),
            "start_indices_batching_dims": plus_batch(i.start_indices_batching_dims),
            "slice_sizes": (1, *i.slice_sizes),
        }
    return step.again(step.xs, attrs)


def _scatter(step: BatchedStep) -> Value:
    i, count = step.instr, len(step.xs) // 2
    operands = step.all_batched()
    attrs: dict[str, object] = {
        "inserted_window_dims": shifted(i.inserted_window_dims),
        "scatter_dims_to_operand_dims": shifted(i.scatter_dims_to_operand_dims),
    }
    if not step.flags[count]:
        operands[count] = step.xs[count]
        attrs["update_window_dims"] = plus_batch(i.update_window_dims)
        attrs["input_batching_dims"] = shifted(i.input_batching_dims)
        return step.again(operands, attrs)
    attrs["update_window_dims"] = shifted(i.update_window_dims)
    attrs["input_batching_dims"] = plus_batch(i.input_batching_dims)
    attrs["scatter_indices_batching_dims"] = plus_batch(i.scatter_indices_batching_dims)
    attrs["index_vector_dim"] = i.index_vector_dim + 1
    attrs["indices_are_sorted"] = False
    return step.again(operands, attrs)


INDEXING_RULES: dict[str, Rule] = {
    "dynamic-slice": local(_dynamic_slice),
    "dynamic-update-slice": local(_dynamic_update_slice),
    "gather": local(_gather),
    "scatter": local(_scatter),
}
