"""Shapes of dot, convolution and their relatives."""

from __future__ import annotations

from compiler.hlo.attributes import ConvDims
from compiler.hlo.ops.declaration import (
    CONVOLUTION_GROUPS,
    PRECISION,
    WINDOW,
    AttributeRow,
    Op,
    variadic,
    words,
)
from compiler.hlo.ops.declaration import Trait as T
from compiler.hlo.ops.inference import Inference, dims_text, plain, window_of
from compiler.hlo.shape import ArrayShape, Shape


def _dot(q: Inference) -> Shape:
    return _dot_of(q, q.array(0), q.array(1))


def _dot_of(q: Inference, lhs: ArrayShape, rhs: ArrayShape) -> ArrayShape:
    """Batch dimensions, then the free ones of lhs, then of rhs."""
    lhs_batch = q.dims_in_range("lhs_batch_dims", lhs.rank)
    rhs_batch = q.dims_in_range("rhs_batch_dims", rhs.rank)
    lhs_contracting = q.dims_in_range("lhs_contracting_dims", lhs.rank)
    rhs_contracting = q.dims_in_range("rhs_contracting_dims", rhs.rank)
    for role, left, right in (
        ("batch", lhs_batch, rhs_batch),
        ("contracting", lhs_contracting, rhs_contracting),
    ):
        sizes = [lhs.dims[d] for d in left], [rhs.dims[d] for d in right]
        if sizes[0] != sizes[1]:
            q.fail(
                f"{role} dimensions of {dims_text(lhs)} and {dims_text(rhs)} "
                f"have sizes {sizes[0]} and {sizes[1]}"
            )
    q.require(not set(lhs_batch) & set(lhs_contracting), "lhs dimension has two roles")
    q.require(not set(rhs_batch) & set(rhs_contracting), "rhs dimension has two roles")
    free_lhs = [d for i, d in enumerate(lhs.dims) if i not in (*lhs_batch, *lhs_contracting)]
    free_rhs = [d for i, d in enumerate(rhs.dims) if i not in (*rhs_batch, *rhs_contracting)]
    batch = [lhs.dims[d] for d in lhs_batch]
    return plain(q.declared_dtype(lhs.dtype), [*batch, *free_lhs, *free_rhs])


def _scaled_dot(q: Inference) -> Shape:
    """A scale is a scalar, or has one element a block in every dimension of its operand."""
    for value, scale in ((q.array(0), q.array(2)), (q.array(1), q.array(3))):
        fits = scale.rank in (0, value.rank) and not any(
            extent % blocks if blocks else extent
            for extent, blocks in zip(value.dims, scale.dims, strict=scale.rank > 0)
        )
        q.require(fits, f"scales {dims_text(scale)} of an operand {dims_text(value)}")
    return _dot_of(q, q.array(0), q.array(1))


def _ragged_dot(q: Inference) -> Shape:
    """A dot whose ragged lhs dimension selects a group: the group dimension of rhs goes away.

    A ragged contracting dimension instead puts the group dimension in front of the result.
    """
    lhs, rhs, groups = q.arrays()
    ragged = q.dims_in_range("lhs_ragged_dims", lhs.rank)
    group_dims = q.dims_in_range("rhs_group_dims", rhs.rank)
    q.require(len(ragged) == 1, "want exactly one lhs_ragged_dims")
    q.require(groups.dtype.is_integer, "group sizes must be integers")
    batch = q.ints("lhs_batch_dims")
    contracting = q.ints("lhs_contracting_dims")
    if ragged[0] in batch:
        return _dot_of(q, lhs, rhs)
    if ragged[0] in contracting:
        result = _dot_of(q, lhs, rhs)
        return plain(result.dtype, (groups.dims[-1], *result.dims))
    q.require(len(group_dims) == 1, "want exactly one rhs_group_dims")
    result = _dot_of(q, lhs, rhs)
    free_rhs = [
        d
        for d in range(rhs.rank)
        if d not in (*q.ints("rhs_batch_dims"), *q.ints("rhs_contracting_dims"))
    ]
    at = result.rank - len(free_rhs) + free_rhs.index(group_dims[0])
    return plain(result.dtype, (*result.dims[:at], *result.dims[at + 1 :]))


def _convolution(q: Inference) -> Shape:
    lhs, rhs = q.array(0), q.array(1)
    dims = q.attrs.get("dim_labels")
    if not isinstance(dims, ConvDims):
        q.fail("want dim_labels=")
    spatial = len(dims.input_spatial)
    window = window_of(q, spatial)
    q.require(lhs.rank == rhs.rank == spatial + 2, f"dim_labels do not fit {dims_text(lhs)}")
    groups = q.integer("feature_group_count", 1)
    batch_groups = q.integer("batch_group_count", 1)
    q.require(groups > 0 and batch_groups > 0, "want a positive number of groups")
    q.require(groups == 1 or batch_groups == 1, "want groups of features or of batches, not both")
    in_features = rhs.dims[dims.kernel_input_feature]
    out_features = rhs.dims[dims.kernel_output_feature]
    if lhs.dims[dims.input_feature] != in_features * groups:
        q.fail(f"input has {lhs.dims[dims.input_feature]} features, want {in_features}*{groups}")
    q.require(out_features % groups == 0, f"{out_features} output features in {groups} groups")
    q.require(out_features % batch_groups == 0, "output features do not divide into batch groups")
    batch = lhs.dims[dims.input_batch]
    q.require(batch % batch_groups == 0, f"batch {batch} does not divide by {batch_groups}")
    sizes = [0] * lhs.rank
    sizes[dims.output_batch] = batch // batch_groups
    sizes[dims.output_feature] = out_features
    for i, window_dim in enumerate(window.dims):
        kernel = rhs.dims[dims.kernel_spatial[i]]
        if window_dim.size != kernel:
            q.fail(f"window size {window_dim.size} differs from the kernel's {kernel}")
        sizes[dims.output_spatial[i]] = window_dim.output_size(lhs.dims[dims.input_spatial[i]])
    return plain(q.declared_dtype(lhs.dtype), sizes)


_DOT = tuple(
    AttributeRow(f"{side}_{kind}_dims", omitted=() if kind == "batch" else None, filled=())
    for side in ("lhs", "rhs")
    for kind in ("batch", "contracting")
)
_CONV = (*WINDOW, *words("dim_labels"), *CONVOLUTION_GROUPS)

OPS = (
    variadic(
        "convolution",
        2,
        _convolution,
        T.CONTRACTION,
        (*_CONV, *words("convolution_kind operand_precision"), *words("sparsity_config")),
        most=2,
    ),
    Op("dot", 2, _dot, T.CONTRACTION | T.STAGE, (*_DOT, *PRECISION)),
    Op(
        "ragged-dot",
        3,
        _ragged_dot,
        T.CONTRACTION,
        (
            *_DOT,
            AttributeRow("lhs_ragged_dims", omitted=()),
            AttributeRow("rhs_group_dims", omitted=()),
            *PRECISION,
        ),
    ),
    Op("scaled-dot", 4, _scaled_dot, T.CONTRACTION, (*_DOT, *PRECISION)),
)
