"""Derivatives of products that contract: each operand's cotangent is a product of the same kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler.autodiff.expansion import Chosen, Expansion
from compiler.autodiff.rule import Bilinear, DerivativeRule, DerivativeStep
from compiler.autodiff.values import Contribution, Instr
from compiler.autodiff.windows import turned_window
from compiler.hlo.attributes import ConvDims, Window, WindowDim
from compiler.passes.expanders.convolution_groups import batch_groups_to_features
from compiler.rewrite.emitter import Emitter


def _dot(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    return [_dot_side(step, g, side) if step.wanted[side] else None for side in (0, 1)]


def _dot_side(step: DerivativeStep, g: Instr, side: int) -> Instr:
    """The cotangent dotted with the other operand over that one's free dimensions.

    Operands narrower than the result are widened first: a dot takes two of one type.
    """
    e, instr = step.e, step.instr
    mine, other = step.operands[side].array, step.operands[1 - side]
    batches = (instr.lhs_batch_dims, instr.rhs_batch_dims)
    summed = (instr.lhs_contracting_dims, instr.rhs_contracting_dims)
    batch, contracted = batches[side], summed[side]
    other_batch, other_contracted = batches[1 - side], summed[1 - side]
    free = [d for d in range(mine.rank) if d not in (*batch, *contracted)]
    other_free = [d for d in range(other.array.rank) if d not in (*other_batch, *other_contracted)]
    # The result has batch dimensions, then the free ones of lhs, then those of rhs.
    after = len(batch) + (len(free) if side == 0 else 0)
    g_dims = tuple(range(after, after + len(other_free)))
    g_batch = tuple(range(len(batch)))
    wide = e.cast(other, g.array.dtype)
    made = e.dot(g, wide, (g_dims, tuple(other_free)), (g_batch, other_batch))
    for name in ("operand_precision", "algorithm"):
        if name in instr.attrs:
            made.attrs[name] = instr.attrs[name]
    # Now: batch, the free ones of mine, then what is contracted, in the order of the other operand.
    ahead = sorted(zip(other_contracted, contracted, strict=True))
    order = [*batch, *free, *(place for _, place in ahead)]
    places = [order.index(d) for d in range(mine.rank)]
    moved = made if places == sorted(places) else e.transpose(made, places)
    return e.cast(moved, mine.dtype)


# --- convolution ---------------------------------------------------------------------------------


def _convolution(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    to_input = _to_input(step, g) if step.wanted[0] else None
    return [to_input, _to_kernel(step, g) if step.wanted[1] else None]


def _to_input(step: DerivativeStep, g: Instr) -> Instr:
    """The cotangent convolved with the kernel turned around, its two kinds of features exchanged."""
    e, instr, dims = step.e, step.instr, step.instr.dim_labels
    x, kernel = step.operands
    groups = instr.feature_group_count
    turned = e.cast(_exchanged(e, kernel, dims, groups), g.array.dtype)
    labels = ConvDims(
        dims.output_batch, dims.output_feature, dims.output_spatial,
        dims.kernel_output_feature, dims.kernel_input_feature, dims.kernel_spatial,
        dims.input_batch, dims.input_feature, dims.input_spatial,
    )  # fmt: skip
    window = []
    for i, w in enumerate(instr.window.dims):
        size = x.array.dims[dims.input_spatial[i]]
        made = g.array.dims[dims.output_spatial[i]]
        window.append(replace(turned_window(w, size, made), reversal=not w.reversal))
    result = _convolved(step, g, turned, Window(tuple(window)), labels, feature_group_count=groups)
    return e.cast(result, x.array.dtype)


def _exchanged(e: Emitter, kernel: Instr, dims: ConvDims, groups: int) -> Instr:
    """The kernel whose output features are the input features of all groups."""
    if groups == 1:
        return kernel
    sizes = kernel.array.dims
    made, given = dims.kernel_output_feature, dims.kernel_input_feature
    split = e.reshape(kernel, (*sizes[:made], groups, sizes[made] // groups, *sizes[made + 1 :]))
    order = [d for d in range(len(sizes) + 1) if d != made]
    order.insert(order.index(given + (given > made)), made)
    merged = list(sizes)
    merged[made] //= groups
    merged[given] *= groups
    return e.reshape(e.transpose(split, order), merged)


def _to_kernel(step: DerivativeStep, g: Instr) -> Instr:
    """The input convolved with the cotangent: batch and features exchanged, strides and dilations too."""
    e, instr, dims = step.e, step.instr, step.instr.dim_labels
    x, kernel = step.operands
    labels = ConvDims(
        dims.input_feature, dims.input_batch, dims.input_spatial,
        dims.output_batch, dims.output_feature, dims.output_spatial,
        dims.kernel_input_feature, dims.kernel_output_feature, dims.kernel_spatial,
    )  # fmt: skip
    window = []
    for i, w in enumerate(instr.window.dims):
        size = x.array.dims[dims.input_spatial[i]]
        made = g.array.dims[dims.output_spatial[i]]
        base = (size - 1) * w.base_dilation + 1
        high = (w.size - 1) * w.window_dilation + (made - 1) * w.stride + 1 - w.pad_low - base
        window.append(
            WindowDim(made, w.window_dilation, w.pad_low, high, w.base_dilation, w.stride)
        )
    wide = e.cast(x, g.array.dtype)
    groups = instr.feature_group_count
    found = _convolved(step, wide, g, Window(tuple(window)), labels, batch_group_count=groups)
    back = [dims.kernel_spatial[i] for i, w in enumerate(instr.window.dims) if w.reversal]
    return e.cast(e.reverse(found, back) if back else found, kernel.array.dtype)


def _convolved(
    step: DerivativeStep, x: Instr, kernel: Instr, window: Window, labels: ConvDims, **groups: int
) -> Instr:
    attrs: dict[str, object] = {k: n for k, n in groups.items() if n != 1}
    if "operand_precision" in step.instr.attrs:
        attrs["operand_precision"] = step.instr.attrs["operand_precision"]
    return step.e.convolution(x, kernel, window, labels, **attrs)


_BY_FEATURES = Bilinear(_convolution)
_BY_BATCH = Expansion(batch_groups_to_features)


def _groups(instr: Instr, wanted: Sequence[bool]) -> DerivativeRule:
    return _BY_FEATURES if instr.batch_group_count == 1 else _BY_BATCH


CONTRACTION_RULES: dict[str, DerivativeRule] = {
    "convolution": Chosen(_groups),
    "dot": Bilinear(_dot),
}
