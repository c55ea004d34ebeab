"""A slice on workers, which are Ray actors: the values and cycles of one process, and clear ends."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuc
from compiler.diagnostics import CompileError, UnsupportedError
from runtime.machines import MachineOptions
from runtime.workers import SpreadExecutable, WorkerChoice, WorkerLostError, connect
from tests.support.command_line import Call
from tests.support.ray_cluster import local_cluster
from tpu_sim.machine.faults import CycleLimitFault

TARGET = "v5e:2x2"
LOOP = """HloModule m, replica_count=4
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
test { s = (s32[], f32[96,300]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3) ROOT r = pred[] compare(i, n), direction=LT }
turn { s = (s32[], f32[96,300]) parameter(0) i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1) j = s32[] add(i, one) x = f32[96,300] get-tuple-element(s), index=1
  sent = f32[96,300] collective-permute(x), source_target_pairs={{0,1},{1,3},{3,2}}
  sum = f32[96,300] all-reduce(sent), replica_groups={{0,1},{2,3}}, to_apply=add
  y = f32[96,300] tanh(sum) ROOT r = (s32[], f32[96,300]) tuple(j, y) }
ENTRY main { x = f32[96,300] parameter(0) zero = s32[] constant(0)
  start = (s32[], f32[96,300]) tuple(zero, x)
  end = (s32[], f32[96,300]) while(start), condition=test, body=turn
  y = f32[96,300] get-tuple-element(end), index=1
  ROOT g = f32[96,1200] all-gather(y), replica_groups={}, dimensions={1} }
"""
X = np.random.default_rng(0).normal(size=(4, 96, 300)).astype(np.float32)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """One Ray for all tests: to start it takes some seconds."""
    with local_cluster(1) as ray:
        yield ray


def on_workers(workers: str, **options: Any) -> SpreadExecutable:
    machine = MachineOptions(threads=2, **options)
    found = tpuc.compile(LOOP, target=TARGET, workers=workers, machine=machine)
    assert isinstance(found, SpreadExecutable)
    return found


@pytest.mark.parametrize("machine", ["llvm", "numpy"])
def test_workers_have_the_values_cycles_and_report_of_one_process(
    cluster: Any, machine: str
) -> None:
    one = tpuc.compile(LOOP, target=TARGET, machine=MachineOptions(machine=machine))
    (wanted,) = one(X)
    several = on_workers("3", machine=machine)
    told: list[str] = []
    several.tell = told.append
    for _ in range(2):  # what the first call left behind is no matter
        (got,) = several(X)
        np.testing.assert_array_equal(got, wanted)
    assert several.cores == one.cores  # type: ignore[attr-defined]
    mine, theirs = several.report, one.report
    assert mine is not None and theirs is not None
    assert (mine.cycles, mine.links) == (theirs.cycles, theirs.links)
    assert len(set(several.group.process_ids)) == 3
    assert told and "of 4 devices done" in told[0] and "cycle" in told[0]
    several.group.close()


def test_a_lost_worker_is_named_and_the_call_can_be_made_again(cluster: Any) -> None:
    several = on_workers("2")
    (wanted,) = several(X)
    victim = several.group.process_ids[1]

    def kill(_: str) -> None:
        # The call goes on telling until it notices the loss, and by then the process is gone.
        several.tell = None
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)

    several.tell = kill
    with pytest.raises(
        WorkerLostError, match="worker 2 of 2, which has devices 2 to 3, was lost at cycle"
    ):
        several(X)
    (again,) = several(X)
    np.testing.assert_array_equal(again, wanted)
    assert victim not in several.group.process_ids
    several.group.close()


def test_a_fault_on_a_worker_is_the_fault(cluster: Any) -> None:
    several = on_workers("2", max_cycles=20_000)
    with pytest.raises(CycleLimitFault, match="the run passed 20000 cycles") as caught:
        several(X)
    assert "on core" in caught.value.__notes__[0]


def test_the_command_writes_what_one_process_writes(
    cluster: Any, call: Call, tmp_path: Path
) -> None:
    (tmp_path / "m.hlo").write_text(LOOP)
    options = ("run", tmp_path / "m.hlo", "--target", TARGET, "--outputs")
    assert call(*options, tmp_path / "one.npz").code == 0
    done = call(*options, tmp_path / "two.npz", "--workers", "2")
    assert done.code == 0, done.err
    with np.load(tmp_path / "one.npz") as one, np.load(tmp_path / "two.npz") as two:
        np.testing.assert_array_equal(one["out0"], two["out0"])


def test_without_ray_workers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'tpuc\[ray\]'"):
        on_workers("2")


@pytest.mark.parametrize(
    ("mode", "hint"),
    [
        ("", "if the cluster asks for a token, set RAY_AUTH_MODE=token"),
        ("token", "is the token in ~/.ray/auth_token or RAY_AUTH_TOKEN that of the cluster?"),
    ],
)
def test_a_cluster_that_cannot_be_joined_is_one_line(
    mode: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")

    def refused(*_: object, **__: object) -> None:
        raise ray.exceptions.RaySystemError("a traceback\nno such token")

    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refused)
    with pytest.raises(CompileError) as caught:
        connect(ray, WorkerChoice(None, "ray://head:1"))
    message = str(caught.value)
    assert message.startswith("cannot connect to Ray (ray://head:1): ") and "\n" not in message
    assert "no such token" in message and hint in message


def test_a_program_of_one_device_has_nothing_to_share() -> None:
    text = "HloModule m\nENTRY e { ROOT p = f32[4] parameter(0) }"
    with pytest.raises(CompileError, match="this program is for one device"):
        tpuc.compile(text, workers="2")


@pytest.mark.parametrize(
    ("text", "count", "address"),
    [
        ("4", 4, None),
        ("auto", None, "auto"),
        ("16@ray://h:1", 16, "ray://h:1"),
        ("10.0.0.1:6379", None, "10.0.0.1:6379"),
    ],
)
def test_workers_are_a_number_an_address_or_both(
    text: str, count: int | None, address: str | None
) -> None:
    assert WorkerChoice.parse(text) == WorkerChoice(count, address)


@pytest.mark.parametrize("text", ["0", "-1", "4x", "", "4@", "x@auto"])
def test_other_workers_are_a_usage_error(text: str, call: Call, tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(LOOP)
    done = call("run", tmp_path / "m.hlo", "--target", TARGET, "--workers", text)
    assert done.code == 2
    assert "want a number, a Ray address" in done.err
