"""What the state instructions do to memory and registers, on the NumPy machine."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.support.isa_programs import (
    COPIES,
    LOAD_X,
    STORE_Y,
    TWO_WINDOWS,
    block,
    execute,
    kernel_program,
    kernel_text,
    program_text,
    rows_of,
    run_vector,
)
from tpu_sim.interp import mxu
from tpu_sim.interp.transpose import transposed_halves
from tpu_sim.isa.assembly_parser import parse_program

U32 = npt.NDArray[np.uint32]
RNG = np.random.default_rng(5)
X: U32 = RNG.integers(0, 2**32, (64, 128), dtype=np.uint64).astype(np.uint32)
LOAD_8 = ("vld v1 = [w0 + s0 + 0] stride 1", "nop 3")
ZERO_Y = ("vmovi v0 = 0", "nop 1", *[f"vst [w1 + s0 + {8 * i}] stride 1, v0" for i in range(8)])


def test_strided_and_broadcast_loads_and_stores() -> None:
    y = run_vector(
        *ZERO_Y,
        "vld v1 = [w0 + s0 + 3] stride 4 ; vld v2 = [w0 + s0 + 9] stride 0",
        "nop 3",
        "vst [w1 + s0 + 7] stride -1, v1",
        "vst [w1 + s0 + 8] stride 2, v2",
        x=X,
    )
    assert np.array_equal(y[:8], X[[31, 27, 23, 19, 15, 11, 7, 3]])
    assert all(np.array_equal(y[8 + 2 * i], X[9]) for i in range(8))
    assert not y[9:22:2].any()


def test_the_last_sublane_wins_when_rows_coincide() -> None:
    y = run_vector(*ZERO_Y, *LOAD_8, "vst [w1 + s0 + 2] stride 0, v1", x=X)
    assert np.array_equal(y[2], X[7])


def test_a_bundle_loads_before_it_stores() -> None:
    y = run_vector(
        *ZERO_Y, *LOAD_8,
        "vst [w1 + s0 + 0] stride 1, v1 ; vld v2 = [w1 + s0 + 0] stride 1", "nop 3",
        "vst [w1 + s0 + 8] stride 1, v2", x=X,
    )  # fmt: skip
    assert np.array_equal(y[:8], X[:8]) and not y[8:16].any()


def test_masked_stores_leave_the_other_lanes() -> None:
    y = run_vector(
        *ZERO_Y, *LOAD_8, "vlane v2 ; vmovi v3 = 100", "nop 1", "vcmp.lt.s32 m1 = v2, v3", "nop 1",
        "vst.msk [w1 + s0 + 0] stride 1, v1, m1", x=X,
    )  # fmt: skip
    assert np.array_equal(y[:8, :100], X[:8, :100]) and not y[:8, 100:].any()


def test_indexed_loads_gather_words() -> None:
    index = RNG.integers(0, 48 * 128, (8, 128)).astype(np.uint32)
    x = np.concatenate([index, X[8:]])
    y = run_vector(
        *ZERO_Y, "smovi s1 = 16 ; vld v1 = [w0 + s0 + 0] stride 1", "nop 3",
        "vld.idx v2 = [w0 + s1], v1", "nop 135", "vst [w1 + s0 + 0] stride 1, v2", x=x,
    )  # fmt: skip
    assert np.array_equal(y[:8], x[16:].reshape(-1)[index])


def test_indexed_stores_scatter_in_order() -> None:
    index = RNG.integers(0, 200, (8, 128)).astype(np.uint32)
    values = X[8:16]
    x = np.concatenate([index, values, X[16:]])
    y = run_vector(
        *ZERO_Y, *LOAD_8, "vld v2 = [w0 + s0 + 8] stride 1 ; vmovi v3 = 0", "nop 3",
        "vcmp.ge.s32 m1 = v2, v3", "nop 1", "vst.idx [w1 + s0], v1, v2, m1", "nop 127", x=x,
    )  # fmt: skip
    want = np.zeros(64 * 128, np.uint32)
    for word, value in zip(index.reshape(-1).tolist(), values.reshape(-1).tolist(), strict=True):
        if value < 2**31:
            want[word] = value
    assert np.array_equal(y.reshape(-1), want)


def test_spill_slots_hold_vregs_and_masks() -> None:
    y = run_vector(
        *ZERO_Y, *LOAD_8, "vmovi v2 = 0", "nop 1", "vcmp.lt.s32 m1 = v1, v2", "nop 1",
        "vst.spill x0, v1", "mst.spill x1, m1", "vld.fill v3 = x0 ; mld.fill m2 = x1", "nop 3",
        "vst.msk [w1 + s0 + 0] stride 1, v3, m2", x=X, head="args 0 flags 8 spill 2 at 256 flops 0",
    )  # fmt: skip
    assert np.array_equal(y[:8], np.where(X[:8] >> 31, X[:8], 0))


def test_queues_give_results_in_the_order_pushed() -> None:
    y = run_vector(
        *ZERO_Y, *LOAD_8, "vrot.slane v1, s0, 1 ; vrot.lane v1, s0, 3", "vbcast.slane v1, s0, 5",
        "nop 11", "vpop.xlu v2 ; vpop.xlu v3", "vpop.xlu v4", "nop 1",
        "vst [w1 + s0 + 0] stride 1, v2", "vst [w1 + s0 + 8] stride 1, v3",
        "vst [w1 + s0 + 16] stride 1, v4", x=X,
    )  # fmt: skip
    assert np.array_equal(y[:8], np.roll(X[:8], 1, axis=0))
    assert np.array_equal(y[8:16], np.roll(X[:8], 3, axis=1))
    assert np.array_equal(y[16:24], np.repeat(X[5:6], 8, axis=0))


def test_the_transpose_unit_transposes() -> None:
    pushes = []
    for row in range(8):
        pushes += [f"vld v{row} = [w0 + s0 + {8 * row}] stride 1"]
    pushes += [
        "nop 3",
        *[f"vxpose.push 1, v{row}, {row}" for row in range(8)],
        "vxpose.swap 1",
        "nop 139",
    ]
    reads = []
    for row in range(8):
        reads += [
            f"vxpose.read v{row} = 1, {row}",
            "nop 3",
            f"vst [w1 + s0 + {8 * row}] stride 1, v{row}",
        ]
    y = run_vector(*pushes, *reads, x=X)
    block_rows = np.zeros((128, 128), np.uint32)
    block_rows[:64] = X
    assert np.array_equal(y, block_rows.T[:64])


def test_halves_are_transposed_as_packed_rows() -> None:
    words = np.random.default_rng(5).integers(0, 2**32, (128, 128), np.uint32)
    halves = np.ascontiguousarray(words.view(np.uint16).reshape(128, 128, 2).transpose(0, 2, 1))
    columns = halves.reshape(256, 128).T  # (128, 256)
    result = transposed_halves(words)
    for part in range(2):
        pairs = result[64 * part : 64 * part + 64].view(np.uint16).reshape(64, 128, 2)
        rows = pairs.transpose(0, 2, 1).reshape(128, 128)
        assert np.array_equal(rows, columns[:, 128 * part : 128 * part + 128])


@pytest.mark.parametrize("kind", ["s8", "u8"])
def test_integer_passes_are_exact(kind: str) -> None:
    dtype = np.int8 if kind == "s8" else np.uint8
    rng = np.random.default_rng(6)
    left, right = (rng.choice(np.arange(256, dtype=np.uint8)[-130:], (n, 256)) for n in (16, 128))
    rows, weights = (
        (a[:, :128].astype(np.uint32) << 16 | a[:, 128:].astype(np.uint32) << 24).view(np.float32)
        for a in (left, right)
    )
    found = mxu.integer_pass_rows(rows, weights.T, is_signed=kind == "s8")
    want = left.view(dtype).astype(np.int64) @ right.view(dtype).astype(np.int64).T
    assert np.array_equal(found.view(np.int32), want)


def bf16(shape: tuple[int, ...], scale: float = 1.0) -> npt.NDArray[np.float32]:
    values = (RNG.standard_normal(shape) * scale).astype(ml_dtypes.bfloat16)
    return values.astype(np.float32)


def packed(low: npt.NDArray[np.float32], high: npt.NDArray[np.float32]) -> U32:
    return (low.view(np.uint32) >> np.uint32(16)) | (high.view(np.uint32) & np.uint32(0xFFFF0000))


def mxu_program(push: str) -> tuple[str, ...]:
    bundles: list[str] = []
    for row in range(8):
        bundles += [f"vld v{row} = [w0 + s0 + {8 * row}] stride 1"]
    bundles += ["nop 3", *[f"{push} u1, v{row}, {row}" for row in range(8)], "vmatswap u1"]
    bundles += ["vmatmul.bf16 u1, v0", "vpop.mrf v8 = u1", "vpop.mrf v9 = u1"]
    stores = ["vst [w1 + s0 + 0] stride 1, v8", "vst [w1 + s0 + 8] stride 1, v9"]
    return (*ZERO_Y, *bundles, *stores)


@pytest.mark.parametrize("push", ["vmatpush.bf16", "vmatpush.t.bf16"])
def test_the_mxu_multiplies_packed_rows(push: str) -> None:
    weights = bf16((128, 128))
    rows = packed(weights[0::2], weights[1::2])
    y = run_vector(*mxu_program(push), x=rows).view(np.float32)
    # the left side is the first vreg again: 8 low rows 0, 2, .. 14, then 8 high rows 1, 3, .. 15
    left = np.concatenate([weights[0:16:2], weights[1:16:2]])
    right = weights if push == "vmatpush.bf16" else weights.T
    want = left.astype(np.float64) @ right.astype(np.float64)
    assert np.abs(y[:16] - want).max() < 1e-4
    assert np.array_equal(y[:16], mxu.pass_rows(left, np.ascontiguousarray(right)))


def test_mxu_arithmetic_is_the_stated_chains() -> None:
    left, right = bf16((16, 128), 3.0), bf16((128, 128), 0.2)
    products = left.astype(np.float64)[:, :, None] * right  # exact
    total = np.zeros((16, 128), np.float32)
    for first in range(0, 128, 32):
        chains = np.zeros((2, 16, 128), np.float32)
        for k in range(first, first + 32):
            # the f64 sum is not exact, so that rounding it again may differ in rare cases
            chains[k % 2] = (chains[k % 2] + products[:, k]).astype(np.float32)
        total = total + (chains[0] + chains[1])
    got = mxu.pass_rows(left, right)
    assert np.mean(got == total) > 0.999
    assert np.abs(got - total).max() < 1e-5


def test_the_mxu_flushes_what_is_tiny_before_rounding_to_fewer_bits() -> None:
    """2**-126 - 2**-150 is nearest to 2**-126 among the f32, but below it with 24 bits."""
    left = np.zeros((16, 128), np.float32)
    right = np.zeros((128, 128), np.float32)
    left[0, :3:2], right[:3:2, 0] = (2.0**-63, -(2.0**-75)), (2.0**-63, 2.0**-75)
    left[1, :3:2], right[:3:2, 1] = (2.0**-63, -(2.0**-76)), (2.0**-63, 2.0**-76)
    got = mxu.pass_rows(left, right)
    assert got[0, 0] == 0 and got[1, 1] == np.float32(2.0**-126)


def test_the_mxu_flushes_denormals_and_keeps_infinities() -> None:
    left = np.zeros((16, 128), np.float32)
    right = np.zeros((128, 128), np.float32)
    left[0, 0], right[0, 0] = np.float32(1e-39), np.float32(1e30)  # denormal input
    left[1, 0], right[0, 1] = np.float32(2.0**-100), np.float32(2.0**-27)  # denormal product
    left[2, 0], right[0, 2] = np.inf, np.float32(2)
    with np.errstate(all="ignore"):
        got = mxu.pass_rows(left, right)
    assert got[0, 0] == 0 and got[1, 1] == 0 and got[2, 2] == np.inf
    left[1, 0] = np.float32(2.0**-99)
    with np.errstate(all="ignore"):
        assert mxu.pass_rows(left, right)[1, 1] == np.float32(2.0**-126)


def test_a_second_swap_activates_a_cleared_block() -> None:
    y = run_vector(
        *ZERO_Y, *LOAD_8, "vmatpush.bf16 u0, v1, 0", "vmatswap u0", "vmatswap u0",
        "vmatmul.bf16 u0, v1", "vpop.mrf v4 = u0", "vpop.mrf v5 = u0",
        "vst [w1 + s0 + 0] stride 1, v4", x=packed(bf16((64, 128)), bf16((64, 128))),
    )  # fmt: skip
    assert not y[:8].any()


def test_strided_dma_retiles() -> None:
    tables = TWO_WINDOWS + (
        "descriptor d0 hbm -> vmem w0 chunk 2 dims [4 x 8 -> 2, 2 x 2 -> 16]\n"
        "descriptor d1 vmem -> hbm w0 chunk 64 dims []"
    )
    zero_x = ("vmovi v0 = 0", "nop 1", *[f"vst [w0 + s0 + {8 * i}] stride 1, v0" for i in range(8)])
    body = block(*zero_x) + LOAD_X + STORE_Y
    _, hbm = execute(kernel_program(body, tables), {0: X})
    want = np.zeros((64, 128), np.uint32)
    for i in range(4):
        for j in range(2):
            want[2 * i + 16 * j : 2 * i + 16 * j + 2] = X[8 * i + 2 * j : 8 * i + 2 * j + 2]
    assert np.array_equal(rows_of(hbm, 64, 64), want)


def test_dma_between_hbm_and_smem_moves_words() -> None:
    tables = (
        "descriptor d0 hbm -> smem chunk 3 dims [2 x 1 -> 8]\n"
        "descriptor d1 smem -> hbm chunk 16 dims []"
    )
    body = block(
        "smovi s1 = 200 ; smovi s2 = 64", "dma.start d0, s0, s1, f0, s0, s0, s0", "dma.wait f0, s0",
        "sld s3 = s1, 9", "nop 3", "saddi.s32 s3 = s3, 1", "sst s1, 1, s3",
        "dma.start d1, s1, s2, f0, s0, s0, s0", "dma.wait f0, s0",
    )  # fmt: skip
    _, hbm = execute(kernel_program(body, tables), {0: X})
    words = rows_of(hbm, 64, 1)[0]
    assert words[0] == X[0, 0] and words[2] == X[0, 2]
    assert np.array_equal(words[8:11], X[1, :3])
    assert words[1] == X[1, 1] + np.uint32(1)


def test_scalar_code_and_arguments_from_main() -> None:
    main = (
        block("smovi s1 = 5 ; smovi s2 = 3", "sst s0, 0, s1", "sst s0, 1, s2") + 'call "k" site ""'
    )
    body = block(
        "sld s1 = s0, 0 ; sld s2 = s0, 1", "nop 3", "smul.s32 s3 = s1, s2", "nop 3",
        "ssub.s32 s4 = s2, s3 ; scmp.lt.s32 s5 = s3, s1", "sst s0, 200, s4", "sst s0, 201, s5",
        "smovi s6 = 64 ; smovi s7 = 200", "dma.start d0, s7, s6, f0, s0, s0, s0", "dma.wait f0, s0",
    )  # fmt: skip
    text = kernel_text(body, "descriptor d0 smem -> hbm chunk 2 dims []")
    _, hbm = execute(parse_program(program_text(text, main)))
    assert rows_of(hbm, 64, 1)[0, :2].tolist() == [(3 - 15) & 0xFFFFFFFF, 0]


def test_a_loop_over_rows_computes_every_row() -> None:
    body = block(
        "sshli s2 = s1, 3", "vld v1 = [w0 + s2 + 0] stride 1", "nop 3", "vaddi.s32 v2 = v1, 7",
        "nop 1", "vst [w1 + s2 + 0] stride 1, v2",
    )  # fmt: skip
    text = f'{LOAD_X}\nloop s1 = 0 .. 8 "" {{\n{body}\n}}\n{STORE_Y}'
    _, hbm = execute(kernel_program(text, TWO_WINDOWS + COPIES), {0: X})
    assert np.array_equal(rows_of(hbm, 64, 64), X + np.uint32(7))


def test_smem_outlives_kernels() -> None:
    first = kernel_text(LOAD_X + block("smovi s5 = 9 ; smovi s6 = 3", "sst s0, 300, s5"))
    second = kernel_text(block("sld s1 = s0, 300", "nop 3", "sst s0, 301, s1"))
    third_body = block(
        "smovi s1 = 300 ; smovi s2 = 64", "dma.start d0, s1, s2, f0, s0, s0, s0", "dma.wait f0, s0"
    )
    third = kernel_text(third_body, "descriptor d0 smem -> hbm chunk 2 dims []")
    kernels = first + second.replace('"k"', '"l"') + third.replace('"k"', '"m"')
    main = 'call "k" site ""\ncall "l" site ""\ncall "m" site ""'
    _, hbm = execute(parse_program(program_text(kernels, main)), {0: X})
    assert rows_of(hbm, 64, 1)[0, :2].tolist() == [9, 9]
