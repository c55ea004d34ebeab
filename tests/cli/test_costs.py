"""``--by line`` and ``--by op``: what costs most in the user's own terms."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import Call
from tests.unit.runtime.test_origin_costs import LAYERS


def test_lines_and_operations(call: Call, model: Path, tmp_path: Path) -> None:
    named = tmp_path / "net.mlir"
    named.write_text(LAYERS)
    lines = call("estimate", named, "--by", "line").out
    assert "net.py:10" in lines and "dearest 6 of 6 source lines" in lines
    assert "slowest" not in lines
    scopes = call("run", named, "--by", "op").out
    assert "net" in scopes and "  two" in scopes and "    dot" in scopes
    assert "says nothing" in call("estimate", model, "--by", "line").out


def test_every_report_ends_with_what_would_help(call: Call, tmp_path: Path) -> None:
    named = tmp_path / "net.mlir"
    named.write_text(LAYERS)
    for by in ("kernel", "line", "op"):
        out = call("estimate", named, "--by", by).out
        _, title, advice = out.partition("what would help")
        assert title and advice.count("why: ") == advice.count("try: ") >= 1
        assert "cycles (" in advice and " at net.py:" in advice
    assert "what would help" not in call("estimate", named, "--csv", "-").out
