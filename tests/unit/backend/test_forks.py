"""Work that forked processes share, and that kernels made so are the same."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from compiler.backend.forks import may_fork, shared_out

ROOT = Path(__file__).resolve().parents[3]
NAMES = [f"n{number}" for number in range(37)]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")


@pytest.mark.parametrize("processes", [1, 2, 5, 40])
def test_every_name_is_done_once(processes: int) -> None:
    told: list[int] = []
    found = shared_out(NAMES, lambda name: (name, os.getpid()), processes, told.append)
    assert {name: first for name, (first, _) in found.items()} == dict(
        zip(NAMES, NAMES, strict=True)
    )
    assert told == sorted(told)
    assert set(told) <= set(range(38))


def test_nothing_to_do() -> None:
    assert shared_out([], str, 3) == {}


@pytest.mark.parametrize("processes", [1, 3])
def test_what_fails_is_left_to_the_caller(processes: int) -> None:
    def work(name: str) -> int:
        return 60 // (int(name[1:]) % 6)

    found = shared_out(NAMES, work, processes)
    assert found == {name: work(name) for name in NAMES if int(name[1:]) % 6}


def test_what_a_lost_process_made_is_left_to_the_caller() -> None:
    parent = os.getpid()

    def work(name: str) -> int:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return len(name)

    found = shared_out(NAMES, work, 2)
    assert found
    assert all(found[name] == len(name) for name in found)


def test_an_error_of_the_first_process_ends_the_others() -> None:
    parent = os.getpid()

    def work(name: str) -> int:
        if os.getpid() == parent:
            raise KeyboardInterrupt
        signal.pause()
        return 0

    with pytest.raises(KeyboardInterrupt):
        shared_out(NAMES, work, 3)
    assert multiprocessing.active_children() == []


def test_no_forks_beside_threads_of_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jaxlib", sys)
    assert not may_fork()


COMPARE = """
import sys
from pathlib import Path
import tpuc
from compiler.backend import kept_kernels
from compiler.options import CompileOptions

shared = kept_kernels.shared_out
counts = []
def counted(names, *rest):
    found = shared(names, *rest)
    counts.append((len(names), len(found)))
    return found
kept_kernels.shared_out = counted
kept_kernels._WORTH_FORKING = 2
model, target, folder = sys.argv[1:]
for processes in (1, 3):
    options = CompileOptions(processes=processes)
    tpuc.compile(Path(model), target, options=options).save(Path(folder) / f"{processes}.tpux")
asked, found = counts[0]
assert asked == found > 2, counts
"""


@pytest.mark.parametrize(
    ("model", "target"),
    [
        ("data/mlp_train_tiny.hlo", "v5e"),
        ("data/kmeans_tiny.hlo", "v4"),
        ("data/llama_fwd_scan_tiny.hlo", "v5e"),
        ("data/spmd_tp_mlp_train_tiny.mlir", "v5e:4x2"),
    ],
)
def test_a_program_is_the_same_however_many_make_it(
    model: str, target: str, tmp_path: Path
) -> None:
    arguments = [str(ROOT / "tests" / model), target, str(tmp_path)]
    environment = os.environ | {"TPUC_NO_CACHE": "1"}
    subprocess.run(
        [sys.executable, "-c", COMPARE, *arguments], check=True, env=environment, timeout=300
    )
    assert (tmp_path / "1.tpux").read_bytes() == (tmp_path / "3.tpux").read_bytes()
