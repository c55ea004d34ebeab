"""Arrays on the device: every element type there and back, memory given back, refusals."""

from __future__ import annotations

import gc
import math
import warnings

import ml_dtypes
import numpy as np
import pytest

from compiler.diagnostics import CompileError, ResourceExhaustedError
from compiler.hlo import host_types
from compiler.hlo.dtypes import BY_NAME, DType, from_numpy
from compiler.hlo.host_types import PrecisionWarning
from runtime.api import device_put
from runtime.buffer import place
from runtime.client import client_for

DEVICE = client_for("v5e").devices[0]
NARROWED = {"f64": "f32", "s64": "s32", "u64": "u32", "c128": "c64"}
SHAPES = [(), (1,), (300,), (5, 130), (2, 33, 129), (0, 4)]


def values(dtype: DType, dims: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(7)
    if dtype.kind == "pred":
        return rng.integers(0, 2, dims).astype(np.bool_)
    if dtype.is_integer:
        high = 2 ** min(dtype.bits - dtype.is_signed, 31)
        low = -high if dtype.is_signed else 0
        return rng.integers(low, high, dims).astype(dtype.numpy)
    if dtype.is_complex:
        return (rng.standard_normal(dims) + 1j * rng.standard_normal(dims)).astype(dtype.numpy)
    return np.asarray(rng.uniform(0.5, 4.0, dims)).astype(dtype.numpy)


@pytest.mark.filterwarnings("ignore::compiler.hlo.host_types.PrecisionWarning")
@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_element_type_there_and_back(name: str) -> None:
    kept = BY_NAME[NARROWED.get(name, name)].numpy
    for dims in SHAPES:
        host = values(BY_NAME[name], dims)
        array = device_put(host)
        assert array.shape == dims
        assert array.dtype == kept
        back = array.numpy()
        assert back.dtype == kept and back.shape == dims
        assert back.tobytes() == host.astype(kept).tobytes()
        assert np.asarray(array).tobytes() == back.tobytes()


def test_transposed_and_sliced_host_arrays() -> None:
    host = np.arange(40 * 300, dtype=np.float32).reshape(40, 300)
    for view in (host.T, host[::-1, ::3], host[3:9, 5:140], np.broadcast_to(host[0], (9, 300))):
        assert (device_put(view).numpy() == view).all()


def test_the_host_copy_is_the_users_own() -> None:
    array = device_put(np.zeros(1024, np.float32))
    array.numpy()[:] = 1
    assert not array.numpy().any()
    with pytest.raises(ValueError, match="always a copy"):
        array.__array__(copy=False)


def test_f64_warns_once_and_s64_never(monkeypatch: pytest.MonkeyPatch) -> None:
    host_types._warn_about_f64_once.cache_clear()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        device_put(np.arange(3))
        device_put(1.5)
        device_put([1.5, 2.5])
        assert not seen
        device_put(np.ones(3))
        device_put(np.ones(3))
    assert [w.category for w in seen] == [PrecisionWarning]


def test_types_that_hlo_has_not_are_refused() -> None:
    for host in (np.array(["a"]), np.array([None]), np.zeros(2, "datetime64[s]")):
        with pytest.raises(CompileError, match="has no element type on the device"):
            device_put(host)


def test_memory_comes_back_when_an_array_dies() -> None:
    gc.collect()
    before = DEVICE.memory.allocator.used_bytes
    array = device_put(np.zeros((100, 100), ml_dtypes.bfloat16))
    assert DEVICE.memory.allocator.used_bytes == before + 104 * 128 * 2
    del array
    assert DEVICE.memory.allocator.used_bytes == before


def test_an_array_larger_than_hbm_is_refused_and_leaves_no_trace() -> None:
    gc.collect()
    before = DEVICE.memory.allocator.used_bytes
    huge = np.broadcast_to(np.float32(0), (1 << 17, 1 << 17))
    with pytest.raises(ResourceExhaustedError, match="no room for 68,719,476,736 bytes"):
        device_put(huge)
    assert DEVICE.memory.allocator.used_bytes <= before  # idle programs gave theirs up


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int64, np.complex64, np.bool_])
@pytest.mark.parametrize("shape", [(), (3, 5), (2, 9, 130)])
def test_an_array_is_read_to_where_it_is_wanted(
    dtype: type[np.generic], shape: tuple[int, ...]
) -> None:
    host = np.arange(1, 1 + math.prod(shape)).reshape(shape).astype(dtype)
    array = place(host, from_numpy(np.dtype(dtype)), DEVICE)
    wanted = np.zeros(shape, dtype)
    np.testing.assert_array_equal(array.numpy(wanted), host)
    is_one_plane = dtype not in (np.int64, np.complex64)
    assert (array.numpy(wanted) is wanted) == is_one_plane
    other = np.zeros(shape, np.float16)
    np.testing.assert_array_equal(array.numpy(other), host)
    assert not other.any()
