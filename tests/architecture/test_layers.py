"""Imports point down only: the layer table of docs/architecture.md, as data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("compiler", "runtime", "tpu_sim", "tpuc")

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


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {
        module_name(path): path
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports_of(path: Path, known: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module


@cache
def edges() -> list[tuple[str, str]]:
    known = modules()
    return [
        (name, target)
        for name, path in known.items()
        for target in imports_of(path, known)
        if target.split(".")[0] in PACKAGES
    ]


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
    tree = tree_of(modules()[name])
    inner = [
        node.lineno
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not inner, f"{name}: imports inside functions at lines {inner}"
