# ruff: noqa: E501 - lines of MLIR are as long as MLIR makes them
from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from compiler.diagnostics import CompileError
from compiler.frontends.stablehlo.lowering import parse_stablehlo
from compiler.hlo.attributes import BufferDonor, InputOutputAlias
from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.hlo.verifier import verify

Array = npt.NDArray[np.generic]


def parse(text: str) -> HloModule:
    module = parse_stablehlo(text)
    verify(module)
    printed = print_module(module)
    assert print_module(parse_module(printed)) == printed
    return module


def run(text: str, *arguments: Array) -> list[Array]:
    return evaluate(parse(text), list(arguments), "highest")


def test_entry_is_main_or_the_only_public_function() -> None:
    body = "(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"
    helper = f"func.func private @helper{body}\n"
    assert parse(f"{helper}func.func public @go{body}").entry.name == "go"
    assert parse(f"func.func @main{body}\nfunc.func @other{body}").entry.name == "main"
    with pytest.raises(CompileError, match="@main or exactly one public"):
        parse_stablehlo(f"func.func @a{body}\nfunc.func @b{body}")


def test_parameters_keep_order_and_names() -> None:
    module = parse("func.func @main(%b: tensor<2xf32>, %a: tensor<i32>) { return }")
    assert [p.name for p in module.entry.parameters] == ["b", "a"]


def test_one_result_is_the_root_and_several_are_a_tuple() -> None:
    one = parse("func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }")
    assert one.entry.root_instruction.opcode == "parameter"
    two = parse(
        "func.func @main(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) "
        "{ return %x, %x : tensor<f32>, tensor<f32> }"
    )
    assert two.entry.root_instruction.opcode == "tuple"


def test_donated_arguments_become_aliases() -> None:
    module = parse(
        "func.func @main(%x: tensor<f32> {tf.aliasing_output = 0 : i32}, "
        "%y: tensor<f32> {jax.buffer_donor = true}) -> tensor<f32> { return %x : tensor<f32> }"
    )
    assert module.attrs["input_output_alias"] == (InputOutputAlias((), 0, ()),)
    assert module.attrs["buffer_donor"] == (BufferDonor(1, ()),)


def test_functions_called_twice_are_one_computation() -> None:
    module = parse(
        """
        func.func @main(%x: tensor<f32>) -> tensor<f32> {
          %0:2 = call @pair(%x) : (tensor<f32>) -> (tensor<f32>, tensor<f32>)
          %1:2 = func.call @pair(%0#1) : (tensor<f32>) -> (tensor<f32>, tensor<f32>)
          return %1#1 : tensor<f32>
        }
        func.func private @pair(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
          %0 = stablehlo.add %x, %x : tensor<f32>
          return %x, %0 : tensor<f32>, tensor<f32>
        }"""
    )
    assert list(module.computations) == ["pair", "main"]
    assert evaluate(module, [np.float32(3)])[0] == 12  # type: ignore[list-item]


LOOP = """
func.func @main(%n: tensor<i32>, %step: tensor<f32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %start = stablehlo.constant dense<1.0> : tensor<f32>
  %table = stablehlo.constant dense<[5.0, 6.0, 7.0]> : tensor<3xf32>
  %0:2 = stablehlo.while(%i = %zero, %acc = %start) : tensor<i32>, tensor<f32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %next = stablehlo.add %i, %one : tensor<i32>
    %e = stablehlo.dynamic_slice %table, %i, sizes = [1] : (tensor<3xf32>, tensor<i32>) -> tensor<1xf32>
    %s = stablehlo.reshape %e : (tensor<1xf32>) -> tensor<f32>
    %m = stablehlo.multiply %s, %step : tensor<f32>
    %sum = stablehlo.add %acc, %m : tensor<f32>
    stablehlo.return %next, %sum : tensor<i32>, tensor<f32>
  }
  return %0#1 : tensor<f32>
}
"""


def test_a_loop_body_may_use_outer_values_and_constants() -> None:
    (result,) = run(LOOP, np.int32(3), np.float32(2))  # type: ignore[arg-type]
    assert result == 1 + 2 * (5 + 6 + 7)


