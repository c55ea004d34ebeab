"""`tpuc.Array` behaves as an array: what it computes is computed on the chip, and equals NumPy's."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tpuc
from compiler.diagnostics import UnsupportedError
from runtime import array_ops
from runtime.buffer import Array

HOST = np.arange(1, 13, dtype=np.float32).reshape(3, 4) / 4
X = tpuc.device_put(HOST)
N = tpuc.device_put(np.arange(6, dtype=np.int32))


def check(got: Any, want: Any) -> None:
    assert isinstance(got, Array)
    want = np.asarray(want)
    assert got.shape == want.shape
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1,
        lambda x: 2 - x / 3,
        lambda x: -x % 2 // 0.5,
        lambda x: x * HOST,
        lambda x: HOST[0] * x,
        lambda x: np.float32(2) * x,
        lambda x: x**2 > 3,
        lambda x: (x == 1) | (x != x),
        lambda x: np.sin(x) + np.maximum(x, 1.5),
        lambda x: x.sum(1) + x.mean(axis=1, keepdims=True),
        lambda x: np.add.reduce(x),
        lambda x: np.concatenate([x, HOST], 1),
        lambda x: np.where(x > 1, x, 0).T.reshape(2, -1),
        lambda x: x.astype(np.int32).max(0),
        lambda x: abs(-x).argmax(1),
        lambda x: np.einsum("ij,kj->ik", x, x),
    ],
)
def test_arithmetic(function: Callable[[Any], Any]) -> None:
    check(function(X), function(HOST))


@pytest.mark.parametrize(
    "key",
    [
        0, -1, (1, 2), (slice(None), 1), (Ellipsis, -2), slice(None, None, -1), (None, 2, slice(1, 3)),
        np.array([2, 0]), (slice(None), np.array([[1], [3]])), np.array([True, False, True]), (0, [1, 2]),
        HOST > 1,
    ],
)  # fmt: skip
def test_indexing(key: Any) -> None:
    check(X[key], HOST[key])


def test_other_positions_are_the_same_program() -> None:
    before = array_ops._program.cache_info().currsize
    found = [float(N[i]) for i in range(-6, 6)]
    assert found == [*range(6), *range(6)]
    assert array_ops._program.cache_info().currsize <= before + 1
    check(X[N[2]], HOST[2])


def test_other_scalars_are_the_same_program() -> None:
    check(X * 3.5, HOST * 3.5)
    before = array_ops._program.cache_info().currsize
    check(X * 4.5, HOST * 4.5)
    assert array_ops._program.cache_info().currsize == before


def test_in_place_operators_make_new_arrays() -> None:
    y = X
    y += 1
    check(y, HOST + 1)
    check(X, HOST)
    with pytest.raises(TypeError, match="never changed"):
        X[0] = 1
    changes = (
        lambda: np.fill_diagonal(X, 0),
        lambda: np.copyto(X, HOST),
        lambda: np.add.at(X, [0], 1),
        lambda: np.sum(X, axis=0, out=X[0]),
    )
    for change in changes:
        with pytest.raises(UnsupportedError, match="never changed"):
            change()


def test_values_are_read() -> None:
    assert float(X[0, 1]) == 0.5 and int(N[3]) == 3 and bool(N[1]) and not N[0]
    assert X[2, 3].item() == 3.0 and N.tolist() == [0, 1, 2, 3, 4, 5]
    assert [10, 20, 30][N[1]] == 20 and f"{X[0, 0]:.2f}" == "0.25"
    assert len(X) == 3 and X.ndim == 2 and X.size == 12
    assert [row.shape for row in X] == [(4,)] * 3
    assert 3 in N and 7 not in N
    assert np.allclose(X, HOST) and np.array_equal(N, np.arange(6)) and np.shape(X) == (3, 4)
    np.testing.assert_array_equal(X.asnumpy(), HOST)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(X)
    with pytest.raises(IndexError, match="index 3 is out of range for axis 0 of size 3"):
        X[3]
    with pytest.raises(IndexError, match="axis 2"):
        X[0, 0, 0]
    with pytest.raises(TypeError):
        operator.index(X[0, 0])


def test_copies_leave_for_others() -> None:
    np.testing.assert_array_equal(np.from_dlpack(X), HOST)
    assert X.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.asarray(X.__buffer__(0)), HOST)
    with pytest.raises(BufferError, match="always a copy"):
        X.__dlpack__(copy=False)
    with pytest.raises(BufferError):
        tpuc.device_put(HOST.astype(ml_dtypes.bfloat16)).__dlpack__()


def test_repr_is_a_few_lines() -> None:
    assert repr(N) == "tpuc.Array([0, 1, 2, 3, 4, 5], s32[6], v5e)"
    large = repr(tpuc.device_put(np.zeros((100, 100), np.float32)))
    assert "..." in large and len(large.splitlines()) <= 7 and large.endswith("f32[100, 100], v5e)")
    gone = X + 1
    gone.delete()
    assert repr(gone) == "tpuc.Array(f32[3, 4], v5e, deleted)"


def test_with_traced_arrays_it_is_a_constant_of_the_program() -> None:
    @tpuc.jit
    def function(x: Any) -> Any:
        return x * X + (X * 2)[1] + np.sin(X)

    check(function(X), HOST * HOST + HOST[1] * 2 + np.sin(HOST))
    gradient = tpuc.grad(lambda x: (x * X).sum())(X)
    check(gradient, HOST)


def test_each_device_computes_with_its_own() -> None:
    second = tpuc.devices("v5e:2x1")[1]
    y = tpuc.device_put(HOST, second)
    check(y + 1, HOST + 1)
    assert (y + 1).device is second and (y @ HOST.T).device is second


def test_what_has_no_form_on_the_chip_is_said() -> None:
    with pytest.raises(UnsupportedError, match=r"np\.linalg.*eig cannot be traced"):
        np.linalg.eig(X)
    with pytest.raises(UnsupportedError, match="never changed"):
        np.add(X, 1, out=np.empty_like(HOST))


def test_sizes_are_read() -> None:
    check(np.repeat(X, N[:3], axis=0), np.repeat(HOST, [0, 1, 2], axis=0))
    check(X[X > 1], HOST[HOST > 1])
    check(np.nonzero(N)[0], [1, 2, 3, 4, 5])
    check(np.where(N > 3)[0], [4, 5])
    check(np.bincount(N % 3), [2, 2, 2])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "int32"])
def test_pickled_and_copied_arrays_are_arrays_of_their_own(dtype: str) -> None:
    x = tpuc.device_put(np.arange(6, dtype=np.float32).reshape(2, 3)).astype(dtype)
    for made in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy([x])[0]):
        assert (
            isinstance(made, Array) and made.dtype == x.dtype and made.device.chip == x.device.chip
        )
        assert (np.asarray(made) == np.asarray(x)).all()
    x.delete()
    assert np.asarray(made)[1, 2] == 5
