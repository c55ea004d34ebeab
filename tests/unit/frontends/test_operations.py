# ruff: noqa: E501 - lines of MLIR are as long as MLIR makes them
"""Each operation in a module of its own, against NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from compiler.frontends.stablehlo.lowering import parse_stablehlo
from compiler.hlo.evaluator import evaluate
from compiler.hlo.printer import print_module
from compiler.hlo.verifier import verify

Array = npt.NDArray[np.generic]

A = np.arange(24, dtype=np.float32).reshape(4, 6)
B = (A % 5 - 2).astype(np.float32)
INTS = np.array([3, -1, 7, 0], np.int32)
KINDS = {np.dtype(np.float32): "f32", np.dtype(np.int32): "i32", np.dtype(np.bool_): "i1"}
KINDS |= {np.dtype(np.complex64): "complex<f32>", np.dtype(np.uint32): "ui32"}
KINDS |= {np.dtype(np.uint64): "ui64", np.dtype(np.float16): "f16", np.dtype(np.uint8): "ui8"}


def kind(array: Array) -> str:
    return f"tensor<{'x'.join([*map(str, array.shape), KINDS[array.dtype]])}>"


def function_text(body: str, arguments: list[Array], results: list[Array]) -> str:
    """``%r... = body`` as a function, where TYPES stands for the functional signature."""
    parameters = ", ".join(f"%a{i}: {kind(a)}" for i, a in enumerate(arguments))
    types = ", ".join(map(kind, results))
    signature = f"({', '.join(map(kind, arguments))}) -> ({types})"
    names = ", ".join(f"%r#{i}" for i in range(len(results))) if len(results) > 1 else "%r"
    count = f":{len(results)}" if len(results) > 1 else ""
    return f"""func.func @main({parameters}) -> ({types}) {{
      %r{count} = {body.replace("TYPES", signature)}
      return {names} : {types}
    }}"""


def run(body: str, arguments: list[Array], results: list[Array]) -> list[Array]:
    """Evaluate that function."""
    module = parse_stablehlo(function_text(body, arguments, results))
    verify(module)
    assert print_module(module)
    return evaluate(module, arguments, "highest")


ADD_REGION = """({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %s = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %s : tensor<f32>
  })"""
SCALAR = np.float32(0).reshape(())


@dataclass(frozen=True)
class Case:
    body: str
    arguments: tuple[Array, ...]
    wants: tuple[object, ...]

    def __str__(self) -> str:
        return (
            self.body.split()[0].strip('"').partition("(")[0].removeprefix("stablehlo.").strip('"')
        )


def case(body: str, arguments: tuple[object, ...], *wants: object) -> Case:
    return Case(body, tuple(np.asarray(a) for a in arguments), wants)


def window_sums() -> Array:
    padded = np.pad(A, ((1, 0), (0, 0)))
    return np.stack([padded[i : i + 2, ::2][:, :3].sum(0) for i in range(4)])


def batch_norm() -> tuple[Array, Array, Array]:
    mean, var = A.mean(0), A.var(0)
    return (A - mean) / np.sqrt(var + 0.5) * 2 + 1, mean, var


TWO, ONE = np.full(6, 2, np.float32), np.full(6, 1, np.float32)
LOWER = np.tril(B[:, :4]) + 9 * np.eye(4, dtype=np.float32)
SPD = LOWER @ LOWER.T

CASES = [
    case("stablehlo.abs %a0 : TYPES", (B,), np.abs(B)),
    case("stablehlo.atan2 %a0, %a1 : TYPES", (A, B), np.arctan2(A, B)),
    case("stablehlo.count_leading_zeros %a0 : TYPES", (np.uint32([1, 0]),), np.uint32([31, 32])),
    case(
        "stablehlo.round_nearest_afz %a0 : TYPES", (np.float32([0.5, -1.5]),), np.float32([1, -2])
    ),
    case("stablehlo.convert %a0 : TYPES", (INTS,), INTS.astype(np.float32)),
    case("stablehlo.compare GE, %a0, %a1 : TYPES", (A, B), A >= B),
    case(
        "stablehlo.compare LT, %a0, %a1, TOTALORDER : TYPES",
        (np.float32([-0.0, 0.0]), np.float32([0.0, np.nan])),
        [True, True],
    ),
    case("stablehlo.select %a0, %a1, %a2 : TYPES", (True, A, B), A),
    case("stablehlo.clamp %a0, %a1, %a2 : TYPES", (np.float32(2), A, np.float32(7)), A.clip(2, 7)),
    case("stablehlo.complex %a0, %a1 : TYPES", (A, B), A + 1j * B),
    case("stablehlo.real %a0 : TYPES", (A + 1j * B,), A),
    case("stablehlo.imag %a0 : TYPES", (A,), np.zeros_like(A)),
    case(
        "stablehlo.shift_right_logical %a0, %a1 : TYPES",
        (INTS, np.int32([1, 31, 0, 2])),
        np.int32([1, 1, 7, 0]),
    ),
    case("stablehlo.bitcast_convert %a0 : TYPES", (A,), A.view(np.uint32)),
    case(
        "stablehlo.bitcast_convert %a0 : TYPES", (np.uint8(5),), [True, False, True] + [False] * 5
    ),
    case(
        "stablehlo.bitcast_convert %a0 : TYPES", ([True, False, True] + [False] * 5,), np.uint8(5)
    ),
    case(
        "stablehlo.reduce_precision %a0, format = e5m2 : TYPES",
        (np.float32([1.1, 7.3]),),
        np.float32([1, 7]),
    ),
    case("stablehlo.iota dim = 1 : tensor<2x3xi32>", (), np.int32([[0, 1, 2]] * 2)),
    case(
        "stablehlo.broadcast_in_dim %a0, dims = [1, 0] : TYPES",
        (A[:, :1],),
        np.broadcast_to(A[:, :1].T, (3, 4)),
    ),
    case("stablehlo.broadcast %a0, sizes = [2] : TYPES", (A,), np.stack([A, A])),
    case("stablehlo.reshape %a0 : TYPES", (A,), A.reshape(3, 8)),
    case("stablehlo.transpose %a0, dims = [1, 0] : TYPES", (A,), A.T),
    case("stablehlo.reverse %a0, dims = [1] : TYPES", (A,), A[:, ::-1]),
    case("stablehlo.slice %a0 [1:4:2, 0:6:3] : TYPES", (A,), A[1:4:2, ::3]),
    case(
        "stablehlo.pad %a0, %a1, low = [1, 0], high = [0, 1], interior = [0, 1] : TYPES",
        (A[:2, :2], np.float32(9)),
        np.float32([[9, 9, 9, 9], [0, 9, 1, 9], [6, 9, 7, 9]]),
    ),
    case("stablehlo.concatenate %a0, %a1, dim = 1 : TYPES", (A, B), np.concatenate([A, B], 1)),
    case(
        "stablehlo.dynamic_slice %a0, %a1, %a2, sizes = [2, 3] : TYPES",
        (A, np.int32(1), np.int32(9)),
        A[1:3, 3:],
    ),
    case(
        "stablehlo.dynamic_update_slice %a0, %a1, %a2, %a2 : (tensor<4x6xf32>, tensor<2x2xf32>, tensor<i32>, tensor<i32>) -> tensor<4x6xf32>",
        (A, B[:2, :2], np.int32(0)),
        np.concatenate([np.concatenate([B[:2, :2], A[:2, 2:]], 1), A[2:]]),
    ),
    case(
        '"stablehlo.gather"(%a0, %a1) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 6>}> : TYPES',
        (A, np.int32([2, 0, 2])),
        A[[2, 0, 2]],
    ),
    case(
        '"stablehlo.gather"(%a0, %a1) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}> : TYPES',
        (A, np.int32([[1], [0], [5], [2]])),
        A[np.arange(4), [1, 0, 5, 2]],
    ),
    case(
        f'"stablehlo.scatter"(%a0, %a1, %a2) <{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}}> {ADD_REGION} : TYPES',
        (A, np.int32([[1], [1]]), B[:2]),
        A + np.float32([[0], [1], [0], [0]]) * (B[0] + B[1]),
    ),
    case(
        "stablehlo.dot_general %a0, %a1, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : TYPES",
        (A, B),
        A @ B.T,
    ),
    case(
        "stablehlo.dot_general %a0, %a1, batching_dims = [0] x [0], contracting_dims = [1] x [1], algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : TYPES",
        (A, B),
        (A * B).sum(1),
    ),
    case("stablehlo.dot %a0, %a1 : TYPES", (A, TWO), A @ TWO),
    case(
        "stablehlo.convolution(%a0, %a1) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {stride = [2], pad = [[1, 0]], rhs_dilate = [2]} : TYPES",
        (A.reshape(2, 2, 6), np.ones((1, 2, 2), np.float32)),
        np.stack(
            [
                np.pad(x.sum(0), (1, 0))[[0, 2, 4]] + np.pad(x.sum(0), (1, 0))[[2, 4, 6]]
                for x in A.reshape(2, 2, 6)
            ]
        )[:, None],
    ),
    case(
        "stablehlo.reduce(%a0 init: %a1) applies stablehlo.maximum across dimensions = [0, 1] : TYPES",
        (A, SCALAR),
        np.float32(23),
    ),
    case(
        f'"stablehlo.reduce_window"(%a0, %a1) <{{window_dimensions = array<i64: 2, 1>, window_strides = array<i64: 1, 2>, padding = dense<[[1, 0], [0, 0]]> : tensor<2x2xi64>}}> {ADD_REGION} : TYPES',
        (A, SCALAR),
        window_sums(),
    ),
    case(
        """"stablehlo.select_and_scatter"(%a0, %a1, %a2) <{window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 2>}> ({
          ^bb0(%p: tensor<f32>, %q: tensor<f32>):
            %c = stablehlo.compare GE, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
            stablehlo.return %c : tensor<i1>
        }, """
        + ADD_REGION[1:]
        + " : TYPES",
        (A[:2, :4], np.float32([[5, 6]]), SCALAR),
        np.float32([[0, 0, 0, 0], [0, 5, 0, 6]]),
    ),
    case(
        """"stablehlo.sort"(%a0, %a1) <{dimension = -1 : i64, is_stable = true}> ({
          ^bb0(%p: tensor<i32>, %q: tensor<i32>, %r0: tensor<f32>, %s0: tensor<f32>):
            %c = stablehlo.compare LT, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %c : tensor<i1>
        }) : TYPES""",
        (INTS, A[0, :4]),
        np.sort(INTS),
        A[0, :4][np.argsort(INTS)],
    ),
    case(
        """"stablehlo.map"(%a0, %a1) <{dimensions = array<i64: 0, 1>}> """
        + ADD_REGION
        + " : TYPES",
        (A, B),
        A + B,
    ),
    case(
        "stablehlo.fft %a0, type = RFFT, length = [6] : TYPES",
        (A,),
        np.fft.rfft(A).astype(np.complex64),
    ),
    case("stablehlo.cholesky %a0, lower = true : TYPES", (SPD,), np.linalg.cholesky(SPD)),
    case(
        '"stablehlo.triangular_solve"(%a0, %a1) <{left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}> : TYPES',
        (LOWER, A),
        np.linalg.solve(LOWER, A).astype(np.float32),
    ),
    case(
        '"stablehlo.batch_norm_inference"(%a0, %a1, %a2, %a3, %a1) <{epsilon = 0.5 : f32, feature_index = 1 : i64}> : (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<4x6xf32>',
        (A, TWO, ONE, A[0]),
        (A - A[0]) / np.sqrt(np.float32(2.5)) * 2 + 1,
    ),
    case(
        '"stablehlo.batch_norm_training"(%a0, %a1, %a2) <{epsilon = 0.5 : f32, feature_index = 1 : i64}> : TYPES',
        (A, TWO, ONE),
        *batch_norm(),
    ),
    case(
        "stablehlo.optimization_barrier %a0, %a1 : tensor<4x6xf32>, tensor<4x6xf32>", (A, B), A, B
    ),
    case(
        '"stablehlo.all_to_all"(%a0) <{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 1 : i64, replica_groups = dense<[[0]]> : tensor<1x1xi64>}> : TYPES',
        (A,),
        A,
    ),
    case(
        f'"stablehlo.all_reduce"(%a0) <{{replica_groups = dense<[[0]]> : tensor<1x1xi64>}}> {ADD_REGION} : TYPES',
        (A,),
        A,
    ),
    case("stablehlo.dynamic_reshape %a0, %a1 : TYPES", (A, np.int32([8, 3])), A.reshape(8, 3)),
]


@pytest.mark.parametrize("row", CASES, ids=str)
def test_operation(row: Case) -> None:
    wants = [np.asarray(want) for want in row.wants]
    results = run(row.body, list(row.arguments), wants)
    assert len(results) == len(wants)
    for found, want in zip(results, wants, strict=True):
        np.testing.assert_allclose(found, want, rtol=2e-6, atol=1e-5)


def test_batch_norm_gradients_are_those_of_the_normalisation() -> None:
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=(2, 16, 3)).astype(np.float32)
    scale = np.float32([1, 2, 3])
    mean, var = x.mean(0), x.var(0)
    body = '"stablehlo.batch_norm_grad"(%a0, %a1, %a2, %a3, %a4) <{epsilon = 1.0e-3 : f32, feature_index = 1 : i64}> : TYPES'
    found = run(body, [x, scale, mean, var, g], [x, scale, scale])
    deviation = np.sqrt(var + 1e-3)
    hat = (x - mean) / deviation
    want = scale / deviation * (g - g.mean(0) - hat * (g * hat).mean(0))
    for a, b in zip(found, (want, (g * hat).sum(0), g.sum(0)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_random_bits_advance_their_state() -> None:
    body = "stablehlo.rng_bit_generator %a0, algorithm = THREE_FRY : TYPES"
    state = np.array([1, 2], np.uint64)
    new_state, bits = run(body, [state], [state, np.zeros((2, 3), np.uint32)])
    assert bits.shape == (2, 3)
    assert new_state[1] != state[1]


def test_computations_may_be_wider_than_their_operands() -> None:
    narrow = np.float16([[0.5, 1, 2], [3, 4, 5]])
    zero = np.float16(0).reshape(())
    windows = (
        '"stablehlo.reduce_window"(%a0, %a1) <{window_dimensions = array<i64: 1, 2>}> ' + ADD_REGION
    )
    sums = (narrow[:, :2] + narrow[:, 1:]).astype(np.float32)
    (found,) = run(f"{windows} : TYPES", [narrow, zero], [sums])
    np.testing.assert_array_equal(found, sums)
    scatter = (
        '"stablehlo.scatter"(%a0, %a1, %a2) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], '
        f"scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> {ADD_REGION} : TYPES"
    )
    want = np.float32([0.5, 8, 2])
    (found,) = run(scatter, [narrow[0], np.int32([[1], [1]]), narrow[1, :2]], [want])
    np.testing.assert_array_equal(found, want)
