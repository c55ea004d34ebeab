"""Estimates cost what runs cost; reports and traces account for every cycle."""

from __future__ import annotations

import json
import runpy
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from runtime.api import compile
from runtime.executable import Executable
from runtime.machines import MachineOptions
from runtime.report import Report, Traced, build_report
from runtime.trace import trace_events
from runtime.unit_use import UnitUse
from tests.support.random_programs import BlockBuilder
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.control_flow import Loop
from tpu_sim.isa.program import HBM, VMEM, DmaDescriptor, Kernel, Node, Window
from tpu_sim.isa.timing import dma_cost
from tpu_sim.machine.faults import CycleLimitFault
from tpu_sim.machine.result import KernelRun, RunTotals
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


@pytest.mark.slow
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
    estimates = {trips: executable.estimate(trips) for trips in range(12)}
    cycles = [estimate.cycles for estimate in estimates.values()]
    assert cycles == sorted(set(cycles))
    trips = cycles.index(run.cycles)  # as many as the data made
    right = estimates[trips]
    assert right.kernels == run.kernels
    assert right.assumed_trips == trips
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


@pytest.mark.slow
@pytest.mark.parametrize("model", [*STATIC_MODELS, "cg_while", "mandelbrot_while", "custom"])
def test_causes_add_up_to_the_cycles(model: str) -> None:
    _, report = executed_custom() if model == "custom" else executed(model)
    if model == "custom":
        assert any("kCustom" in kernel.note for kernel in report.kernels)
    assert sum(report.causes.values()) == report.cycles
    for kernel in report.kernels:
        assert sum(kernel.causes.values()) == kernel.cycles
        assert kernel.causes[kernel.bound_by] == max(kernel.causes.values())
        assert kernel.roofline in ("hbm", "mxu", "vector", "none")
        assert 0 <= kernel.roofline_share <= 1


Event = dict[str, Any]


class Tracks:
    """The slices of a trace by (process, track), and its counters by name."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.slices: dict[tuple[str, str], list[Event]] = {}
        self.counters: dict[str, list[Event]] = defaultdict(list)
        processes: dict[int, str] = {}
        tracks: dict[tuple[int, int], tuple[str, str]] = {}
        for event in events:
            match event["ph"], event["name"]:
                case "M", "process_name":
                    processes[event["pid"]] = event["args"]["name"]
                case "M", "thread_name":
                    place = processes[event["pid"]], event["args"]["name"]
                    tracks[event["pid"], event["tid"]] = place
                    self.slices[place] = []
                case "X", _:
                    self.slices[tracks[event["pid"], event["tid"]]].append(event)
                case "C", name:
                    self.counters[name].append(event)

    def unit(self, name: str) -> list[Event]:
        return self.slices["v5e at 1.5 GHz", name]

    def causes(self) -> list[Event]:
        return [e for place, found in self.slices.items() if "cause" in place[0] for e in found]


def cycles_of(events: Iterable[Event]) -> int:
    return sum(e["args"]["cycles"] for e in events)


def traced(executable: Executable) -> Traced:
    found = executable.estimate().traced
    assert found is not None
    return found


def events_of(executable: Executable) -> list[Event]:
    return list(trace_events(*traced(executable)))


def test_a_trace_shows_every_call_and_every_cycle_of_it(tmp_path: Path) -> None:
    executable, report = executed("gpt2_fwd")
    path = tmp_path / "trace.json"
    executable.estimate().write_trace(path)
    tracks = Tracks(json.loads(path.read_text())["traceEvents"])
    calls = tracks.unit("program")
    assert len(calls) == sum(kernel.calls for kernel in report.kernels)
    assert cycles_of(tracks.causes()) == cycles_of(calls)
    ends = [e["ts"] + e["dur"] for e in calls]
    assert all(e["ts"] >= end - 1e-9 for e, end in zip(calls[1:], ends, strict=False))
    assert ends[-1] <= report.seconds * 1e6 + 1e-3
    counters = tracks.counters["HBM traffic"]
    assert max(e["args"]["GB/s"] for e in counters) <= 819.0
    assert counters[-1]["args"]["GB/s"] == 0


def test_events_are_as_the_format_wants_them() -> None:
    """Chrome's trace event format: phases, numbers, names of tracks before their slices, nesting."""
    executable, _ = executed("kmeans")
    named: set[tuple[int, int]] = set()
    ends: dict[tuple[int, int], int] = defaultdict(int)
    for event in events_of(executable):
        assert {"ph", "pid", "name"} <= event.keys() and event["ph"] in ("X", "M", "C", "s", "f")
        if event["ph"] == "M":
            keys = {"thread_name": "name", "process_name": "name"}
            assert list(event["args"]) == [keys.get(event["name"], "sort_index")]
            named |= {(event["pid"], event["tid"])}
            continue
        nanoseconds = round(event["ts"] * 1000)
        assert event["ts"] == nanoseconds / 1000 and event["ts"] >= 0
        if event["ph"] in "sf":
            assert event["id"] and (event["pid"], event["tid"]) in named
            continue
        if event["ph"] == "C":
            assert all(isinstance(v, float) for v in event["args"].values())
            continue
        place = event["pid"], event["tid"]
        assert place in named and event["dur"] >= 0
        assert nanoseconds >= ends[place], "slices of a track follow each other"
        ends[place] = nanoseconds + round(event["dur"] * 1000)


