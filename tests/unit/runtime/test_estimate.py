"""Estimates cost what runs cost; reports and traces account for every cycle."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from runtime.api import compile
from runtime.executable import Executable
from runtime.machines import MachineOptions
from runtime.report import Report, build_report
from runtime.trace import trace_events
from tpu_sim.machine.faults import CycleLimitFault
from tpu_sim.machine.result import RunTotals
from tpuc.arrays import load_arrays
from tpuc.cli import cli

DATA = Path(__file__).resolve().parents[2] / "data"
STATIC_MODELS = ("gpt2_fwd", "kmeans", "llama_fwd_scan", "mlp_train")


@cache
def executed(model: str) -> tuple[Executable, Report]:
    """A tiny model, run once on its own inputs."""
    executable = compile(DATA / f"{model}_tiny.hlo")
    shapes = [port.shape for port in executable.inputs]
    executable(*load_arrays(str(DATA / f"{model}_tiny.npz"), "in", shapes))
    assert executable.report is not None
    return executable, executable.report


@pytest.mark.parametrize("model", STATIC_MODELS)
def test_an_estimate_is_the_run_without_values(model: str) -> None:
    executable, run = executed(model)
    estimate = executable.estimate()
    assert estimate.kernels == run.kernels
    assert (estimate.cycles, estimate.causes) == (run.cycles, run.causes)
    assert estimate.assumed_loops == ()


def test_an_estimate_leaves_the_report_of_the_run() -> None:
    executable, run = executed("mlp_train")
    executable.estimate()
    assert executable.report is run


def test_loops_on_data_take_the_given_trip_count() -> None:
    executable, run = executed("cg_while")
    calls = max(kernel.calls for kernel in run.kernels)
    right, wrong = executable.estimate(calls), executable.estimate(calls + 1)
    assert (right.cycles, right.kernels) == (run.cycles, run.kernels)
    assert wrong.cycles > run.cycles
    assert right.assumed_trips == calls
    assert len(right.assumed_loops) == 1
    with pytest.raises(ValueError, match="trips"):
        executable.estimate(-1)


def test_an_estimate_keeps_the_cycle_limit() -> None:
    executable, _ = executed("mlp_train")
    limited = Executable(executable.program, executable.device, MachineOptions(max_cycles=100))
    with pytest.raises(CycleLimitFault):
        limited.estimate()


CUSTOM_KERNELS = """HloModule custom
add { p = f32[] parameter(0)
      q = f32[] parameter(1)
      ROOT r = f32[] add(p, q) }
less { a = f32[] parameter(0)
       b = f32[] parameter(1)
       ROOT c = pred[] compare(a, b), direction=LT }
