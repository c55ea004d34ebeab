"""Kernels of their own: gather, scatter, dynamic-update-slice, copies; indices outside included."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from compiler.hlo.parser import parse_module
from tests.support.run_hlo import (
    ADD,
    Array,
    check_text,
    compile_text,
    expected,
    normal,
    run_compiled,
    run_text,
)
from tpu_sim.isa.chips import load_chip


def indices(seed: int, limit: int, *dims: int) -> Array:
    """Some below 0, some beyond the end."""
    return np.random.default_rng(seed).integers(-2, limit + 3, dims).astype(np.int32)


def gather(operand: str, index: str, result: str, attributes: str) -> str:
    return f"""HloModule m
ENTRY %e (a: {operand}, i: {index}) -> {result} {{
  %a = {operand} parameter(0)
  %i = {index} parameter(1)
  ROOT %g = {result} gather(%a, %i), {attributes}
}}
"""


def rows(rank: int, width: int) -> str:
    return (
        f"offset_dims={{{rank}}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, "
        f"index_vector_dim={rank}, slice_sizes={{1,{width}}}"
    )


def test_gather_of_rows_clamps_its_indices() -> None:
    text = gather("f32[50,300]", "s32[4,10,1]", "f32[4,10,300]", rows(2, 300))
    check_text(text, [normal(0, 50, 300), indices(1, 50, 4, 10, 1)], tolerance=0)


def test_gather_of_packed_rows() -> None:
    text = gather("bf16[60,1300]", "s32[2,37]", "bf16[2,37,1300]", rows(2, 1300))
    operand = normal(0, 60, 1300, dtype="bfloat16")
    check_text(text, [operand, indices(1, 60, 2, 37)], tolerance=0)


def test_gather_of_bytes() -> None:
    text = gather("s8[50,300]", "s32[37]", "s8[37,300]", rows(1, 300))
    operand = np.arange(50 * 300).reshape(50, 300).astype(np.int8)
    check_text(text, [operand, indices(1, 50, 37)], tolerance=0)


def test_gather_of_matrices_by_two_indices() -> None:
    attributes = (
        "offset_dims={1,2}, collapsed_slice_dims={0,1}, start_index_map={1,0}, "
        "index_vector_dim=1, slice_sizes={1,1,20,150}"
    )
    text = gather("f32[7,5,20,150]", "s32[6,2]", "f32[6,20,150]", attributes)
    check_text(text, [normal(0, 7, 5, 20, 150), indices(1, 5, 6, 2)], tolerance=0)


def test_gather_of_rows_with_a_batch_dimension() -> None:
    attributes = (
        "offset_dims={2}, collapsed_slice_dims={1}, start_index_map={1}, "
        "operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, "
        "slice_sizes={1,1,64}"
    )
    text = gather("f32[3,100,64]", "s32[3,20,1]", "f32[3,20,64]", attributes)
    check_text(text, [normal(0, 3, 100, 64), indices(1, 100, 3, 20, 1)], tolerance=0)


def test_gather_of_windows_from_a_resident_operand() -> None:
    attributes = (
        "offset_dims={1,2,3}, collapsed_slice_dims={}, start_index_map={0,2,1}, "
        "index_vector_dim=1, slice_sizes={2,7,9}"
    )
    text = gather("f32[6,40,50]", "s32[5,3]", "f32[5,2,7,9]", attributes)
    check_text(text, [normal(0, 6, 40, 50), indices(1, 40, 5, 3)], tolerance=0)


def scatter(operand: str, index: str, updates: str, attributes: str) -> str:
    return f"""HloModule m
{ADD}
ENTRY %e (a: {operand}, i: {index}, u: {updates}) -> {operand} {{
  %a = {operand} parameter(0)
  %i = {index} parameter(1)
  %u = {updates} parameter(2)
  ROOT %g = {operand} scatter(%a, %i, %u), {attributes}, to_apply=%add_f32
}}
"""


def test_scatter_of_rows_skips_what_lies_outside() -> None:
    attributes = (
        "update_window_dims={2}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=2"
    )
    text = scatter("f32[50,300]", "s32[4,10,1]", "f32[4,10,300]", attributes)
    inputs = [normal(0, 50, 300), indices(1, 50, 4, 10, 1), normal(2, 4, 10, 300)]
    check_text(text, inputs)


def test_scatter_of_elements_adds_repeated_ones() -> None:
    attributes = (
        "update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1}, "
        "index_vector_dim=1"
    )
    text = scatter("f32[9,50]", "s32[80,2]", "f32[80]", attributes)
    check_text(text, [normal(0, 9, 50), indices(1, 9, 80, 2), normal(2, 80)])


def test_scatter_of_windows_from_any_lane_on() -> None:
    attributes = (
        "update_window_dims={1,2}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0,2}, "
        "index_vector_dim=1"
    )
    text = scatter("f32[6,40,250]", "s32[5,2]", "f32[5,3,170]", attributes)
    places = np.array([[0, 0], [5, 80], [2, 79], [2, 81], [6, 3]], np.int32)
    check_text(text, [normal(0, 6, 40, 250), places, normal(2, 5, 3, 170)])


def test_scatter_with_a_batch_dimension_goes_through_its_own_updates() -> None:
    attributes = (
        "update_window_dims={2}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, "
        "input_batching_dims={0}, scatter_indices_batching_dims={0}, index_vector_dim=2"
    )
    text = scatter("f32[2,100,64]", "s32[2,1024,1]", "f32[2,1024,64]", attributes)
    inputs = [normal(0, 2, 100, 64), indices(1, 100, 2, 1024, 1), normal(2, 2, 1024, 64)]
    check_text(text, inputs, machine="llvm")


def test_scatter_that_replaces_packed_rows() -> None:
    text = """HloModule m
