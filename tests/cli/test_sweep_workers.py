"""``tpuc sweep --workers``: variants of a chip estimated as tasks of a Ray cluster."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compiler.diagnostics import CompileError
from runtime import tasks
from runtime.tasks import call_on_workers
from runtime.workers import WorkerChoice, WorkerLostError
from tests.support.command_line import MODEL, Call
from tests.support.ray_cluster import local_cluster
from tpuc.commands.models import standard_input

TWO = WorkerChoice(2, None)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """One Ray for all tests: to start it takes some seconds."""
    with local_cluster(2) as ray:
        yield ray


def kept_by(path: Path) -> dict[tuple[str, str], dict[str, object]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {(line["model"], line["target"]): line for line in lines}


def test_workers_find_what_processes_find(cluster: Any, call: Call, tmp_path: Path) -> None:
    """Of a chip file and with a model that is none, neither of which a worker has a file of."""
    model, bad, chip = tmp_path / "m.hlo", tmp_path / "bad.hlo", tmp_path / "mine.toml"
    model.write_text(MODEL)
    bad.write_text("hello world")
    chip.write_text('base = "v5e"\n[latencies]\neup = {value = 40, provenance = "assumed"}\n')
    arguments = ["sweep", model, bad, "--target", chip, "--set", "hbm_bandwidth=100,800GB/s"]
    arguments += ["--set", "vregs=32,48", "--json", "--results"]
    here = call(*arguments, tmp_path / "here.jsonl", "--jobs", "1")
    there = call(*arguments, tmp_path / "there.jsonl", "--workers", "2")
    assert there.out == here.out and there.code == here.code == 1, there.err
    mine, theirs = kept_by(tmp_path / "here.jsonl"), kept_by(tmp_path / "there.jsonl")
    assert theirs == mine and len(mine) == 10
    assert sum(bool(line["error"]) for line in mine.values()) == 5


def test_what_is_kept_is_not_estimated_again(
    cluster: Any, call: Call, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept.jsonl"
    arguments = ["sweep", model, "--set", "vregs=32,48", "--results", kept, "--json"]
    first = call(*arguments, "--workers", "2")
    assert first.code == 0, first.err
    lines = kept.read_text().splitlines()
    kept.write_text("\n".join([*lines[:2], lines[2][:20]]))  # killed while writing
    assert call(*arguments, "--workers", "2").out == first.out
    assert len(kept.read_text().splitlines()) == 4
    monkeypatch.setitem(sys.modules, "ray", None)  # all is known: there is no need of a cluster
    assert call(*arguments, "--workers", "2").out == first.out


def test_standard_input_goes_to_the_workers(
    cluster: Any, call: Call, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with model.open() as piped:
        monkeypatch.setattr("sys.stdin", piped)
        standard_input.cache_clear()
        done = call("sweep", "-", "--set", "vregs=32", "--workers", "2", "--json")
    standard_input.cache_clear()
    assert done.code == 0, done.err
    named = json.loads(call("sweep", model, "--set", "vregs=32", "--jobs", "1", "--json").out)
    piped_in = json.loads(done.out)["variants"]
    seconds = [variant["models"][0]["seconds"] for variant in piped_in]
    assert seconds == [variant["models"][0]["seconds"] for variant in named["variants"]]


def dying(mark: str) -> Callable[[int], tuple[int, int]]:
    """A function of workers, which have no module of tests: it is sent whole."""

    def die_once(number: int) -> tuple[int, int]:
        with open(mark, "a") as marks:
            marks.write("x")
        if number == 1 and os.path.getsize(mark) < 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number, number * number

    return die_once


def test_a_lost_workers_call_is_made_again(cluster: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    one_at_a_time = WorkerChoice(1, None)
    found = dict(call_on_workers(dying(str(mark)), [(0,), (1,), (2,)], one_at_a_time))
    assert found == {0: 0, 1: 1, 2: 4}
    assert len(mark.read_text()) == 4, "the second call was made twice"


def test_a_call_that_loses_every_worker_is_an_error(cluster: Any) -> None:
    def die(number: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pytest.raises(WorkerLostError, match="4 workers were lost over the same call"):
        list(call_on_workers(die, [(0,)], TWO))


def test_what_a_worker_raises_is_raised_here(cluster: Any) -> None:
    def divide(number: int) -> float:
        return 1 / number

    with pytest.raises(ZeroDivisionError):
        list(call_on_workers(divide, [(1,), (0,)], TWO))


def test_a_host_with_another_tpuc_is_refused(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "source_digest", lambda *packages: "another")
    with pytest.raises(CompileError, match="has another version of tpuc"):
        list(call_on_workers(abs, [(1,)], TWO))


def test_a_cluster_without_processors_is_named(
    cluster: Any, call: Call, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray itself would wait for one for ever."""
    ray = importlib.import_module("ray")
    monkeypatch.setattr(tasks, "_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(tasks, "_LOOK_EVERY_SECONDS", 0.1)
    monkeypatch.setattr(ray, "wait", lambda running, **_: ([], running))
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"node:head": 1.0})
    done = call("sweep", model, "--set", "vregs=32", "--workers", "2")
    assert (done.code, done.out) == (1, "")
    assert "no processor" in done.err and done.err.count("\n") == 1


def test_without_ray_workers_are_refused(
    call: Call, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = call("sweep", model, "--set", "vregs=32", "--workers", "2")
    assert (done.code, done.out) == (1, "")
    assert done.err == "error: workers need the package ray: pip install 'tpuc[ray]'\n"


def test_other_workers_are_a_usage_error(call: Call, model: Path) -> None:
    done = call("sweep", model, "--set", "vregs=32", "--workers", "4x")
    assert done.code == 2 and "want a number, a Ray address" in done.err
    done = call("sweep", model, "--set", "vregs=32", "--workers", "2", "--jobs", "2")
    assert done.code == 2 and "give one of them" in done.err


def test_a_sweep_that_is_killed_goes_on(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="workers need the package ray: pip install 'tpuc[ray]'")
    kept = tmp_path / "kept.jsonl"
    values = ",".join(map(str, range(24, 56)))
    command = [sys.executable, "-m", "tpuc", "sweep", str(model), "--set", f"vregs={values}"]
    command += ["--workers", "2", "--results", str(kept), "--json"]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **quiet) as driver:  # type: ignore[call-overload]
        end = time.monotonic() + 90
        while not kept.exists() or kept.read_text().count("\n") < 3:
            assert driver.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        driver.kill()
    before = kept.read_text().count("\n")
    assert 3 <= before < 33
    done = subprocess.run(command, timeout=120, check=False, **quiet)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["variants"]) == 33
    assert len(kept_by(kept)) == 33, "each once"
    assert kept.read_text().count("\n") in (33, 34), "but for the line that the kill cut off"
