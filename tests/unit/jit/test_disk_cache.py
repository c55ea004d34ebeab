"""Entries on disk: what comes back is what was stored, or nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from tpu_sim.jit.engine import Engine, detect_host
from tpu_sim.machine import disk_cache
from tpu_sim.machine.disk_cache import (
    CacheError,
    CacheWarning,
    DiskCache,
    cache_key,
    default_cache_folder,
    open_cache,
)

KEYS = [cache_key(str(number)) for number in range(16)]
KEY, OTHER, NOTHING = (cache_key(text) for text in ("key", "other", "nothing"))
IR = "define i32 @answer() #0 {\n ret i32 42\n}\n"


@pytest.fixture(autouse=True)
def _every_warning() -> None:
    disk_cache._warn_once.cache_clear()


def _age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_stored_content_is_loaded(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "objects")
    cache.store(KEY, b"code")
    cache.store(NOTHING, b"")
    assert cache.load(KEY) == b"code"
    assert cache.load(NOTHING) == b""
    assert cache.load(OTHER) is None
    cache.remove(KEY)
    assert cache.load(KEY) is None


@pytest.mark.parametrize("damage", ["flip", "truncate", "extend", "header", "empty"])
def test_damaged_entry_is_removed_and_missed(tmp_path: Path, damage: str) -> None:
    cache = DiskCache(tmp_path)
    tmp_path.chmod(0o700)
    cache.store(KEY, b"some code")
    path = tmp_path / KEY
    data = path.read_bytes()
    damaged = {
        "flip": data[:-1] + b"X", "truncate": data[:-3], "extend": data + b"X",
        "header": data[:20], "empty": b"",
    }  # fmt: skip
    path.write_bytes(damaged[damage])
    assert cache.load(KEY) is None
    assert not path.exists()


def test_folder_open_to_others_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    cache = DiskCache(folder)
    cache.store(KEY, b"code")
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.warns(CacheWarning, match="objects cannot be used: other users may write to it"):
        assert cache.load(KEY) is None
    cache.store(OTHER, b"code")
    assert not (folder / OTHER).exists()


def test_the_mode_of_a_folder_that_others_may_read_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    cache = DiskCache(folder)
    cache.store(KEY, b"code")
    assert cache.load(KEY) == b"code"
    assert folder.stat().st_mode & 0o777 == 0o755


def test_what_belongs_to_another_user_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = DiskCache(tmp_path / "objects")
    cache.store(KEY, b"code")
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    with pytest.warns(CacheWarning, match="belongs to another user"):
        assert cache.load(KEY) is None
    cache.store(OTHER, b"code")
    assert not (cache.folder / OTHER).exists()


def test_unwritable_folder_is_a_miss(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    cache = DiskCache(blocker / "objects")
    with pytest.warns(CacheWarning, match="Not a directory: nothing compiled is kept"):
        cache.store(KEY, b"code")
    assert cache.load(KEY) is None
    cache.store(KEY, b"code")  # said once


def test_the_entries_not_used_for_longest_go_first(tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    filler = DiskCache(folder, 1 << 20)
    for number in range(8):
        filler.store(KEYS[number], bytes(1000))
        _age(folder / KEYS[number], 5000 - 100 * number)
    assert filler.load(KEYS[0]) is not None  # used again: now the youngest
    small = DiskCache(folder, 6000)
    small.store(OTHER, bytes(1000))
    kept = {path.name for path in folder.iterdir()}
    assert {KEYS[0], OTHER} <= kept
    assert KEYS[1] not in kept
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 6000


def test_an_entry_larger_than_the_bound_is_not_stored(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "objects", 1000)
    cache.store(KEY, bytes(2000))
    assert cache.load(KEY) is None


def test_the_rests_of_killed_writers_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    folder.mkdir(mode=0o700)
    old, new = folder / ".part-old", folder / ".part-new"
    for path in (old, new):
        path.write_bytes(b"half")
    _age(old, 2 * 3600)
    DiskCache(folder).store(KEY, b"code")
    assert not old.exists()
    assert new.exists()


def _store_for_ever(folder: Path) -> None:
    cache = DiskCache(folder, 1 << 20)
    number = 0
    while True:
        cache.store(KEYS[number % 16], bytes([number % 251]) * 20_000)
        number += 1


def test_readers_see_whole_entries_while_writers_write_and_are_killed(tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=_store_for_ever, args=(folder,), daemon=True) for _ in range(2)
    ]
    for writer in writers:
        writer.start()
    reader = DiskCache(folder)
    found = 0
    try:
        while found < 200:
            assert any(writer.is_alive() for writer in writers), "they write for ever"
            for number in range(16):
                content = reader.load(KEYS[number])
                if content is not None:
                    assert len(content) == 20_000
                    assert content == content[:1] * 20_000
                    found += 1
    finally:
        for writer in writers:
            assert writer.pid is not None
            os.kill(writer.pid, signal.SIGKILL)
            writer.join()
    for path in folder.iterdir():
        if not path.name.startswith(".part-"):
            assert reader.load(path.name) is not None


def test_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TPUC_CACHE_DIR", str(tmp_path))
    assert default_cache_folder() == tmp_path / "tpuc-cache-v1"
    monkeypatch.setenv("TPUC_CACHE_MAX_MB", "7")
    assert DiskCache().max_bytes == 7 << 20
    monkeypatch.setenv("TPUC_CACHE_MAX_MB", "7 GB")
    with pytest.raises(CacheError, match="TPUC_CACHE_MAX_MB is '7 GB': want a whole number"):
        DiskCache()


def test_files_of_the_user_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPUC_CACHE_DIR", str(tmp_path))
    foreign = [tmp_path / "objects" / "mydata.bin", default_cache_folder() / "mydata.bin"]
    for path in foreign:
        path.parent.mkdir(mode=0o700)
        path.write_bytes(bytes(5000))
        _age(path, 10 * 3600)
    cache = DiskCache(max_bytes=3000)
    for key in KEYS:
        cache.store(key, bytes(1000))
    assert all(path.read_bytes() == bytes(5000) for path in foreign)
    assert 0 < sum(cache.load(key) is not None for key in KEYS) <= 3
    with pytest.raises(ValueError, match="no key"):
        cache.load("mydata.bin")


def test_the_environment_switches_it_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TPUC_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TPUC_NO_CACHE", raising=False)
    assert open_cache() is not None
    assert open_cache(wanted=False) is None
    monkeypatch.setenv("TPUC_NO_CACHE", "1")
    assert open_cache() is None


def test_keys_know_where_their_parts_end() -> None:
    assert cache_key("ab", "c") != cache_key("a", "bc")
    assert cache_key("ab") == cache_key(b"ab")


def test_engine_compiles_once_and_reads_back(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "objects")
    host = detect_host()
    code = Engine(host, cache).object_code(IR)
    assert [len(list((tmp_path / "objects").iterdir()))] == [1]
    assert Engine(host, cache).object_code(IR) == code
    assert Engine(host, None).link(code).address("answer") != 0


def test_key_depends_on_codegen_level(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "objects")
    for level in (0, 2):
        Engine(detect_host(), cache, level).object_code(IR)
    assert len(list((tmp_path / "objects").iterdir())) == 2
