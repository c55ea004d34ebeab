"""An HloSnapshot brings its inputs and what must come of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import Call
from tests.support.hlo_protos import snapshot


@pytest.mark.parametrize(("result", "code"), [(513.0, 0), (500.0, 1)])
def test_a_snapshot_runs_on_its_arguments_and_is_compared(
    call: Call, tmp_path: Path, result: float, code: int
) -> None:
    path = tmp_path / "m.pb"
    path.write_bytes(snapshot(result))
    done = call("run", path, "--json")
    assert done.code == code, done.err
    record = json.loads(done.out)
    assert not record["random_inputs"]
    assert record["errors"][0]["ok"] is (code == 0)
