"""Results kept on disk by key: programs, tables and object code.

An entry is a header (magic, length and SHA-256 of the content) and the content. A file that does
not match its header is removed and its content made anew, so a torn or foreign file can cost time
but not correctness. Entries appear whole or not at all, whoever writes or is killed at the time.

Entries lie in a folder of their own, made closed to others, because code from it is run; a folder
that others may write to and a file of another owner are not read. It is bounded: entries not used
for longest go first, and files with other names than entries have are left alone. When nothing can
be kept, one `CacheWarning` in a process says so and why.

    TPUC_CACHE_DIR      in which folder it lies, instead of the platform's folder for caches
    TPUC_CACHE_MAX_MB   its bound (2048), a whole number
    TPUC_NO_CACHE       anything but empty or 0: keep and read nothing
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import struct
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tpu_sim.isa.errors import TpucError

_MAGIC = b"TPUCOBJ2"
_HEADER = struct.Struct("<8sQ32s")
_FOLDER_MODE = 0o700
_OWN_FOLDER = "tpuc-cache-v1"
_TEMPORARY_PREFIX = ".part-"
_TEMPORARY_NAME = re.compile(r"\.part-[a-z0-9_]+")  # as `tempfile` makes them
_ENTRY_NAME = re.compile(r"[0-9a-f]{64}")
_DEFAULT_MAX_MB = 2048
_MB = 1 << 20
_KEPT_SHARE = 0.75
"""An eviction leaves this share of the bound, so that it is not needed again at once."""
_STALE_SECONDS = 3600.0
"""A temporary file this old is of a writer that was killed."""
_TOUCH_SECONDS = 600.0
"""An entry read this long after its last use is marked as used."""


class CacheError(TpucError, ValueError):
    """The environment asks for a cache that cannot be."""


class CacheWarning(UserWarning):
    """Nothing is kept on disk."""


def default_cache_folder() -> Path:
    """A folder of our own in ``$TPUC_CACHE_DIR``, or in the platform's folder for caches."""
    chosen = os.environ.get("TPUC_CACHE_DIR")
    if chosen:
        return Path(chosen) / _OWN_FOLDER
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "tpuc" / _OWN_FOLDER


def is_cache_wanted() -> bool:
    """Whether ``TPUC_NO_CACHE`` leaves the cache on."""
    return os.environ.get("TPUC_NO_CACHE", "") in ("", "0")


def open_cache(*, wanted: bool = True) -> DiskCache | None:
    """The user's cache; None when it is switched off, here or by the environment.

    It is one object for each folder and bound: looking at the whole folder counts from its first store.
    """
    if not wanted or not is_cache_wanted():
        return None
    return _opened(default_cache_folder(), _bound_from_environment())


def cache_key(*parts: str | bytes) -> str:
    """The key of what is determined by `parts`; their lengths are part of it."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def _bound_from_environment() -> int:
    text = os.environ.get("TPUC_CACHE_MAX_MB", "").strip()
    if text and not text.isdecimal():
        raise CacheError(f"TPUC_CACHE_MAX_MB is {text!r}: want a whole number of megabytes")
    return (int(text) if text else _DEFAULT_MAX_MB) * _MB


@cache
def _opened(folder: Path, max_bytes: int) -> DiskCache:
    return DiskCache(folder, max_bytes)


@cache
def _warn_once(why: str) -> None:
    wanted = "set TPUC_CACHE_DIR to a folder of your own, or TPUC_NO_CACHE=1"
    message = f"{why}: nothing compiled is kept; {wanted}"
    warnings.warn(message, CacheWarning, stacklevel=2)


@dataclass(frozen=True)
class _Entry:
    path: Path
    used: float
    size: int


class DiskCache:
    """A folder of entries. Every failure to read or write is a miss, never an error.

    `max_bytes` bounds the folder; keys are those of `cache_key`, any other is a `ValueError`.
    """

    def __init__(self, folder: Path | None = None, max_bytes: int | None = None) -> None:
        self.folder = default_cache_folder() if folder is None else folder
        self.max_bytes = _bound_from_environment() if max_bytes is None else max_bytes
        self._unaccounted = self.max_bytes  # bytes stored since the last look at the folder

    def load(self, key: str) -> bytes | None:
        """The content stored under `key`, None if there is none that is whole and ours."""
        path = self._path(key)
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
        """Keep `content` under `key`: whole or not at all; what a power cut tears is no entry."""
        if len(content) > self.max_bytes * _KEPT_SHARE:
            return
        path = self._path(key)
        try:
            self.folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            if not self._is_private():
                return
            descriptor, name = tempfile.mkstemp(prefix=_TEMPORARY_PREFIX, dir=self.folder)
        except OSError as error:
            self._warn(error.strerror or str(error))
            return
        try:
            with os.fdopen(descriptor, "wb") as file:
                digest = hashlib.sha256(content).digest()
                file.write(_HEADER.pack(_MAGIC, len(content), digest))
                file.write(content)
            os.replace(name, path)
        except BaseException as error:
            Path(name).unlink(missing_ok=True)
            if not isinstance(error, OSError):
                raise
            self._warn(error.strerror or str(error))
            return
        self._account(len(content))

    def remove(self, key: str) -> None:
        """Forget an entry that its reader cannot use."""
        with contextlib.suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        if not _ENTRY_NAME.fullmatch(key):
            raise ValueError(f"{key!r} is no key of cache_key")
        return self.folder / key

    def _warn(self, why: str) -> None:
        _warn_once(f"the cache folder {self.folder} cannot be used: {why}")

    def _is_private(self) -> bool:
        """Whether the folder is the user's own and others cannot write (code from it is run)."""
        if not hasattr(os, "getuid"):
            return True
        status = self.folder.stat()
        if status.st_uid != os.getuid():
            self._warn("it belongs to another user")
            return False
        if status.st_mode & 0o022:
            self._warn("other users may write to it")
            return False
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
        """Our files in the folder; another process may be adding and removing meanwhile."""
        found: list[_Entry] = []
        stale = time.time() - _STALE_SECONDS
        with contextlib.suppress(OSError), os.scandir(self.folder) as items:
            for item in items:
                with contextlib.suppress(OSError):
                    status = item.stat(follow_symlinks=False)
                    is_temporary = _TEMPORARY_NAME.fullmatch(item.name) is not None
                    if is_temporary and status.st_mtime < stale:
                        os.unlink(item.path)
                    elif is_temporary or _ENTRY_NAME.fullmatch(item.name):
                        found.append(_Entry(Path(item.path), status.st_mtime, status.st_size))
        return found


def _is_whole(header: bytes, content: bytes) -> bool:
    if len(header) != _HEADER.size:
        return False
    magic, length, digest = _HEADER.unpack(header)
    if magic != _MAGIC or length != len(content):
        return False
    return bool(hashlib.sha256(content).digest() == digest)
