# ruff: noqa: E501 - lines of MLIR are as long as MLIR makes them
from __future__ import annotations

import pytest

from compiler.diagnostics import CompileError
from compiler.frontends.stablehlo.lowering import parse_stablehlo
from compiler.frontends.stablehlo.parser import parse_document
from compiler.frontends.stablehlo.syntax import Dense, Operation, Raw, Symbol
from compiler.hlo.keys import computation_key


def only(body: str) -> Operation:
    document = parse_document(
        "func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {\n" + body + "\n}"
    )
    return document.operations[0].regions[0].operations[0]


def test_operands_and_results_of_a_pretty_operation() -> None:
    op = only("%0 = stablehlo.add %x, %y : tensor<4xf32>")
    assert (op.name, op.operands, op.results) == ("stablehlo.add", ["%x", "%y"], [("%0", 1)])
    assert op.span.line == 2


def test_several_results_and_uses_of_one() -> None:
    op = only("%a:2, %b = stablehlo.optimization_barrier %0#1, %x, %y : tensor<f32>")
    assert op.results == [("%a", 2), ("%b", 1)]
    assert op.operands == ["%0#1", "%x", "%y"]


def test_pretty_keys_get_their_generic_names() -> None:
    slice_ = only("%0 = stablehlo.slice %x [1:4:2] : (tensor<4xf32>) -> tensor<2xf32>")
    assert slice_.attributes == {"start_indices": (1,), "limit_indices": (4,), "strides": (2,)}
    compare = only(
        "%0 = stablehlo.compare LT, %x, %y, TOTALORDER : (t) -> t".replace("t)", "i1)").replace(
            "> t", "> i1"
        )
    )
    assert compare.attributes["compare_type"] == Raw("TOTALORDER")
    precision = only("%0 = stablehlo.reduce_precision %x, format = e5m10 : tensor<4xf32>")
    assert precision.attributes == {"exponent_bits": 5, "mantissa_bits": 10}


def test_attribute_values() -> None:
    op = only(
        '"a.b"(%x) <{i = -3 : i64, f = 1.5e+00 : f32, inf = 0x7F800000 : f32, s = "q\\22", u, '
        "d = dense<[1, 2]> : tensor<2xi64>, n = [1, [true]], t = {k = @g}, e = #stablehlo<precision HIGH>, "
        "z = array<i64: 1, 2>, ty = tensor<2xf32>}> {other.name = unit} : (tensor<4xf32>) -> ()"
    )
    attributes = op.attributes
    assert attributes["i"] == -3
    assert attributes["f"] == 1.5
    assert attributes["inf"] == float("inf")
    assert attributes["s"] == 'q"'
    assert attributes["u"] is True
    assert attributes["d"] == Dense("dense<[1, 2]>", "tensor<2xi64>")
    assert attributes["n"] == (1, (True,))
    assert attributes["t"] == {"k": Symbol("g")}
    assert attributes["e"] == Raw("#stablehlo<precision HIGH>")
    assert attributes["z"] == Raw("array<i64: 1, 2>")
    assert attributes["other.name"] is True


def test_aliases_and_locations() -> None:
    text = """
#loc = loc("x"(#loc1))
#precision = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]
!m = tensor<2x2xf32>
func.func @main(%a: !m loc("a")) -> (!m {jax.result_info = "r"}) {
  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] {precision_config = #precision} : (!m, !m) -> !m loc(#loc)
  return %0 : !m loc(fused["f", callsite("g" at "h.py":1:2)])
} loc(unknown)
#loc1 = loc("h.py":3:4 to :5)
"""
    root = parse_stablehlo(text).entry.root_instruction
    assert root.attrs["operand_precision"] == ("highest", "highest")


PRETTY = """
func.func @main(%x: tensor<4x6xf32>, %i: tensor<i32>) -> (tensor<4xf32>, tensor<2x6xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) across dimensions = [1] : (tensor<4x6xf32>, tensor<f32>) -> tensor<4xf32>
   reducer(%a: tensor<f32>, %b: tensor<f32>) {
    %m = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }
  %1 = stablehlo.dynamic_slice %x, %i, %i, sizes = [2, 6] : (tensor<4x6xf32>, tensor<i32>, tensor<i32>) -> tensor<2x6xf32>
  %2 = stablehlo.pad %1, %zero, low = [1, 0], high = [0, -1], interior = [0, 0] : (tensor<2x6xf32>, tensor<f32>) -> tensor<3x5xf32>
  %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<3x5xf32>) -> tensor<5x3xf32>
  return %0, %1 : tensor<4xf32>, tensor<2x6xf32>
}
"""
GENERIC = """
"func.func"() <{function_type = (tensor<4x6xf32>, tensor<i32>) -> (tensor<4xf32>, tensor<2x6xf32>), sym_name = "main"}> ({
^bb0(%x: tensor<4x6xf32>, %i: tensor<i32>):
  %zero = "stablehlo.constant"() <{value = dense<0.0> : tensor<f32>}> : () -> tensor<f32>
  %0 = "stablehlo.reduce"(%x, %zero) <{dimensions = array<i64: 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %m = "stablehlo.maximum"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%m) : (tensor<f32>) -> ()
  }) : (tensor<4x6xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = "stablehlo.dynamic_slice"(%x, %i, %i) <{slice_sizes = array<i64: 2, 6>}> : (tensor<4x6xf32>, tensor<i32>, tensor<i32>) -> tensor<2x6xf32>
  %2 = "stablehlo.pad"(%1, %zero) {edge_padding_low = dense<[1, 0]> : tensor<2xi64>, edge_padding_high = dense<[0, -1]> : tensor<2xi64>, interior_padding = dense<0> : tensor<2xi64>} : (tensor<2x6xf32>, tensor<f32>) -> tensor<3x5xf32>
  %3 = "stablehlo.transpose"(%2) <{permutation = array<i64: 1, 0>}> : (tensor<3x5xf32>) -> tensor<5x3xf32>
  "func.return"(%0, %1) : (tensor<4xf32>, tensor<2x6xf32>) -> ()
}) : () -> ()
"""


def test_both_forms_give_the_same_module() -> None:
    pretty, generic = parse_stablehlo(PRETTY), parse_stablehlo(GENERIC)
    assert computation_key(pretty.entry) == computation_key(generic.entry)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("func.func @f(%x tensor<f32>) { return }", "expected .*an argument", 1),
        ("module {\n  func.func @f() {\n    return\n", "expected .*`}`", 4),
        ("HloModule m", "expected", 1),
        (
            "func.func @main() {\n  %0 = stablehlo.constant : tensor<f32>\n return }",
            "want dense",
            2,
        ),
    ],
)
def test_syntax_errors_say_where_and_what_was_expected(text: str, message: str, line: int) -> None:
    with pytest.raises(CompileError, match=message) as caught:
        parse_stablehlo(text, "a.mlir")
    assert caught.value.span is not None
    assert (caught.value.span.file, caught.value.span.line) == ("a.mlir", line)
