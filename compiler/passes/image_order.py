"""In which order a convolution's image is read: batch first, or innermost next to the features.

Taps of a window are slices that begin at any position. In ``[batch, h, w, features]`` the last
position dimension lies along the sublanes, and every tap moves rows by less than a tile. In
``[h, w, batch, features]`` a tap begins at whole tiles and rows of all positions merge without
padding; that is the order taken where the batch fills tiles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

from compiler.hlo.attributes import ConvDims, WindowDim
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.geometry import SUBLANES

Item = TypeVar("Item")
_LEAST_FEATURES = 32
"""Features of image and result: with fewer, lanes stay empty and more rows only cost."""
_LEAST_ROWS = 256
"""Rows of the product from which turning the image pays."""


@dataclass(frozen=True)
class ImageOrder:
    """The order of dimensions; features come last in both."""

    batch_inside: bool

    def around(self, spatial: tuple[Item, ...], other: Item) -> tuple[Item, ...]:
        """`spatial` with `other` for the batch and for the features."""
        return (*spatial, other, other) if self.batch_inside else (other, *spatial, other)

    def image(self, labels: ConvDims) -> tuple[int, ...]:
        """The image's dimensions in this order."""
        return self._placed(labels.input_spatial, labels.input_batch, labels.input_feature)

    def result(self, labels: ConvDims) -> tuple[int, ...]:
        """The result's dimensions in this order."""
        return self._placed(labels.output_spatial, labels.output_batch, labels.output_feature)

    def _placed(self, spatial: tuple[int, ...], batch: int, feature: int) -> tuple[int, ...]:
        return (*spatial, batch, feature) if self.batch_inside else (batch, *spatial, feature)


def image_order(convolution: HloInstruction) -> ImageOrder:
    """The order for a convolution; one whose image and result lie so keeps it."""
    labels, window = convolution.dim_labels, convolution.window
    image = convolution.operands[0].array
    inside = ImageOrder(batch_inside=True)
    if inside.image(labels) == inside.result(labels) == tuple(range(image.rank)):
        return inside
    positions = tuple(convolution.array.dims[d] for d in labels.output_spatial)
    batch, features = image.dims[labels.input_batch], image.dims[labels.input_feature]
    out = convolution.array.dims[labels.output_feature]
    return ImageOrder(is_batch_inside(batch, positions, features, out, window.dims))


def is_batch_inside(
    batch: int, positions: tuple[int, ...], features: int, out: int, window: tuple[WindowDim, ...]
) -> bool:
    """Whether a convolution of these sizes is read with the batch next to the features."""
    count = batch * math.prod(positions)
    is_narrow = min(features, out) < _LEAST_FEATURES
    if is_narrow or not positions or batch % SUBLANES or count < _LEAST_ROWS:
        return False
    is_tiled = math.prod(d.size for d in window) == 1 and positions[-1] % SUBLANES == 0
    return not (is_tiled and all(d.stride == 1 for d in window))


def has_few_positions(convolution: HloInstruction) -> bool:
    """Whether a convolution has more taps than positions, as the gradient of a kernel has.

    What each position meets is read as a whole then, batch and features as they lie.
    """
    taps = math.prod(d.size for d in convolution.window.dims)
    return (
        math.prod(convolution.array.dims[d] for d in convolution.dim_labels.output_spatial) < taps
    )


def minor_dim(image: HloInstruction) -> int:
    """The dimension along which an image lies in memory, as far as it is a turned parameter.

    What is computed element by element lies as its largest operand that is not repeated; what is put together
    lies as its parts.
    """
    if image.opcode == "concatenate":
        found = {minor_dim(o) for o in image.operands}
        return found.pop() if len(found) == 1 else image.array.rank - 1
    if image.opcode == "transpose":
        return image.dimensions.index(minor_dim(image.operands[0]))
    if OPCODES[image.opcode].has(Trait.ELEMENTWISE):
        whole = [o for o in image.operands if not OPCODES[o.opcode].has(Trait.SYMBOLIC)]
        same = [o for o in whole if isinstance(o.shape, ArrayShape) and _is_like(o, image)]
        if same:
            return minor_dim(same[0])
    return image.array.rank - 1


def _is_like(operand: HloInstruction, image: HloInstruction) -> bool:
    return operand.array.dims == image.array.dims
