"""Control edges: what is replaced or removed hands them on."""

from __future__ import annotations

from compiler.hlo.cloning import clone
from compiler.hlo.ir import HloComputation, HloInstruction, depends_on
from compiler.hlo.parser import parse_module
from compiler.rewrite.graph import replace

TEXT = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  a = f32[4] negate(x)
  b = f32[4] abs(x), control-predecessors={a}
  c = f32[4] floor(x), control-predecessors={b}
  d = f32[4] ceil(b)
  ROOT t = (f32[4], f32[4], f32[4]) tuple(a, c, d)
}
"""


def parsed() -> tuple[HloComputation, dict[str, HloInstruction]]:
    entry = parse_module(TEXT).entry
    return entry, {i.name: i for i in entry}


def before(instr: HloInstruction) -> list[str]:
    return [p.name for p in instr.control_predecessors()]


def test_what_replaces_an_instruction_runs_where_it_had_to() -> None:
    entry, at = parsed()
    new = entry.add(HloInstruction("sign", "new", at["x"].shape, [at["x"]]))
    replace(at["b"], new)
    assert (before(new), before(at["c"])) == (["a"], ["new"])
    entry.sort()
    order = [i.name for i in entry]
    assert order.index("a") < order.index("new") < order.index("c")


def test_a_parameter_waits_for_nothing() -> None:
    entry, at = parsed()
    replace(at["b"], at["x"])
    assert before(at["x"]) == []
    assert before(at["c"]) == ["a"]
    assert depends_on(at["c"], at["a"])
    entry.sort()


def test_an_edge_is_known_at_both_ends() -> None:
    entry, at = parsed()
    assert list(entry.control_successors[at["b"]]) == [at["c"]]
    at["c"].set_control_predecessors([at["a"]])
    assert list(entry.control_successors[at["a"]]) == [at["b"], at["c"]]
    assert not entry.control_successors[at["b"]]
    assert entry.take_control_edges() == [(at["a"], at["b"]), (at["a"], at["c"])]
    assert before(at["c"]) == []


def test_a_replacement_that_needs_a_successor_gets_no_edge_to_it() -> None:
    entry, at = parsed()
    new = entry.add(HloInstruction("negate", "new", at["x"].shape, [at["c"]]))
    replace(at["b"], new)
    assert before(at["c"]) == ["a"]
    entry.sort()


def test_what_is_removed_connects_its_neighbours() -> None:
    entry, at = parsed()
    at["d"].set_operands([at["x"]])
    entry.remove(at["b"])
    assert before(at["c"]) == ["a"]


def test_a_copy_elsewhere_has_no_edges() -> None:
    _, at = parsed()
    other = HloComputation("other")
    parameter = other.add(
        HloInstruction("parameter", "p", at["x"].shape, (), {"parameter_number": 0})
    )
    copy = clone(at["b"], other, [parameter])
    assert copy.control_predecessors() == ()
    assert before(at["b"]) == ["a"]


def test_edges_are_added_once_and_never_in_a_circle() -> None:
    entry, at = parsed()
    assert not entry.add_control_edge(at["c"], at["a"])
    assert not entry.add_control_edge(at["c"], at["c"])
    assert entry.add_control_edge(at["a"], at["c"])
    assert entry.add_control_edge(at["a"], at["c"])
    assert before(at["c"]) == ["b", "a"]
