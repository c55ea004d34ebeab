"""The name of a trace says what it is, on the command line and in Python."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from runtime.api import compile
from runtime.trace_names import TraceNameError, is_xspace_name

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", ["t", "t.pb", "t.perfetto", "t.json.gz", "xplane.pb"])
def test_a_name_without_a_known_ending_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(TraceNameError, match=r"want NAME\.json .* or NAME\.xplane\.pb"):
        is_xspace_name(tmp_path / name)
    (tmp_path / name).touch()
    with pytest.raises(TraceNameError):
        is_xspace_name(tmp_path / name)


def test_a_pipe_gets_json(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    report = compile(ROOT / "examples/dot_bias_relu.hlo").estimate()
    texts: list[str] = []
    reader = threading.Thread(target=lambda: texts.append(pipe.read_text()))
    reader.start()
    report.write_trace(pipe)
    reader.join(60)
    assert json.loads(texts[0])["traceEvents"]
    with pytest.raises(TraceNameError):
        report.write_trace(tmp_path / "t.txt")
    assert not (tmp_path / "t.txt").exists()
