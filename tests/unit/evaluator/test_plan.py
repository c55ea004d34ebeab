"""Plans: valid orders, deaths after last uses, and large values computed again."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.evaluator import evaluate, plan
from compiler.hlo.evaluator.plan import EvaluationStep, make_plan
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.parser import parse_module

# e is used early and late; its operand a stays alive to the end.
FAR_USE = """ENTRY e {
  a = f32[64] parameter(0)
  e = f32[64] exponential(a)
  n0 = f32[64] negate(e)
%s
  late = f32[64] multiply(n%d, e)
  ROOT r = f32[64] add(late, a) }"""


def far_use(distance: int) -> HloComputation:
    chain = "\n".join(f"  n{i + 1} = f32[64] negate(n{i})" for i in range(distance))
    return parse_module(FAR_USE % (chain, distance)).entry


def names(steps: list[EvaluationStep]) -> list[str]:
    return [step.instr.name for step in steps]


def check(steps: list[EvaluationStep], computation: HloComputation) -> None:
    """Every operand is alive when used, and only the root is alive at the end."""
    alive: set[HloInstruction] = set()
    for step in steps:
        assert set(step.instr.operands) <= alive
        alive.add(step.instr)
        assert set(step.dead) <= alive
        alive -= set(step.dead)
    assert alive == {computation.root_instruction}


def test_small_values_are_kept() -> None:
    computation = far_use(100)
    steps = make_plan(computation)
    check(steps, computation)
    assert len(steps) == len(computation.instructions)


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_LARGE_BYTES", 0)
    monkeypatch.setattr(plan, "_LONG_WAIT", 3)


@pytest.mark.usefixtures("everything_is_large")
def test_a_large_value_is_computed_again_after_a_long_wait() -> None:
    computation = far_use(10)
    steps = make_plan(computation)
    check(steps, computation)
    assert names(steps).count("e") == 2
    assert names(steps).index("late") - 1 == len(steps) - 1 - names(steps)[::-1].index("e")


@pytest.mark.usefixtures("everything_is_large")
def test_a_value_is_not_computed_again_from_a_large_dead_operand() -> None:
    text = """ENTRY e { p = f32[64] parameter(0) a = f32[64,64] broadcast(p), dimensions={0}
      d = f32[64,64] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      e = f32[64,64] exponential(d) n0 = f32[64,64] negate(e) n1 = f32[64,64] negate(n0)
      n2 = f32[64,64] negate(n1) n3 = f32[64,64] negate(n2) n4 = f32[64,64] negate(n3)
      n5 = f32[64,64] negate(n4) ROOT r = f32[64,64] multiply(n5, e) }"""
    computation = parse_module(text).entry
    steps = make_plan(computation)
    check(steps, computation)
    assert names(steps).count("e") == 1


def test_tuple_elements_come_right_after_their_tuple() -> None:
    text = """ENTRY e { a = f32[4] parameter(0) b = f32[4] negate(a)
      t = (f32[4], f32[4]) tuple(a, b) c = f32[4] negate(b) d = f32[4] negate(c)
      g = f32[4] get-tuple-element(t), index=1 ROOT r = f32[4] add(d, g) }"""
    computation = parse_module(text).entry
    order = names(make_plan(computation))
    assert order.index("g") == order.index("t") + 1


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.usefixtures("everything_is_large")
def test_random_programs_have_valid_plans_and_equal_results(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines = ["v0 = f32[8] parameter(0)", "v1 = f32[8] parameter(1)"]
    for number in range(2, 60):
        first, second = (int(i) for i in rng.integers(0, number, 2))
        if rng.random() < 0.3:
            first = int(rng.integers(0, 4)) % number
        opcode = rng.choice(["add", "subtract", "maximum", "negate", "reverse"])
        if opcode == "negate":
            lines.append(f"v{number} = f32[8] negate(v{first})")
        elif opcode == "reverse":
            lines.append(f"v{number} = f32[8] reverse(v{first}), dimensions={{0}}")
        else:
            lines.append(f"v{number} = f32[8] {opcode}(v{first}, v{second})")
    lines.append("ROOT r = f32[8] add(v59, v58)")
    module = parse_module("ENTRY e {\n" + "\n".join(lines) + "\n}")
    check(make_plan(module.entry), module.entry)
    args = [rng.standard_normal(8).astype(np.float32) for _ in range(2)]
    values = list(args)
    for instr in list(module.entry)[2:]:
        operands = [values[int(o.name[1:])] for o in instr.operands]
        numpy_function = {"reverse": np.flip, "negate": np.negative}.get(
            instr.opcode, getattr(np, instr.opcode, None)
        )
        assert numpy_function is not None
        values.append(numpy_function(*operands))
    np.testing.assert_allclose(evaluate(module, args)[0], values[-1], 1e-6)
