"""The least bytes of a kernel: what it reads and makes, once."""

from __future__ import annotations

import pytest

from compiler.analysis.kernel_work import KernelWork, kernel_work
from compiler.hlo.parser import parse_module

MODULE = """HloModule m

f {{
{inner}
}}

ENTRY main {{
{outer}
  ROOT r = {shape} fusion({names}), kind=kLoop, calls=f
}}
"""


def work(body: str, shape: str, *operands: str, in_place: bool = False) -> KernelWork:
    names = [f"x{i}" for i in range(len(operands))]
    outer = "\n".join(f"  x{i} = {s} parameter({i})" for i, s in enumerate(operands))
    inner = "\n".join(f"  p{i} = {s} parameter({i})" for i, s in enumerate(operands))
    text = MODULE.format(
        inner=f"{inner}\n  {body}", outer=outer, shape=shape, names=", ".join(names)
    )
    module = parse_module(text)
    return kernel_work(module.entry.root_instruction, ((0, 0),) if in_place else ())


def test_operands_and_results_count_once_without_padding() -> None:
    found = work("ROOT a = f32[5,3] add(p0, p0)", "f32[5,3]", "f32[5,3]")
    assert found == KernelWork(element_ops=15, least_bytes=2 * 60)


def test_what_is_sliced_or_gathered_counts_as_far_as_it_is_taken() -> None:
    slice_ = "ROOT s = bf16[2,128] slice(p0), slice={[3:5], [0:128]}"
    assert work(slice_, "bf16[2,128]", "bf16[64,128]").least_bytes == 2 * 512
    gather = (
        "ROOT g = f32[4,128] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,128}"
    )
    assert work(gather, "f32[4,128]", "f32[999,128]", "s32[4,1]").least_bytes == 2 * 2048 + 16


@pytest.mark.parametrize(("in_place", "least"), [(True, 2 * 512 + 8), (False, 2 * 32768 + 512 + 8)])
def test_an_update_in_place_moves_what_changes(in_place: bool, least: int) -> None:
    body = "ROOT u = f32[64,128] dynamic-update-slice(p0, p1, p2, p3)"
    operands = ("f32[64,128]", "f32[1,128]", "s32[]", "s32[]")
    assert work(body, "f32[64,128]", *operands, in_place=in_place).least_bytes == least


def test_many_elements_over_one_divisor_need_one_reciprocal() -> None:
    rounded = "q = f32[8,64] divide(p0, {}) ROOT c = bf16[8,64] convert(q)"
    body = "b = f32[8,64] broadcast(p1), dimensions={0}\n  " + rounded.format("b").replace(
        " ROOT", "\n  ROOT"
    )
    each = work(
        rounded.format("p1").replace(" ROOT", "\n  ROOT"), "bf16[8,64]", "f32[8,64]", "f32[8,64]"
    )
    once = work(body, "bf16[8,64]", "f32[8,64]", "f32[8]")
    assert each.element_ops == 512 * (5 + 2)  # divide and convert of `lane_costs`
    assert once.element_ops == 512 * (1 + 2) + 8 * 4


def test_functions_weigh_more_than_sums() -> None:
    found = work("ROOT e = f32[8] exponential(p0)", "f32[8]", "f32[8]")
    assert found.element_ops == 8 * 11  # of `lane_costs`
