"""Cycles of generated code stand in one file, where they follow the chip."""

from __future__ import annotations

import ast
from pathlib import Path

COMPILER = Path(__file__).parents[2] / "compiler"
ELSEWHERE = {
    "passes/fusion_cuts.py: _LEAST_CYCLES": "a kernel that is worth the compiler's time",
}


def _numbers(tree: ast.Module) -> list[str]:
    """Names that a module gives to numbers."""
    return [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]


def test_constants_of_cycles_are_rows_of_code_costs() -> None:
    found = {
        f"{path.relative_to(COMPILER).as_posix()}: {name}"
        for path in sorted(COMPILER.rglob("*.py"))
        for name in _numbers(ast.parse(path.read_text(encoding="utf-8")))
        if "CYCLES" in name
    }
    assert found == ELSEWHERE.keys(), "rows of compiler/analysis/code_costs.py follow the chip"
