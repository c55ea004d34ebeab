"""Output files that are whole or not there.

A regular file is written beside its place and then moved there, so that nobody sees half of it and
a failure leaves the old one. A device or a pipe is written directly.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_whole(path: Path | str, data: bytes) -> None:
    """Write `data` to `path`, whole or not at all; an `OSError` names `path`."""
    fill_whole(path, lambda file: file.write(data))


def fill_whole(path: Path | str, fill: Callable[[BinaryIO], object]) -> None:
    """Let `fill` write the file at `path`, whole or not at all; an `OSError` names `path`.

    Symbolic links are followed; a file that is replaced keeps its mode.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                fill(file)
        else:
            _replace(target, fill)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def check_writable(path: Path | str) -> None:
    """Raise the `OSError` that writing `path` would meet, as far as that can be told beforehand."""
    target = Path(os.path.realpath(path))
    if not str(path):
        raise OSError(None, "the name is empty", "")
    if target.is_dir():
        raise IsADirectoryError(None, "it is a folder", str(path))
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(None, "permission denied", str(path))
    if target.exists() and not target.is_file():
        return
    if not target.parent.is_dir():
        reason = "is not a folder" if target.parent.exists() else "does not exist"
        raise FileNotFoundError(None, f"{target.parent} {reason}", str(path))
    if not os.access(target.parent, os.W_OK | os.X_OK):
        reason = f"no permission to write in {target.parent}"
        raise PermissionError(None, reason, str(path))


def _replace(target: Path, fill: Callable[[BinaryIO], object]) -> None:
    temporary = target.with_name(f".{target.name[:200]}.{os.getpid()}.part")
    try:
        with temporary.open("xb") as file:
            fill(file)
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
