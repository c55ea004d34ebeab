"""The precompiled kernels against NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from tpu_sim.interp import mxu
from tpu_sim.isa.rows.mxu import CANONICAL_NAN
from tpu_sim.jit.engine import NativeModule
from tpu_sim.jit.host import detect_host
from tpu_sim.jit.installation import MatmulForm, installed_library, random_operands
from tpu_sim.jit.library import (
    LOAD_INDEXED,
    MATPUSH_TRANSPOSED,
    SETTLE_WEIGHTS,
    STORE_INDEXED,
    TRANSPOSE,
    matmul_forms,
)

Words = npt.NDArray[np.uint32]
_POINTER = ctypes.c_void_p


@pytest.fixture(scope="module")
def library() -> NativeModule:
    return installed_library(False)


def aligned(words: int) -> Words:
    raw = np.zeros(4 * words + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + 4 * words].view(np.uint32)


def random_words(words: int, seed: int, keep: int = 0xFFFFFFFF) -> Words:
    result = aligned(words)
    source = np.random.default_rng(seed)
    result[:] = source.integers(0, 2**32, words, np.uint32) & np.uint32(keep)
    return result


def scaled_operands(seed: int) -> tuple[Words, Words]:
    """Normal numbers; from one seed to the next the products come closer to the smallest."""
    source = np.random.default_rng(seed)
    scale = 10.0 ** (-1.7 * seed)
    operands = ((source.normal(size=2 * n) * scale).astype(np.float32) for n in (1024, 8192))
    left, weights = ((x.view(np.uint32) >> 16).astype(np.uint16).view("u4") for x in operands)
    return left, weights


@pytest.mark.parametrize("name", matmul_forms(detect_host()))
@pytest.mark.parametrize("operands", [random_operands, scaled_operands])
def test_every_form_of_the_pass_is_the_stated_arithmetic(
    library: NativeModule, name: str, operands: Callable[[int], tuple[Words, Words]]
) -> None:
    form = MatmulForm(library, name)
    for seed in range(12):
        left, weights = operands(seed)
        rows = np.concatenate(mxu.halves(left.reshape(8, 128)))
        block = np.stack(mxu.halves(weights.reshape(64, 128)), axis=1).reshape(128, 128)
        with np.errstate(all="ignore"):
            expected = mxu.pass_rows(rows, block)
        found = form(left, weights)
        assert found.tobytes() == expected.tobytes(), (name, seed)


@pytest.mark.parametrize("name", matmul_forms(detect_host()))
@pytest.mark.parametrize("nan", [0x7F81, 0xFFFF, 0x7FC1])
def test_a_pass_gives_one_nan(library: NativeModule, name: str, nan: int) -> None:
    left, weights = scaled_operands(0)
    left[5] = nan << 16
    found = MatmulForm(library, name)(left, weights).view(np.uint32)
    assert set(found[8]) == {CANONICAL_NAN}
    assert not np.isnan(found[:8].view(np.float32)).any()


def test_transpose(library: NativeModule) -> None:
    kernel = ctypes.CFUNCTYPE(None, _POINTER, _POINTER)(library.address(TRANSPOSE))
    source, target = random_words(128 * 128, 3), aligned(128 * 128)
    kernel(target.ctypes.data, source.ctypes.data)
    assert np.array_equal(target.reshape(128, 128), source.reshape(128, 128).T)


def test_transposed_push_writes_16_columns(library: NativeModule) -> None:
    kernel = ctypes.CFUNCTYPE(None, _POINTER, _POINTER)(library.address(MATPUSH_TRANSPOSED))
    source, weights = random_words(1024, 4), aligned(8192)
    kernel(weights.ctypes.data + 3 * 64, source.ctypes.data)
    halves = source.view(np.uint16).reshape(8, 128, 2)
    expected = np.zeros((128, 128), np.uint16)
    expected[:, 48:64] = halves.transpose(1, 0, 2).reshape(128, 16)
    found = weights.view(np.uint16).reshape(64, 128, 2).transpose(0, 2, 1).reshape(128, 128)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("pushes", [0, 0b101, 0xFF, 0x300, 0xFF00, 0x8101])
def test_settling_zeroes_what_no_push_wrote(library: NativeModule, pushes: int) -> None:
    kernel = ctypes.CFUNCTYPE(None, _POINTER, ctypes.c_int64)(library.address(SETTLE_WEIGHTS))
    weights = random_words(8192, 5)
    written = np.zeros((8, 8, 8, 16), bool)  # row block, pair row, column block, column
    for bit in range(8):
        written[bit] |= bool(pushes >> bit & 1)
        written[:, :, bit] |= bool(pushes >> (8 + bit) & 1)
    expected = np.where(written.reshape(-1), weights, 0)
    kernel(weights.ctypes.data, pushes)
    assert np.array_equal(weights, expected)


def test_indexed_accesses_stop_at_the_window(library: NativeModule) -> None:
    load = ctypes.CFUNCTYPE(ctypes.c_bool, _POINTER, _POINTER, *[ctypes.c_int64] * 2, _POINTER)(
        library.address(LOAD_INDEXED)
    )
    window, index, out = random_words(4096, 6), random_words(1024, 7, 1023), aligned(1024)
    arguments = (out.ctypes.data, window.ctypes.data, 128, 2048, index.ctypes.data)
    assert load(*arguments)
    assert np.array_equal(out, window[128 + index])
    index[1000] = 2048 - 128
    assert not load(*arguments)
    index[1000] = np.uint32(2**32 - 129)
    assert not load(*arguments)


def test_indexed_store_keeps_order_and_mask(library: NativeModule) -> None:
    store = ctypes.CFUNCTYPE(ctypes.c_bool, _POINTER, *[ctypes.c_int64] * 2, *[_POINTER] * 3)(
        library.address(STORE_INDEXED)
    )
    window, index, source = aligned(2048), random_words(1024, 8, 255), random_words(1024, 9)
    mask = np.random.default_rng(10).integers(0, 2, 1024).astype(bool)
    bits = aligned(32)
    bits.view(np.uint8)[:] = np.packbits(mask, bitorder="little")
    index[~mask] = 0xFFFFFFFF
    assert store(
        window.ctypes.data, 0, 2048, index.ctypes.data, source.ctypes.data, bits.ctypes.data
    )
    expected = np.zeros(2048, np.uint32)
    for word, value in zip(index[mask], source[mask], strict=True):
        expected[word] = value
    assert np.array_equal(window, expected)
