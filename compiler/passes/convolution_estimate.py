"""What a convolution costs as the tap expander makes it, in cycles: to compare forms of one.

    product     row tiles times column tiles times depth tiles, shared by the MXUs
    pieces      vregs that the taps' slices are put together from in the product's kernel: one for
                each tap and eight rows; dear where they move lanes or rows against each other
    movement    arrays that another kernel reads and writes, lanes beyond the last dimension included

The numbers are those of kernels of this compiler on its chips, within a third or so: what is decided
by them is a factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.analysis.code_costs import ConvolutionCosts, KernelCosts
from compiler.analysis.dot_parts import stated_precision
from compiler.hlo.attributes import WindowDim
from compiler.hlo.ir import HloInstruction
from compiler.passes.image_order import is_batch_inside, minor_dim
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, SUBLANES

_MXU_ROWS = 16
_PASSES = {"default": 1, "high": 3, "highest": 6}
_MOST_PLANES = 32
"""Taps times features out whose planes are added in one kernel: registers hold half as many as they are."""
_WORTH_PLANES = 0.75
"""Of the estimate with taps before the product: beyond, planes are not tried."""
_MEMORY_SHARE = 0.85
"""Of the bandwidth of device memory that a kernel gets which moves data."""


@dataclass(frozen=True)
class ConvSizes:
    """A convolution in numbers: `image` and `positions` are spatial sizes, `item_bytes` those of an
    element of image and result. A result that is `made` into another need not be turned by a kernel
    of its own. `along` is the spatial dimension along which the image lies; None: its features."""

    batch: int
    image: tuple[int, ...]
    features: int
    window: tuple[WindowDim, ...]
    positions: tuple[int, ...]
    out: int
    item_bytes: int
    passes: int = 1
    is_result_made: bool = False
    along: int | None = None

    @property
    def image_bytes(self) -> int:
        """Bytes of the image as it lies, lanes that nothing lies in included."""
        count = self.batch * math.prod(self.image)
        if self.along is None:
            return moved_bytes(count, self.features, self.item_bytes)
        minor = self.image[self.along]
        return moved_bytes(count // minor * self.features, minor, self.item_bytes)

    @property
    def taps(self) -> int:
        """Positions of the window."""
        return math.prod(d.size for d in self.window)

    @property
    def rows(self) -> int:
        """Rows of the product."""
        return self.batch * math.prod(self.positions)


def sizes_of(instr: HloInstruction, precision: str) -> ConvSizes:
    """The sizes of a convolution without groups; `precision` is that of f32 if it states none."""
    labels, window = instr.dim_labels, instr.window
    image, result = instr.operands[0].array, instr.array
    is_exact = image.dtype.bits <= 16
    passes = 1 if is_exact else _PASSES[stated_precision(instr) or precision]
    minor, spatial = minor_dim(instr.operands[0]), labels.input_spatial
    return ConvSizes(
        image.dims[labels.input_batch],
        tuple(image.dims[d] for d in labels.input_spatial),
        image.dims[labels.input_feature],
        window.dims,
        tuple(result.dims[d] for d in labels.output_spatial),
        result.dims[labels.output_feature],
        max(1, image.dtype.bits // 8),
        passes,
        along=spatial.index(minor) if minor in spatial else None,
    )


def product_cycles(rows: int, depth: int, columns: int, chip: Chip) -> float:
    """Cycles of ``[rows, depth] x [depth, columns]`` on the MXUs."""
    tiles = -(-rows // _MXU_ROWS) * -(-depth // LANES) * -(-columns // LANES)
    return tiles * chip.matmul_cycles / chip.mxu_units / chip.mxu_sustained


def adds_planes(sizes: ConvSizes, chip: Chip) -> bool:
    """Whether the taps of a convolution come after its product, as planes that are added (`plane_taps`)."""
    window = sizes.window
    if sizes.taps == 1 or not sizes.positions or sizes.taps * sizes.out > _MOST_PLANES:
        return False
    if 0 in sizes.image or any(d.base_dilation > 1 or d.stride > 1 for d in window):
        return False
    return _after_cycles(sizes, chip) < _WORTH_PLANES * _rows_cycles(sizes, chip)


def convolution_cycles(sizes: ConvSizes, chip: Chip) -> float:
    """Cycles of a convolution whose image and result lie features last, positions before, in the form
    that is computed."""
    return _after_cycles(sizes, chip) if adds_planes(sizes, chip) else _rows_cycles(sizes, chip)


def _after_cycles(sizes: ConvSizes, chip: Chip) -> float:
    """Cycles of a product with the taps side by side, and of adding up its planes."""
    source = math.prod(sizes.image) * sizes.batch
    columns = sizes.taps * sizes.out
    product = sizes.passes * product_cycles(source, sizes.features, columns, chip)
    costs, kernels = ConvolutionCosts.of(chip), KernelCosts.of(chip)
    turned = source / LANES * -(-columns // LANES) * costs.gathered_block
    read = memory_cycles(moved_bytes(source, sizes.features, sizes.item_bytes), chip)
    last = sizes.image[-1]
    planes = source // last * -(-last // LANES) / SUBLANES * columns
    return 2 * kernels.alone + max(product + turned, read) + planes * costs.plane


def _rows_cycles(sizes: ConvSizes, chip: Chip) -> float:
    """The same with the taps side by side along the lanes."""
    inside = _is_inside(sizes)
    holes = math.prod(d.base_dilation for d in sizes.window)
    source = math.prod(sizes.image) * sizes.batch
    read = moved_bytes(source * (holes if inside else 1), sizes.features, sizes.item_bytes)
    written = moved_bytes(sizes.rows, sizes.out, sizes.item_bytes)
    busy = max(rows_work(sizes, chip), memory_cycles(read + written, chip))
    turning = 0.0
    if inside or sizes.along is not None:
        turning += movement_cycles(sizes.image_bytes, read, 0, chip)
    if inside and not sizes.is_result_made:
        turning += movement_cycles(written, written, 0, chip)
    return KernelCosts.of(chip).alone + busy + turning


def rows_work(sizes: ConvSizes, chip: Chip) -> float:
    """Cycles of the product with the taps side by side, and of putting its rows together; without those
    in which arrays are moved."""
    inside = _is_inside(sizes)
    product = sizes.passes * product_cycles(
        sizes.rows, sizes.taps * sizes.features, sizes.out, chip
    )
    count = -(-sizes.rows // SUBLANES) * sizes.taps * -(-sizes.features // LANES)
    is_tiled = sizes.window[-1:] == (WindowDim(1),) and sizes.positions[-1] % _MXU_ROWS == 0
    costs = ConvolutionCosts.of(chip)
    each = costs.position_piece
    if inside or is_tiled:
        each = costs.whole_piece if sizes.features % LANES == 0 else costs.row_piece
    return product + count * each


def _is_inside(sizes: ConvSizes) -> bool:
    return is_batch_inside(sizes.batch, sizes.positions, sizes.features, sizes.out, sizes.window)


def moved_bytes(rows: int, lanes: int, item_bytes: int) -> int:
    """Bytes of an array, lanes that nothing lies in included."""
    return rows * -(-lanes // LANES) * LANES * item_bytes


def memory_cycles(count: int, chip: Chip) -> float:
    """Cycles in which so many bytes move from or to device memory."""
    return count / (chip.hbm_bytes_per_cycle * _MEMORY_SHARE)


def movement_cycles(read: int, written: int, pieces: float, chip: Chip) -> float:
    """Cycles of a kernel that reads and writes so many bytes and moves so many vregs."""
    moving = memory_cycles(read + written, chip)
    gathering = pieces * ConvolutionCosts.of(chip).gathered_piece
    return KernelCosts.of(chip).alone + max(moving, gathering)


def turned_movement_cycles(read: int, written: int, blocks: int, chip: Chip) -> float:
    """Cycles of moving so many bytes, and of gathering and turning so many 128x128 blocks."""
    moving = movement_cycles(read, read, 0, chip) + memory_cycles(read + written, chip)
    return max(moving, blocks * ConvolutionCosts.of(chip).gathered_block)


def band_cycles(depth: int, columns: int, out: int, chip: Chip) -> float:
    """Cycles of a band of so many rows and columns, of kernels with `out` features."""
    vregs = -(-depth // SUBLANES) * -(-columns // LANES)
    pieces = -(-min(columns, LANES) // min(out, LANES))
    costs = ConvolutionCosts.of(chip)
    return vregs * min(pieces * costs.band_piece, costs.band_register)


def gradient_cycles(sizes: ConvSizes, chip: Chip) -> float:
    """Cycles of a convolution of few positions and many taps: a kernel's gradient.

    Batch and positions are the columns of the left side, which goes through the transpose unit (or
    the right one does).
    """
    places = math.prod(sizes.positions)
    depth, rows = sizes.taps * sizes.features, sizes.batch * places
    product = sizes.passes * product_cycles(rows, depth, sizes.out, chip)
    narrow = min(-(-rows // LANES), -(-sizes.out // LANES))
    costs = ConvolutionCosts.of(chip)
    turned = -(-depth // LANES) * narrow * costs.transposed_block
    is_whole = sizes.features % SUBLANES == 0
    each = costs.position_piece
    if is_whole:
        each = costs.whole_piece if sizes.batch % LANES == 0 else costs.row_piece
    count = -(-depth // SUBLANES) * places * -(-sizes.batch // LANES)
    pieces = count * each
    elements = math.prod(sizes.image) * sizes.features
    image = moved_bytes(elements, sizes.batch, sizes.item_bytes)
    read = image + moved_bytes(depth, sizes.out, sizes.item_bytes)
    plain = image if sizes.along is None else sizes.image_bytes
    turning = movement_cycles(plain, image, 0, chip)
    busy = max(product + turned + pieces, memory_cycles(read, chip))
    return KernelCosts.of(chip).alone + busy + turning
