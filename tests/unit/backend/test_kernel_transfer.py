"""DMA descriptors of boxes: every element arrives at the place the VMEM convention says."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.analysis.tiled_layout import default_layout
from compiler.backend.device_bytes import device_bytes
from compiler.backend.transfer import TransferPiece, box_pieces, box_tiles, hbm_tiling
from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.shape import ArrayShape, Layout
from tpu_sim.isa.geometry import SUBLANES

CASES = [
    ("f32", (20, 300)), ("f32", (3, 300)), ("f32", (2, 5, 17, 130)), ("f32", (2500,)), ("f32", (7,)),
    ("f32", ()), ("bf16", (40, 300)), ("bf16", (24, 300)), ("bf16", (8, 128)), ("bf16", (1, 200)),
    ("bf16", (3, 72, 130)), ("bf16", (3000,)), ("s8", (70, 200)), ("s8", (5, 200)),
    ("pred", (40, 200)), ("pred", (2000,)), ("u8", (2, 3, 33, 129)),
]  # fmt: skip


def shape_of(dtype: str, dims: tuple[int, ...]) -> ArrayShape:
    shape = ArrayShape(BY_NAME[dtype], dims)
    return shape.with_layout(default_layout(shape))


def numbers(shape: ArrayShape) -> np.ndarray:
    values = np.random.default_rng(0).integers(
        0, 2 if shape.dtype.name == "pred" else 100, shape.dims
    )
    return np.asarray(values).astype(shape.dtype.numpy)


def move(
    source: np.ndarray, target: np.ndarray, piece: TransferPiece, at: int, to: int, count: int
) -> None:
    """Copy rows of 512 bytes as a descriptor says, from HBM to VMEM."""
    dims = [
        (count if d.count < 0 else d.count, d.src_stride, d.dst_stride)
        for d in piece.descriptor.dims
    ]
    for index in np.ndindex(*(d[0] for d in dims)):
        s = at + sum(i * d[1] for i, d in zip(index, dims, strict=True))
        t = to + sum(i * d[2] for i, d in zip(index, dims, strict=True))
        target[t : t + piece.descriptor.chunk] = source[s : s + piece.descriptor.chunk]


def element(
    vmem: np.ndarray, shape: ArrayShape, box: tuple[int, ...], index: tuple[int, ...]
) -> object:
    """The element of a held box by the VMEM convention; `index` counts from the box's start."""
    p = shape.dtype.packing
    if shape.rank < 2:
        place = index[0] if index else 0
        row, col, major, row_tiles, col_tiles = place // 128, place % 128, 0, 0, 1
    else:
        tiles = box_tiles(shape, box)
        row_tiles, col_tiles = tiles.rows, tiles.cols
        row, col = index[-2:]
        major = 0
        for i, extent in zip(index[:-2], box[:-2], strict=True):
            major = major * extent + i
    tile = (major * row_tiles + row // (8 * p)) * col_tiles + col // 128
    inner = row % (8 * p)
    words = vmem[tile * SUBLANES + inner // p].view(f"u{shape.dtype.bits // 8}").reshape(128, p)
    return words[col % 128, inner % p]


@pytest.mark.parametrize(("dtype", "dims"), CASES)
def test_a_whole_array_lands_as_vreg_tiles(dtype: str, dims: tuple[int, ...]) -> None:
    shape = shape_of(dtype, dims)
    values = numbers(shape)
    hbm = np.frombuffer(device_bytes(values, shape), np.uint8).reshape(-1, 512)
    box = box_tiles(shape, dims)
    vmem = np.zeros((box.vmem_rows, 512), np.uint8)
    for piece in box_pieces(hbm_tiling(shape), box, 0, to_vmem=True):
        move(hbm, vmem, piece, piece.hbm_offset, piece.vmem_offset, 0)
    carrier = values.view(f"u{shape.dtype.bits // 8}")
    for index in list(np.ndindex(*dims))[:: max(1, values.size // 500)]:
        assert element(vmem, shape, dims, index) == carrier[index]


@pytest.mark.parametrize(("dtype", "rows"), [("bf16", 24), ("pred", 40), ("f32", 24), ("s8", 96)])
def test_blocks_of_rows_move_nothing_outside_the_array(dtype: str, rows: int) -> None:
    """A vreg tile at the lower edge may lack HBM tiles: the dynamic count leaves them out."""
    shape = shape_of(dtype, (rows, 256))
    values = numbers(shape)
    tiling = hbm_tiling(shape)
    hbm = np.frombuffer(device_bytes(values, shape), np.uint8).reshape(-1, 512)
    assert len(hbm) == tiling.total_granules
    unit = 8 * shape.dtype.packing
    for first in range(-(-rows // unit)):
        box = box_tiles(shape, (unit, 256))
        vmem = np.zeros((box.vmem_rows, 512), np.uint8)
        at = first * tiling.ratio * tiling.row_stride
        for piece in box_pieces(tiling, box, 0, to_vmem=True):
            count = min(box.rows, piece.dynamic_limit - first) if piece.dynamic_limit >= 0 else 0
            move(hbm, vmem, piece, at + piece.hbm_offset, piece.vmem_offset, count)
        held = values[first * unit : (first + 1) * unit].view(f"u{shape.dtype.bits // 8}")
        for index in list(np.ndindex(*held.shape))[::37]:
            assert element(vmem, shape, (unit, 256), index) == held[index]


def test_other_dimension_orders_are_refused() -> None:
    shape = ArrayShape(
        BY_NAME["f32"], (8, 128), Layout((0, 1), shape_of("f32", (8, 128)).layout.tiles)
    )
    with pytest.raises(UnsupportedError, match="descending layout"):
        hbm_tiling(shape)


def test_wide_elements_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="at most 32 bits"):
        hbm_tiling(shape_of("s64", (8, 128)))
