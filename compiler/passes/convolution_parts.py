"""A convolution in parts of its batch, one after another, where what it reads would take too much memory.

A dilated image is stored with its holes by some forms of a convolution. Where that is only the way out of a
faster form that holds for finite numbers alone, it must not ask for memory that the program does not need.
"""

from __future__ import annotations

import math

from compiler.hlo.attributes import ConvDims, Window
from compiler.hlo.ir import HloInstruction
from compiler.passes.convolution_estimate import moved_bytes
from compiler.rewrite import make
from compiler.rewrite.graph import emit


def convolution_in_parts(
    instr: HloInstruction,
    image: HloInstruction,
    kernel: HloInstruction,
    attrs: dict[str, object],
    room_bytes: int,
) -> HloInstruction:
    """The result of `instr` as a convolution of `image` with the window and dimensions of `attrs`;
    in as few equal parts of the batch as keep the image with its holes within `room_bytes`."""
    labels, window = attrs["dim_labels"], attrs["window"]
    assert isinstance(labels, ConvDims) and isinstance(window, Window)
    batch = image.array.dims[labels.input_batch]
    needed = _bytes_with_holes(image, labels, window)
    counts = [n for n in range(1, batch + 1) if batch % n == 0]
    count = next((n for n in counts if needed <= n * room_bytes), batch)
    if count == 1 or instr.batch_group_count > 1:
        return emit(image, "convolution", instr.array, (image, kernel), attrs)
    parts: list[HloInstruction] = []
    for number in range(count):
        bounds = [(0, n, 1) for n in image.array.dims]
        size = batch // count
        bounds[labels.input_batch] = (number * size, (number + 1) * size, 1)
        dims = list(instr.array.dims)
        dims[labels.output_batch] = size
        part = make.slice_(image, tuple(bounds))
        shape = instr.array.with_dims(tuple(dims))
        parts.append(emit(image, "convolution", shape, (part, kernel), attrs))
    joined: dict[str, object] = {"dimensions": (labels.output_batch,)}
    return emit(image, "concatenate", instr.array, parts, joined)


def _bytes_with_holes(image: HloInstruction, labels: ConvDims, window: Window) -> int:
    """Bytes of the dilated image, its features in whole lanes."""
    sizes = [
        (image.array.dims[place] - 1) * d.base_dilation + 1
        for place, d in zip(labels.input_spatial, window.dims, strict=True)
    ]
    rows = math.prod(sizes) * image.array.dims[labels.input_batch]
    features = image.array.dims[labels.input_feature]
    return moved_bytes(rows, features, max(image.array.dtype.bits // 8, 1))
