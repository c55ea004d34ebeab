"""Window plans: they cover the iteration space, fit VMEM, overlap DMA with compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.analysis.dot_parts import DotParts
from compiler.analysis.fusion_body import fusion_body
from compiler.analysis.indexing import evaluate
from compiler.analysis.window_cost import plan_traffic
from compiler.analysis.window_search import plan_windows
from compiler.analysis.windows import WindowPlan
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.parser import parse_module
from compiler.kernels.planning import kernel_plan
from compiler.passes.pipeline import run_pipeline
from tests.support.run_hlo import ADD
from tpu_sim.isa.chips import Chip, load_chip

CHIP = load_chip("v5e")


def fusion_of(text: str) -> HloInstruction:
    module = parse_module(text, "test.hlo")
    run_pipeline(module, CHIP)
    (fusion,) = (i for i in module.entry if i.opcode == "fusion")
    return fusion


def plan_of(text: str, chip: Chip = CHIP) -> WindowPlan:
    return plan_windows(fusion_of(text), chip)


def plan_and_bytes(text: str, chip: Chip = CHIP) -> tuple[WindowPlan, int]:
    """The plan and the VMEM that the kernel takes."""
    fusion = fusion_of(text)
    plan = plan_windows(fusion, chip)
    return plan, kernel_plan(fusion_body(fusion), plan, DotParts()).rows * 512


def add(dims: str, dtype: str = "f32") -> str:
    return f"""HloModule m
ENTRY %e (a: {dtype}[{dims}], b: {dtype}[{dims}]) -> {dtype}[{dims}] {{
  %a = {dtype}[{dims}] parameter(0)
  %b = {dtype}[{dims}] parameter(1)
  ROOT %c = {dtype}[{dims}] add(%a, %b)
}}
"""


def dot(m: int, k: int, n: int) -> str:
    return f"""HloModule m
