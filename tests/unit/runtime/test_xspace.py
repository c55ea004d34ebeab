"""The XSpace of a run, read back field by field: what xprof is told adds up to the run."""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path

import pytest

from runtime.api import compile
from runtime.report import Traced
from runtime.xspace import xspace
from runtime.xspace_memory import lives
from tests.unit.runtime.test_origin_costs import LAYERS

pytestmark = pytest.mark.slow

Fields = dict[int, list[int | bytes]]
_READ, _WRITE = 1, 2


def _fields(data: bytes) -> Fields:
    """A protobuf message by field number: numbers and bytes."""
    found: Fields = defaultdict(list)
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        match key & 7:
            case 0:
                found[key >> 3].append(varint())
            case 1:
                found[key >> 3].append(data[at : at + 8])
                at += 8
            case 2:
                size = varint()
                found[key >> 3].append(data[at : at + size])
                at += size
            case wire:
                raise AssertionError(f"wire type {wire}")
    assert at == len(data)
    return found


def _message(value: int | bytes) -> Fields:
    assert isinstance(value, bytes)
    return _fields(value)


def _double(value: int | bytes) -> float:
    assert isinstance(value, bytes)
    (found,) = struct.unpack("<d", value)
    return float(found)


class Plane:
    def __init__(self, data: bytes) -> None:
        plane, self.modules, host = _fields(data)[1]
        self.host = _message(host)
        fields = _message(plane)
        (self.name,) = fields[2]
        self.stat_names = {e[1][0]: _message(e[2][0])[2][0] for e in map(_message, fields[5])}
        self.kinds = {e[1][0]: _message(e[2][0]) for e in map(_message, fields[4])}
        self.lines = {line[2][0]: line[4] for line in map(_message, fields[3])}
        self.stats = self.read_stats(fields[6])

    def read_stats(self, stats: list[int | bytes]) -> dict[str, object]:
        found: dict[str, object] = {}
        for stat in map(_message, stats):
            name = self.stat_names[stat[1][0]]
            assert isinstance(name, bytes)
            for field in (2, 4, 5, 6):
                if field in stat:
                    value = stat[field][0]
                    if field == 2:
                        assert isinstance(value, bytes)
                        (value,) = struct.unpack("<d", value)
                    found[name.decode()] = value
        return found

    def events(self, line: str) -> list[tuple[bytes, int, int, dict[str, object]]]:
        """Name, start, length (picoseconds) and stats of events; stats of their kinds are among them."""
        found = []
        for event in map(_message, self.lines[line.encode()]):
            kind = self.kinds[event[1][0]]
            stats = self.read_stats(kind[5]) | self.read_stats(event[4])
            name = kind[4][0]
            start, length = event[2][0], event[3][0]
            assert isinstance(name, bytes) and isinstance(start, int) and isinstance(length, int)
            found.append((name, start, length, stats))
        return found


@pytest.fixture(scope="module")
def traced() -> Traced:
    found = compile(LAYERS).estimate().traced
    assert found is not None
    return found


def test_lines_add_up_to_the_run(traced: Traced) -> None:
    program, chip, result = traced
    plane = Plane(xspace(program, chip, result))
    picoseconds = 1e12 / chip.clock_hz
    assert plane.name == b"/device:TPU:0"
    assert plane.stats["device_type_string"] == b"TPU v5e"
    assert plane.stats["peak_teraflops_per_second"] == pytest.approx(chip.peak_flops / 1e12)
    before, step = plane.events("Steps")
    assert before[1:3] == (0, 0), "the first step, which xprof leaves out"
    (module,) = plane.events("XLA Modules")
    assert step[1:3] == module[1:3] == (0, round(result.cycles * picoseconds))
    ops = plane.events("XLA Ops")
    assert [name.decode() for name, *_ in ops] == [run.site for run in result.kernels]
    for (_, start, length, stats), run in zip(ops, result.kernels, strict=True):
        assert start == round(run.start_cycle * picoseconds)
        assert length == pytest.approx(run.cycles * picoseconds, abs=1)
        assert stats["bytes_accessed"] == run.hbm_bytes
        assert stats["hlo_category"] == b"convolution fusion"
        assert str(stats["tf_op"]).startswith("b'net/")
        assert b"net.py:" in stats["source"]  # type: ignore[operator]
    assert len({stats["symbol_id"] for *_, stats in ops}) == len(ops), "xprof tells ops by it"


