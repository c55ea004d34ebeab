from __future__ import annotations

import pytest

from compiler.frontends.stablehlo.types import DYNAMIC, Types, fits, is_static
from compiler.hlo.shape import ArrayShape, TokenShape, TupleShape
from compiler.hlo.shape_text import print_shape


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("tensor<f32>", "f32[]"),
        ("tensor<4x8xbf16>", "bf16[4,8]"),
        ("tensor<2xi1>", "pred[2]"),
        ("tensor<3xui4>", "u4[3]"),
        ("tensor<3xsi8>", "s8[3]"),
        ("tensor<1xcomplex<f64>>", "c128[1]"),
        ("tensor<1xf8E4M3B11FNUZ>", "f8e4m3b11fnuz[1]"),
        ("tensor<2xf32, #stablehlo.bounds<?>>", "f32[2]"),
        (
            "tuple<tensor<f32>, tuple<tensor<2xi32>, !stablehlo.token>>",
            "(f32[], (s32[2], token[]))",
        ),
    ],
)
def test_types(text: str, want: str) -> None:
    assert print_shape(Types({}).type(text)) == want


def test_unknown_dimensions_fit_any_size() -> None:
    types = Types({"!t": "tensor<?x4xf32>"})
    declared = types.type("!t")
    assert declared == ArrayShape(types.type("tensor<f32>").dtype, (DYNAMIC, 4))  # type: ignore[union-attr]
    assert not is_static(declared)
    assert fits(types.type("tensor<3x4xf32>"), declared)
    assert not fits(types.type("tensor<3x5xf32>"), declared)


def test_signatures_with_and_without_an_arrow() -> None:
    types = Types({})
    both = types.signature(": (tensor<2xf32>, !stablehlo.token) -> (tensor<f32>, tuple<>)")
    assert both.operands is not None
    assert isinstance(both.operands[1], TokenShape)
    assert both.results[1] == TupleShape(())
    assert types.signature(": tensor<2xf32>, tensor<3xf32>").operands is None
    assert types.signature(": () -> ()").results == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tensor<2x!quant.uniform<i8:f32, 0.1>>", "quantized"),
        ("tensor<*xf32>", "no rank"),
        ("tensor<2xtf32>", "tf32 is not supported"),
        ("memref<2xf32>", "memref<2xf32> is not supported"),
        ("tensor<4xf32, #sparse_tensor.encoding<{}>>", "sparse"),
    ],
)
def test_unsupported_types_are_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Types({}).type(text)
