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
