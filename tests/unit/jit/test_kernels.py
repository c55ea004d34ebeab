"""The precompiled kernels against NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from tpu_sim.interp import mxu
from tpu_sim.isa.rows.mxu import CANONICAL_NAN
from tpu_sim.jit.command_kernels import SETTLE_WEIGHTS, TRANSPOSE
from tpu_sim.jit.engine import Engine, NativeModule
from tpu_sim.jit.host import Arch, detect_host
from tpu_sim.jit.installation import LinkedPass, installed_library, pass_pointers, random_operands
from tpu_sim.jit.integer_passes import portable_text
from tpu_sim.jit.library import LOAD_INDEXED, STORE_INDEXED
from tpu_sim.jit.mxu_chains import exact_text, fma_text
from tpu_sim.jit.mxu_dots import word_dot_text
from tpu_sim.jit.pass_forms import pass_forms
from tpu_sim.jit.weight_layout import (
    CHAINS,
    PAIRS,
    WeightLayout,
    layout_of,
    push_text,
    push_transposed_text,
)

Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]
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


FORMS = {kind: [form.name for form in forms] for kind, forms in pass_forms(detect_host()).items()}
INTEGER_FORMS = [(name, kind) for kind in ("s8", "u8") for name in FORMS[kind]]


def edge_operands(seed: int) -> tuple[Words, Words]:
    """Sums around the smallest normal number, with cancellation: all exponents near its root."""
    source = np.random.default_rng(seed)
    operands = []
    for words in (1024, 8192):
        bits = source.integers(0, 2**16, 2 * words, np.uint16) & 0x80FF
        exponents = source.integers(61 - 4 * (seed % 4), 65, 2 * words).astype(np.uint16)
        operands.append((bits & 0x807F | exponents << 7).astype(np.uint16).view(np.uint32))
    return operands[0], operands[1]


def filled_up_operands(seed: int) -> tuple[Words, Words]:
    """Short contractions: zeros of both signs in blocks of 32 k; weights there may be infinite or NaN."""
    source = np.random.default_rng(seed)
    left, weights = edge_operands(seed)
    blocks = left.reshape(8, 4, 32)
    for block in range(4):
        if seed >> block & 1:
            blocks[:, block] &= 0x80008000
            if source.integers(3) == 0:
                weights[2048 * block + source.integers(2048)] = source.choice([0x7F80, 0xFFC10000])
    return left, weights


def stated(left: Words, weights: Words) -> tuple[Floats, Floats]:
    """Operands of `tpu_sim.interp.mxu` of words as programs give them."""
    rows = np.concatenate(mxu.halves(left.reshape(8, 128)))
    return rows, np.stack(mxu.halves(weights.reshape(64, 128)), axis=1).reshape(128, 128)


@pytest.mark.parametrize("name", FORMS["bf16"])
@pytest.mark.parametrize(
    "operands", [random_operands, scaled_operands, edge_operands, filled_up_operands]
)
def test_every_form_of_the_pass_is_the_stated_arithmetic(
    library: NativeModule, name: str, operands: Callable[[int], tuple[Words, Words]]
) -> None:
    form = LinkedPass(library, name)
    for seed in range(16):
        left, weights = operands(seed)
        with np.errstate(all="ignore"):
            expected = mxu.pass_rows(*stated(left, weights))
        assert form(left, weights).tobytes() == expected.tobytes(), (name, seed)


@pytest.mark.parametrize("name", FORMS["bf16"])
@pytest.mark.parametrize("nan", [0x7F81, 0xFFFF, 0x7FC1])
def test_a_pass_gives_one_nan(library: NativeModule, name: str, nan: int) -> None:
    left, weights = scaled_operands(0)
    left[5] = nan << 16
    found = LinkedPass(library, name)(left, weights).view(np.uint32)
    assert set(found[8]) == {CANONICAL_NAN}
    assert not np.isnan(found[:8].view(np.float32)).any()


def extreme_bytes(seed: int) -> tuple[Words, Words]:
    """Bytes of the largest and smallest values only: the largest sums."""
    source = np.random.default_rng(seed)
    choice = np.array([0, 0x7F, 0x80, 0xFF] if seed % 2 else [0x80, 0xFF], np.uint8)
    left, weights = (source.choice(choice, 4 * n).view(np.uint32) for n in (1024, 8192))
    return left, weights


@pytest.mark.parametrize(("name", "kind"), INTEGER_FORMS)
@pytest.mark.parametrize("operands", [random_operands, extreme_bytes])
def test_every_form_of_integer_passes_is_exact(
    library: NativeModule,
    name: str,
    kind: str,
    operands: Callable[[int], tuple[Words, Words]],
) -> None:
    form = LinkedPass(library, name)
    for seed in range(0, 12, 3):
        left, weights = operands(seed)
        expected = mxu.PASSES[kind](*stated(left, weights))
        assert form(left, weights).tobytes() == expected.tobytes(), (name, seed)


def test_lists_use_a_form_of_each_pass(library: NativeModule) -> None:
    for pointer, names in zip(pass_pointers(library), FORMS.values(), strict=True):
        assert pointer in {library.address(name) for name in names}
        assert LinkedPass(library, names[0]).seconds() > 0


@pytest.fixture(scope="module", params=[PAIRS, CHAINS], ids=["pairs", "chains"])
def laid_out(request: pytest.FixtureRequest) -> NativeModule:
    """Kernels for either layout of weights, whichever the host's own is."""
    layout, host = request.param, detect_host()
    lanes = host.vector_lanes
    texts = [
        push_text("push", layout),
        push_transposed_text("push_transposed", layout),
        exact_text("exact", layout),
        fma_text("fma", host, layout, "exact"),
        portable_text("floats", lanes, layout, is_signed=True),
    ]
    if host.arch is Arch.X86_64:
        texts.append(word_dot_text("words", lanes, layout, is_signed=True))
    engine = Engine(host, None, 2)
    return engine.link(engine.object_code(*texts))


