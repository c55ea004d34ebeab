from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from compiler.diagnostics import CompileError
from compiler.frontends.models import parse_model
from compiler.frontends.stablehlo.dense import is_one_value, parse_dense
from compiler.frontends.stablehlo.types import Types
from compiler.hlo.shape import ArrayShape


def decode(text: str, kind: str) -> np.ndarray:
    shape = Types({}).type(kind)
    assert isinstance(shape, ArrayShape)
    value = parse_dense(text, shape)
    assert value.shape == shape.dims
    assert value.dtype == shape.dtype.numpy
    return value


@pytest.mark.parametrize(
    ("text", "kind", "want"),
    [
        ("dense<1.5>", "tensor<f32>", 1.5),
        ("dense<1>", "tensor<2x2xi32>", [[1, 1], [1, 1]]),
        ("dense<[[1, -2], [3, 4]]>", "tensor<2x2xi8>", [[1, -2], [3, 4]]),
        ("dense<[true, false]>", "tensor<2xi1>", [True, False]),
        ("dense<(1.0,-2.0)>", "tensor<2xcomplex<f32>>", [1 - 2j, 1 - 2j]),
        ("dense<[(1.0, 2.0), (3.0, 4.0)]>", "tensor<2xcomplex<f32>>", [1 + 2j, 3 + 4j]),
        ("dense<>", "tensor<0x3xf32>", np.zeros((0, 3))),
        ("dense<255>", "tensor<ui8>", 255),
        ("dense<-8>", "tensor<i4>", -8),
        ("dense<0x7F800000>", "tensor<f32>", np.inf),
        ("dense<[0xFF800000, 1.0]>", "tensor<2xf32>", [-np.inf, 1.0]),
        ("dense<0x3F80>", "tensor<bf16>", 1.0),
        ("dense<18446744073709551615>", "tensor<ui64>", 18446744073709551615),
        ('dense<"0x0000803F00000040">', "tensor<2xf32>", [1.0, 2.0]),
        ('dense<"0x0000803F">', "tensor<3xf32>", [1.0, 1.0, 1.0]),
        ('dense<"0x0500000000000000">', "tensor<1xi64>", [5]),
        ('dense<"0xFE">', "tensor<1xi8>", [-2]),
        ('dense<"0x00010100">', "tensor<2x2xi1>", [[False, True], [True, False]]),
        ('dense<"0x01">', "tensor<4xi1>", [True, True, True, True]),
        ('dense<"0xFEF8FF">', "tensor<3xi4>", [-2, -8, -1]),
    ],
)
def test_literal_forms(text: str, kind: str, want: object) -> None:
    np.testing.assert_array_equal(decode(text, kind).astype(np.asarray(want).dtype), want)


def test_nan_bit_patterns_are_kept() -> None:
    bits = decode("dense<[0x7FC00001, 1.0]>", "tensor<2xf32>").view(np.uint32)
    assert bits[0] == 0x7FC00001


def test_eight_bit_floats_take_their_bits() -> None:
    value = decode("dense<[0x38, 0xB8]>", "tensor<2xf8E4M3FN>")
    np.testing.assert_array_equal(value, np.array([1, -1], ml_dtypes.float8_e4m3fn))


def test_packed_booleans_in_hexadecimal() -> None:
    value = decode('dense<"0x0502">', "tensor<10xi1>")
    assert np.flatnonzero(value).tolist() == [0, 2, 9]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("dense<[1, 2]>", "tensor<3xi32>", "nesting"),
        ("dense<[1, 2, 3]>", "tensor<3xi1>", "true or false"),
        ("dense<300>", "tensor<i8>", "range"),
        ('dense<"0x00">', "tensor<2xf32>", "1 bytes, want 8"),
        ("dense_resource<blob>", "tensor<2xf32>", "carries no such resource"),
        ("sparse<0, 1>", "tensor<2xf32>", "sparse"),
        ("dense<...>", "tensor<2xf32>", "elided"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, kind: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode(text, kind)


RESOURCES = """module @m {
  func.func @main() -> (tensor<2xf32>, tensor<3xi1>) {
    %0 = stablehlo.constant dense_resource<weights> : tensor<2xf32>
    %1 = "stablehlo.constant"() {value = dense_resource<"a mask"> : tensor<3xi1>} : () -> tensor<3xi1>
    return %0, %1 : tensor<2xf32>, tensor<3xi1>
  }
}

{-#
  dialect_resources: {
    builtin: {
      weights: "0x040000000000803F00000040",
      "a mask": "0x01000000010001"
    }
  }
#-}
"""


def test_resources_are_read_where_the_text_carries_them() -> None:
    root = parse_model(RESOURCES, "m.mlir").entry.root_instruction
    weights, mask = (operand.literal for operand in root.operands)
    np.testing.assert_array_equal(weights, np.array([1, 2], np.float32))
    np.testing.assert_array_equal(mask, [True, False, True])
    with pytest.raises(CompileError, match="the text carries no such resource"):
        parse_model(RESOURCES.replace("weights:", "others:"), "m.mlir")
    with pytest.raises(CompileError, match="6 bytes, want 8"):
        parse_model(RESOURCES.replace("803F00000040", "803F0000"), "m.mlir")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("dense<3>", "i32"),
        ('dense<"0x0000803F">', "f32"),
        ('dense<"0x01">', "i1"),
        ("dense<-1>", "i4"),
    ],
)
def test_one_value_for_all_elements_takes_no_memory_for_each(text: str, kind: str) -> None:
    """A program of a real size has constants of a billion elements, all zero."""
    value = decode(text, f"tensor<100000x1000000x{kind}>")
    assert not any(value.strides) and is_one_value(value)
    module = parse_model(
        f"func.func @main() -> tensor<100000x1000000x{kind}> {{\n"
        f"  %0 = stablehlo.constant {text} : tensor<100000x1000000x{kind}>\n"
        f"  return %0 : tensor<100000x1000000x{kind}>\n}}"
    )
    assert module.entry.root_instruction.opcode == "broadcast"


def test_arrays_of_several_values_are_told_from_one_value() -> None:
    late = np.zeros((3, 100), np.complex128)
    late[2, 99] = 1j
    for array in (late, late.imag, np.array([0.0, -0.0], np.float32), np.eye(2, dtype=np.int8)):
        assert not is_one_value(array)
    nan = np.array([np.nan] * 3, ml_dtypes.bfloat16)
    assert is_one_value(nan) and is_one_value(np.ones((2, 3), np.complex64)[:, ::2])
