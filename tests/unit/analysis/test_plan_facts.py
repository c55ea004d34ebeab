"""What a planner knows of plans that equal fusions share, without making a plan for each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.analysis import window_planner
from compiler.analysis.window_config import OWN, WINDOW_CONFIG, read_config, write_config
from compiler.analysis.window_cost import plan_facts
from compiler.analysis.window_planner import WindowPlanner
from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import BF16
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.parser import parse_module
from tpu_sim.isa.chips import load_chip

CHIP = load_chip("v5e")
_BODY = """{name} {{
  p = f32[1000,512] parameter(0)
  q = f32[512,512] parameter(1)
  ROOT d = f32[1000,512] dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}

"""
_LAID_OUT = "{1,0:T(8,128)}"
TWO_LAYERS = (
    "HloModule m\n\n"
    + _BODY.format(name="first")
    + _BODY.format(name="second")
    + f"""ENTRY e {{
  x = f32[1000,512]{_LAID_OUT} parameter(0)
  w = f32[512,512]{_LAID_OUT} parameter(1)
  v = f32[512,512]{_LAID_OUT} parameter(2)
  a = f32[1000,512]{_LAID_OUT} fusion(x, w), kind=kOutput, calls=first
  ROOT b = f32[1000,512]{_LAID_OUT} fusion(a, v), kind=kOutput, calls=second
}}
"""
)


def _fusions() -> list[HloInstruction]:
    """Two equal fusions."""
    return [i for i in parse_module(TWO_LAYERS).entry if i.opcode == "fusion"]


def test_facts_are_those_of_the_plan() -> None:
    first, second = _fusions()
    planner = WindowPlanner(CHIP)
    plan = planner.plan(first)
    facts = planner.facts(first)
    assert facts == plan_facts(plan, first.calls.parameters)
    assert facts.cycles == plan.estimated_cycles > 0
    assert facts.traffic.moved == sum(size for size in facts.window_bytes if size is not None)
    assert facts == planner.facts(second)


def test_equal_fusions_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = _fusions()
    planner = WindowPlanner(CHIP)
    assert planner.key(first) == planner.key(second)
    facts = planner.facts(first)

    def never(*_: object) -> None:
        raise AssertionError("a plan is made again")

    for name in ("fusion_body", "make_plan", "cheapest"):
        monkeypatch.setattr(window_planner, name, never)
    assert planner.facts(second) == facts


def test_blocks_that_are_adopted_have_facts_of_their_own() -> None:
    first, _ = _fusions()
    planner = WindowPlanner(CHIP)
    before = planner.facts(first)
    blocks = planner.plan(first).blocks
    halves = tuple(max(size // 2, 1) for size in blocks.sizes[:-1])
    planner.adopt(first, type(blocks)((*halves, blocks.sizes[-1]), blocks.order))
    assert planner.facts(first) != before


def test_windows_that_somebody_asks_for_are_obeyed() -> None:
    first, _ = _fusions()
    planner = WindowPlanner(CHIP)
    found = planner.facts(first)
    config = planner.config(first)
    wanted = {key: config[key] for key in (WINDOW_CONFIG, OWN) if key in config}
    write_config(first, {**read_config(first), **wanted})
    assert planner.facts(first).cycles == found.cycles


def test_that_nothing_fits_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = _fusions()
    tiny = replace(CHIP, vmem_bytes=1 << 14)
    planner = WindowPlanner(tiny)
    with pytest.raises(UnsupportedError, match="%a: no window"):
        planner.facts(first)

    def never(*_: object) -> None:
        raise AssertionError("windows are looked for again")

    for name in ("cheapest", "has_plan"):
        monkeypatch.setattr(window_planner, name, never)
    with pytest.raises(UnsupportedError, match="%b: no window"):
        planner.facts(second)
    assert not planner.has_plan(second)


def test_a_computation_is_looked_at_again_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_planner, "is_verifying", lambda: False)
    first, second = _fusions()
    planner = WindowPlanner(CHIP)
    number = planner.number(first.calls)
    assert planner.number(second.calls) == number
    looked: list[object] = []
    key = window_planner.computation_key

    def counted(computation: HloComputation) -> object:
        looked.append(computation)
        return key(computation)

    monkeypatch.setattr(window_planner, "computation_key", counted)
    assert planner.number(first.calls) == number
    assert not looked
    dot = first.calls.root_instruction
    dot.set_operand(0, dot.operands[0])
    assert planner.number(first.calls) == number
    first.calls.root = first.calls.add(HloInstruction("negate", "n", dot.shape, [dot]))
    grown = planner.number(first.calls)
    assert grown != number
    assert looked == [first.calls]
    dot.shape = dot.array.with_dtype(BF16)
    assert planner.number(first.calls) not in (number, grown)


def test_attributes_inside_a_planned_fusion_stay_as_they_are() -> None:
    first, _ = _fusions()
    planner = WindowPlanner(CHIP)
    planner.number(first.calls)
    first.calls.root_instruction.attrs["lhs_contracting_dims"] = (0,)
    with pytest.raises(AssertionError, match="%first: attributes"):
        planner.number(first.calls)