%second (p: bf16[], q: bf16[]) -> bf16[] {
  %p = bf16[] parameter(0)
  ROOT %q = bf16[] parameter(1)
}
ENTRY %e (a: bf16[50,300], i: s32[7], u: bf16[7,300]) -> bf16[50,300] {
  %a = bf16[50,300] parameter(0)
  %i = s32[7] parameter(1)
  %u = bf16[7,300] parameter(2)
  ROOT %g = bf16[50,300] scatter(%a, %i, %u), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%second
}
"""
    a, u = normal(0, 50, 300, dtype="bfloat16"), normal(1, 7, 300, dtype="bfloat16")
    check_text(text, [a, np.array([3, 4, 49, 50, -1, 0, 3], np.int32), u], tolerance=0)


def update(operand: str, piece: str, starts: int) -> str:
    names = [f"i{n}" for n in range(starts)]
    parameters = "\n".join(f"  %{n} = s32[] parameter({k + 2})" for k, n in enumerate(names))
    signature = ", ".join(f"{n}: s32[]" for n in names)
    return f"""HloModule m
ENTRY %e (a: {operand}, u: {piece}, {signature}) -> {operand} {{
  %a = {operand} parameter(0)
  %u = {piece} parameter(1)
{parameters}
  ROOT %d = {operand} dynamic-update-slice(%a, %u, {", ".join("%" + n for n in names)})
}}
"""


@pytest.mark.parametrize("starts", [(5, 0, 0), (11, 0, 0), (12, 0, 0), (-3, 0, 0)])
def test_update_of_whole_matrices(starts: tuple[int, ...]) -> None:
    text = update("f32[12,20,150]", "f32[1,20,150]", 3)
    inputs = [normal(0, 12, 20, 150), normal(1, 1, 20, 150), *map(np.int32, starts)]
    check_text(text, inputs, tolerance=0)


@pytest.mark.parametrize("starts", [(37, 77), (0, 0), (50, 500), (6, 127)])
def test_update_at_any_row_and_lane(starts: tuple[int, ...]) -> None:
    text = update("bf16[40,300]", "bf16[3,100]", 2)
    operand, piece = normal(0, 40, 300, dtype="bfloat16"), normal(1, 3, 100, dtype="bfloat16")
    check_text(text, [operand, piece, *map(np.int32, starts)], tolerance=0)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8"])
def test_blocks_of_an_update_do_not_overlap(dtype: str) -> None:
    """One would be fetched while the one before it is stored over its first planes."""
    text = update(f"{dtype}[7,512,128]", f"{dtype}[7,256,128]", 3).replace("%u,", "%n,")
    text = text.replace("  ROOT", f"  %n = {dtype}[7,256,128] negate(%u)\n  ROOT")
    numpy = parse_module(text, "test.hlo").entry.parameters[0].array.dtype.numpy
    operand, piece = (normal(i, 7, rows, 128).astype(numpy) for i, rows in enumerate((512, 256)))
    inputs = [operand, piece, *map(np.int32, (0, 3, 0))]
    run = run_compiled(compile_text(text, chip=load_chip("v5p")), inputs)
    np.testing.assert_array_equal(run.outputs[0], expected(text, inputs)[0])


def test_update_of_a_vector() -> None:
    text = update("s32[3000]", "s32[10]", 1)
    inputs = [np.arange(3000, dtype=np.int32), -np.arange(10, dtype=np.int32), np.int32(1020)]
    check_text(text, inputs, tolerance=0)


def test_a_copy_between_dimension_orders_transposes() -> None:
    text = """HloModule m, entry_computation_layout={(f32[3,40,50]{0,2,1})->f32[3,40,50]{1,2,0}}
