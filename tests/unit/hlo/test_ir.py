from __future__ import annotations

import pytest

from compiler.diagnostics import CompileError
from compiler.hlo.dtypes import F32
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import array

SHAPE = array(F32, 4)


def _chain() -> tuple[HloComputation, list[HloInstruction]]:
    module = parse_module(
        "ENTRY e { x = f32[4] parameter(0) a = f32[4] negate(x) ROOT b = f32[4] add(a, a) }"
    )
    return module.entry, list(module.entry)


def test_users_count_how_often_they_use() -> None:
    _, (x, a, b) = _chain()
    assert x.users == {a: 1}
    assert a.users == {b: 2}


def test_replacing_uses_moves_them_and_the_root() -> None:
    computation, (x, a, b) = _chain()
    a.replace_all_uses_with(x)
    assert b.operands == [x, x]
    assert x.users == {a: 1, b: 2}
    assert not a.users
    b.replace_all_uses_with(a)
    assert computation.root is a


def test_replacing_by_a_user_keeps_its_own_use() -> None:
    computation, (x, a, _) = _chain()
    wrapper = computation.add(HloInstruction("copy", "w", SHAPE, [a]))
    a.replace_all_uses_with(wrapper)
    assert wrapper.operands == [a]
    assert a.users == {wrapper: 1}
    assert x.users == {a: 1}


def test_removing_drops_the_use_of_operands() -> None:
    computation, (x, a, _) = _chain()
    dead = computation.add(HloInstruction("negate", "dead", SHAPE, [x]))
    computation.remove(dead)
    assert x.users == {a: 1}
    assert dead not in computation.instructions


def test_names_stay_unique_in_the_module() -> None:
    computation, (x, *_) = _chain()
    names = [computation.add(HloInstruction("negate", "a", SHAPE, [x])).name for _ in range(3)]
    assert names == ["a.1", "a.2", "a.3"]
    assert computation.add(HloInstruction("negate", "a.2", SHAPE, [x])).name == "a.4"


def test_computation_names_stay_unique() -> None:
    module = HloModule("m")
    names = [module.add_computation(HloComputation("f")).name for _ in range(3)]
    assert len(set(names)) == 3


def test_sort_is_stable_and_follows_operands() -> None:
    computation, (x, a, b) = _chain()
    early = computation.add(HloInstruction("negate", "n", SHAPE, [x]))
    a.set_operand(0, early)
    computation.sort()
    assert list(computation) == [x, early, a, b]


def test_sort_follows_control_predecessors() -> None:
    computation, (x, a, b) = _chain()
    late = computation.add(HloInstruction("negate", "n", SHAPE, [x]))
    a.attrs["control-predecessors"] = (late,)
    computation.sort()
    assert list(computation) == [x, late, a, b]


def test_sort_names_the_cycle() -> None:
    computation, (_, a, b) = _chain()
    a.set_operand(0, b)
    with pytest.raises(CompileError, match="%a uses its own result: %a -> %b -> %a"):
        computation.sort()


def test_sort_refuses_a_stranger() -> None:
    computation, (_, a, _) = _chain()
    a.set_operand(0, HloInstruction("iota", "stranger", SHAPE))
    with pytest.raises(CompileError, match="%stranger is not in computation %e"):
        computation.sort()


def test_sort_handles_deep_chains() -> None:
    computation, (_, _, b) = _chain()
    last = b
    for _ in range(20_000):
        last = computation.add(HloInstruction("negate", "n", SHAPE, [last]))
    computation.instructions = dict.fromkeys(reversed(list(computation)))
    computation.sort()
    assert list(computation)[-1] is last


def test_parameters_stay_in_their_order() -> None:
    computation = HloComputation("f")
    for number in (2, 0, 1):
        attrs: dict[str, object] = {"parameter_number": number}
        computation.add(HloInstruction("parameter", f"p{number}", SHAPE, (), attrs))
    assert [p.name for p in computation.parameters] == ["p0", "p1", "p2"]


def test_span_is_found_when_asked_for() -> None:
    _, (_, a, _) = _chain()
    assert a.span is not None
    assert (a.span.line, a.span.column) == (1, 35)