def test_units_have_slices_named_by_kernel() -> None:
    executable, report = executed("mlp_train")
    tracks = Tracks(events_of(executable))
    names = {kernel.name for kernel in report.kernels}
    mxus = [f"MXU {number}" for number in range(4)]
    for track in ("program", *mxus, "vector", "scalar", "DMA in", "DMA out"):
        slices = tracks.unit(track)
        assert slices and {e["name"] for e in slices} <= names
        longest = {e["ts"]: e["dur"] for e in tracks.unit("program")}
        assert all(e["dur"] <= longest[e["ts"]] for e in slices)


def test_units_are_busy_for_what_the_machine_recorded() -> None:
    executable, _ = executed("gpt2_fwd")
    tracks = Tracks(events_of(executable))
    _, chip, result = traced(executable)
    by_mxu = [cycles_of(tracks.unit(f"MXU {number}")) for number in range(4)]
    assert abs(sum(by_mxu) - result.mxu_busy_cycles) <= 4 * len(result.kernels)  # rounding
    engine = cycles_of(tracks.unit("DMA in")) + cycles_of(tracks.unit("DMA out"))
    assert result.hbm_bytes / chip.hbm_bytes_per_cycle <= engine <= result.cycles
    issuing = cycles_of(tracks.unit("vector"))
    assert issuing >= result.causes[Cause.VECTOR]


def test_passes_count_for_the_mxu_they_name() -> None:
    """Two of three passes on unit 1, in a loop; one HBM granule in, two out."""
    chip = load_chip("v5e")
    builder = BlockBuilder(chip)
    for unit in (1, 1, 3):
        builder.emit("vmatmul.bf16", unit, 0)
    for descriptor in (0, 1):
        builder.emit("dma.start", descriptor, 0, 0, 0, 0, 0, 0)
    copies = [DmaDescriptor(HBM, VMEM, 1, (), 0), DmaDescriptor(VMEM, HBM, 2, (), 0)]
    body: list[Node] = [Loop(5, 1, [builder.finish("b")])]
    use = UnitUse({"k": Kernel("k", 0, [Window("w", 0, 8)], copies, body)}, chip)
    causes = [0] * len(Cause)
    causes[Cause.MXU] = 1000
    run = KernelRun("k", "k", 1000, 150, 0, 5 * 3 * 512, 0, tuple(causes))
    found = use.of_call(run)
    assert (found["MXU 1"], found["MXU 3"]) == (100, 50) and "MXU 0" not in found
    one, two = (dma_cost(HBM, VMEM, chip).cycles(n * 512) for n in (1, 2))
    assert (found["DMA in"], found["DMA out"]) == (5 * one, 5 * two)
    assert use.tracks() == [
        *(f"MXU {n}" for n in range(4)),
        "vector",
        "scalar",
        "DMA in",
        "DMA out",
    ]


def test_the_picture_of_a_trace_has_every_track(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable, _ = executed("mlp_train")
    trace, picture = tmp_path / "t.json", tmp_path / "t.svg"
    executable.estimate().write_trace(trace)
    monkeypatch.setattr("sys.argv", ["trace_picture", str(trace), str(picture)])
    script = Path(__file__).resolve().parents[3] / "docs" / "trace_picture.py"
    runpy.run_path(str(script), run_name="__main__")
    drawn = picture.read_text()
    for track in ("program", "MXU 3", "DMA in", "cycles by cause", "wait for DMA out"):
        assert f">{track}</text>" in drawn


def test_many_calls_share_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    executable, report = executed("gpt2_fwd")
    whole = Tracks(events_of(executable))
    monkeypatch.setattr("runtime.trace.MOST_CALLS", 5)
    tracks = Tracks(events_of(executable))
    calls = tracks.unit("program")
    total = sum(kernel.cycles for kernel in report.kernels)
    assert len(calls) <= 5 < sum(kernel.calls for kernel in report.kernels)
    assert cycles_of(calls) == cycles_of(tracks.causes()) == total
    assert cycles_of(tracks.unit("MXU 2")) == cycles_of(whole.unit("MXU 2"))


def test_calls_without_records_are_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    executable, report = executed("gpt2_fwd")
    program, chip, recorded = traced(executable)
    runs = recorded.kernels
    totals = RunTotals()
    for run in runs[4:]:
        totals.add(run)
    result = replace(recorded, kernels=(*runs[:4], *totals.runs()))
    monkeypatch.setattr("runtime.trace.MOST_RECORDS", 4)
    tracks = Tracks(trace_events(program, chip, result))
    calls = tracks.unit("program")
    assert len(calls) == 5
    assert calls[-1]["args"]["what"] == f"{len(runs) - 4} calls added up"
    assert cycles_of(calls) == sum(k.cycles for k in report.kernels)
    summed = build_report(program, chip, result, 0, 0, {})
    assert {k.name: k for k in summed.kernels} == {k.name: k for k in report.kernels}
    assert summed.mxu_utilisation == report.mxu_utilisation


def test_the_trace_of_a_run_is_that_of_its_estimate(tmp_path: Path) -> None:
    executable, report = executed("mlp_train")
    report.write_trace(tmp_path / "run.json")
    executable.estimate().write_trace(tmp_path / "estimate.json")
    run, estimate = (
        json.loads((tmp_path / name).read_text()) for name in ("run.json", "estimate.json")
    )
    assert run == estimate


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
