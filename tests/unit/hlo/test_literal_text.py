from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.hlo.dtypes import BY_NAME, C64, F32, PRED, S32, DType
from compiler.hlo.literal_text import parse_literal, print_literal
from compiler.hlo.shape import ArrayShape, TupleShape, array

_LOSSY = {"f8e5m2", "f8e5m2fnuz"}  # XLA prints two digits of these: 448 reads 4.5e+02
_EXACT = sorted(set(BY_NAME) - _LOSSY)


def _same_bits(a: object, b: object) -> bool:
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


@given(st.sampled_from(_EXACT), st.lists(st.integers(0, 3), max_size=5), st.integers(0, 2**32))
def test_parse_inverts_print_for_every_type(name: str, dims: list[int], seed: int) -> None:
    shape = ArrayShape(BY_NAME[name], tuple(dims))
    value = _random(shape, np.random.default_rng(seed))
    text = print_literal(value, shape)
    again = parse_literal(text, shape)
    assert isinstance(again, np.ndarray)
    assert again.dtype == shape.dtype.numpy
    assert again.shape == shape.dims
    assert print_literal(again, shape) == text
    if not _has_nan(value):
        assert _same_bits(again, value)


def _random(shape: ArrayShape, rng: np.random.Generator) -> np.ndarray:
    dtype: DType = shape.dtype
    if dtype.kind == "pred":
        return rng.integers(0, 2, shape.dims).astype(np.bool_)
    if dtype.bits >= 8:
        raw = rng.integers(0, 256, (shape.element_count, dtype.bits // 8), dtype=np.uint8)
        return raw.view(dtype.numpy).reshape(shape.dims)
    low = -(1 << dtype.bits >> 1) if dtype.is_signed or dtype.is_float else 0
    values = rng.integers(low, low + (1 << dtype.bits), shape.dims)
    return np.asarray(values, dtype=np.float32).astype(dtype.numpy)


def _has_nan(value: np.ndarray) -> bool:
    with np.errstate(invalid="ignore"):
        kind = np.complex128 if value.dtype.kind == "c" else np.float64
        return bool(np.isnan(value.astype(kind)).any())


def test_nesting_and_marks_are_those_of_xla() -> None:
    assert print_literal(np.array([1, 2]), array(S32, 2)) == "{1, 2}"
    assert print_literal(np.array([[1], [2]]), array(S32, 2, 1)) == "{ {1}, {2} }"
    assert print_literal(np.array([[1, 2]]), array(S32, 1, 2)) == "{ { 1, 2 } }"
    deep = np.arange(4).reshape(1, 2, 1, 2)
    text = "{ { /*i0=0*/ { /*i1=0*/ { 0, 1 } }, { /*i1=1*/ { 2, 3 } } } }"
    assert print_literal(deep, array(S32, 1, 2, 1, 2)) == text


def test_pred_prints_words_as_a_scalar_and_digits_in_an_array() -> None:
    assert print_literal(np.array(True), array(PRED)) == "true"
    assert print_literal(np.array([True, False]), array(PRED, 2)) == "{1, 0}"


def test_floats_print_the_fewest_digits_that_xla_prints() -> None:
    values = np.array([1e-6, 0.353553385, 1.0, -np.inf], np.float32)
    assert print_literal(values, array(F32, 4)) == "{1e-06, 0.353553385, 1, -inf}"


def test_nan_payloads_survive() -> None:
    value = parse_literal("{nan(0x7), -nan, nan}", array(F32, 3))
    assert np.asarray(value).view(np.uint32).tolist() == [0x7F800007, 0xFFC00000, 0x7FC00000]


def test_tuples_nest_and_may_repeat_shapes() -> None:
    shape = TupleShape((array(F32), TupleShape((array(S32, 2), array(C64)))))
    value = parse_literal("(f32[] 1.5, (s32[2]{0} {1, 2}, (3, -4)))", shape)
    assert print_literal(value, shape) == "( 1.5, ( {1, 2}, (3, -4) ) )"


@pytest.mark.parametrize(
    ("text", "shape", "problem"),
    [
        ("{1, 2}", array(S32, 3), "nesting"),
        ("{{1, 2}}", array(S32, 2), "nesting"),
        ("{ {1}, {2, 3} }", array(S32, 2, 2), "nesting"),
        ("1.5", array(S32), "invalid literal"),
        ("maybe", array(PRED), "want true"),
        ("256", array(BY_NAME["u8"]), "outside"),
        ("-1", array(BY_NAME["u8"]), "outside"),
        ("nan(0x800000)", array(F32), "payload"),
        ("1", array(C64), "pairs"),
        ("(1)", TupleShape((array(S32), array(S32))), "tuple elements"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, shape: ArrayShape, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_literal(text, shape)
