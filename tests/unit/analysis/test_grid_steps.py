"""What the steps of a grid read is worked out once for what fusions compute, wherever arrays lie."""

from __future__ import annotations

import pytest

from compiler.analysis import grid_steps
from compiler.analysis.boxes import leaf_boxes
from compiler.analysis.window_planner import WindowPlanner
from compiler.hlo.ir import HloInstruction
from compiler.hlo.parser import parse_module
from tpu_sim.isa.chips import load_chip

CHIP = load_chip("v5e")
_LAYOUT = "{1,0:T(8,128)}"
_BODY = """{name} {{
  p = f32[1000,512] parameter(0)
  q = f32[512,512] parameter(1)
  ROOT d = f32[1000,512] dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}

"""
_CUT = """{name} {{
  p = f32[1000,512] parameter(0)
  s = s32[] parameter(1)
  zero = s32[] constant(0)
  c = f32[8,512] dynamic-slice(p, s, zero), dynamic_slice_sizes={{8,512}}
  ROOT n = f32[8,512] negate(c)
}}

"""


def _dots(space: str) -> list[HloInstruction]:
    """Two equal fusions; the second reads the first's result in a memory space."""
    text = f"""HloModule m

{_BODY.format(name="first")}{_BODY.format(name="second")}ENTRY e {{
  x = f32[1000,512]{_LAYOUT} parameter(0)
  w = f32[512,512]{_LAYOUT} parameter(1)
  a = f32[1000,512]{_LAYOUT[:-1]}{space}}} fusion(x, w), kind=kOutput, calls=first
  ROOT b = f32[1000,512]{_LAYOUT} fusion(a, w), kind=kOutput, calls=second
}}
"""
    return [i for i in parse_module(text).entry if i.opcode == "fusion"]


def _cuts() -> list[HloInstruction]:
    text = f"""HloModule m

{_CUT.format(name="first")}{_CUT.format(name="second")}ENTRY e {{
  x = f32[1000,512]{_LAYOUT} parameter(0)
  i = s32[]{{:T(128)S(6)}} parameter(1)
  a = f32[8,512]{_LAYOUT} fusion(x, i), kind=kLoop, calls=first
  b = f32[8,512]{_LAYOUT} fusion(x, i), kind=kLoop, calls=second
  ROOT t = (f32[8,512]{_LAYOUT}, f32[8,512]{_LAYOUT}) tuple(a, b)
}}
"""
    return [i for i in parse_module(text).entry if i.opcode == "fusion"]


class _Counted:
    """Counts the times that boxes are worked out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        monkeypatch.setattr(grid_steps, "leaf_boxes", self)

    def __call__(self, *args: object) -> object:
        self.calls += 1
        return leaf_boxes(*args)  # type: ignore[arg-type]


def test_where_arrays_lie_changes_no_box(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = _Counted(monkeypatch)
    planner = WindowPlanner(CHIP)
    in_hbm = planner.facts(_dots("")[1])
    made = counted.calls
    in_vmem = planner.facts(_dots("S(1)")[1])
    further = counted.calls - made
    alone = WindowPlanner(CHIP).facts(_dots("S(1)")[1])
    assert alone == in_vmem
    assert in_vmem.traffic.moved < in_hbm.traffic.moved
    assert 2 * further < counted.calls - made - further


def test_equal_fusions_share_what_steps_read(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = _dots("")
    planner = WindowPlanner(CHIP)
    before = planner.plan(first)
    counted = _Counted(monkeypatch)
    plan = planner.plan(second)
    assert counted.calls == 0
    assert [w.node for w in plan.inputs] == list(second.calls.parameters)
    assert [(w.origin, w.extent) for w in plan.inputs] == [
        (w.origin, w.extent) for w in before.inputs
    ]
    assert set(plan.boxes) <= set(second.calls)


def test_boxes_that_begin_where_a_node_says_are_a_fusions_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = _cuts()
    planner = WindowPlanner(CHIP)
    planner.plan(first)
    counted = _Counted(monkeypatch)
    plan = planner.plan(second)
    assert counted.calls > 0
    assert plan == WindowPlanner(CHIP).plan(second)
