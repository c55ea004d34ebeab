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
_as_at_first: set[str] = set()
"""Modules whose files were still those of the start when they had been loaded."""


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
    """Whether no loaded module of the packages, and no data file, was changed since this process began.

    If one is, the process may run code that the digest does not speak of: what it makes is not to be
    kept for others. A module is looked at once: what is loaded does not change with its file.
    """
    new = [name for name in sys.modules.keys() - _as_at_first if name.partition(".")[0] in packages]
    files = [found for name in new if (found := getattr(sys.modules.get(name), "__file__", None))]
    data = [file for package in packages for file in _data_at_first(str(_ROOT / package))]
    try:
        is_so = all(os.stat(file).st_mtime <= _STARTED for file in (*files, *data))
    except FileNotFoundError:
        return False
    if is_so:
        _as_at_first.update(new)
    return is_so


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


@cache
def _data_at_first(folder: str) -> list[str]:
    return [file for file in _files(folder) if not file.endswith((".py", ".pyc"))]
