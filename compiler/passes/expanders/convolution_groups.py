"""Groups of a convolution's batch as groups of features.

With ``batch_group_count = G`` the g-th part of the output features is the convolution of the g-th
part of the batch (kernel gradients of grouped convolutions are that). The parts of the batch laid
side by side as features, it is a convolution in G feature groups.

The gradient of a kernel of few features a group is computed for several groups together, as if each met
the features of all: what a group has of its own is taken out of that. Groups may be those of the batch or
of the features: examples with kernels of their own (a convolution for each of many clients or tasks) have
gradients whose groups are parts of the features, ``[groups * n, h, w, batch]``, which then become parts of
the batch.
"""

from __future__ import annotations

from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.passes.image_order import has_few_positions
from compiler.rewrite.emitter import Emitter
from tpu_sim.isa.geometry import LANES

_MOST_APART = 32
"""Convolutions that a gradient in groups becomes."""
_GROUPED = ("batch_group_count", "feature_group_count", "metadata")


def groups_together(groups: int, features: int, out: int) -> int:
    """How many groups of so many features in and out lie side by side within the lanes.

    1 where a group has one feature out: that is no product (`tap_expander`).
    """
    if out == 1:
        return 1
    most = max(1, LANES // max(features, out))
    return max(m for m in range(1, min(most, groups) + 1) if groups % m == 0)


def gradient_without_groups(instr: HloInstruction) -> HloInstruction | None:
    """A kernel's gradient in groups as convolutions without; None for anything else."""
    groups, labels = instr.batch_group_count * instr.feature_group_count, instr.dim_labels
    if groups == 1 or groups not in (instr.batch_group_count, instr.feature_group_count):
        return None
    if 0 in instr.array.dims:
        return None
    features = instr.array.dims[labels.output_batch]
    out = instr.array.dims[labels.output_feature] // groups
    together = groups_together(groups, features, out)
    count = groups // together
    if out == 1 or not has_few_positions(instr) or count > _MOST_APART:
        return None
    e = Emitter.at(instr)
    whole, sides = instr.operands
    if instr.feature_group_count > 1:
        whole = moved_groups(e, whole, labels.input_feature, labels.input_batch, groups)
    parts: list[HloInstruction] = []
    for number in range(count):
        image = _part(e, whole, labels.input_batch, number, count)
        kernel = _part(e, sides, labels.kernel_output_feature, number, count)
        parts.append(_own_blocks(e, instr, image, kernel, together))
    return e.join(parts, labels.output_feature)


def _part(e: Emitter, array: HloInstruction, dim: int, number: int, count: int) -> HloInstruction:
    size = array.array.dims[dim] // count
    return e.part(array, dim, number * size, (number + 1) * size)


def _own_blocks(
    e: Emitter, instr: HloInstruction, image: HloInstruction, kernel: HloInstruction, groups: int
) -> HloInstruction:
    """The convolution of `groups` groups of the batch: what each has with its own features out."""
    labels = instr.dim_labels
    batch, feature = labels.output_batch, labels.output_feature
    dims = list(instr.array.dims)
    dims[batch] *= groups
    dims[feature] = kernel.array.dims[labels.kernel_output_feature]
    attrs = {k: v for k, v in instr.attrs.items() if k not in _GROUPED}
    shape = instr.array.with_dims(tuple(dims))
    made = e.instruction("convolution", (image, kernel), attrs, shape)
    if groups == 1:
        return made
    rows = (*dims[:batch], groups, dims[batch] // groups, *dims[batch + 1 :])
    lanes = feature + (feature > batch)
    places = e.iota(S32, (dims[feature],), 0)
    owner = e.divide(places, e.like(places, dims[feature] // groups))
    apart = e.reshape(made, rows)
    is_own = e.compare(e.iota(S32, rows, batch), e.broadcast(owner, rows, (lanes,)), "EQ")
    return e.total(e.select(is_own, apart, e.like(apart, 0)), batch)


def batch_groups_to_features(instr: HloInstruction) -> HloInstruction | None:
    """The same convolution with its groups among the features; None if it has no batch groups."""
    groups, labels = instr.batch_group_count, instr.dim_labels
    if groups == 1:
        return None
    if instr.feature_group_count != 1:
        raise UnsupportedError(
            f"%{instr.name}: convolution with groups of the batch and of features; "
            "HLO has no meaning for both, keep one",
            instr.span,
        )
    e = Emitter.at(instr)
    image, kernel = instr.operands
    merged = moved_groups(e, image, labels.input_batch, labels.input_feature, groups)
    attrs = {k: v for k, v in instr.attrs.items() if k not in ("batch_group_count", "metadata")}
    attrs["feature_group_count"] = groups
    return e.instruction("convolution", (merged, kernel), attrs, instr.array)


def moved_groups(
    e: Emitter, image: HloInstruction, given: int, taken: int, groups: int
) -> HloInstruction:
    """The image with dimension `given` in `groups` parts that lie one after another along `taken`."""
    dims = list(image.array.dims)
    split = [*dims[:given], groups, dims[given] // groups, *dims[given + 1 :]]
    after = taken + (taken > given)  # the place of `taken` once `given` is two dimensions
    order = [d for d in range(len(split)) if d != given]
    order.insert(order.index(after), given)
    dims[given] //= groups
    dims[taken] *= groups
    return e.reshape(e.transpose(e.reshape(image, tuple(split)), tuple(order)), tuple(dims))
