# ruff: noqa: E501 - lines of MLIR are as long as MLIR makes them
"""Operations that exporters seldom write: sizes as operands, selections that broadcast, tuples, one device's collectives."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from compiler.diagnostics import UnsupportedError
from compiler.frontends.stablehlo.lowering import parse_stablehlo
from compiler.hlo.evaluator import evaluate
from compiler.hlo.verifier import verify

Array = npt.NDArray[np.generic]

A = np.arange(24, dtype=np.float32).reshape(4, 6)
IMAGE = np.arange(25, dtype=np.float32).reshape(1, 5, 5, 1)
ONES = np.ones((3, 3, 1, 1), np.float32)
LINES = np.pad(IMAGE[0, :, :, 0], 1)
SUMS = np.array(
    [[LINES[i : i + 3, j : j + 3].sum() for j in range(5)] for i in range(5)], np.float32
)
SUMS = SUMS.reshape(1, 5, 5, 1)
CHOSEN = np.array([1, 0, 1, 0, 0, 1], bool)
PADDED = np.ones((7, 11), np.float32)
PADDED[1:5, 1::2] = A[:, 1:]

CASES: dict[str, tuple[str, list[Array], Array]] = {
    "dynamic_pad": (
        """func.func @main(%a0: tensor<4x6xf32>) -> tensor<7x11xf32> {
 %z = stablehlo.constant dense<1.0> : tensor<f32>
 %l = stablehlo.constant dense<[1, -1]> : tensor<2xi64>
 %h = stablehlo.constant dense<[2, 1]> : tensor<2xi64>
 %i = stablehlo.constant dense<[0, 1]> : tensor<2xi64>
 %r = stablehlo.dynamic_pad %a0, %z, %l, %h, %i : (tensor<4x6xf32>, tensor<f32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<7x11xf32>
 return %r : tensor<7x11xf32> }""",
        [A],
        PADDED,
    ),
    "dynamic_gather": (
        """func.func @main(%a0: tensor<4x6xf32>, %a1: tensor<3x1xi32>) -> tensor<3x6xf32> {
 %s = stablehlo.constant dense<[1, 6]> : tensor<2xi32>
 %r = "stablehlo.dynamic_gather"(%a0, %a1, %s) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>} : (tensor<4x6xf32>, tensor<3x1xi32>, tensor<2xi32>) -> tensor<3x6xf32>
 return %r : tensor<3x6xf32> }""",
        [A, np.array([[3], [0], [2]], np.int32)],
        A[[3, 0, 2]],
    ),
    "dynamic_conv": (
        """func.func @main(%a0: tensor<1x5x5x1xf32>, %a1: tensor<3x3x1x1xf32>) -> tensor<1x5x5x1xf32> {
 %p = stablehlo.constant dense<1> : tensor<2x2xi32>
 %r = "stablehlo.dynamic_conv"(%a0, %a1, %p) {batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64} : (tensor<1x5x5x1xf32>, tensor<3x3x1x1xf32>, tensor<2x2xi32>) -> tensor<1x5x5x1xf32>
 return %r : tensor<1x5x5x1xf32> }""",
        [IMAGE, ONES],
        SUMS,
    ),
    "convolution_of_named_dimensions": (
        """func.func @main(%a0: tensor<1x5x5x1xf32>, %a1: tensor<3x3x1x1xf32>) -> tensor<1x3x3x1xf32> {
 %r = "stablehlo.convolution"(%a0, %a1) {batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<raw input_batch_dimension = 0, input_feature_dimension = 3, input_spatial_dimensions = [1, 2], kernel_input_feature_dimension = 2, kernel_output_feature_dimension = 3, kernel_spatial_dimensions = [0, 1], output_batch_dimension = 0, output_feature_dimension = 3, output_spatial_dimensions = [1, 2]>, feature_group_count = 1 : i64} : (tensor<1x5x5x1xf32>, tensor<3x3x1x1xf32>) -> tensor<1x3x3x1xf32>
 return %r : tensor<1x3x3x1xf32> }""",
        [IMAGE, ONES],
        SUMS[:, 1:4, 1:4],
    ),
    "set_dimension_size": (
        """func.func @main(%a0: tensor<4x6xf32>) -> tensor<4x6xf32> {
 %n = stablehlo.constant dense<6> : tensor<i32>
 %r = "stablehlo.set_dimension_size"(%a0, %n) {dimension = 1 : i64} : (tensor<4x6xf32>, tensor<i32>) -> tensor<4x6xf32>
 return %r : tensor<4x6xf32> }""",
        [A],
        A,
    ),
    "broadcast_select": (
        """func.func @main(%p: tensor<6xi1>, %a0: tensor<4x6xf32>, %a1: tensor<f32>) -> tensor<4x6xf32> {
 %r = "chlo.broadcast_select"(%p, %a0, %a1) : (tensor<6xi1>, tensor<4x6xf32>, tensor<f32>) -> tensor<4x6xf32>
 return %r : tensor<4x6xf32> }""",
        [CHOSEN, A, np.float32(5)],
        np.where(CHOSEN, A, np.float32(5)),
    ),
    "tuple": (
        """func.func @main(%a0: tensor<4x6xf32>, %a1: tensor<i32>) -> tensor<4x6xf32> {
 %t = stablehlo.tuple %a0, %a1 : tuple<tensor<4x6xf32>, tensor<i32>>
 %r = stablehlo.get_tuple_element %t[0] : (tuple<tensor<4x6xf32>, tensor<i32>>) -> tensor<4x6xf32>
 return %r : tensor<4x6xf32> }""",
        [A, np.int32(1)],
        A,
    ),
    "shape_assertion": (
        """func.func @main(%a0: tensor<4x6xf32>) -> tensor<4x6xf32> {
 %c = stablehlo.constant dense<true> : tensor<i1>
 stablehlo.custom_call @shape_assertion(%c) {error_message = "no", has_side_effect = true} : (tensor<i1>) -> ()
 return %a0 : tensor<4x6xf32> }""",
        [A],
        A,
    ),
}
OF_ONE_DEVICE = {
    "all_to_all": '"mhlo.all_to_all"(%a0) {split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 1 : i64, replica_groups = dense<0> : tensor<1x1xi64>}',
    "collective_broadcast": '"stablehlo.collective_broadcast"(%a0) {replica_groups = dense<0> : tensor<1x1xi64>}',
    "collective_permute": '"stablehlo.collective_permute"(%a0) {source_target_pairs = dense<[[0, 0]]> : tensor<1x2xi64>}',
    "reduce_scatter": """"stablehlo.reduce_scatter"(%a0) ({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %s = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }) {scatter_dimension = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>}""",
}


def results(text: str, arguments: list[Array]) -> list[Array]:
    module = parse_stablehlo(text)
    verify(module)
    return list(evaluate(module, arguments, "highest"))


@pytest.mark.parametrize("name", CASES)
def test_operation(name: str) -> None:
    text, arguments, want = CASES[name]
    (found,) = results(text, arguments)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("name", OF_ONE_DEVICE)
def test_a_device_alone_keeps_what_it_has(name: str) -> None:
    text = f"""func.func @main(%a0: tensor<4x6xf32>) -> tensor<4x6xf32> {{
      %r = {OF_ONE_DEVICE[name]} : (tensor<4x6xf32>) -> tensor<4x6xf32>
      return %r : tensor<4x6xf32> }}"""
    (found,) = results(text, [A])
    np.testing.assert_array_equal(found, A)


def test_random_numbers_have_the_shape_of_an_operand() -> None:
    text = """func.func @main(%a0: tensor<f32>, %a1: tensor<f32>) -> tensor<3x5xf32> {
 %s = stablehlo.constant dense<[3, 5]> : tensor<2xi64>
 %r = stablehlo.rng %a0, %a1, %s, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<3x5xf32>
 return %r : tensor<3x5xf32> }"""
    (found,) = results(text, [np.asarray(np.float32(2)), np.asarray(np.float32(3))])
    assert found.shape == (3, 5) and np.all((found >= 2) & (found < 3)) and np.ptp(found) > 0


def test_a_transfer_to_the_host_is_refused_by_the_evaluator() -> None:
    text = """func.func @main(%a0: tensor<4x6xf32>, %t: !stablehlo.token) -> !stablehlo.token {
 %r = "stablehlo.send"(%a0, %t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true} : (tensor<4x6xf32>, !stablehlo.token) -> !stablehlo.token
 return %r : !stablehlo.token }"""
    with pytest.raises(UnsupportedError, match="send is not evaluated: it needs a host"):
        results(text, [A])
