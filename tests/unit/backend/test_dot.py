"""The matmul stage: right results for every plan, and busy MXUs."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest

from compiler.analysis.kernel_vmem import held_rows
from compiler.backend.dot import emit_matmul_stage, emit_split, precision_passes
from compiler.backend.vector.arrays import GUARD_ROWS, VmemArray, whole_array
from compiler.diagnostics import CompileError
from compiler.hlo.dtypes import BF16, F32, DType
from compiler.hlo.shape import ArrayShape
from compiler.llo.builder import LloBuilder
from compiler.llo.finalize import finalize_kernel
from compiler.llo.ir import LloKernel
from compiler.llo.walk import op_count
from tests.support.kernel_runs import (
    CycleCounter,
    bf16_rows,
    f32_matrix,
    f32_rows,
    run_kernel,
    run_watched,
    window_rows,
)
from tpu_sim.isa.chips import load_chip

CHIP = load_chip("v5e")
Matrix = np.ndarray


def array(b: LloBuilder, name: str, dtype: DType, dims: tuple[int, ...]) -> VmemArray:
    shape = ArrayShape(dtype, dims)
    return whole_array(shape, b.window(name, held_rows(shape, dims)), guard=GUARD_ROWS)


def kernel_of(
    m: int, k: int, n: int, transposed: bool = False, parts: int = 1, accumulate: bool = False
) -> LloKernel:
    b = LloBuilder("dot", CHIP)
    rhs_dims = (n, k) if transposed else (k, n)
    lhs = [array(b, f"lhs{i}", BF16, (m, k)) for i in range(parts)]
    rhs = [array(b, f"rhs{i}", BF16, rhs_dims) for i in range(parts)]
    out = array(b, "out", F32, (m, n))
    emit_matmul_stage(b, CHIP, lhs, rhs, transposed, out, accumulate)
    return b.finish()


def split(values: Matrix, parts: int) -> list[Matrix]:
    found = []
    for _ in range(parts):
        high = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
        found.append(high)
        values = values - high
    return found


def product_error(
    m: int, k: int, n: int, transposed: bool = False, parts: int = 1, accumulate: bool = False
) -> float:
    """Largest error of the stage, relative to the largest result."""
    rng = np.random.default_rng(m + k + n)
    lhs, rhs, old = (
        rng.standard_normal(dims).astype(np.float32) for dims in ((m, k), (k, n), (m, n))
    )
    lhs_parts, rhs_parts = split(lhs, parts), split(rhs, parts)
    vmem = {i: bf16_rows(part) for i, part in enumerate(lhs_parts)}
    for i, part in enumerate(rhs_parts):
        vmem[parts + i] = bf16_rows(part.T if transposed else part)
    if accumulate:
        vmem[2 * parts] = f32_rows(old)
    kernel = finalize_kernel(kernel_of(m, k, n, transposed, parts, accumulate), CHIP, check=True)
    state = run_watched(kernel, CHIP, vmem)
    got = f32_matrix(window_rows(state, kernel, 2 * parts), m, n)
    exact = (lhs, rhs) if parts > 1 else (lhs_parts[0], rhs_parts[0])
    want = exact[0].astype(np.float64) @ exact[1].astype(np.float64)
    want += old if accumulate else 0
    return float(np.abs(got - want).max() / np.abs(want).max())


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        (1, 128, 128),
        (8, 128, 256),  # an odd row tile
        (16, 640, 384),  # one step a pass, K in a remainder
        (100, 100, 100),  # rows of the right side end in a block
        (24, 300, 130),
        (128, 128, 128),  # M split over the units
        (160, 256, 128),
        (400, 128, 256),  # long passes
        (304, 512, 256),
        (272, 1024, 128),  # long passes, two a sum
        (288, 768, 256),
        (16, 8192, 128),
    ],
)
def test_products_of_many_shapes(m: int, k: int, n: int) -> None:
    assert product_error(m, k, n) < 1e-6


@pytest.mark.parametrize(("m", "k", "n"), [(32, 256, 256), (40, 200, 300), (8, 64, 32)])
def test_a_transposed_right_side(m: int, k: int, n: int) -> None:
    assert product_error(m, k, n, transposed=True) < 1e-6


@pytest.mark.parametrize(("m", "k", "n"), [(48, 700, 256), (16, 128, 128), (8, 1024, 256)])
def test_accumulation(m: int, k: int, n: int) -> None:
    assert product_error(m, k, n, accumulate=True) < 1e-6


@pytest.mark.parametrize(("parts", "bound"), [(1, 1e-6), (2, 1e-4), (3, 1e-6)])
def test_precisions(parts: int, bound: float) -> None:
    assert product_error(32, 256, 128, parts=parts) < bound


def test_accumulate_when_an_sreg_says_so() -> None:
    b = LloBuilder("dot", CHIP)
    lhs, rhs = array(b, "lhs", BF16, (16, 128)), array(b, "rhs", BF16, (128, 128))
    out = array(b, "out", F32, (16, 128))
    with b.loop(3) as step:
        emit_matmul_stage(b, CHIP, lhs, rhs, False, out, accumulate_when=step)
    kernel = finalize_kernel(b.finish(), CHIP, check=True)
    ones = np.ones((16, 128), np.float32)
    vmem = {0: bf16_rows(ones), 1: bf16_rows(np.eye(128)), 2: f32_rows(ones * np.nan)}
    state = run_kernel(kernel, CHIP, vmem)
    np.testing.assert_array_equal(f32_matrix(window_rows(state, kernel, 2), 16, 128), 3 * ones)


@pytest.mark.parametrize("m,k,n", [(16, 128, 128), (16, 1792, 128), (160, 256, 128)])
def test_nans_of_low_passes_do_not_reach_the_result(m: int, k: int, n: int) -> None:
    """inf * 0 in a low product would make NaN of an infinite result."""
    b = LloBuilder("dot", CHIP)
    lhs = [array(b, f"lhs{i}", BF16, (m, k)) for i in range(2)]
    rhs = [array(b, f"rhs{i}", BF16, (k, n)) for i in range(2)]
    out = array(b, "out", F32, (m, n))
    emit_matmul_stage(b, CHIP, lhs, rhs, False, out)
    kernel = finalize_kernel(b.finish(), CHIP, check=True)
    high = np.zeros((m, k), np.float32)
    high[0, k - 1] = np.inf
    high[1, [0, k - 1]] = [np.inf, -np.inf]  # a NaN of the last product stays
    vmem = {0: bf16_rows(high), 2: bf16_rows(np.ones((k, n)))}
    state = run_kernel(kernel, CHIP, vmem)
    result = f32_matrix(window_rows(state, kernel, 4), m, n)
    assert np.isposinf(result[0]).all() and np.isnan(result[1]).all() and not result[2:].any()


def test_a_split_value_is_the_sum_of_its_parts() -> None:
    b = LloBuilder("split", CHIP)
    x, y = b.window("x", 8), b.window("y", 24)
    for i, part in enumerate(emit_split(b, b.emit("vld", x, 0, 0, 1), 3)):
        b.emit("vst", y, 0, 8 * i, 1, part)
    kernel = finalize_kernel(b.finish(), CHIP)
    values = np.random.default_rng(0).standard_normal((8, 128)).astype(np.float32) * 1e10
    values[0, :4] = [np.inf, -np.inf, np.nan, 0]
    state = run_kernel(kernel, CHIP, {x: values.view(np.uint32)})
    parts = np.ascontiguousarray(window_rows(state, kernel, y)).view(np.float32).reshape(3, 8, 128)
    assert not (parts.view(np.uint32) & 0xFFFF).any(), "each part is exact in bf16"
    np.testing.assert_array_equal(parts[0] + (parts[1] + parts[2]), values)


def test_precision_passes_come_small_first() -> None:
    assert precision_passes(1, 1) == [(0, 0)]
    assert precision_passes(3, 3)[-1] == (0, 0) and len(precision_passes(3, 3)) == 6
    assert precision_passes(1, 3) == [(0, 2), (0, 1), (0, 0)]


@pytest.mark.parametrize(
    ("m", "k", "n", "share"),
    [
        (512, 1024, 1024, 0.94),
        (1024, 512, 512, 0.92),
        (128, 1024, 1024, 0.85),
        (16, 2048, 2048, 0.8),
    ],
)
def test_the_mxus_are_busy(m: int, k: int, n: int, share: float) -> None:
    llo = kernel_of(m, k, n)
    assert op_count(llo) < 3000
    kernel = finalize_kernel(llo, CHIP)
    assert CycleCounter(CHIP).count(kernel.body).occupancy > share


@pytest.mark.parametrize("name", ["v4", "v6e", "7x"])
@pytest.mark.parametrize(("m", "k", "n"), [(512, 256, 128), (320, 128, 256), (16, 384, 256)])
def test_other_chips(name: str, m: int, k: int, n: int) -> None:
    chip = load_chip(name)
    b = LloBuilder("dot", chip)
    lhs, rhs = array(b, "lhs", BF16, (m, k)), array(b, "rhs", BF16, (k, n))
    out = array(b, "out", F32, (m, n))
    emit_matmul_stage(b, chip, lhs, rhs, False, out)
    kernel = finalize_kernel(b.finish(), chip, check=True)
    rng = np.random.default_rng(m)
    a, c = rng.integers(-2, 3, (m, k)), rng.integers(-2, 3, (k, n))
    state = run_kernel(kernel, chip, {0: bf16_rows(a), 1: bf16_rows(c)})
    np.testing.assert_array_equal(f32_matrix(window_rows(state, kernel, 2), m, n), a @ c)


BATCHED = [
    # majors, m, k, n
    ((3,), 16, 128, 128),  # fewer than MXUs
    ((9,), 16, 128, 128),  # one is left over
    ((2, 3), 24, 40, 17),
    ((5,), 8, 300, 200),  # sums of several passes
    ((3,), 40, 128, 256),
    ((2,), 300, 256, 128),  # long passes
    ((2,), 272, 400, 300),
]


@pytest.mark.parametrize("name", ["v5e", "v6e"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("majors", "m", "k", "n"), BATCHED)
def test_batches(
    majors: tuple[int, ...], m: int, k: int, n: int, transposed: bool, name: str
) -> None:
    chip, count = load_chip(name), prod(majors)
    rng = np.random.default_rng(m * k)
    lhs, rhs = rng.integers(-2, 3, (count, m, k)), rng.integers(-2, 3, (count, k, n))
    old = rng.integers(-9, 9, (count, m, n)).astype(np.float32)
    held = rhs.swapaxes(1, 2) if transposed else rhs
    b = LloBuilder("dot", chip)
    arrays = [
        array(b, name, dtype, (*majors, *values.shape[1:]))
        for name, dtype, values in (("lhs", BF16, lhs), ("rhs", BF16, held), ("out", F32, old))
    ]
    emit_matmul_stage(b, chip, arrays[0], arrays[1], transposed, arrays[2], accumulate=True)
    kernel = finalize_kernel(b.finish(), chip, check=True)
    vmem = {0: _rows(bf16_rows, lhs), 1: _rows(bf16_rows, held), 2: _rows(f32_rows, old)}
    rows = window_rows(run_kernel(kernel, chip, vmem), kernel, 2)
    rows = rows[: -(-m // 8) * -(-n // 128) * 8 * count].reshape(count, -1, 128)
    got = np.stack([f32_matrix(part, m, n) for part in rows])
    np.testing.assert_array_equal(got, old + lhs @ rhs)


def _rows(pack: Callable[[Matrix], Matrix], matrices: Matrix) -> Matrix:
    return np.concatenate([pack(matrix) for matrix in matrices])


def test_small_matrices_follow_each_other_without_a_pause() -> None:
    b = LloBuilder("dot", CHIP)
    dims = (256, 16, 16)
    lhs, rhs, out = (array(b, n, t, dims) for n, t in (("l", BF16), ("r", BF16), ("o", F32)))
    emit_matmul_stage(b, CHIP, lhs, rhs, False, out)
    kernel = finalize_kernel(b.finish(), CHIP, check=True)
    assert CycleCounter(CHIP).count(kernel.body).now < 16 * 256


def test_wrong_operands_are_refused() -> None:
    b = LloBuilder("dot", CHIP)
    lhs, rhs = array(b, "lhs", BF16, (16, 256)), array(b, "rhs", BF16, (128, 128))
    out = array(b, "out", F32, (16, 128))
    with pytest.raises(CompileError, match="256 columns times 128 rows"):
        emit_matmul_stage(b, CHIP, lhs, rhs, False, out)
    with pytest.raises(CompileError, match="not bf16"):
        emit_matmul_stage(b, CHIP, out, rhs, False, out)