ENTRY %e (a: bf16[{m},{k}], b: bf16[{k},{n}]) -> f32[{m},{n}] {{
  %a = bf16[{m},{k}] parameter(0)
  %b = bf16[{k},{n}] parameter(1)
  ROOT %c = f32[{m},{n}] dot(%a, %b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""


def covered(plan: WindowPlan) -> np.ndarray:
    """How often each element of the first result lies in a step's output window."""
    window = plan.outputs[0]
    count = np.zeros(window.shape.dims, np.int64)
    for step in np.ndindex(*(d.steps for d in plan.grid)):
        values = {
            d.variable: s if d.is_even else min(s * d.block, d.total - d.block)
            for d, s in zip(plan.grid, step, strict=True)
        }
        low = [evaluate(expr, values) for expr in window.origin]
        count[tuple(slice(a, a + n) for a, n in zip(low, window.extent, strict=True))] += 1
    return count


@pytest.mark.parametrize("dims", ["1000,700", "3,5,197,64", "40000", "8,128", "1,1", "7"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_the_steps_cover_the_result(dims: str, dtype: str) -> None:
    assert covered(plan_of(add(dims, dtype))).min() >= 1


def test_a_small_array_takes_one_step() -> None:
    assert plan_of(add("16,256")).steps == 1


def test_a_large_array_takes_several_steps_of_large_windows() -> None:
    plan = plan_of(add("4096,4096"))
    assert plan.steps >= 4, "DMA of one step overlaps the next"
    largest = max(np.prod(w.extent) for w in plan.inputs)
    assert largest >= 1 << 17, "latency is paid per step"


def test_windows_stay_within_a_small_vmem() -> None:
    chip = replace(CHIP, vmem_bytes=1 << 20)
    plan, used = plan_and_bytes(add("1024,1024"), chip)
    assert used <= chip.vmem_bytes
    assert covered(plan).min() >= 1


def test_what_cannot_fit_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"%fusion.*no window"):
        plan_of(add("1024,1024"), replace(CHIP, vmem_bytes=8192))


def test_an_operand_that_a_dimension_does_not_move_is_fetched_once() -> None:
    text = """HloModule m
ENTRY %e (a: f32[8192,1024], b: f32[1024]) -> f32[8192,1024] {
  %a = f32[8192,1024] parameter(0)
  %b = f32[1024] parameter(1)
  %c = f32[8192,1024] broadcast(%b), dimensions={1}
  ROOT %d = f32[8192,1024] multiply(%a, %c)
}
"""
    plan = plan_of(text)
    bias = next(w for w in plan.inputs if w.shape.rank == 1)
    assert plan.steps > 1 and plan.moving_dims(bias.origin) == ()


def test_reduced_dimensions_are_cut_into_equal_blocks_only() -> None:
    text = f"""HloModule m
{ADD}
ENTRY %e (a: f32[1000,700]) -> f32[700] {{
  %a = f32[1000,700] parameter(0)
  %z = f32[] constant(0)
  ROOT %r = f32[700] reduce(%a, %z), dimensions={{0}}, to_apply=%add_f32
}}
"""
    plan = plan_of(text)
    for dim in plan.grid:
        assert dim.parallel or dim.total % dim.block == 0


def test_a_dot_keeps_k_whole_while_it_fits() -> None:
    plan = plan_of(dot(1024, 2048, 1024))
    lhs = plan.inputs[0]
    assert lhs.extent[1] == 2048 and plan.steps > 1


def test_a_dot_with_long_rows_cuts_k() -> None:
    plan, used = plan_and_bytes(dot(4096, 50304, 768))
    assert plan.grid[-1].steps > 1
    assert used <= CHIP.vmem_bytes


def test_a_dynamic_slice_fetches_only_its_slice() -> None:
    text = """HloModule m
ENTRY %e (a: f32[64,512,512], i: s32[]) -> f32[1,512,512] {
  %a = f32[64,512,512] parameter(0)
  %i = s32[] parameter(1)
  %z = s32[] constant(0)
  %d = f32[1,512,512] dynamic-slice(%a, %i, %z, %z), dynamic_slice_sizes={1,512,512}
  ROOT %n = f32[1,512,512] negate(%d)
}
"""
    plan = plan_of(text)
    assert plan.inputs[0].extent[0] == 1


def test_blocks_begin_with_a_dimension_that_an_operand_has_in_its_tiles() -> None:
    """One position of it would fetch seven more, or 127."""
    text = """HloModule m
ENTRY %e (a: f32[56,56,32,32], b: f32[32,56,56,64]) -> f32[32,56,56,96] {
  %a = f32[56,56,32,32] parameter(0)
  %b = f32[32,56,56,64] parameter(1)
  %t = f32[32,56,56,32] transpose(%a), dimensions={2,0,1,3}
  ROOT %c = f32[32,56,56,96] concatenate(%b, %t), dimensions={3}
}
"""
    plan = plan_of(text)
    traffic = plan_traffic(plan)
    assert traffic.moved <= 1.5 * traffic.least
    assert plan.blocks.sizes[0] % 8 == 0


def test_rows_of_a_dot_that_are_positions_are_cut_within_an_image() -> None:
    """A block that goes on in the next image would need the box around both."""
    plan = plan_of("""HloModule m
ENTRY %e (a: f32[8,226,224,64], b: f32[64,64]) -> f32[401408,64] {
  %a = f32[8,226,224,64] parameter(0)
  %s = f32[8,224,224,64] slice(%a), slice={[0:8], [1:225], [0:224], [0:64]}
  %r = f32[401408,64] reshape(%s)
  %b = f32[64,64] parameter(1)
  ROOT %c = f32[401408,64] dot(%r, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
""")
    traffic = plan_traffic(plan)
    assert traffic.moved < 1.2 * traffic.least


def test_a_large_product_moves_few_bytes_for_the_same_cycles() -> None:
    """Of windows that keep the MXUs busy, those that fetch a side less often."""
    plan = plan_of("""HloModule m
ENTRY %e (a: bf16[8192,8192], b: bf16[8192,8192]) -> bf16[8192,8192] {
  %a = bf16[8192,8192] parameter(0)
  %b = bf16[8192,8192] parameter(1)
  ROOT %d = bf16[8192,8192] dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
""")
    traffic = plan_traffic(plan)
    assert traffic.moved <= 2.1 * traffic.least


def test_rows_around_a_window_are_fetched_seldom_where_arithmetic_takes_longer() -> None:
    """25 taps that keep the vector unit busy: blocks of few rows cost no cycles, but fetch rows again."""
    taps = [(y, x) for y in range(5) for x in range(5)]
    cuts = "".join(
        f"  %s{y}{x} = bf16[56,56,32,96] slice(%a),"
        f" slice={{[{y}:{y + 56}], [{x}:{x + 56}], [0:32], [0:96]}}\n"
        f"  %f{y}{x} = f32[56,56,32,96] convert(%s{y}{x})\n"
        f"  %t{y}{x} = f32[56,56,32,96] tanh(%f{y}{x})\n"
        for y, x in taps
    )
    sums, total = "", "%t00"
    for y, x in taps[1:]:
        sums += f"  %u{y}{x} = f32[56,56,32,96] add({total}, %t{y}{x})\n"
        total = f"%u{y}{x}"
    plan = plan_of(f"""HloModule m
ENTRY %e (a: bf16[60,60,32,96]) -> f32[56,56,32,96] {{
  %a = bf16[60,60,32,96] parameter(0)
{cuts}{sums}  ROOT %r = f32[56,56,32,96] negate({total})
}}
""")
    traffic = plan_traffic(plan)
    assert traffic.moved < 1.4 * traffic.least, traffic.moved / traffic.least
