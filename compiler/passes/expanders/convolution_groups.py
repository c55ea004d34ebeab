"""Groups of a convolution's batch as groups of features.

With ``batch_group_count = G`` the g-th part of the output features is the convolution of the g-th
part of the batch (kernel gradients of grouped convolutions are that). The parts of the batch laid
side by side as features, it is a convolution in G feature groups.
"""

from __future__ import annotations

from compiler.diagnostics import UnsupportedError
from compiler.hlo.attributes import ConvDims
from compiler.hlo.ir import HloInstruction
from compiler.passes.expanders.emitter import Emitter


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
    merged = _batch_parts_as_features(e, image, labels, groups)
    attrs = {k: v for k, v in instr.attrs.items() if k not in ("batch_group_count", "metadata")}
    attrs["feature_group_count"] = groups
    return e.instruction("convolution", (merged, kernel), attrs, instr.array)


def _batch_parts_as_features(
    e: Emitter, image: HloInstruction, labels: ConvDims, groups: int
) -> HloInstruction:
    """``[.., groups * n, .., features]`` as ``[.., n, .., groups * features]``."""
    dims = list(image.array.dims)
    batch, feature = labels.input_batch, labels.input_feature
    split = [*dims[:batch], groups, dims[batch] // groups, *dims[batch + 1 :]]
    after = feature + (feature > batch)  # the feature's place once the batch is two dimensions
    order = [d for d in range(len(split)) if d != batch]
    order.insert(order.index(after), batch)
    dims[batch] //= groups
    dims[feature] *= groups
    return e.reshape(e.transpose(e.reshape(image, tuple(split)), tuple(order)), tuple(dims))
