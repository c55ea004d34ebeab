"""A digest of this program's own source: what it made earlier is used by the same version only."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np

_ROOT = Path(__file__).resolve().parents[2]
_SUFFIXES = (".py", ".toml", ".lark", ".pyc")
_STARTED = time.time()


@cache
def source_digest(*packages: str) -> str:
    """Digest of every source and data file of packages that lie beside ``tpu_sim``.

    Python's and NumPy's versions are part of it. The packages are read once per process, and a
    package without any file raises `FileNotFoundError`.
    """
    digest = hashlib.sha256(f"{sys.version} {np.__version__}".encode())
    for package in packages:
        files = sorted(_files(str(_ROOT / package)))
        if not files:
            raise FileNotFoundError(f"no source of {package} in {_ROOT}")
        for path in files:
            with open(path, "rb") as file:
                content = file.read()
            digest.update(f"\0{path[len(str(_ROOT)) :]}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


def is_source_as_loaded(*packages: str) -> bool:
    """Whether no file of the packages was changed since this process began.

    If one was, the process may run code that the digest does not speak of: what it makes is not
    to be kept for others.
    """
    paths = (path for package in packages for path in _files(str(_ROOT / package)))
    return all(os.stat(path).st_mtime <= _STARTED for path in paths)


def _files(folder: str) -> list[str]:
    found: list[str] = []
    if not os.path.isdir(folder):
        return found
    with os.scandir(folder) as items:
        for item in items:
            if item.name.startswith((".", "__pycache__")):
                continue
            if item.is_dir():
                found += _files(item.path)
            elif item.name.endswith(_SUFFIXES):
                found.append(item.path)
    return found