def test_a_captured_value_does_not_follow_the_state_it_starts() -> None:
    (result,) = run(
        """
        func.func @main(%x: tensor<f32>) -> tensor<f32> {
          %r = stablehlo.while(%v = %x) : tensor<f32>
          cond {
            %limit = stablehlo.constant dense<100.0> : tensor<f32>
            %c = stablehlo.compare LT, %v, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>
            stablehlo.return %c : tensor<i1>
          } do {
            %n = stablehlo.add %v, %x : tensor<f32>
            stablehlo.return %n : tensor<f32>
          }
          return %r : tensor<f32>
        }""",
        np.float32(30),  # type: ignore[arg-type]
    )
    assert result == 120


def test_case_branches_take_what_they_use() -> None:
    text = """
        func.func @main(%k: tensor<i32>, %x: tensor<2xf32>, %y: tensor<2xf32>) -> (tensor<2xf32>, tensor<i32>) {
          %0:2 = "stablehlo.case"(%k) ({
            stablehlo.return %x, %k : tensor<2xf32>, tensor<i32>
          }, {
            %one = stablehlo.constant dense<1> : tensor<i32>
            %s = stablehlo.add %x, %y : tensor<2xf32>
            stablehlo.return %s, %one : tensor<2xf32>, tensor<i32>
          }) : (tensor<i32>) -> (tensor<2xf32>, tensor<i32>)
          return %0#0, %0#1 : tensor<2xf32>, tensor<i32>
        }"""
    x, y = np.float32([1, 2]), np.float32([10, 20])
    assert run(text, np.int32(0), x, y)[0].tolist() == [1, 2]  # type: ignore[arg-type]
    assert run(text, np.int32(7), x, y)[0].tolist() == [11, 22]  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", (8, 8192))
def test_regions_use_outer_constants_of_any_size(rows: int) -> None:
    shape = f"tensor<{rows}x1000xf32>"
    text = f"""
        func.func @main(%k: tensor<i32>, %x: {shape}) -> ({shape}, {shape}) {{
          %one = stablehlo.constant dense<1.0> : tensor<f32>
          %ones = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> {shape}
          %twos = stablehlo.constant dense<2.0> : {shape}
          %0 = "stablehlo.case"(%k) ({{
            %s = stablehlo.add %x, %ones : {shape}
            stablehlo.return %s : {shape}
          }}, {{
            stablehlo.return %twos : {shape}
          }}) : (tensor<i32>) -> {shape}
          %1:2 = stablehlo.while(%i = %k, %y = %0) : tensor<i32>, {shape}
           cond {{
            %n = stablehlo.constant dense<3> : tensor<i32>
            %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %c : tensor<i1>
          }} do {{
            %d = stablehlo.constant dense<1> : tensor<i32>
            %j = stablehlo.add %i, %d : tensor<i32>
            %z = stablehlo.multiply %y, %twos : {shape}
            stablehlo.return %j, %z : tensor<i32>, {shape}
          }}
          return %0, %1#1 : {shape}, {shape}
        }}"""
    x = np.ones((rows, 1000), np.float32)
    for index, wanted in ((0, (2, 16)), (1, (2, 8))):
        found = run(text, np.int32(index), x)
        assert [(float(a.min()), float(a.max())) for a in found] == [(w, w) for w in wanted]


def test_a_reducer_may_use_outer_constants_only() -> None:
    text = """
        func.func @main(%x: tensor<3xf32>, %s: tensor<f32>) -> tensor<f32> {
          %two = stablehlo.constant dense<2.0> : tensor<f32>
          %0 = stablehlo.reduce(%x init: %two) across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
           reducer(%a: tensor<f32>, %b: tensor<f32>) {
            %m = stablehlo.multiply %a, USED : tensor<f32>
            %n = stablehlo.maximum %m, %b : tensor<f32>
            stablehlo.return %n : tensor<f32>
          }
          return %0 : tensor<f32>
        }"""
    assert "parameter" in print_module(parse(text.replace("USED", "%two")))
    with pytest.raises(CompileError, match="%s comes from outside of this region"):
        parse_stablehlo(text.replace("USED", "%s"))


