"""Operations that StableHLO keeps for old programs, against NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from compiler.diagnostics import CompileError
from compiler.frontends.stablehlo.lowering import parse_stablehlo
from compiler.frontends.stablehlo.mesh_groups import mesh_axes_groups
from compiler.hlo.evaluator import evaluate

Array = npt.NDArray[np.int32]


def kind(array: Array) -> str:
    return f"tensor<{''.join(f'{n}x' for n in array.shape)}i32>"


def run(line: str, want: Array, *arguments: Array) -> Array:
    """The result of ``line : types`` over %a0, %a1."""
    parameters = ", ".join(f"%a{i}: {kind(a)}" for i, a in enumerate(arguments))
    types = ", ".join(map(kind, arguments))
    text = f"""func.func @main({parameters}) -> {kind(want)} {{
      %0 = {line} : ({types}) -> {kind(want)}
      return %0 : {kind(want)}
    }}"""
    found: Array = evaluate(parse_stablehlo(text), list(arguments))[0]
    return found


def numbers(*dims: int) -> Array:
    return np.random.default_rng(sum(dims)).integers(-9, 9, dims, dtype=np.int32)


@pytest.mark.parametrize(
    ("config", "left", "right"),
    [
        ("ab,bc->ac", (3, 4), (4, 5)),
        ("ijk,ikm->mij", (2, 3, 4), (2, 4, 5)),
        ("ab,cd->cb", (2, 3), (4, 5)),
        ("...a,...ab->b...", (2, 3, 4), (2, 3, 4, 5)),
        ("a,a->", (6,), (6,)),
        ("a,b->ba", (2,), (3,)),
    ],
)
def test_einsum(config: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    lhs, rhs = numbers(*left), numbers(*right)
    want = np.einsum(config, lhs, rhs)
    found = run(f'stablehlo.einsum %a0, %a1, config = "{config}"', want, lhs, rhs)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("config", ["ab->a", "ab->ba", "ab->", "...b->b..."])
def test_unary_einsum(config: str) -> None:
    operand = numbers(3, 5)
    want = np.asarray(np.einsum(config, operand), np.int32)
    found = run(f'"stablehlo.unary_einsum"(%a0) <{{einsum_config = "{config}"}}>', want, operand)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("config", ["aa,ab->b", "ab->b", "abc,b->a", "a,b"])
def test_einsums_that_do_not_fit_are_refused(config: str) -> None:
    with pytest.raises(CompileError, match="einsum_config"):
        run(
            f'stablehlo.einsum %a0, %a1, config = "{config}"', numbers(3), numbers(3, 3), numbers(3)
        )


@pytest.mark.parametrize(
    ("shape", "index", "dim", "batches"),
    [((5, 1, 4), (2,), 0, 0), ((2, 5, 3), (2, 4), 1, 1), ((2, 3, 5, 4), (2, 3, 2), 2, 1)],
)
def test_torch_index_select(
    shape: tuple[int, ...], index: tuple[int, ...], dim: int, batches: int
) -> None:
    operand = numbers(*shape)
    chosen = np.random.default_rng(1).integers(0, shape[dim], index, dtype=np.int32)
    if batches == 0:
        want = np.take(operand, chosen, axis=dim)
    else:
        rows = [np.take(operand[i], chosen[i], axis=dim - 1) for i in range(shape[0])]
        want = np.stack(rows)
    attributes = f"<{{dim = {dim} : i64, batch_dims = {batches} : i64}}>"
    found = run(f'"stablehlo.torch_index_select"(%a0, %a1) {attributes}', want, operand, chosen)
    np.testing.assert_array_equal(found, want)


def test_cross_replica_sum_of_one_replica() -> None:
    operand = numbers(7)
    groups = "<{replica_groups = dense<[[0]]> : tensor<1x1xi64>}>"
    found = run(f'"stablehlo.cross-replica-sum"(%a0) {groups}', operand, operand)
    np.testing.assert_array_equal(found, operand)


def test_a_custom_call_without_operands_may_have_a_configuration() -> None:
    text = """func.func @main() {
      stablehlo.custom_call @note() {api_version = 4 : i32, backend_config = {depth = 42 : i32}} : () -> ()
      return
    }"""
    (call,) = (i for i in parse_stablehlo(text).entry if i.opcode == "custom-call")
    assert call.attrs["backend_config"] == "{depth = 42}"


AXES = '<name = "x", size = 2>, <name = "y", size = 4>'


@pytest.mark.parametrize(
    ("mesh", "axes", "groups"),
    [
        (f"#m<axes = [{AXES}]>", '<name = "x">', ((0, 4), (1, 5), (2, 6), (3, 7))),
        (f"#m<axes = [{AXES}]>", '<name = "y">', ((0, 1, 2, 3), (4, 5, 6, 7))),
        (
            f"#m<axes = [{AXES}]>",
            '<name = "y", sub_axis_info = (2)2>',
            ((0, 1), (2, 3), (4, 5), (6, 7)),
        ),
        (
            f"#m<axes = [{AXES}]>",
            '<name = "y", sub_axis_info = (1)2>, #s.axis_ref<name = "x">',
            ((0, 4, 2, 6), (1, 5, 3, 7)),
        ),
        ("@named", '<name = "b">', ((3, 2), (1, 0))),
    ],
)
def test_groups_over_mesh_axes(mesh: str, axes: str, groups: tuple[tuple[int, ...], ...]) -> None:
    meshes = {"named": '<["a"=2, "b"=2], device_ids=[3, 2, 1, 0]>'}
    text = f"#s.replica_group_mesh_axes<mesh = {mesh}, axes = [#s.axis_ref{axes}]>"
    assert mesh_axes_groups(text, meshes) == groups


@pytest.mark.parametrize(
    ("mesh", "axis", "problem"),
    [
        ("@none", '<name = "x">', "@none is not defined"),
        (f"#m<axes = [{AXES}]>", '<name = "z">', "axis z"),
        (f"#m<axes = [{AXES}]>", '<name = "y", sub_axis_info = (1)3>', "do not divide"),
    ],
)
def test_unknown_meshes_and_axes_are_refused(mesh: str, axis: str, problem: str) -> None:
    text = f"#s.replica_group_mesh_axes<mesh = {mesh}, axes = [#s.axis_ref{axis}]>"
    with pytest.raises(ValueError, match=problem):
        mesh_axes_groups(text, {})
