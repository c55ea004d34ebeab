# ruff: noqa: E501 - lines of MLIR are as long as MLIR makes them
"""What XLA writes in ``mhlo`` where StableHLO has no operation, and asynchronous operations."""

from __future__ import annotations

import numpy as np

from compiler.frontends.stablehlo.lowering import parse_stablehlo
from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloModule
from compiler.hlo.verifier import verify

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def module_of(body: str, result: str = "tensor<3x4xf32>", more: str = "") -> HloModule:
    module = parse_stablehlo(
        f"{more}\nfunc.func @main(%x: tensor<3x4xf32>) -> {result} {{\n{body}\n"
        f"  return %r : {result}\n}}"
    )
    verify(module)
    return module


def test_operations_of_other_dialects_have_namesakes() -> None:
    module = module_of("""
      %0 = mhlo.add %x, %x : tensor<3x4xf32>
      %1 = "mhlo.broadcast_in_dim"(%0) <{broadcast_dimensions = dense<[0, 1]> : tensor<2xi64>}> : (tensor<3x4xf32>) -> tensor<3x4xf32>
      %2 = mhlo.erf %1 : tensor<3x4xf32>
      %3 = mhlo.copy %2 : tensor<3x4xf32>
      %4 = stablehlo.create_token : !stablehlo.token
      %5 = mhlo.add_dependency %3, %4 : (tensor<3x4xf32>, !stablehlo.token) -> tensor<3x4xf32>
      %r = "mhlo.domain"(%5) <{kind = #mhlo<kind sharding>, entry_metadata = "{}", exit_metadata = "{}"}> : (tensor<3x4xf32>) -> tensor<3x4xf32>
    """)
    opcodes = [i.opcode for i in module.entry]
    assert opcodes == ["parameter", "add", "erf", "copy", "after-all", "add-dependency"]


def test_a_bitcast_reads_the_bytes_of_its_layouts() -> None:
    module = module_of(
        """%r = mhlo.bitcast %x {source_layout = dense<[0, 1]> : tensor<2xindex>, result_layout = dense<[1, 0]> : tensor<2xindex>}
           : (tensor<3x4xf32>) -> tensor<2x6xf32>""",
        "tensor<2x6xf32>",
    )
    (found,) = evaluate(module, [X])
    np.testing.assert_array_equal(found, X.T.reshape(2, 6))


def test_fusions_scans_and_products_of_ragged_rows() -> None:
    module = module_of(
        """
      %c = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
      %zero = stablehlo.constant dense<0.0> : tensor<4xf32>
      %one = stablehlo.constant dense<1.0> : tensor<2x4x5xf32>
      %0 = "mhlo.fusion"(%x) <{fusion_kind = #mhlo<fusion_kind kLoop>}> ({
      ^bb0(%a: tensor<3x4xf32>):
        %n = stablehlo.negate %a : tensor<3x4xf32>
        mhlo.return %n : tensor<3x4xf32>
      }) : (tensor<3x4xf32>) -> tensor<3x4xf32>
      %1:2 = mhlo.scan(%0) inits (%zero) dimension=0 attributes {is_reverse = false} {
      ^bb0(%input: tensor<4xf32>, %carry: tensor<4xf32>):
        %s = stablehlo.add %carry, %input : tensor<4xf32>
        mhlo.return %s, %s : tensor<4xf32>, tensor<4xf32>
      } : (tensor<3x4xf32>, tensor<4xf32>) -> (tensor<3x4xf32>, tensor<4xf32>)
      %r = "mhlo.ragged_dot"(%1#0, %one, %c) <{precision_config = [], ragged_dot_dimension_numbers = #mhlo.ragged_dot<dot_dimension_numbers = #mhlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}> : (tensor<3x4xf32>, tensor<2x4x5xf32>, tensor<2xi32>) -> tensor<3x5xf32>
        """,
        "tensor<3x5xf32>",
    )
    (found,) = evaluate(module, [X])
    want = np.repeat(-X.cumsum(0).sum(1, keepdims=True), 5, 1)
    np.testing.assert_allclose(found, want)


def test_largest_elements_and_random_states() -> None:
    module = module_of(
        """
      %values, %indices = mhlo.topk(%x, k = 2, largest = false) : tensor<3x4xf32> -> (tensor<3x2xf32>, tensor<3x2xi32>)
      %state = mhlo.xla.rng_get_and_update_state {delta = 1 : i64}
      %same = stablehlo.compare EQ, %state, %state : (tensor<2xui64>, tensor<2xui64>) -> tensor<2xi1>
      %r = stablehlo.add %indices, %indices : tensor<3x2xi32>
        """,
        "tensor<3x2xi32>",
    )
    (found,) = evaluate(module, [X])
    np.testing.assert_array_equal(found, [[0, 2]] * 3)
    assert any(i.opcode == "rng-get-and-update-state" for i in module.entry)


def test_asynchronous_operations_are_what_they_begin() -> None:
    module = module_of(
        """
      %0 = "stablehlo.async_start"(%x) ({
      ^bb0(%a: tensor<3x4xf32>):
        %g = "stablehlo.all_gather"(%a) <{all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>}> : (tensor<3x4xf32>) -> tensor<3x4xf32>
        stablehlo.return %g : tensor<3x4xf32>
      }) : (tensor<3x4xf32>) -> !stablehlo.future<tensor<3x4xf32>>
      %1 = "stablehlo.async_done"(%0) : (!stablehlo.future<tensor<3x4xf32>>) -> tensor<3x4xf32>
      %2 = "mhlo.async_start"(%1) <{called_computation = @twice, execution_thread = "main"}> : (tensor<3x4xf32>) -> !mhlo.async_bundle<tensor<3x4xf32>, tensor<3x4xf32>, tensor<ui32>>
      %3 = "mhlo.async_update"(%2) : (!mhlo.async_bundle<tensor<3x4xf32>, tensor<3x4xf32>, tensor<ui32>>) -> !mhlo.async_bundle<tensor<3x4xf32>, tensor<3x4xf32>, tensor<ui32>>
      %r = "mhlo.async_done"(%3) : (!mhlo.async_bundle<tensor<3x4xf32>, tensor<3x4xf32>, tensor<ui32>>) -> tensor<3x4xf32>
        """,
        more="""func.func private @twice(%a: tensor<3x4xf32>) -> tensor<3x4xf32> attributes {execution_thread = "main"} {
        %0 = stablehlo.add %a, %a : tensor<3x4xf32>
        return %0 : tensor<3x4xf32>
      }""",
    )
    (found,) = evaluate(module, [X])
    np.testing.assert_array_equal(found, 2 * X)
