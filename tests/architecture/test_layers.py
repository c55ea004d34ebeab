"""Imports point down only: the layer table of docs/architecture.md, as data."""

from __future__ import annotations

from functools import cache

import networkx as nx
import pytest

from tests.architecture.sources import PACKAGES, modules, source

LAYER = {
    "compiler.diagnostics": 0,
    "compiler.options": 0,
    "compiler.protobuf": 0,
    "compiler.pass_pipeline": 0,
    "compiler.hlo": 0,
    "compiler.rewrite": 1,
    "compiler.sharding": 1,
    "compiler.analysis": 1,
    "compiler.llo": 1,
    "compiler.kernels": 1,
    "compiler.passes": 2,
    "compiler.partitioner": 2,
    "compiler.autodiff": 2,
    "compiler.batching": 2,
    "compiler.frontends": 2,
    "compiler.backend": 2,
    "compiler.driver": 3,
    "runtime": 4,
    "tpuc": 5,
}
SIM_LAYER = {
    "tpu_sim.isa": 0,
    "tpu_sim.machine": 1,
    "tpu_sim.interp": 2,
    "tpu_sim.jit": 2,
    "tpu_sim.system": 3,
}


@cache
def edges() -> list[tuple[str, str]]:
    """Modules with those of the product that they import."""
    known = modules()
    named = [
        (name, f"{module}.{part}" if f"{module}.{part}" in known else module)
        for name in known
        for module, part in source(name).imports
    ]
    return [(name, target) for name, target in named if target.split(".")[0] in PACKAGES]


def layer(name: str, table: dict[str, int]) -> int | None:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        if ".".join(parts[:end]) in table:
            return table[".".join(parts[:end])]
    return None


def test_imports_point_down() -> None:
    wrong = []
    for name, target in edges():
        for table in (LAYER, SIM_LAYER):
            here, there = layer(name, table), layer(target, table)
            if here is not None and there is not None and there > here:
                wrong.append(f"{name} (layer {here}) imports {target} (layer {there})")
    assert not wrong, "\n".join(wrong)


def test_the_compiler_knows_only_the_isa_of_the_simulator() -> None:
    wrong = [
        f"{name} imports {target}"
        for name, target in edges()
        if name.startswith("compiler")
        and target.startswith("tpu_sim")
        and not target.startswith("tpu_sim.isa")
    ]
    assert not wrong, "\n".join(wrong)


def test_the_simulator_never_imports_the_compiler() -> None:
    wrong = [
        f"{name} imports {target}"
        for name, target in edges()
        if name.startswith("tpu_sim") and target.split(".")[0] in ("compiler", "runtime", "tpuc")
    ]
    assert not wrong, "\n".join(wrong)


def test_there_are_no_import_cycles() -> None:
    graph = nx.DiGraph(e for e in edges() if e[0] != e[1])
    cycles = [c for c in nx.strongly_connected_components(graph) if len(c) > 1]
    assert not cycles, cycles


@pytest.mark.parametrize("name", sorted(name for name in modules() if name.split(".")[0] != "tpuc"))
def test_imports_stand_at_the_top_of_a_file(name: str) -> None:
    """The facade alone loads lazily."""
    inner = source(name).inner_imports
    assert not inner, f"{name}: imports inside functions at lines {inner}"
