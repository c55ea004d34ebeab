"""The example that says its lines: a stranger finds the dearest one."""

from __future__ import annotations

from pathlib import Path

from runtime.api import compile
from runtime.origin_costs import by_line

ROOT = Path(__file__).resolve().parents[3]


def test_the_dearest_lines_of_the_attention_example_are_its_products() -> None:
    report = compile(ROOT / "examples" / "attention.mlir").estimate()
    source = (ROOT / "examples" / "attention.py").read_text().splitlines()
    dearest = [place for place in by_line(report.origin_costs) if ":" in place][:3]
    texts = [source[int(place.rpartition(":")[2]) - 1] for place in dearest]
    assert any('p["up"]' in text for text in texts), texts
    known = sum(c.cycles for o, c in report.origin_costs.items() if o.line)
    assert known > 0.98 * sum(kernel.cycles for kernel in report.kernels)
