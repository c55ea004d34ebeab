"""``--chakra DIR``: execution traces of a slice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import Call

pytest.importorskip("google.protobuf")


def test_from_the_command_line(call: Call, tmp_path: Path) -> None:
    done = call(
        "estimate",
        "examples/slice/tp_mlp_train.hlo",
        "--target",
        "v5e:4x2",
        "--chakra",
        str(tmp_path / "et"),
    )
    assert done.code == 0, done.err
    assert len(list((tmp_path / "et").glob("trace.*.et"))) == 8
    refused = call("estimate", "examples/mlp.hlo", "--chakra", str(tmp_path / "one"))
    assert refused.code == 2
    assert "name a slice" in refused.err
