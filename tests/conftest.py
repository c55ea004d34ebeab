"""Collects test files of every textual form that have a RUN line (tests/support/filecheck.py).

No test may depend on time, on tests before it, or on what the user's cache holds: see below.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from compiler.hlo import host_types
from tests.support import debug_commands as _registers_debug_commands  # noqa: F401
from tests.support import filecheck
from tests.support import filecheck_commands as _registers_commands  # noqa: F401
from tests.support import llo_commands as _registers_llo_commands  # noqa: F401
from tpu_sim.isa.verification import VARIABLE
from tpu_sim.machine import disk_cache

os.environ.setdefault(VARIABLE, "1")  # verify after every pass, and native code's IR
# The user's own cache may be full, closed or switched off; this one is kept between runs.
os.environ.setdefault("TPUC_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "tpuc"))

# The same examples each time, however slow the computer is; a failure prints how to repeat it.
hypothesis_settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
hypothesis_settings.load_profile("repeatable")

_SUFFIXES = (".hlo", ".llo", ".tpu", ".mlir", ".dbg")


@pytest.fixture(autouse=True)
def _warnings_are_new_to_every_test() -> None:
    """What is said once in a process is said to any test, not to the first alone."""
    host_types._warn_about_f64_once.cache_clear()
    disk_cache._warn_once.cache_clear()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update",
        action="store_true",
        help="rewrite CHECK lines that fail, add opcodes to their list",
    )


@pytest.fixture
def is_updating(request: pytest.FixtureRequest) -> bool:
    """Whether files that are made from tables are to be written anew."""
    return bool(request.config.getoption("--update"))


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
