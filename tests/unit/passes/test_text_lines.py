"""A model without origins: its operations come from lines of its own text, and cost what they cost before."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.options import CompileOptions
from runtime.api import compile
from runtime.report import Report

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def _report(model: Path, file: str | None) -> Report:
    return compile(model, options=CompileOptions(text_file=file)).estimate()


@pytest.mark.parametrize("model", ["mlp.hlo", "transformer_block.hlo"])
def test_costs_by_lines_of_the_text_are_those_of_the_operations_there(model: str) -> None:
    path = EXAMPLES / model
    without, report = _report(path, None), _report(path, "m.hlo")
    assert report.cycles == without.cycles
    assert [k.to_json() for k in report.kernels] == [k.to_json() for k in without.kernels]
    lines = path.read_text().splitlines()
    places = [origin for origin in report.origin_costs if origin.file]
    assert len(places) > 5
    for origin in places:
        opcode = origin.op_name.rpartition("/")[2]  # of what was inlined, behind its call's
        assert origin.file == "m.hlo" and f" {opcode}(" in lines[origin.line - 1]
    dearest = max(places, key=lambda origin: report.origin_costs[origin].cycles)
    assert dearest.op_name == "dot"


STABLEHLO = """!w = tensor<128x128xf32>
!x = tensor<8x128xf32>
func.func @main(%x: !x, %w: !w) -> !x {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (!x, !w) -> !x
  %1 = stablehlo.tanh %0 : tensor<8x128xf32>
  return %1 : !x
}
"""


def test_of_stablehlo_too_and_not_of_a_model_that_names_origins(tmp_path: Path) -> None:
    path = tmp_path / "m.mlir"
    path.write_text(STABLEHLO)
    found = {(o.op_name, o.line) for o in _report(path, "m.mlir").origin_costs if o.file}
    assert found == {("dot", 4), ("tanh", 5)}
    path.write_text(
        STABLEHLO.replace(
            "tanh %0 : tensor<8x128xf32>", 'tanh %0 : tensor<8x128xf32> loc("net.py":7:1)'
        )
    )
    assert {o.place for o in _report(path, "m.mlir").origin_costs} <= {"net.py:7", ""}
