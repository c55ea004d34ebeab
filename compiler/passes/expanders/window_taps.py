"""Positions of a window: the padded operand, and what each position meets of it."""

from __future__ import annotations

import itertools

from compiler.analysis.window_request import carried_request
from compiler.hlo.attributes import ConvDims, WindowDim
from compiler.hlo.dtypes import F32, S32, DType
from compiler.hlo.ir import HloInstruction
from compiler.rewrite import make
from compiler.rewrite.graph import emit

Dims = tuple[int, ...]


def sum_type(dtype: DType) -> DType:
    """In which type products of elements are added: f32 for floats, s32 for integers.

    Complex numbers and integers of 64 bits, which are pairs later, are added as they are.
    """
    if dtype.is_complex or dtype.bits > 32:
        return dtype
    return F32 if dtype.is_float else S32


def padded_operand(
    operand: HloInstruction, fill: HloInstruction, window: tuple[WindowDim, ...]
) -> HloInstruction:
    """The operand with the window's padding and base dilation applied."""
    padding = tuple((d.pad_low, d.pad_high, d.base_dilation - 1) for d in window)
    if all(p == (0, 0, 0) for p in padding):
        return operand
    dims = tuple(
        low + high + (n - 1) * (inner + 1) + 1
        for n, (low, high, inner) in zip(operand.array.dims, padding, strict=True)
    )
    shape = operand.array.with_dims(dims)
    return emit(operand, "pad", shape, (operand, fill), {"padding": padding})


def tap_slice(
    padded: HloInstruction, window: tuple[WindowDim, ...], offsets: Dims, counts: Dims
) -> HloInstruction:
    """What one window position meets: a strided slice with `counts` elements per dimension."""
    bounds = tuple(
        (o * d.window_dilation, o * d.window_dilation + (n - 1) * d.stride + 1, d.stride)
        for o, d, n in zip(offsets, window, counts, strict=True)
    )
    return make.slice_(padded, bounds)


def window_taps(window: tuple[WindowDim, ...]) -> list[Dims]:
    """All positions of a window, the last dimension fastest."""
    return list(itertools.product(*(range(d.size) for d in window)))


def ordered_kernel(
    kernel: HloInstruction, labels: ConvDims, window: tuple[WindowDim, ...]
) -> HloInstruction:
    """The kernel as ``[taps.., features, out]``."""
    turned = tuple(d for d, w in zip(labels.kernel_spatial, window, strict=True) if w.reversal)
    if turned:
        kernel = emit(kernel, "reverse", kernel.array, (kernel,), {"dimensions": turned})
    order = (*labels.kernel_spatial, labels.kernel_input_feature, labels.kernel_output_feature)
    return make.transpose(kernel, order)


def product_attributes(
    conv: HloInstruction, left: Dims, right: Dims, batch: Dims = ()
) -> dict[str, object]:
    """Dimension numbers of a convolution's product, and what the convolution states."""
    attrs: dict[str, object] = {"lhs_contracting_dims": left, "rhs_contracting_dims": right}
    if batch:
        attrs.update(lhs_batch_dims=batch, rhs_batch_dims=batch)
    return attrs | stated_attributes(conv)


def stated_attributes(conv: HloInstruction) -> dict[str, object]:
    """What a convolution says about precision, windows and where it comes from."""
    names = ("operand_precision", "algorithm", "metadata", "frontend_attributes")
    return {n: conv.attrs[n] for n in names if n in conv.attrs} | carried_request(conv)