def test_shapes_given_as_constants_refine_a_polymorphic_function() -> None:
    (result,) = run(
        """
        func.func @main(%x: tensor<3xf32>) -> tensor<?x?xf32> {
          %rows = stablehlo.constant dense<2> : tensor<1xi32>
          %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<3xf32>) -> tensor<i32>
          %cols = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
          %shape = stablehlo.concatenate %rows, %cols, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
          %0 = call @spread(%x, %shape) : (tensor<3xf32>, tensor<2xi32>) -> tensor<?x?xf32>
          return %0 : tensor<?x?xf32>
        }
        func.func private @spread(%x: tensor<?xf32>, %shape: tensor<2xi32>) -> tensor<?x?xf32> {
          %0 = stablehlo.dynamic_broadcast_in_dim %x, %shape, dims = [1] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
          %1 = stablehlo.dynamic_iota %shape, dim = 0 : (tensor<2xi32>) -> tensor<?x?xf32>
          %2 = stablehlo.add %0, %1 : tensor<?x?xf32>
          return %2 : tensor<?x?xf32>
        }""",
        np.float32([1, 2, 3]),
    )
    assert result.tolist() == [[1, 2, 3], [2, 3, 4]]


def test_a_slice_with_a_runtime_start_and_a_known_size() -> None:
    (result,) = run(
        """
        func.func @main(%x: tensor<10xf32>, %s: tensor<1xi32>, %l: tensor<1xi32>) -> tensor<3xf32> {
          %two = stablehlo.constant dense<2> : tensor<1xi32>
          %0 = stablehlo.real_dynamic_slice %x, %s, %l, %two : (tensor<10xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xf32>
          return %0 : tensor<3xf32>
        }""",
        np.arange(10, dtype=np.float32),
        np.int32([3]),
        np.int32([8]),
    )
    assert result.tolist() == [3, 5, 7]


def test_composites_are_their_decomposition_and_named_targets_their_operation() -> None:
    (result,) = run(
        """
        func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
          %0 = stablehlo.composite "lib.twice" %x {composite_attributes = {n = 2 : i32}, decomposition = @twice} : (tensor<2xf32>) -> tensor<2xf32>
          %1 = stablehlo.custom_call @mhlo.erf(%0) {mhlo.attributes = {}, mhlo.version = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
          %2 = stablehlo.custom_call @Sharding(%1) {mhlo.sharding = "{replicated}"} : (tensor<2xf32>) -> tensor<2xf32>
          return %2 : tensor<2xf32>
        }
        func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
          %0 = stablehlo.add %x, %x : tensor<2xf32>
          return %0 : tensor<2xf32>
        }""",
        np.float32([0, 0.5]),
    )
    np.testing.assert_allclose(result, [0, 0.8427008], rtol=1e-6)


def test_a_custom_call_keeps_what_it_says() -> None:
    module = parse(
        """
        func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<i32>) {
          %0:2 = stablehlo.custom_call @lib.f(%x) {api_version = 4 : i32, has_side_effect = true, backend_config = {n = 3 : i64, mode = "a"}, mhlo.frontend_attributes = {k = "v"}, output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>]} : (tensor<2xf32>) -> (tensor<2xf32>, tensor<i32>)
          return %0#0, %0#1 : tensor<2xf32>, tensor<i32>
        }"""
    )
    text = print_module(module)
    assert 'custom_call_target="lib.f"' in text
    assert "api_version=API_VERSION_TYPED_FFI" in text
    assert 'frontend_attributes={k="v"}' in text
    assert "output_to_operand_aliasing={{0}: (0, {})}" in text
    assert 'backend_config={n = 3, mode = "a"}' in text