ENTRY main {
  table = f32[256,64] parameter(0)
  rows = s32[40,1] parameter(1)
  taken = f32[40,64] gather(table, rows), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,64}
  sums = f32[256,64] scatter(table, rows, taken), update_window_dims={1},
    inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
  ROOT sorted = f32[256,64] sort(sums), dimensions={0}, to_apply=less
}
"""


@cache
def executed_custom() -> tuple[Executable, Report]:
    executable = compile(CUSTOM_KERNELS)
    rng = np.random.default_rng(3)
    table = rng.normal(size=(256, 64)).astype(np.float32)
    executable(table, rng.integers(0, 256, (40, 1)).astype(np.int32))
    assert executable.report is not None
    return executable, executable.report


@pytest.mark.parametrize("model", [*STATIC_MODELS, "cg_while", "mandelbrot_while", "custom"])
def test_causes_add_up_to_the_cycles(model: str) -> None:
    _, report = executed_custom() if model == "custom" else executed(model)
    if model == "custom":
        assert any("kCustom" in kernel.note for kernel in report.kernels)
    assert sum(report.causes.values()) == report.cycles
    for kernel in report.kernels:
        assert sum(kernel.causes.values()) == kernel.cycles
        assert kernel.causes[kernel.bound_by] == max(kernel.causes.values())
        assert kernel.roofline in ("hbm", "mxu", "none")
        assert 0 <= kernel.roofline_share <= 1


def test_a_trace_shows_every_call_and_every_cycle_of_it(tmp_path: Path) -> None:
    executable, report = executed("gpt2_fwd")
    executable.estimate()
    path = tmp_path / "trace.json"
    executable.write_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices = [e for e in events if e["ph"] == "X"]
    calls = [e for e in slices if tracks[e["tid"]] == "program"]
    units = [e for e in slices if tracks[e["tid"]] != "program"]
    assert len(calls) == sum(kernel.calls for kernel in report.kernels)
    assert sum(e["args"]["cycles"] for e in units) == sum(e["args"]["cycles"] for e in calls)
    ends = [e["ts"] + e["dur"] for e in calls]
    assert all(e["ts"] >= end - 1e-9 for e, end in zip(calls[1:], ends, strict=False))
    assert ends[-1] <= report.seconds * 1e6 + 1e-6
    counters = [e for e in events if e["ph"] == "C" and e["name"] == "HBM traffic"]
    assert max(e["args"]["GB/s"] for e in counters) <= 819.0
    assert counters[-1]["args"]["GB/s"] == 0


def test_units_have_slices_named_by_kernel() -> None:
    executable, report = executed("gpt2_fwd")
    executable.estimate()
    assert executable._result is not None
    events = list(trace_events(executable.program, executable.device.chip, executable._result))
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    names = {kernel.name for kernel in report.kernels}
    for track in ("program", "MXU", "vector", "scalar", "wait for DMA in", "wait for DMA out"):
        slices = [e for e in events if e["ph"] == "X" and tracks[e["tid"]] == track]
        assert slices and {e["name"] for e in slices} <= names


def test_many_calls_share_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    executable, report = executed("gpt2_fwd")
    executable.estimate()
    assert executable._result is not None
    monkeypatch.setattr("runtime.trace.MOST_CALLS", 5)
    events = list(trace_events(executable.program, executable.device.chip, executable._result))
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    calls = [e for e in events if e["ph"] == "X" and tracks[e["tid"]] == "program"]
    units = [e for e in events if e["ph"] == "X" and tracks[e["tid"]] != "program"]
    total = sum(kernel.cycles for kernel in report.kernels)
    assert len(calls) <= 5 < sum(kernel.calls for kernel in report.kernels)
    assert sum(e["args"]["cycles"] for e in calls) == total
    assert sum(e["args"]["cycles"] for e in units) == total


def test_calls_without_records_are_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    executable, report = executed("gpt2_fwd")
    executable.estimate()
    assert executable._result is not None
    runs = executable._result.kernels
    totals = RunTotals()
    for run in runs[4:]:
        totals.add(run)
    result = replace(executable._result, kernels=(*runs[:4], *totals.runs()))
    monkeypatch.setattr("runtime.trace.MOST_RECORDS", 4)
    events = list(trace_events(executable.program, executable.device.chip, result))
    calls = [e for e in events if e["ph"] == "X" and e["tid"] == 1]
    assert len(calls) == 5
    assert calls[-1]["args"]["what"] == f"{len(runs) - 4} calls added up"
    assert sum(e["args"]["cycles"] for e in calls) == sum(k.cycles for k in report.kernels)
    summed = build_report(executable.program, executable.device.chip, result, 0, 0, {})
    assert {k.name: k for k in summed.kernels} == {k.name: k for k in report.kernels}
    assert summed.mxu_utilisation == report.mxu_utilisation


def test_there_is_nothing_to_trace_before_a_call(tmp_path: Path) -> None:
    executable, _ = executed("mlp_train")
    with pytest.raises(ValueError, match="nothing to trace"):
        Executable(executable.program, executable.device).write_trace(tmp_path / "t.json")


def test_commands_report_the_same_cycles(tmp_path: Path) -> None:
    model = str(DATA / "mlp_train_tiny.hlo")
    records = []
    for command in (["run", "--trace", str(tmp_path / "run.json")],
                    ["estimate", "--trace", str(tmp_path / "estimate.json")]):  # fmt: skip
        done = CliRunner().invoke(cli, [command[0], model, "--json", *command[1:]])
        assert done.exit_code == 0, done.output
        records.append(json.loads(done.stdout))
    run, estimate = records
    assert (estimate["estimated"], run["estimated"]) == (True, False)
    assert estimate["cycles"] == run["cycles"]
    assert estimate["kernels"] == run["kernels"]
    assert sum(run["causes"].values()) == run["cycles"]
    traces = [(tmp_path / f"{name}.json").read_text() for name in ("run", "estimate")]
    assert traces[0] == traces[1]


def test_the_table_says_what_was_assumed() -> None:
    done = CliRunner().invoke(cli, ["estimate", str(DATA / "cg_while_tiny.hlo"), "--trips", "3"])
    assert done.exit_code == 0, done.output
    assert "assumed 3 trips" in done.output
    assert "bound by" in done.output
