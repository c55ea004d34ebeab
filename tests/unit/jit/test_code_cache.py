"""Object code on disk: what comes back is what was stored, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpu_sim.jit.code_cache import CodeCache, default_cache_folder
from tpu_sim.jit.engine import Engine, detect_host

IR = "define i32 @answer() #0 {\n ret i32 42\n}\n"


def test_stored_code_is_loaded(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path / "objects")
    cache.store("key", b"code")
    assert cache.load("key") == b"code"
    assert cache.load("other") is None


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty"])
def test_damaged_entry_is_removed_and_missed(tmp_path: Path, damage: str) -> None:
    cache = CodeCache(tmp_path)
    tmp_path.chmod(0o700)
    cache.store("key", b"some code")
    path = tmp_path / "key"
    data = path.read_bytes()
    path.write_bytes({"flip": data[:-1] + b"X", "truncate": data[:20], "empty": b""}[damage])
    assert cache.load("key") is None
    assert not path.exists()


def test_folder_open_to_others_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    cache = CodeCache(folder)
    cache.store("key", b"code")
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert cache.load("key") is None
    cache.store("more", b"code")
    assert not (folder / "more").exists()


def test_unwritable_folder_is_a_miss(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    cache = CodeCache(blocker / "objects")
    cache.store("key", b"code")
    assert cache.load("key") is None


def test_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TPUC_CACHE_DIR", str(tmp_path))
    assert default_cache_folder() == tmp_path / "objects"


def test_engine_compiles_once_and_reads_back(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path / "objects")
    host = detect_host()
    code = Engine(host, cache).object_code(IR)
    assert [len(list((tmp_path / "objects").iterdir()))] == [1]
    assert Engine(host, cache).object_code(IR) == code
    assert Engine(host, None).link(code).address("answer") != 0


def test_key_depends_on_codegen_level(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path / "objects")
    for level in (0, 2):
        Engine(detect_host(), cache, level).object_code(IR)
    assert len(list((tmp_path / "objects").iterdir())) == 2
