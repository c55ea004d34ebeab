"""Tap expander: convolutions and reduce-windows in terms of slices, dots and arithmetic.

A *tap* is one position of the window; the elements it meets, over all output positions, are a
strided slice of the padded input.

    reduce-window        combines its taps' slices elementwise; a running total (a window over
                         everything before) so too when short, one tap after another as a loop
                         would round it, else by doubling shifts: log2(n) steps
    convolution          concatenates its taps' slices along the features and is then one dot;
                         with few output positions and many taps (a kernel's gradient) it puts
                         what each position meets side by side instead
                         between one feature and another it is a sum of weighted slices
    grouped convolution  the same with the group as a batch dimension; with one feature a group,
                         a sum of products, over taps or (few positions) over what each meets; a large
                         image is rounded to bf16 where it is made, as the matrix unit would round it
    many taps, positions a loop over taps; so too groups whose taps side by side are too large for HBM
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from compiler.analysis.dot_parts import stated_precision
from compiler.analysis.reducers import has_identity_init, reducer_kind
from compiler.analysis.tiled_layout import byte_size
from compiler.hlo.attributes import ConvDims, WindowDim
from compiler.hlo.call_graph import drop_unreachable, reachable
from compiler.hlo.dtypes import BF16, F32
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape
from compiler.passes.context import PassContext
from compiler.passes.convolution_loop import add_taps_in_a_loop
from compiler.passes.dimension_order.arrays import HANDED_ON
from compiler.passes.dot_canonicalizer import rows_fill_lanes
from compiler.passes.expanders.plane_taps import taps_of_planes
from compiler.passes.expanders.running_dims import running_dim
from compiler.passes.expanders.weighted_taps import has_few_features, weighted_taps
from compiler.passes.expanders.whole_rows import in_whole_rows
from compiler.passes.expanders.window_taps import (
    ordered_kernel,
    padded_operand,
    product_attributes,
    stated_attributes,
    sum_type,
    tap_slice,
    window_taps,
)
from compiler.passes.image_order import ImageOrder, image_order
from compiler.rewrite import make
from compiler.rewrite.dims import inverse
from compiler.rewrite.graph import emit, replace
from tpu_sim.isa.geometry import LANES, SUBLANES

Dims = tuple[int, ...]
MAX_TAPS = 64  # of a window that is combined tap by tap
MAX_SEQUENTIAL = 32  # positions of a running total that is added up one after another
MAX_SEQUENTIAL_ELEMENTS = 1 << 16  # and elements of its array; beyond, doubling is cheaper
MAX_SLICES = 512  # that a convolution's input is cut into
_ROUNDED_SHARE = 2
"""Images of more than this part of VMEM are rounded for the vector unit; others may stay there."""
_COLUMNS_SHARE = 8
"""Taps side by side that take more than this part of the device's memory are taken one at a time: as
a window of 14x14 over padding, which a convolution that is not finite falls back to."""
_MOST_FILLED = 1.07  # of a product's depth, where features are added


def expand_taps(module: HloModule, context: PassContext) -> bool:
    """Expand every convolution and reduce-window that has an expansion; leave the others."""
    for computation in reachable(module):
        convolutions = [i for i in computation if i.opcode == "convolution"]
        for instr in [i for i in convolutions if _is_rounded(i, context)]:
            image, kernel = instr.operands
            instr.set_operands([make.convert(image, BF16), kernel])
        for instr in list(computation):
            expanded = _expand(instr, context)
            if expanded is not None:
                context.counts[instr.opcode] += 1
                replace(instr, expanded)
        computation.sort()
    drop_unreachable(module)
    return bool(context.counts)


def _expand(instr: HloInstruction, context: PassContext) -> HloInstruction | None:
    if not isinstance(instr.shape, ArrayShape) or 0 in instr.array.dims:
        return None
    if instr.opcode == "reduce-window" and len(instr.operands) == 2:
        return _reduce_window(instr)
    if instr.opcode == "convolution":
        return _convolution(instr, context)
    return None


def _reduce_window(instr: HloInstruction) -> HloInstruction | None:
    operand, init = instr.operands
    window = instr.window.dims
    kind = reducer_kind(instr.to_apply)
    if kind is None or not has_identity_init(instr) or any(d.reversal for d in window):
        return None
    running = running_dim(operand, window)
    size = math.prod(d.size for d in window)
    is_short = size <= MAX_SEQUENTIAL and operand.array.element_count <= MAX_SEQUENTIAL_ELEMENTS
    if running is not None and not is_short:
        return _running_total(instr, kind, *running)
    if size > MAX_TAPS:
        return None
    padded = padded_operand(operand, init, window)
    parts = [
        tap_slice(padded, window, offsets, instr.array.dims) for offsets in window_taps(window)
    ]
    if running is None:
        return _tree(instr, kind, parts)
    return _chain(instr, kind, parts[::-1] if running[1] else parts)


def _chain(like: HloInstruction, kind: str, parts: list[HloInstruction]) -> HloInstruction:
    """Combine one after another; padding comes first and changes nothing."""
    total = parts[0]
    for part in parts[1:]:
        total = emit(like, kind, like.array, (total, part))
    return total


def _tree(like: HloInstruction, kind: str, parts: list[HloInstruction]) -> HloInstruction:
    """Combine pairwise, so that rounding errors do not pile up."""
    while len(parts) > 1:
        pairs = [
            emit(like, kind, like.array, parts[i : i + 2]) for i in range(0, len(parts) - 1, 2)
        ]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def _running_total(instr: HloInstruction, kind: str, dim: int, is_backward: bool) -> HloInstruction:
    """``x[i] = x[i] op x[i - 1]``, then ``op x[i - 2]``, ``op x[i - 4]``, .."""
    value, init = instr.operands
    size = value.array.dims[dim]
    shift = 1
    while shift < size:
        whole = [(0, n, 1) for n in value.array.dims]
        kept = (shift, size, 1) if is_backward else (0, size - shift, 1)
        part = make.slice_(value, (*whole[:dim], kept, *whole[dim + 1 :]))
        padding = [(0, 0, 0)] * value.array.rank
        padding[dim] = (0, shift, 0) if is_backward else (shift, 0, 0)
        moved = emit(instr, "pad", value.array, (part, init), {"padding": tuple(padding)})
        value = emit(instr, kind, value.array, (value, moved))
        shift *= 2
    return value


def _is_rounded(instr: HloInstruction, context: PassContext) -> bool:
    """Whether the vector unit computes a convolution of numbers that may be rounded to bf16.

    Of an image so large that storing it so saves more than taking it apart again for every tap costs.
    """
    image, groups = instr.operands[0], instr.feature_group_count
    precision = context.planner.precision
    if groups == 1 or groups != instr.array.dims[instr.dim_labels.output_feature]:
        return False
    if image.array.dtype != F32 or (stated_precision(instr) or precision) != "default":
        return False
    taps, places = _extent(instr)
    is_large = byte_size(image.array) > context.chip.vmem_bytes // _ROUNDED_SHARE
    return is_large and places >= taps and _is_for_convolutions(image)


def _is_for_convolutions(image: HloInstruction) -> bool:
    """Whether convolutions alone read what is computed here."""
    if any(user.opcode != "convolution" or user.operands[0] is not image for user in image.users):
        return False
    source = image.operands[0] if image.opcode == "transpose" else image
    is_made = source.opcode not in HANDED_ON or source.opcode == "conditional"
    return is_made and (source is image or len(source.users) == 1)


def _extent(instr: HloInstruction) -> tuple[int, int]:
    """Numbers of taps and of output positions."""
    positions = math.prod(instr.array.dims[d] for d in instr.dim_labels.output_spatial)
    return math.prod(d.size for d in instr.window.dims), positions


def _convolution(instr: HloInstruction, context: PassContext) -> HloInstruction:
    """``[positions.., batch, taps * features] x [taps * features, out]``, per feature group."""
    if has_few_features(instr):
        return weighted_taps(instr)
    labels = instr.dim_labels
    groups = instr.feature_group_count
    taps, places = _extent(instr)
    order = image_order(instr)
    result = order.result(labels)
    dims = tuple(instr.array.dims[d] for d in result)
    if groups == instr.array.dims[labels.output_feature] > 1 and places < min(taps, MAX_SLICES):
        return _depthwise_by_position(instr, labels)
    is_cut_often = min(taps, places) > MAX_SLICES or (groups > 1 and taps > MAX_SLICES)
    is_written_out = groups > 1 or taps > MAX_TAPS  # else its product reads the image itself
    if is_cut_often or (is_written_out and _columns_bytes(instr) > _most_columns(context)):
        return make.transpose(_in_a_loop(instr, labels, order, dims), inverse(result))
    if groups == 1 and places < taps:
        return _by_position(instr, labels)
    if groups == 1:
        planes = taps_of_planes(instr, context.planner)
        if planes is not None:
            return planes
        features = instr.operands[0].array.dims[labels.input_feature]
        more = _features_to_fill(features, taps)
        if rows_fill_lanes(dims[:-1], (features, dims[-1])):
            more = -features % SUBLANES if taps > 1 else 0
        dot = _plain_dot(instr, labels, _columns(instr, labels, order, more), dims, more)
        return make.transpose(make.reshape(dot, dims), inverse(result))
    kernel = _kernel_matrix(instr.operands[1], labels, instr.window.dims)
    if kernel.array.dims[2] == groups and places >= taps:
        return _depthwise(instr, labels, kernel)
    wide = instr if order.batch_inside else in_whole_rows(instr)
    dims = tuple(wide.array.dims[d] for d in result)
    dot = _grouped_dot(wide, _columns(wide, labels, order), kernel, groups, dims)
    made = make.transpose(make.reshape(dot, dims), inverse(result))
    return make.slice_(made, tuple((0, n, 1) for n in instr.array.dims))


def _columns_bytes(instr: HloInstruction) -> int:
    """What all taps of an image take side by side, as the products of groups read them."""
    labels, image = instr.dim_labels, instr.operands[0].array
    taps, places = _extent(instr)
    rows = places * image.dims[labels.input_batch]
    columns = taps * image.dims[labels.input_feature]
    return byte_size(image.with_dims((rows, columns)))


def _most_columns(context: PassContext) -> int:
    return context.chip.hbm_bytes // _COLUMNS_SHARE


def _in_a_loop(
    instr: HloInstruction, labels: ConvDims, order: ImageOrder, dims: Dims
) -> HloInstruction:
    """One tap a step: the program does not grow with the kernel."""
    window = order.around(instr.window.dims, WindowDim(1))
    kernel = _kernel_matrix(instr.operands[1], labels, instr.window.dims)
    attrs = stated_attributes(instr)
    return add_taps_in_a_loop(_image(instr, labels, order), kernel, window, instr, dims, attrs)


def _by_position(instr: HloInstruction, labels: ConvDims) -> HloInstruction:
    """What each output position meets, side by side, times the kernel; few positions, many taps.

    ``[taps.. * features, positions * batch]^T x [taps.. * features, out]``, where these are few with taps
    and features as dimensions of their own.
    """
    image, _ = instr.operands
    window = (*instr.window.dims, WindowDim(1), WindowDim(1))
    image = make.transpose(image, (*labels.input_spatial, labels.input_feature, labels.input_batch))
    padded = padded_operand(image, make.constant(image, image.array.dtype, 0), window)
    positions = tuple(instr.array.dims[d] for d in labels.output_spatial)
    features, batch = padded.array.dims[-2:]
    matrix = ordered_kernel(instr.operands[1], labels, instr.window.dims)
    *deep, out = matrix.array.dims
    if not rows_fill_lanes(tuple(deep), (batch, out)):
        deep = [math.prod(deep)]
        matrix = make.reshape(matrix, (*deep, out))
    parts: list[HloInstruction] = []
    for place in itertools.product(*(range(n) for n in positions)):
        bounds = tuple(_met(p, d) for p, d in zip(place, window, strict=False))
        met = make.slice_(padded, (*bounds, (0, features, 1), (0, batch, 1)))
        parts.append(make.reshape(met, (*deep, batch)))
    count = len(deep)
    shape = padded.array.with_dims((*deep, len(parts) * batch))
    columns = parts[0]
    if len(parts) > 1:
        columns = emit(instr, "concatenate", shape, parts, {"dimensions": (count,)})
    summed = tuple(range(count))
    rows = instr.array.with_dims((len(parts) * batch, out))
    dot = emit(instr, "dot", rows, (columns, matrix), product_attributes(instr, summed, summed))
    result = (*labels.output_spatial, labels.output_batch, labels.output_feature)
    dims = tuple(instr.array.dims[d] for d in result)
    return make.transpose(make.reshape(dot, dims), inverse(result))


def _depthwise(instr: HloInstruction, labels: ConvDims, kernel: HloInstruction) -> HloInstruction:
    """One feature out per group: products of taps and their kernels, added in f32.

    All features lie side by side; those of a group are added up last.
    """
    order = image_order(instr)
    result = order.result(labels)
    dims = tuple(instr.array.dims[d] for d in result)
    taps, features, groups = kernel.array.dims
    kernel = make.reshape(make.transpose(kernel, (0, 2, 1)), (taps, groups * features))
    dtype = sum_type(instr.array.dtype)
    wide = instr.array.with_dims((*dims[:-1], groups * features)).with_dtype(dtype)
    products: list[HloInstruction] = []
    for number, part in enumerate(_tap_slices(instr, labels, order)):
        weights = make.slice_(kernel, ((number, number + 1, 1), (0, groups * features, 1)))
        row = make.convert(make.reshape(weights, wide.dims[-1:]), dtype)
        factor = make.broadcast(row, wide.dims, (len(dims) - 1,))
        products.append(emit(instr, "multiply", wide, (make.convert(part, dtype), factor)))
    total = products[0]
    for product in products[1:]:
        total = emit(instr, "add", wide, (total, product))
    if features > 1:
        total = _sums_of_groups(instr, total, groups)
    return make.transpose(make.convert(total, instr.array.dtype), inverse(result))


def _sums_of_groups(instr: HloInstruction, array: HloInstruction, groups: int) -> HloInstruction:
    """``[.., groups * features]`` summed over the features of each group."""
    *lead, width = array.array.dims
    apart = make.reshape(array, (*lead, groups, width // groups))
    zero = make.constant(instr, array.array.dtype, 0)
    attrs = {
        "dimensions": (len(lead) + 1,),
        "to_apply": make.reducer(instr, "add", array.array.dtype),
    }
    return emit(instr, "reduce", array.array.with_dims((*lead, groups)), (apart, zero), attrs)


def _depthwise_by_position(instr: HloInstruction, labels: ConvDims) -> HloInstruction:
    """One feature out per group and few output positions: what each meets times the kernel, added.

    That is the gradient of a depthwise kernel. The vector unit reads image and kernel once for all
    positions, in the order the kernel has; products are added in f32.
    """
    image, kernel = instr.operands
    positions = tuple(instr.array.dims[d] for d in labels.output_spatial)
    window = instr.window.dims
    dtype = sum_type(instr.array.dtype)
    turned = tuple(d for d, w in zip(labels.kernel_spatial, window, strict=True) if w.reversal)
    if turned:
        kernel = emit(kernel, "reverse", kernel.array, (kernel,), {"dimensions": turned})
    lies = sorted((labels.kernel_input_feature, *labels.kernel_spatial))
    kernel = make.transpose(kernel, (*lies, labels.kernel_output_feature))
    groups = kernel.array.dims[-1]
    around = tuple(
        window[labels.kernel_spatial.index(d)] if d in labels.kernel_spatial else WindowDim(1)
        for d in lies
    )
    image = _group_last(image, labels, lies, groups)
    batch = image.array.dims[0]
    met_around = (WindowDim(1), *around, WindowDim(1))
    padded = padded_operand(image, make.constant(image, image.array.dtype, 0), met_around)
    dims = (batch, *kernel.array.dims)
    rank = len(lies)
    weights = make.broadcast(make.convert(kernel, dtype), dims, tuple(range(1, rank + 2)))
    add = make.reducer(instr, "add", dtype)
    reduced = {"dimensions": tuple(range(1, rank + 1)), "to_apply": add}
    parts: list[HloInstruction] = []
    for place in itertools.product(*(range(n) for n in positions)):
        starts = dict(zip(labels.kernel_spatial, place, strict=True))
        bounds = tuple(
            _met(starts[d], w) if d in starts else (0, kernel.array.dims[n], 1)
            for n, (d, w) in enumerate(zip(lies, around, strict=True))
        )
        met = make.slice_(padded, ((0, batch, 1), *bounds, (0, groups, 1)))
        shape = weights.array
        product = emit(instr, "multiply", shape, (make.convert(met, dtype), weights))
        zero = make.constant(instr, dtype, 0)
        total = emit(instr, "reduce", shape.with_dims((batch, groups)), (product, zero), reduced)
        parts.append(make.reshape(total, (1, batch, groups)))
    shape = parts[0].array.with_dims((len(parts), batch, groups))
    joined = emit(instr, "concatenate", shape, parts, {"dimensions": (0,)})
    result = (*labels.output_spatial, labels.output_batch, labels.output_feature)
    sums = make.reshape(joined, tuple(instr.array.dims[d] for d in result))
    return make.transpose(make.convert(sums, instr.array.dtype), inverse(result))


def _group_last(
    image: HloInstruction, labels: ConvDims, lies: Sequence[int], groups: int
) -> HloInstruction:
    """The image as ``[batch, dimensions as the kernel's `lies`.., groups]``, its features per group."""
    order = (labels.input_batch, *labels.input_spatial, labels.input_feature)
    image = make.transpose(image, order)
    batch, *sizes, features = image.array.dims
    rank = len(sizes)
    image = make.reshape(image, (batch, *sizes, groups, features // groups))
    places = [
        1 + labels.kernel_spatial.index(d) if d in labels.kernel_spatial else rank + 2 for d in lies
    ]
    return make.transpose(image, (0, *places, rank + 1))


def _met(place: int, dim: WindowDim) -> tuple[int, int, int]:
    """Along one dimension, what the window meets at an output position."""
    first = place * dim.stride
    return first, first + (dim.size - 1) * dim.window_dilation + 1, dim.window_dilation


def _kernel_matrix(
    kernel: HloInstruction, labels: ConvDims, window: tuple[WindowDim, ...]
) -> HloInstruction:
    """The kernel as ``[taps, features, out]``, turned round where the window says so."""
    ordered = ordered_kernel(kernel, labels, window)
    return make.reshape(ordered, (math.prod(ordered.array.dims[:-2]), *ordered.array.dims[-2:]))


def _features_to_fill(features: int, taps: int) -> int:
    """Features of zeros with which each tap's lanes begin at a whole tile, where they are few.

    Otherwise every other tap's features are moved by a part of the lanes.
    """
    more = -features % LANES
    tiles, filled = -(-taps * features // LANES), taps * (features + more) // LANES
    return more if taps > 1 and filled <= _MOST_FILLED * tiles else 0


def _tap_slices(
    instr: HloInstruction, labels: ConvDims, order: ImageOrder, more: int = 0
) -> list[HloInstruction]:
    """What each tap meets over all output positions, in the dimensions of `order`."""
    padded = _image(instr, labels, order, more)
    window = order.around(instr.window.dims, WindowDim(1))
    positions = tuple(instr.array.dims[d] for d in labels.output_spatial)
    batch = instr.operands[0].array.dims[labels.input_batch]
    counts = (*order.around(positions, batch)[:-1], padded.array.dims[-1])
    return [tap_slice(padded, window, offsets, counts) for offsets in window_taps(window)]


def _image(
    instr: HloInstruction, labels: ConvDims, order: ImageOrder, more: int = 0
) -> HloInstruction:
    """The image with padding, dilation and `more` features, in the dimensions of `order`."""
    image = make.transpose(instr.operands[0], order.image(labels))
    window = (*order.around(instr.window.dims, WindowDim(1))[:-1], WindowDim(1, pad_high=more))
    return padded_operand(image, make.constant(image, image.array.dtype, 0), window)


def _columns(
    instr: HloInstruction, labels: ConvDims, order: ImageOrder, more: int = 0
) -> HloInstruction:
    """The image's taps side by side: ``[positions.., batch, taps * features]``, or batch first."""
    parts = _tap_slices(instr, labels, order, more)
    if len(parts) == 1:
        return parts[0]
    counts = parts[0].array.dims
    shape = parts[0].array.with_dims((*counts[:-1], len(parts) * counts[-1]))
    return emit(instr, "concatenate", shape, parts, {"dimensions": (len(counts) - 1,)})


def _plain_dot(
    instr: HloInstruction, labels: ConvDims, columns: HloInstruction, dims: Dims, more: int
) -> HloInstruction:
    """Contract taps and features, `more` of them zeros.

    The kernel keeps its dimensions, so that the dot may take it as it lies, along either side. Rows of few
    features keep theirs: one of them may be put along the lanes.
    """
    kernel = ordered_kernel(instr.operands[1], labels, instr.window.dims)
    *lead, depth = columns.array.dims
    features, out = kernel.array.dims[-2:]
    is_narrow = rows_fill_lanes(tuple(lead), (features, out))
    if more:
        around = (*(WindowDim(1),) * len(labels.kernel_spatial), WindowDim(1, pad_high=more))
        zero = make.constant(kernel, kernel.array.dtype, 0)
        kernel = padded_operand(kernel, zero, (*around, WindowDim(1)))
    if is_narrow:
        matrix = make.reshape(kernel, (depth, out))
        attrs = product_attributes(instr, (len(lead),), (0,))
        return emit(instr, "dot", instr.array.with_dims(dims), (columns, matrix), attrs)
    *deep, out = kernel.array.dims
    rows = math.prod(dims[:-1])
    left = make.reshape(columns, (rows, *deep))
    count = len(deep)
    attrs = product_attributes(instr, tuple(range(1, count + 1)), tuple(range(count)))
    return emit(instr, "dot", instr.array.with_dims((rows, out)), (left, kernel), attrs)


def _grouped_dot(
    instr: HloInstruction,
    columns: HloInstruction,
    kernel: HloInstruction,
    groups: int,
    dims: Dims,
) -> HloInstruction:
    """Contract taps and features, each group's outputs with its features."""
    taps, features, out = kernel.array.dims
    rows = math.prod(dims[:-1])
    left = make.reshape(columns, (rows, taps, groups, features))
    right = make.reshape(kernel, (taps, features, groups, out // groups))
    shape = instr.array.with_dims((groups, rows, out // groups))
    attrs = product_attributes(instr, (1, 3), (0, 1), batch=(2,))
    dot = emit(instr, "dot", shape, (left, right), attrs)
    return make.transpose(dot, (1, 0, 2))
