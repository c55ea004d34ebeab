"""The command line called in-process: no interpreter start per case."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import MODEL, Call, Done
from tpuc import cli


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run ``tpuc ARGS`` in this process; whatever it is, its message is a user's, not a bug's."""
    monkeypatch.delenv("COLUMNS", raising=False)  # of whoever runs the tests

    def run(*arguments: str | Path) -> Done:
        monkeypatch.setattr("sys.argv", ["tpuc", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capfd.readouterr()
        assert "internal error" not in err and "Traceback" not in err, err
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, out, err)

    return run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model in a file."""
    path = tmp_path / "model.hlo"
    path.write_text(MODEL)
    return path


@pytest.fixture
def program(call: Call, model: Path) -> Path:
    """That model compiled."""
    path = model.with_suffix(".tpux")
    assert call("compile", model, "-o", path).code == 0
    return path