ENTRY %e (a: f32[3,40,50]) -> f32[3,40,50] {
  %a = f32[3,40,50]{0,2,1} parameter(0)
  ROOT %n = f32[3,40,50]{1,2,0} negate(%a)
}
"""
    value = normal(0, 3, 40, 50)
    (result,) = run_text(text, [value]).outputs
    assert np.array_equal(result, -value)


def test_scatter_of_two_operands_combines_them_together() -> None:
    text = """HloModule m
%larger (p: f32[], pi: s32[], q: f32[], qi: s32[]) -> (f32[], s32[]) {
  %p = f32[] parameter(0)
  %pi = s32[] parameter(1)
  %q = f32[] parameter(2)
  %qi = s32[] parameter(3)
  %g = pred[] compare(%p, %q), direction=GE
  %v = f32[] select(%g, %p, %q)
  %i = s32[] select(%g, %pi, %qi)
  ROOT %t = (f32[], s32[]) tuple(%v, %i)
}
ENTRY %e (a: f32[40,150], b: s32[40,150], i: s32[60], u: f32[60,150], w: s32[60,150])
    -> (f32[40,150], s32[40,150]) {
  %a = f32[40,150] parameter(0)
  %b = s32[40,150] parameter(1)
  %i = s32[60] parameter(2)
  %u = f32[60,150] parameter(3)
  %w = s32[60,150] parameter(4)
  %g = (f32[40,150], s32[40,150]) scatter(%a, %b, %i, %u, %w), update_window_dims={1},
    inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%larger
  %x = f32[40,150] get-tuple-element(%g), index=0
  %y = s32[40,150] get-tuple-element(%g), index=1
  ROOT %t = (f32[40,150], s32[40,150]) tuple(%x, %y)
}
"""
    numbers = np.random.default_rng(3).integers(0, 99, (2, 60, 150)).astype(np.int32)
    inputs = [
        normal(0, 40, 150),
        numbers[0, :40],
        indices(1, 40, 60),
        normal(2, 60, 150),
        numbers[1],
    ]
    check_text(text, inputs, tolerance=0)


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8", "pred"])
@pytest.mark.parametrize("dims", [(20, 8, 32), (20, 13, 200), (5, 3, 1)])
def test_scatter_of_whole_matrices(dims: tuple[int, int, int], dtype: str, machine: str) -> None:
    """They are combined tile by tile, whatever is in the padding."""
    count, rows, columns = dims
    attributes = (
        "update_window_dims={1,2}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1"
    )
    updates = f"{dtype}[50,{rows},{columns}]"
    text = scatter(f"{dtype}[{count},{rows},{columns}]", "s32[50,1]", updates, attributes)
    text = text.replace("f32[]", f"{dtype}[]").replace(" add(", " maximum(")
    source = np.random.default_rng(5)
    kind = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "s8": np.int8, "pred": np.bool_}[dtype]
    values = [source.integers(0, 2, size).astype(kind) for size in (dims, (50, rows, columns))]
    check_text(text, [values[0], indices(1, count, 50, 1), values[1]], machine=machine, tolerance=0)


def test_scatter_of_rows_of_many_tiles() -> None:
    attributes = (
        "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1"
    )
    text = scatter("f32[5,5000]", "s32[7,1]", "f32[7,5000]", attributes)
    check_text(text, [normal(0, 5, 5000), indices(1, 5, 7, 1), normal(2, 7, 5000)], machine="llvm")


def test_scatter_with_its_batch_dimension_after_the_numbers() -> None:
    attributes = (
        "update_window_dims={2}, inserted_window_dims={1,3}, scatter_dims_to_operand_dims={3,1}, "
        "input_batching_dims={0}, scatter_indices_batching_dims={2}, index_vector_dim=0"
    )
    text = scatter("f32[2,8,70,3]", "s32[2,11,2]", "f32[11,2,47]", attributes)
    inputs = [normal(0, 2, 8, 70, 3), indices(1, 3, 2, 11, 2), normal(2, 11, 2, 47)]
    check_text(text, inputs)
