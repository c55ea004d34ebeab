"""The MXU pass on a host's matrix unit (x86's AMX): 16 rows of packed bf16 times 128x128 weights.

Its bf16 product computes what `tpu_sim.isa.rows.mxu` states, of weights laid out as
`weight_layout.PAIRS`. The result is 16 rows of 512 bytes: two vregs, the 8 low rows and the 8 high
rows.
"""

from __future__ import annotations

from tpu_sim.isa.geometry import ROW_BYTES
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.mxu_chains import ROWS, pass_function, plain_function

_K_BLOCKS = 4
_TILE_BYTES = 1024
_TILE_ROW_BYTES = 64
_BLOCK_WEIGHTS = 16 * ROW_BYTES
_TOTALS = 4  # tiles 0..3
_LEFT = 4
_WEIGHTS = (5, 6, 7)


_TILE_HOST_LANES = 16
"""A host with tiles has AVX-512."""


def tiles_text(name: str) -> str:
    """``void name(out, lhs, weights, next)`` of bf16 on AMX tiles, configured by the calling thread.

    `next` is where the left side of the following pass is expected: it is fetched meanwhile.
    """
    return pass_function(name, _tile_pass("tdpbf16ps"), _TILE_HOST_LANES)


def integer_tiles_text(name: str, *, is_signed: bool) -> str:
    """The same of bytes, a pair of them in place of each bf16; results are s32."""
    return plain_function(name, _tile_pass("tdpbssd" if is_signed else "tdpbuud"))


def _tile_pass(product: str) -> FunctionEmitter:
    """`product` is the instruction that multiplies two tiles."""
    e = FunctionEmitter()
    e.do(f"%left = alloca [{_K_BLOCKS * _TILE_BYTES} x i8], align 64")
    _gather_left(e, 0)
    for first in range(0, ROW_BYTES // _TILE_ROW_BYTES, _TOTALS):
        _tile_columns(e, first, product)
    return e


def _gather_left(e: FunctionEmitter, block: int) -> None:
    """The left side of 32 k as a tile: row r holds pairs of k, low rows before high ones."""
    packed = "<64 x i16>"
    for sublane in range(ROWS // 2):
        source = e.offset("%lhs", sublane * ROW_BYTES + block * 2 * _TILE_ROW_BYTES)
        words = e.load(packed, source, _TILE_ROW_BYTES)
        for half in (0, 1):
            picks = ", ".join(f"i32 {2 * k + half}" for k in range(32))
            row = e.value(f"shufflevector {packed} {words}, {packed} poison, <32 x i32> <{picks}>")
            at = block * _TILE_BYTES + (half * ROWS // 2 + sublane) * _TILE_ROW_BYTES
            e.store("<32 x i16>", row, e.offset("%left", at), _TILE_ROW_BYTES)


def _tile_columns(e: FunctionEmitter, first: int, product: str) -> None:
    """Four tiles of the result, 16 columns each, from column tile `first`."""
    for total in range(_TOTALS):
        e.do(f"call void @llvm.x86.tilezero(i8 {total})")
    for block in range(_K_BLOCKS):
        if first == 0 and block + 1 < _K_BLOCKS:  # the vector units work while the tiles multiply
            _gather_left(e, block + 1)
        elif first:
            _prefetch(e, block)
        _load_tile(e, _LEFT, e.offset("%left", block * _TILE_BYTES), _TILE_ROW_BYTES)
        for total in range(_TOTALS):
            weights = _WEIGHTS[total % len(_WEIGHTS)]
            at = block * _BLOCK_WEIGHTS + (first + total) * _TILE_ROW_BYTES
            _load_tile(e, weights, e.offset("%weights", at), ROW_BYTES)
            e.do(f"call void @llvm.x86.{product}(i8 {total}, i8 {_LEFT}, i8 {weights})")
    for total in range(_TOTALS):
        out = e.offset("%out", (first + total) * _TILE_ROW_BYTES)
        e.do(f"call void @llvm.x86.tilestored64(i8 {total}, ptr {out}, i64 {ROW_BYTES})")


def _prefetch(e: FunctionEmitter, block: int) -> None:
    """Fetch a part of what the next pass is expected to multiply."""
    size = ROWS * ROW_BYTES // 2 // _K_BLOCKS
    for line in range(block * size, (block + 1) * size, _TILE_ROW_BYTES):
        e.do(f"call void @llvm.prefetch.p0(ptr {e.offset('%next', line)}, i32 0, i32 3, i32 1)")


def _load_tile(e: FunctionEmitter, tile: int, source: str, stride_bytes: int) -> None:
    e.do(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr {source}, i64 {stride_bytes})")