def test_tokens_and_host_transfers() -> None:
    module = parse(
        """
        func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
          %t = stablehlo.create_token : !stablehlo.token
          %0:2 = "stablehlo.infeed"(%t) <{infeed_config = "q"}> : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
          %1 = "stablehlo.outfeed"(%x, %0#1) : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
          %2 = stablehlo.after_all %1, %t : !stablehlo.token
          return %0#0 : tensor<3xf32>
        }"""
    )
    opcodes = [instr.opcode for instr in module.entry]
    assert {"infeed", "outfeed", "after-all"} <= set(opcodes)


def test_a_long_chain_of_constants_is_folded() -> None:
    steps = "\n".join(f"%c{i + 1} = stablehlo.add %c{i}, %c0 : tensor<1xi32>" for i in range(2000))
    (result,) = run(
        f"""
        func.func @main(%x: tensor<f32>) -> tensor<?xf32> {{
          %c0 = stablehlo.constant dense<1> : tensor<1xi32>
          {steps}
          %0 = stablehlo.dynamic_broadcast_in_dim %x, %c2000, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
          return %0 : tensor<?xf32>
        }}""",
        np.float32(1),  # type: ignore[arg-type]
    )
    assert result.shape == (2001,)


def test_a_device_number_is_no_constant() -> None:
    with pytest.raises(CompileError, match="the shape operand must be constant"):
        parse_stablehlo(
            """
            func.func @main(%x: tensor<f32>) -> tensor<?xf32> {
              %0 = stablehlo.replica_id : tensor<ui32>
              %1 = stablehlo.reshape %0 : (tensor<ui32>) -> tensor<1xui32>
              %2 = stablehlo.dynamic_broadcast_in_dim %x, %1, dims = [] : (tensor<f32>, tensor<1xui32>) -> tensor<?xf32>
              return %2 : tensor<?xf32>
            }"""
        )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%0 = stablehlo.add %x, %y : tensor<3xf32>", "%y is not defined"),
        ("%0 = stablehlo.add %x, %x : tensor<4xf32>", "the signature says f32"),
        (
            "%0 = stablehlo.frob %x : tensor<3xf32>",
            "stablehlo.frob: this operation is not supported",
        ),
        ("%0 = arith.addf %x, %x : tensor<3xf32>", "dialect arith is not supported"),
        ("%0 = stablehlo.uniform_dequantize %x : (tensor<3xf32>) -> tensor<3xf32>", "quantized"),
        ("%0:2 = stablehlo.add %x, %x : tensor<3xf32>", "2 results are named, it has 1"),
        ("%0 = call @gone(%x) : (tensor<3xf32>) -> tensor<3xf32>", "@gone is not defined"),
        ("%0 = call @main(%x) : (tensor<3xf32>) -> tensor<3xf32>", "calls itself"),
        ("%0 = stablehlo.constant dense_resource<w> : tensor<3xf32>", "dense_resource<w>"),
        ("%0 = stablehlo.slice %x [0:9] : (tensor<3xf32>) -> tensor<9xf32>", "not inside"),
        ("%0 = stablehlo.transpose %x : (tensor<3xf32>) -> tensor<3xf32>", "permutation"),
        ("%0 = stablehlo.add %x : tensor<3xf32>", "found 1 operands, want 2"),
        ("%0 = stablehlo.get_tuple_element %x[0] : (tensor<3xf32>) -> tensor<f32>", "want a tuple"),
        (
            "%0:3 = stablehlo.optimization_barrier %x, %x, %x : tensor<3xf32>, tensor<3xf32>",
            "3 results, 2 in the signature",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(body: str, message: str) -> None:
    text = f"func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {{\n  {body}\n  return %0 : tensor<3xf32>\n}}"
    with pytest.raises(CompileError, match=message) as caught:
        parse_stablehlo(text)
    assert caught.value.span is not None
    assert caught.value.span.line == 2


def test_dynamic_entry_arguments_are_refused_by_name() -> None:
    with pytest.raises(CompileError, match=r"argument %x is tensor<\?xf32>"):
        parse_stablehlo("func.func @main(%x: tensor<?xf32>) { return }")
