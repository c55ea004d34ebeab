"""The digest of our own source: it changes with it, and only what was loaded is spoken for."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from tpu_sim.isa import source_digest as module


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree with one package."""
    monkeypatch.setattr(module, "_ROOT", tmp_path)
    inner = tmp_path / "package" / "inner"
    inner.mkdir(parents=True)
    (inner / "a.py").write_text("x = 1\n")
    (tmp_path / "package" / "data.toml").write_text("y = 2\n")
    return tmp_path


def digest() -> str:
    return module.source_digest.__wrapped__("package")


def test_it_changes_with_content_and_names_only(root: Path) -> None:
    first = digest()
    os.utime(root / "package" / "data.toml", (0, 0))
    (root / "package" / "__pycache__").mkdir()
    (root / "package" / "__pycache__" / "a.pyc").write_bytes(b"compiled")
    assert digest() == first
    (root / "package" / "data.toml").write_text("y = 3\n")
    second = digest()
    assert second != first
    (root / "package" / "data.toml").rename(root / "package" / "other.toml")
    assert digest() not in (first, second)


def test_a_package_without_source_is_an_error(root: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no source of missing"):
        module.source_digest("missing")


def test_a_change_since_the_start_is_noticed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STARTED", time.time() + 1)
    monkeypatch.setattr(module, "_as_at_first", set())
    module._data_at_first.cache_clear()
    later = time.time() + 10

    def loaded(name: str, file: Path) -> None:
        made = ModuleType(name)
        made.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, made)

    (root / "package" / "a.py").write_text("z = 3\n")
    loaded("package.a", root / "package" / "a.py")
    assert module.is_source_as_loaded("package")
    os.utime(root / "package" / "a.py", (later, later))
    os.utime(root / "package" / "inner" / "a.py", (later, later))
    assert module.is_source_as_loaded("package"), "what was loaded before is what ran"
    loaded("package.inner.a", root / "package" / "inner" / "a.py")
    assert not module.is_source_as_loaded("package")
    assert not module.is_source_as_loaded("package"), "nor later"


def test_a_changed_data_file_is_noticed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STARTED", time.time() + 1)
    module._data_at_first.cache_clear()
    assert module.is_source_as_loaded("package")
    later = time.time() + 10
    os.utime(root / "package" / "data.toml", (later, later))
    assert not module.is_source_as_loaded("package")
