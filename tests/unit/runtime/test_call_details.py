"""Slices of a trace lie where things happen: within their calls, with bytes, arrows and origins."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from runtime.api import compile
from runtime.call_details import STEPS, WAITS, CallDetails
from runtime.report import Traced
from runtime.slice_trace import slice_events
from runtime.trace import trace_events
from tests.unit.runtime.test_origin_costs import LAYERS

Event = dict[str, Any]


@pytest.fixture(scope="module")
def traced() -> Traced:
    found = compile(LAYERS).estimate().traced
    assert found is not None
    return found


@pytest.fixture(scope="module")
def events(traced: Traced) -> list[Event]:
    return list(trace_events(*traced))


def _tracks(events: list[Event]) -> dict[str, list[Event]]:
    """The slices of the group of what happens when, by track."""
    groups = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    (pid,) = [pid for pid, name in groups.items() if name.startswith("in time")]
    names = {
        e["tid"]: e["args"]["name"]
        for e in events
        if e["name"] == "thread_name" and e["pid"] == pid
    }
    found: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["pid"] == pid:
            found[names[event["tid"]]].append(event)
    return found


def test_transfers_carry_all_bytes_and_origins(traced: Traced, events: list[Event]) -> None:
    _, _, result = traced
    tracks = _tracks(events)
    moved = sum(e["args"]["bytes"] for name in ("DMA in", "DMA out") for e in tracks[name])
    assert moved == result.hbm_bytes
    named = {e["args"].get("source") for name in ("DMA in", "DMA out", WAITS) for e in tracks[name]}
    assert {"net.py:10", "net.py:20", "net.py:31"} & named
    assert any("net/one/dot" in str(e["args"].get("op_name")) for e in tracks["DMA in"])


def test_slices_lie_within_their_calls(traced: Traced, events: list[Event]) -> None:
    _, chip, result = traced
    calls = [
        (
            run.start_cycle * 1e6 / chip.clock_hz,
            (run.start_cycle + run.cycles) * 1e6 / chip.clock_hz,
        )
        for run in result.kernels
    ]
    tracks = _tracks(events)
    for name in ("DMA in", WAITS, "MXU 0"):
        assert tracks[name], name
    for slices in tracks.values():
        for event in slices:
            start, end = event["ts"], event["ts"] + event["dur"]
            assert any(a - 1e-3 <= start and end <= b + 1e-3 for a, b in calls)


def test_arrows_lead_from_a_transfer_to_the_wait_that_it_ends(events: list[Event]) -> None:
    slices: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append(event)
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts and starts.keys() == ends.keys()
    assert all(isinstance(arrow, int) for arrow in starts), "Perfetto drops any other"
    assert 2 * len(starts) == sum(e["ph"] in "sf" for e in events), "an arrow has its own number"
    for arrow, start in starts.items():
        end = ends[arrow]
        assert end["ts"] >= start["ts"]
        for side in (start, end):
            around = slices[side["pid"], side["tid"]]
            assert any(e["ts"] <= side["ts"] <= e["ts"] + e["dur"] for e in around)


def test_a_call_that_took_another_time_says_so(traced: Traced) -> None:
    program, chip, result = traced
    details, run = CallDetails(program, chip), result.kernels[0]
    exact = list(details.of_call(run))
    assert exact and not any("timing" in d.about for d in exact)
    other = type(run)(**(vars(run) | {"cycles": run.cycles // 2}))
    cut = list(details.of_call(other))
    assert 0 < len(cut) < len(exact)
    assert all(d.end <= other.cycles and d.about["timing"] == "approximate" for d in cut)


def test_there_are_only_so_many(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    program, chip, result = traced
    details = CallDetails(program, chip)
    assert details.chosen(result.kernels) == list(result.kernels)
    monkeypatch.setattr("runtime.call_details.MOST_DETAILS", details._count(result.kernels[0].name))
    few = details.chosen(result.kernels)
    assert few and len({run.name for run in few}) == len(few) < len(result.kernels)
    titles = [
        e["args"]["name"]
        for e in trace_events(program, chip, result)
        if e["name"] == "process_name"
    ]
    assert f"in time, {len(few)} of {len(result.kernels)} calls" in titles


def test_steps_are_the_grid_of_a_kernel() -> None:
    model = """HloModule m
ENTRY e {
  x = f32[2048,2048]{1,0} parameter(0)
  ROOT y = f32[2048,2048]{1,0} exponential(x)
}
"""
    executable = compile(model)
    found = executable.estimate().traced
    assert found is not None
    program, chip, result = found
    details = list(CallDetails(program, chip).of_call(result.kernels[0]))
    steps = [d for d in details if d.track == STEPS]
    grid = program.kernels[result.kernels[0].name].note.rpartition(" ")[2]
    sizes = [int(n) for n in grid.split("x")]
    assert len(steps) == math.prod(sizes) > 2
    assert all(a.end == b.start for a, b in itertools.pairwise(steps))


def test_a_slice_has_its_devices_and_links_and_no_slices_of_a_track_overlap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A viewer drops what overlaps: two transfers between chips at a time lie on two tracks."""
    model = Path(__file__).resolve().parents[3] / "examples" / "slice" / "tp_mlp_train.hlo"
    compiled = compile(model, "v5e:4x2")
    report = compiled.estimate()
    report.write_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    titles = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert "v5e:4x2, the slowest of 8 devices, at 1.5 GHz" in titles.values()
    assert {"between chips", "between chips (2)"} <= _tracks(events).keys()
    tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    for slices in tracks.values():
        slices.sort(key=lambda e: float(e["ts"]))
        for before, after in pairwise(slices):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-6
    (devices,) = (pid for pid, title in titles.items() if title == "devices of v5e:4x2")
    (links,) = (pid for pid, title in titles.items() if title.startswith("links of v5e:4x2"))
    assert report.links is not None
    by_group: dict[int, list[Event]] = defaultdict(list)
    for (pid, _), slices in tracks.items():
        by_group[pid] += slices
    of_links = [e["args"]["bytes"] for e in by_group[links]]
    calls = [slices for (pid, _), slices in tracks.items() if pid == devices]
    assert [sum(e["args"]["cycles"] for e in own) for own in calls] == [
        sum(run.cycles for run in core.kernels) for core in report.cores
    ]
    assert any("cycles that waited for other chips" in e["args"] for e in calls[0])
    names = {
        e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == devices
    }
    assert names == {f"device {n}, {c:,} cycles" for n, c in enumerate(report.links.core_cycles)}
    assert sum(of_links) == report.links.link_bytes
    monkeypatch.setattr("runtime.slice_trace.MOST_CALLS", 2 * len(report.cores[0].kernels))
    some = list(slice_events(report.target, report.links, report.cores, compiled.device.chip))
    assert [e["name"] for e in some if "calls that are not shown" in e.get("args", ())] == [
        f"device {n}" for n in range(2, 8)
    ]
