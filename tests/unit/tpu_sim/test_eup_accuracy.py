"""EUP functions within 2 ulp of float64 on random bits, dense ranges and edges."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from tpu_sim.interp.numpy_lanes import NumpyLanes
from tpu_sim.isa import rows
from tpu_sim.isa.instruction import ROWS

F64 = npt.NDArray[np.float64]

assert rows.eup
FUNCTIONS: dict[str, Callable[[F64], F64]] = {
    "vpow2.f32": np.exp2,
    "vlog2.f32": np.log2,
    "vtanh.f32": np.tanh,
    "vrcp.f32": lambda x: 1 / x,
    "vrsqrt.f32": lambda x: 1 / np.sqrt(x),
    "vsqrt.f32": np.sqrt,
}
EDGES = [
    0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x807FFFFF, 0x800000, 0x80800000, 0x7F7FFFFF,
    0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x3F800000, 0xBF800000, 0x3F7FFFFF,
    0x3F800001, 0x43000000, 0xC2FC0000, 0xC3150000, 0xC3160000, 0x3F200000, 0x3F1FFFFF, 0x41102CB4,
]  # fmt: skip


def inputs() -> npt.NDArray[np.uint32]:
    rng = np.random.default_rng(11)
    random_bits = rng.integers(0, 2**32, 60_000, dtype=np.uint64).astype(np.uint32)
    ranges = [
        rng.uniform(-160, 135, 40_000),
        rng.uniform(-1.5, 1.5, 40_000),
        rng.uniform(0.5, 2, 40_000),
    ]
    dense = np.concatenate(ranges).astype(np.float32).view(np.uint32)
    return np.concatenate([np.array(EDGES, np.uint32), random_bits, dense])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_is_at_most_two_ulp(name: str) -> None:
    x = inputs()
    with np.errstate(all="ignore"):
        got = ROWS[name].does(NumpyLanes(x.shape), x)
        assert isinstance(got, np.ndarray)
        value = got.view(np.float32).astype(np.float64)
        want = FUNCTIONS[name](x.view(np.float32).astype(np.float64))
        rounded = want.astype(np.float32).astype(np.float64)
        assert np.array_equal(np.isnan(value), np.isnan(want))
        exact = (value == rounded) | np.isnan(want)
        spacing = np.exp2(np.floor(np.log2(np.maximum(np.abs(want), 2.0**-126))) - 23)
        error = np.where(exact, 0, np.abs(value - want) / spacing)
    worst = int(np.argmax(error))
    assert error[worst] <= 2, (hex(x[worst]), value[worst], want[worst])


def test_signs_of_zeros_and_infinities() -> None:
    x = np.array([0x80000000, 0, 0x7F800000, 0xFF800000], np.uint32)
    lanes = NumpyLanes(x.shape)
    with np.errstate(all="ignore"):
        assert ROWS["vtanh.f32"].does(lanes, x).tolist() == [0x80000000, 0, 0x3F800000, 0xBF800000]
        assert ROWS["vpow2.f32"].does(lanes, x).tolist() == [0x3F800000, 0x3F800000, 0x7F800000, 0]
        assert ROWS["vlog2.f32"].does(NumpyLanes((3,)), x[:3]).tolist() == [
            0xFF800000,
            0xFF800000,
            0x7F800000,
        ]
        assert ROWS["vrcp.f32"].does(lanes, x).tolist() == [0xFF800000, 0x7F800000, 0, 0x80000000]
