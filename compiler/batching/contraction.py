"""Batching of products: a batch dimension of the dot, groups of a convolution's features."""

from __future__ import annotations

from compiler.autodiff.values import Instr, Value
from compiler.batching.step import BatchedStep, Rule, local, plus_batch, shifted
from compiler.passes.expanders.convolution_groups import batch_groups_to_features
from compiler.rewrite.emitter import Emitter


def _dot(step: BatchedStep) -> Value:
    i = step.instr
    names = ("lhs_batch_dims", "lhs_contracting_dims"), ("rhs_batch_dims", "rhs_contracting_dims")
    attrs: dict[str, object] = {}
    if all(step.flags):
        for batch, contracting in names:
            attrs[batch] = plus_batch(i.ints(batch))
            attrs[contracting] = shifted(i.ints(contracting))
        return step.again(step.xs, attrs)
    side = step.flags.index(True)
    for name in names[side]:
        attrs[name] = shifted(i.ints(name))
    kept = {k: v for k, v in i.attrs.items() if k != "metadata"}
    made = step.e.instruction("dot", step.xs, {**kept, **attrs}, i.shape)
    # The examples are the first free dimension of that side.
    ahead = len(i.lhs_batch_dims)
    lhs = step.instr.operands[0].array.rank
    place = ahead if side == 0 else lhs - len(i.lhs_contracting_dims)
    return to_front(step.e, made, place)


def to_front(e: Emitter, x: Instr, place: int) -> Instr:
    """The dimension at `place` first."""
    if not place:
        return x
    return e.transpose(x, (place, *(d for d in range(x.array.rank) if d != place)))


def merged(e: Emitter, x: Instr, dim: int) -> Instr:
    """The batch (dimension 0) joined to dimension `dim` of an example, and ahead of it."""
    dims = list(x.array.dims[1:])
    order = [*range(1, dim + 1), 0, *range(dim + 1, x.array.rank)]
    moved = e.transpose(x, order) if dim else x
    dims[dim] *= x.array.dims[0]
    return e.reshape(moved, dims)


def split(e: Emitter, x: Instr, dim: int, size: int) -> Instr:
    """The batch taken out of a dimension again."""
    dims = list(x.array.dims)
    dims[dim : dim + 1] = [size, dims[dim] // size]
    return to_front(e, e.reshape(x, dims), dim)


def _convolution(step: BatchedStep) -> Value:
    """Examples with the same kernel are more of a batch, others more groups of features."""
    e, i, labels, size = step.e, step.instr, step.instr.dim_labels, step.size
    if i.batch_group_count != 1:
        return _as_groups_of_features(step)
    kept = {k: v for k, v in i.attrs.items() if k != "metadata"}
    if not step.flags[1]:
        x = merged(e, step.xs[0], labels.input_batch)
        made = e.instruction("convolution", (x, step.xs[1]), kept, i.shape)
        return split(e, made, labels.output_batch, size)
    x = merged(e, step.batched(0), labels.input_feature)
    kernel = merged(e, step.xs[1], labels.kernel_output_feature)
    kept["feature_group_count"] = i.feature_group_count * size
    made = e.instruction("convolution", (x, kernel), kept, i.shape)
    return split(e, made, labels.output_feature, size)


def _as_groups_of_features(step: BatchedStep) -> Value:
    """Groups of the batch first become groups of features."""
    _, e = step.scope.within(step.instr, "convolution_groups")
    parameters = [e.parameter(o.array) for o in step.instr.operands]
    attrs = {k: v for k, v in step.instr.attrs.items() if k != "metadata"}
    copy = e.instruction("convolution", parameters, attrs, step.instr.shape)
    e.computation.root = batch_groups_to_features(copy)
    return step.scope.run(e.computation, step.xs, step.flags)[0]


CONTRACTION_RULES: dict[str, Rule] = {
    "convolution": local(_convolution),
    "dot": local(_dot),
}
