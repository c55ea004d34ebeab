"""A digest of this program's own source: what it made earlier is used by the same version only."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np

_ROOT = Path(__file__).resolve().parents[2]
_SUFFIXES = (".py", ".toml", ".lark", ".pyc")
_LIBRARIES = ("networkx", "lark", "ml_dtypes")
_STARTED = time.time()
_unchanged: dict[tuple[str, ...], int] = {}
"""How many modules were loaded when the files of these packages were still those of the start."""


@cache
def source_digest(*packages: str) -> str:
    """Digest of every source and data file of packages that lie beside ``tpu_sim``.

    Versions of Python, NumPy and the libraries that programs depend on are part of it. The packages
    are read once per process, and a package without any file raises `FileNotFoundError`.
    """
    versions = [sys.version, np.__version__, *(_version(name) for name in _LIBRARIES)]
    digest = hashlib.sha256("\0".join(versions).encode())
    for package in packages:
        files = _files(str(_ROOT / package))
        if not files:
            raise FileNotFoundError(f"no source of {package} in {_ROOT}")
        for path in files:
            with open(path, "rb") as file:
                content = file.read()
            digest.update(f"\0{path[len(str(_ROOT)) :]}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


def is_source_as_loaded(*packages: str) -> bool:
    """Whether this process has loaded no module of a file that was changed since it began.

    If it may have, it runs code that the digest does not speak of: what it makes is not to be kept for
    others. The files are looked at again when modules were loaded meanwhile.
    """
    loaded = len(sys.modules)
    if _unchanged.get(packages) == loaded:
        return True
    paths = (path for package in packages for path in _files_at_first(str(_ROOT / package)))
    try:
        if any(os.stat(path).st_mtime > _STARTED for path in paths):
            return False
    except FileNotFoundError:
        return False
    _unchanged[packages] = loaded
    return True


def _version(library: str) -> str:
    """What is installed of a library, without importing it: importlib.metadata takes longer."""
    spec = importlib.util.find_spec(library)
    if spec is None or spec.origin is None:
        return f"no {library}"
    home = Path(spec.origin).parent.parent
    found = sorted(path.name for path in home.glob(f"{library}-*.dist-info"))
    return " ".join(found) or f"{library} {os.stat(spec.origin).st_mtime_ns}"


def _files(folder: str) -> list[str]:
    found: list[str] = []
    pending = [folder] if os.path.isdir(folder) else []
    while pending:
        with os.scandir(pending.pop()) as items:
            for item in items:
                if item.name.startswith((".", "__pycache__")):
                    continue
                if item.is_dir():
                    pending.append(item.path)
                elif item.name.endswith(_SUFFIXES):
                    found.append(item.path)
    return sorted(found)


_files_at_first = cache(_files)
