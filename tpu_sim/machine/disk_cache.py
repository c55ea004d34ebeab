"""Results kept on disk by key: programs, tables and object code.

An entry is a header (magic, length and SHA-256 of the content) and the content. A file that does
not match its header is removed and its content made anew, so a torn or foreign file can cost time
but not correctness. Entries appear whole or not at all, whoever writes or is killed at the time.

The folder belongs to the user and is closed to others, because code from it is run; a folder or a
file of another owner is not read. It is bounded: entries not used for longest go first.

    TPUC_CACHE_DIR      where it lies, instead of the platform's folder for caches
    TPUC_CACHE_MAX_MB   its bound (2048)
    TPUC_NO_CACHE       anything but empty or 0: keep and read nothing
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"TPUCOBJ2"
_HEADER = struct.Struct("<8sQ32s")
_FOLDER_MODE = 0o700
_TEMPORARY_PREFIX = ".part-"
_DEFAULT_MAX_MB = 2048
_MB = 1 << 20
_KEPT_SHARE = 0.75
"""An eviction leaves this share of the bound, so that it is not needed again at once."""
_STALE_SECONDS = 3600.0
"""A temporary file this old is of a writer that was killed."""
_TOUCH_SECONDS = 600.0
"""An entry read this long after its last use is marked as used."""


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


def is_cache_wanted() -> bool:
    """Whether ``TPUC_NO_CACHE`` leaves the cache on."""
    return os.environ.get("TPUC_NO_CACHE", "") in ("", "0")


def open_cache(*, wanted: bool = True) -> DiskCache | None:
    """The user's cache; None when it is switched off, here or by the environment."""
    return DiskCache() if wanted and is_cache_wanted() else None


def cache_key(*parts: str | bytes) -> str:
    """The key of what is determined by `parts`; their lengths are part of it."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def _bound_from_environment() -> int:
    text = os.environ.get("TPUC_CACHE_MAX_MB", "")
    return (int(text) if text.isdecimal() else _DEFAULT_MAX_MB) * _MB


@dataclass(frozen=True)
class _Entry:
    path: Path
    used: float
    size: int


class DiskCache:
    """A folder of entries. Every failure to read or write is a miss, never an error.

    `max_bytes` bounds the folder; keys are hexadecimal digests (`cache_key`).
    """

    def __init__(self, folder: Path | None = None, max_bytes: int | None = None) -> None:
        self.folder = default_cache_folder() if folder is None else folder
        self.max_bytes = _bound_from_environment() if max_bytes is None else max_bytes
        self._unaccounted = self.max_bytes  # bytes stored since the last look at the folder

    def load(self, key: str) -> bytes | None:
        """The content stored under `key`, None if there is none that is whole and ours."""
        path = self.folder / key
        try:
            if not self._is_private():
                return None
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                if hasattr(os, "getuid") and status.st_uid != os.getuid():
                    return None
                header, content = file.read(_HEADER.size), file.read()
        except OSError:
            return None
        if not _is_whole(header, content):
            path.unlink(missing_ok=True)
            return None
        if time.time() - status.st_mtime > _TOUCH_SECONDS:
            with contextlib.suppress(OSError):
                os.utime(path)
        return content

    def store(self, key: str, content: bytes) -> None:
        """Keep `content` under `key`: whole or not at all, on disk before it is visible."""
        if len(content) > self.max_bytes * _KEPT_SHARE:
            return
        try:
            self.folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            if not self._is_private():
                return
            descriptor, name = tempfile.mkstemp(prefix=_TEMPORARY_PREFIX, dir=self.folder)
        except OSError:
            return
        try:
            with os.fdopen(descriptor, "wb") as file:
                digest = hashlib.sha256(content).digest()
                file.write(_HEADER.pack(_MAGIC, len(content), digest))
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.folder / key)
        except BaseException as error:
            Path(name).unlink(missing_ok=True)
            if not isinstance(error, OSError):
                raise
            return
        self._account(len(content))

    def remove(self, key: str) -> None:
        """Forget an entry that its reader cannot use."""
        with contextlib.suppress(OSError):
            (self.folder / key).unlink(missing_ok=True)

    def _is_private(self) -> bool:
        """Whether the folder is the user's own and closed to others (code from it is run).

        One that others may only read is closed; one that others may write is not trusted.
        """
        if not hasattr(os, "getuid"):
            return True
        status = self.folder.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            return False
        if status.st_mode & 0o077:
            self.folder.chmod(_FOLDER_MODE)
        return True

    def _account(self, size_bytes: int) -> None:
        """Look at the whole folder on the first store and then after each tenth of the bound."""
        self._unaccounted += size_bytes
        if self._unaccounted >= self.max_bytes // 10:
            self._unaccounted = 0
            self._evict()

    def _evict(self) -> None:
        """Remove files of killed writers; past the bound, the entries not used for longest."""
        entries = self._entries()
        total = sum(entry.size for entry in entries)
        if total <= self.max_bytes:
            return
        for entry in sorted(entries, key=lambda entry: entry.used):
            if total <= self.max_bytes * _KEPT_SHARE:
                return
            with contextlib.suppress(OSError):
                entry.path.unlink(missing_ok=True)
            total -= entry.size

    def _entries(self) -> list[_Entry]:
        """What is in the folder; another process may be adding and removing meanwhile."""
        found: list[_Entry] = []
        stale = time.time() - _STALE_SECONDS
        with contextlib.suppress(OSError), os.scandir(self.folder) as items:
            for item in items:
                with contextlib.suppress(OSError):
                    status = item.stat(follow_symlinks=False)
                    if item.name.startswith(_TEMPORARY_PREFIX) and status.st_mtime < stale:
                        os.unlink(item.path)
                    else:
                        found.append(_Entry(Path(item.path), status.st_mtime, status.st_size))
        return found


def _is_whole(header: bytes, content: bytes) -> bool:
    if len(header) != _HEADER.size:
        return False
    magic, length, digest = _HEADER.unpack(header)
    if magic != _MAGIC or length != len(content):
        return False
    return bool(hashlib.sha256(content).digest() == digest)
