"""Cycles by source line and operation name: they add up, and shared kernels are told apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime.api import compile
from runtime.origin_costs import by_line, by_scope, scope_parts
from runtime.report import Report
from tests.support.command_line import MODEL
from tpu_sim.isa.origins import Origin, origin_table
from tpu_sim.isa.program import blocks_of

_T = "tensor<256x256xf32>"


def _layer(name: str, line: int, value: str) -> str:
    """A dot and a tanh of two lines: ``%x.d``, ``%x.t``."""
    dot = f"stablehlo.dot_general %{value}, %w, contracting_dims = [1] x [0]"
    return f"""
    %{name}_d = {dot} : ({_T}, {_T}) -> {_T} loc("net/{name}/dot"("net.py":{line}:1))
    %{name} = stablehlo.tanh %{name}_d : {_T} loc("net/{name}/tanh"("net.py":{line + 1}:1))"""


LAYERS = f"""module @m {{
  func.func public @main(%x: {_T}, %w: {_T}) -> {_T} {{
    {_layer("one", 10, "x")}{_layer("two", 20, "one")}{_layer("three", 30, "two")}
    return %three : {_T} loc(unknown)
  }} loc(unknown)
}} loc(unknown)
"""
"""Three equal layers, each with lines of its own."""


@pytest.fixture(scope="module")
def report() -> Report:
    return compile(LAYERS).estimate()


def test_costs_add_up_to_the_kernels_cycles(report: Report) -> None:
    in_kernels = sum(kernel.cycles for kernel in report.kernels)
    assert in_kernels > 0
    for costs in (report.origin_costs, by_line(report.origin_costs)):
        assert sum(cost.cycles for cost in costs.values()) == pytest.approx(in_kernels)
    scopes = by_scope(report.origin_costs)
    assert scopes.cost.cycles == pytest.approx(in_kernels)
    (net,) = scopes.children.values()
    assert {scope.name for scope in net.ordered()} == {"one", "two", "three"}
    assert sum(s.cost.cycles for s in net.ordered()) == pytest.approx(net.cost.cycles)


def test_equal_layers_share_a_kernel_and_have_lines_of_their_own(report: Report) -> None:
    assert report.traced is not None
    program, _, result = report.traced
    assert len({run.site for run in result.kernels}) == 3
    lines = by_line(report.origin_costs)
    assert set(lines) == {f"net.py:{n}" for n in (10, 11, 20, 21, 30, 31)}
    dots = [lines[f"net.py:{n}"].causes["mxu"] for n in (10, 20, 30)]
    assert min(dots) > 0
    assert lines["net.py:21"].causes.get("mxu", 0) == 0
    assert lines["net.py:21"].causes["vector"] > 0
    table = origin_table(program.metadata)
    for run in result.kernels:
        sources = {
            instr.source
            for block in blocks_of(program.kernels[run.name].body)
            for bundle in block.bundles
            for instr in bundle
        }
        found = {origin for source in sources for origin in table.of(run.site, source)}
        assert len(found) == 2, "a bundle answers with the lines of its own layer"


def test_json_has_origins_lines_and_scopes(report: Report) -> None:
    found = json.loads(json.dumps(report.to_json()))
    for kernel in found["kernels"]:
        assert kernel["origins"][0]["file"] == "net.py"
        assert sum(o["cycles"] for o in kernel["origins"]) == pytest.approx(kernel["cycles"], abs=2)
    assert found["lines"][0]["cycles"] >= found["lines"][-1]["cycles"]
    assert found["scopes"]["children"][0]["name"] == "net"


def test_origins_are_kept_in_a_program_file(tmp_path: Path) -> None:
    path = tmp_path / "m.tpux"
    compile(LAYERS).save(path)
    again = compile(path).estimate()
    assert Origin("net/one/dot", "net.py", 10) in again.origin_costs


def test_a_model_without_origins_has_one_unknown_cost() -> None:
    plain = compile(MODEL)
    assert "origins" not in plain.program.metadata
    assert [str(o.op_name) for o in plain.estimate().origin_costs] == [""]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("", ()),
        ("add", ("add",)),
        ("jit(f)/a/b", ("jit(f)", "a", "b")),
        ("transpose(jvp(a/b))/dot[x=(1, 2)/3]", ("transpose(jvp(a/b))", "dot[x=(1, 2)/3]")),
        ("a//b)/c", ("a", "b)", "c")),
    ],
)
def test_scopes_are_divided_at_slashes_outside_of_brackets(
    name: str, parts: tuple[str, ...]
) -> None:
    assert scope_parts(name) == parts
