"""Cycles of generated code stand in one file, where they follow the chip."""

from __future__ import annotations

from tests.architecture.sources import modules, source

ELSEWHERE = {
    "compiler.passes.fusion_cuts: _LEAST_CYCLES": "a kernel that is worth the compiler's time",
}


def test_constants_of_cycles_are_rows_of_code_costs() -> None:
    found = {
        f"{module}: {name}"
        for module in modules()
        if module.split(".")[0] == "compiler"
        for assigned in source(module).constants
        if assigned.is_one_constant
        for name in assigned.names
        if "CYCLES" in name
    }
    assert found == ELSEWHERE.keys(), "rows of compiler/analysis/code_costs.py follow the chip"
