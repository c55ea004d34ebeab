"""One damaged file through the command line, in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from benchmarks.hostile.kinds import KINDS
from tpuc import cli

_CODES = {0: "answer", 1: "error", 2: "usage"}


def try_mutant(kind: str, data: bytes, folder: Path) -> tuple[str, str]:
    """How a mutant ends, and the last line it gives."""
    file = folder / f"mutant{KINDS[kind].suffix}"
    file.write_bytes(data)
    end, text = "answer", ""
    for words in KINDS[kind].commands:
        line = [word.format(file=file, folder=folder) for word in words]
        end, text = try_command(line)
        if end != "answer":
            break
    return end, text


def try_command(words: Sequence[str]) -> tuple[str, str]:
    """What a command line ends with: an answer, an error, a wrong use or an internal error."""
    before = sys.argv
    sys.argv = ["tpuc", *words]
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    err = io.StringIO()
    code: object = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            cli.main()
    except SystemExit as error:
        code = error.code
    except BaseException as error:  # nothing may come through
        return "internal", f"{type(error).__name__}: {error}"[:300]
    finally:
        sys.argv = before
    text = err.getvalue()
    if "internal error" in text or code not in _CODES:
        at = text.find("internal error")
        return "internal", text[max(at, 0) :][:300]
    return _CODES[code], text.strip().split("\n")[-1][:200]
