"""Object code on disk, keyed by content: IR text, host CPU and features, LLVM version.

An entry is a header (magic, SHA-256 of the object) and the object. A file that does not match its
header is removed and compiled anew, so a torn or foreign file can cost time but not correctness.
The folder is private to the user; it is ``$TPUC_CACHE_DIR`` or the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path

_MAGIC = b"TPUCOBJ1"
_HEADER_BYTES = len(_MAGIC) + hashlib.sha256().digest_size
_FOLDER_MODE = 0o700


def default_cache_folder() -> Path:
    """``$TPUC_CACHE_DIR``, or the platform's folder for caches, plus ``tpuc/objects``."""
    chosen = os.environ.get("TPUC_CACHE_DIR")
    if chosen:
        return Path(chosen) / "objects"
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "tpuc" / "objects"


class CodeCache:
    """A folder of objects. Every failure to read or write is a miss, never an error."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = default_cache_folder() if folder is None else folder

    def load(self, key: str) -> bytes | None:
        """The object stored under `key`, None if there is none that is whole and ours."""
        path = self.folder / key
        try:
            if not self._is_private():
                return None
            data = path.read_bytes()
        except OSError:
            return None
        digest, code = data[len(_MAGIC) : _HEADER_BYTES], data[_HEADER_BYTES:]
        if data.startswith(_MAGIC) and hashlib.sha256(code).digest() == digest:
            return code
        path.unlink(missing_ok=True)
        return None

    def store(self, key: str, code: bytes) -> None:
        """Keep `code` under `key`: whole or not at all, on disk before it is visible."""
        try:
            self.folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            if not self._is_private():
                return
            descriptor, name = tempfile.mkstemp(dir=self.folder)
        except OSError:
            return
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(code).digest() + code)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.folder / key)
        except OSError:
            Path(name).unlink(missing_ok=True)

    def _is_private(self) -> bool:
        """Whether the folder is the user's own and closed to others (code from it is run)."""
        if not hasattr(os, "getuid"):
            return True
        status = self.folder.stat()
        return status.st_uid == os.getuid() and not status.st_mode & 0o022
