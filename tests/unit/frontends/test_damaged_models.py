"""What damaged models showed: endless numbers, digits that are no numbers, parts that are missing."""

from __future__ import annotations

import pytest

from compiler.diagnostics import CompileError
from compiler.frontends.models import parse_model

HLO = "HloModule m\nENTRY e {{\n  ROOT p = f32[{size}] parameter({number})\n}}\n"
DOT = """func.func @main(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] : (tensor<2x2xf32>,
    tensor<2x2xf32>) -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}
"""


@pytest.mark.parametrize("text", [
    HLO.format(size="2", number="9" * 5000),
    HLO.format(size="9" * 5000, number="0"),
    f"func.func @main(%a: tensor<{'9' * 5000}xf32>) {{ return }}",
])  # fmt: skip
def test_endless_numbers_are_refused(text: str) -> None:
    with pytest.raises(CompileError):
        parse_model(text, "m")


@pytest.mark.parametrize("digit", ["²", "①"])
def test_digits_that_are_no_numbers_are_refused(digit: str) -> None:
    for text in (HLO.format(size=digit, number="0"), HLO.format(size="2", number=digit)):
        with pytest.raises(CompileError):
            parse_model(text, "m")


def test_dimensions_of_one_side_are_refused() -> None:
    with pytest.raises(CompileError, match="both sides"):
        parse_model(DOT, "m")


def test_a_block_without_a_return_is_refused() -> None:
    text = """func.func @main(%a: tensor<i32>) -> tensor<i32> {
      %0 = stablehlo.while(%b = %a) : tensor<i32>
      cond {
        %c = stablehlo.constant dense<true> : tensor<i1>
      } do {
        stablehlo.return %b : tensor<i32>
      }
      return %0 : tensor<i32>
    }"""
    with pytest.raises(CompileError, match="without a return"):
        parse_model(text, "m")


def test_numbers_may_begin_with_zeros() -> None:
    text = """func.func @main(%a: tensor<2x3xf32>) -> tensor<3x2xf32> {
      %0 = stablehlo.transpose %a, dims = [01, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
      return %0 : tensor<3x2xf32>
    }"""
    assert parse_model(text, "m").entry.root_instruction.array.dims == (3, 2)