def test_utilisation_and_bytes_are_those_of_the_report(traced: Traced) -> None:
    """xprof reads utilisation at the plane of the host, bandwidth from reads and writes of each op."""
    program, chip, result = traced
    plane = Plane(xspace(program, chip, result))
    report = compile(LAYERS).estimate()
    assert plane.host[2] == [b"/host:CPU"]
    names = {e[1][0]: _message(e[2][0])[2][0] for e in map(_message, plane.host[5])}
    stats = {names[s[1][0]]: _double(s[2][0]) for s in map(_message, plane.host[6])}
    assert stats == {
        b"matrix_unit_utilization_percent": pytest.approx(100 * report.mxu_utilisation),
        b"hbm_utilization_percent": pytest.approx(100 * report.hbm_utilisation),
    }
    accesses = {_READ: 0, _WRITE: 0}
    for *_, stats_of_op in plane.events("XLA Ops"):
        found = stats_of_op["memory_access_breakdown"]
        assert isinstance(found, bytes)
        for access in map(_message, _fields(found)[1]):
            assert access[2] == [1], "HBM"
            accesses[int(access[1][0])] += int(access[3][0])
    assert sum(accesses.values()) == result.hbm_bytes
    (out,) = (b for b in program.buffers if b.kind == "output")
    assert accesses[_WRITE] >= out.size_bytes


def test_transfers_lie_in_time_with_their_bytes(traced: Traced) -> None:
    program, chip, result = traced
    plane = Plane(xspace(program, chip, result))
    moved = 0
    for line in ("DMA in", "DMA out"):
        events = plane.events(line)
        starts = [start for _, start, _, _ in events]
        assert starts == sorted(starts)
        moved += sum(int(str(stats["bytes"])) for *_, stats in events)
    assert moved == result.hbm_bytes
    assert {b"MXU 0", b"waits"} <= plane.lines.keys()


def test_the_name_of_the_file_says_the_format(tmp_path: Path) -> None:
    report = compile(LAYERS).estimate()
    report.write_trace(tmp_path / "run.xplane.pb")
    assert report.traced is not None
    assert (tmp_path / "run.xplane.pb").read_bytes() == xspace(*report.traced)
    report.write_trace(tmp_path / "run.json")
    assert (tmp_path / "run.json").read_text().startswith("{")


EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def test_a_slice_has_a_plane_for_each_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It had one, that of the slowest, called device 0."""
    model = EXAMPLES / "slice" / "dp_train.hlo"
    report = compile(model, target="v5e:4x2").estimate()
    path = tmp_path / "slice.xplane.pb"

    def device_planes() -> dict[bytes, Fields]:
        report.write_trace(path)
        planes = [_message(plane) for plane in _fields(path.read_bytes())[1]]
        assert len({plane[1][0] for plane in planes}) == len(planes), "numbers tell them apart"
        names = {bytes(plane[2][0]): plane for plane in planes}
        return {name: plane for name, plane in names.items() if name.startswith(b"/device")}

    found = device_planes()
    assert sorted(found) == [b"/device:TPU:%d" % number for number in range(8)]
    lines = [len(plane[3]) for plane in found.values()]
    assert min(lines) == 3 < max(lines) and lines.count(3) == 7, (
        "one device is followed in its calls"
    )
    monkeypatch.setattr("runtime.xspace.MOST_CALLS", 3 * len(report.cores[0].kernels))
    assert 3 <= len(device_planes()) <= 4


@pytest.mark.parametrize("model", ["transformer_block.hlo", "attention.mlir", "mlp.hlo"])
def test_what_the_memory_viewer_adds_up_is_what_the_program_needs(model: str) -> None:
    found = compile(EXAMPLES / model).estimate().traced
    assert found is not None
    plane = _message(Plane(xspace(*found)).modules)
    assert plane[2] == [b"/host:metadata"]
    (kind,) = (_message(_message(entry)[2][0]) for entry in plane[4])
    proto = _message(_message(kind[5][0])[6][0])
    module, buffers = _message(proto[1][0]), _message(proto[3][0])
    sizes = {row[1][0]: row[2][0] for row in map(_message, buffers[1])}
    defined = {row[1][0]: _message(row[3][0])[4][0] for row in map(_message, buffers[1])}
    (entry,) = map(_message, module[3])
    assert set(defined.values()) <= {_message(row)[35][0] for row in entry[2]}
    given = [row for row in map(_message, buffers[3]) if 5 in row or 12 in row]
    (trace,) = map(_message, buffers[4])
    now = peak = sum(int(row[2][0]) for row in given)
    for event in map(_message, trace[1]):
        size = int(sizes[event[2][0]])
        now += -size if event[1][0] else size
        peak = max(peak, now)
    assert 0.97 * found[0].hbm_bytes <= peak <= found[0].hbm_bytes
    assert now == sum(int(row[2][0]) for row in given), "all that is made is freed at the end"


def test_a_temporary_lives_from_its_call_to_the_last_that_takes_it() -> None:
    program = compile(EXAMPLES / "mlp.hlo", target="v5e{vmem=1MiB}").program
    sites, found = lives(program)
    (temp,) = (life for life in found if life.buffer.kind == "temp")
    assert sites[temp.first] == temp.buffer.name and temp.first < temp.last < len(sites)
    results = [life for life in found if life.buffer.kind == "output"]
    assert results
    for result in results:
        is_same = result.buffer.offset_bytes == temp.buffer.offset_bytes
        assert not is_same or result.first > temp.last or result.last < temp.first
