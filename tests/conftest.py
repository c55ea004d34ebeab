"""Collects test files of every textual form that have a RUN line (tests/support/filecheck.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import filecheck
from tests.support import filecheck_commands as _registers_commands  # noqa: F401
from tests.support import llo_commands as _registers_llo_commands  # noqa: F401
from tpu_sim.isa.verification import VARIABLE

os.environ.setdefault(VARIABLE, "1")  # verify after every pass, and native code's IR
_SUFFIXES = (".hlo", ".llo", ".tpu", ".mlir")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite CHECK lines that fail")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.File | None:
    is_test = "filecheck" in file_path.parts and file_path.suffix in _SUFFIXES
    return CheckedFile.from_parent(parent, path=file_path) if is_test else None


class CheckedFile(pytest.File):
    def collect(self) -> Iterator[CheckedItem]:
        if filecheck.run_lines(self.path.read_text()):
            yield CheckedItem.from_parent(self, name=self.path.stem)


class CheckedItem(pytest.Item):
    def runtest(self) -> None:
        filecheck.run_file(self.path, update=self.config.getoption("--update"))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:  # type: ignore[override]
        if isinstance(excinfo.value, filecheck.FileCheckError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"filecheck: {self.path.name}"