def test_passes_read_what_pushes_wrote_in_either_layout(
    library: NativeModule, laid_out: NativeModule
) -> None:
    left, weights = random_operands(1)
    rows, block = stated(left, weights)
    with np.errstate(all="ignore"):
        expected = mxu.pass_rows(rows, block)
    for name in ("exact", "fma"):
        form = LinkedPass(library, name, laid_out, "push")
        assert form(left, weights).tobytes() == expected.tobytes(), name
    whole = mxu.integer_pass_rows(rows, block, is_signed=True)
    for name in ("floats", "words") if detect_host().arch is Arch.X86_64 else ("floats",):
        form = LinkedPass(library, name, laid_out, "push")
        assert form(left, weights).tobytes() == whole.tobytes(), name


def test_both_pushes_lay_out_weights_alike(laid_out: NativeModule) -> None:
    plain, transposed = (
        ctypes.CFUNCTYPE(None, _POINTER, _POINTER)(laid_out.address(name))
        for name in ("push", "push_transposed")
    )
    source = random_words(8192, 4)
    halves = source.view(np.uint16).reshape(8, 8, 128, 2).transpose(0, 1, 3, 2)  # push, s, h, lane
    turned = aligned(8192)
    matrix = np.ascontiguousarray(halves.reshape(128, 128).T)  # k by column of the transposed
    turned.view(np.uint16)[:] = matrix.reshape(8, 8, 2, 128).transpose(0, 1, 3, 2).ravel()
    found, expected = aligned(8192), aligned(8192)
    for number in range(8):
        transposed(found.ctypes.data + 64 * number, source.ctypes.data + 4096 * number)
        plain(expected.ctypes.data + 4096 * number, turned.ctypes.data + 4096 * number)
    assert np.array_equal(found, expected)


def test_transpose(library: NativeModule) -> None:
    kernel = ctypes.CFUNCTYPE(None, _POINTER, _POINTER)(library.address(TRANSPOSE.symbol))
    source, target = random_words(128 * 128, 3), aligned(128 * 128)
    kernel(target.ctypes.data, source.ctypes.data)
    assert np.array_equal(target.reshape(128, 128), source.reshape(128, 128).T)


@pytest.mark.parametrize("layout", [PAIRS, CHAINS], ids=["pairs", "chains"])
def test_a_layout_has_each_k_of_a_step_once(layout: WeightLayout) -> None:
    assert sorted(k for pair in layout.halves for k in pair) == list(range(2 * layout.words))
    assert all(layout.halves[word][half] == k for k, (word, half) in enumerate(layout.places))
    assert layout_of(detect_host()) in (PAIRS, CHAINS)


@pytest.mark.parametrize("pushes", [0, 0b101, 0xFF, 0x300, 0xFF00, 0x8101])
def test_settling_zeroes_what_no_push_wrote(library: NativeModule, pushes: int) -> None:
    kernel = ctypes.CFUNCTYPE(None, _POINTER, ctypes.c_int64)(
        library.address(SETTLE_WEIGHTS.symbol)
    )
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
        library.address(LOAD_INDEXED.symbol)
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
        library.address(STORE_INDEXED.symbol)
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
