"""Epilogues get every finished tile once, with the right numbers, as it is popped or after."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.analysis.kernel_vmem import held_rows
from compiler.backend.dot import Affine, Epilogue, ResultTile, emit_matmul_stage
from compiler.backend.vector.arrays import VmemArray, whole_array
from compiler.hlo.dtypes import BF16, F32
from compiler.hlo.shape import ArrayShape
from compiler.llo.builder import LloBuilder, f32_bits
from compiler.llo.finalize import finalize_kernel
from compiler.llo.ir import LloKernel, SReg, VReg
from compiler.llo.walk import op_count
from tests.support.kernel_runs import CycleCounter, bf16_rows, run_kernel, window_rows
from tpu_sim.isa.chips import load_chip

CHIP = load_chip("v5e")


def array(b: LloBuilder, name: str, dtype: object, dims: tuple[int, int]) -> VmemArray:
    shape = ArrayShape(dtype, dims)  # type: ignore[arg-type]
    return whole_array(shape, b.window(name, held_rows(shape, dims)))


def value(b: LloBuilder, number: Affine) -> SReg:
    return b.saddi(b.smuli(number.sreg, number.factor), number.offset)


def kernel_of(m: int, k: int, n: int, extra_ops: int = 0, parts: int = 1) -> LloKernel:
    """bf16(tanh-free polynomial of lhs @ rhs) into a packed output."""
    b = LloBuilder("dot", CHIP)
    lhs = [array(b, f"lhs{i}", BF16, (m, k)) for i in range(parts)]
    rhs = [array(b, f"rhs{i}", BF16, (k, n)) for i in range(parts)]
    scratch, out = array(b, "scratch", F32, (m, n)), array(b, "out", BF16, (m, n))

    def finish(tile: ResultTile, even: VReg, odd: VReg) -> None:
        row = b.smuli(
            b.sadd(b.smuli(value(b, tile.row_tile), out.col_tiles), value(b, tile.col_tile)), 8
        )
        halves = []
        for half in (even, odd):
            for _ in range(extra_ops):
                half = b.emit("vmuli.f32", half, f32_bits(1.0))
            halves.append(b.emit("vaddi.f32", half, f32_bits(1.0)))
        b.emit("vst", out.window, b.sadd(out.base, row), 0, 1, b.emit("vpack.bf16", *halves))

    emit_matmul_stage(b, CHIP, lhs, rhs, False, scratch, epilogue=Epilogue(finish, extra_ops + 2))
    return b.finish()


@pytest.mark.parametrize(
    ("m", "k", "n", "parts"),
    [
        (16, 128, 128, 1),
        (8, 1024, 256, 1),  # short passes, sums carried in vregs
        (128, 256, 256, 1),
        (320, 128, 256, 1),  # long passes, one a sum
        (272, 1024, 128, 1),  # long passes by columns
        (272, 1024, 256, 1),
        (40, 640, 256, 1),  # a remainder of K: a pass of its own
        (24, 200, 256, 2),
    ],
)
def test_every_tile_is_finished_once(m: int, k: int, n: int, parts: int) -> None:
    rng = np.random.default_rng(m * k * n)
    lhs = rng.integers(-2, 3, (m, k)).astype(np.float32)
    rhs = rng.integers(-2, 3, (k, n)).astype(np.float32)
    kernel = finalize_kernel(kernel_of(m, k, n, parts=parts), CHIP, check=True)
    vmem = {0: bf16_rows(lhs), parts: bf16_rows(rhs)}
    for i in range(1, parts):
        vmem[i], vmem[parts + i] = bf16_rows(0 * lhs), bf16_rows(0 * rhs)
    state = run_kernel(kernel, CHIP, vmem)
    want = bf16_rows(np.concatenate([lhs @ rhs + 1, np.ones((-m % 16, n), np.float32)]))
    got = window_rows(state, kernel, 2 * parts + 1)[: len(want)]
    rows_held = np.arange(len(want)) % 8 < (m % 16 or 16) // 2
    last = np.arange(len(want)) >= len(want) - 8 * -(-n // 128)
    kept = rows_held | ~last
    np.testing.assert_array_equal(got[kept], want[kept])


@pytest.mark.parametrize(("m", "k", "n"), [(512, 512, 1024), (512, 1024, 1024), (128, 1024, 1024)])
def test_an_epilogue_hides_behind_the_matmuls(m: int, k: int, n: int) -> None:
    llo = kernel_of(m, k, n, extra_ops=12)
    assert op_count(llo) < 4600
    kernel = finalize_kernel(llo, CHIP)
    assert CycleCounter(CHIP).count(kernel.body).occupancy > 0.8
