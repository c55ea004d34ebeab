"""An execution as an XSpace file, which xprof and TensorBoard's profiler read: ``--trace NAME.xplane.pb``.

One plane per device with the lines that XLA's own profiles have, ``Steps``, ``XLA Modules`` and ``XLA Ops``
(each call of a kernel, with category, operation name, source, operations and bytes), then those of
`runtime.call_details`: grid steps, transfers, waits, passes. xprof takes the first step for one that was
cut off and leaves it out: an empty step 0 stands there. It reads utilisation at the plane of the host's
threads. The messages are those of the public
``tsl/profiler/protobuf/xplane.proto``, written field by field: the format is a few numbers, and a library
for it would be a dependency of everybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from compiler.protobuf import bytes_field, double_field, number_field, text_field
from runtime.call_details import CallDetails
from runtime.kernel_report import utilisation_of
from runtime.slice_trace import MOST_CALLS
from runtime.xspace_memory import hlo_proto
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.files import write_whole
from tpu_sim.isa.origins import OriginTable, origin_table
from tpu_sim.isa.program import Kernel, Program
from tpu_sim.machine.result import MOST_RECORDS, ExecutionResult, KernelRun

Stat = int | float | str | bytes
Stats = Mapping[str, Stat]
Run = tuple[Program, Chip, ExecutionResult]
_READ, _WRITE, _HBM = 1, 2, 1
"""Kinds of accesses and the memory, of xprof's ``op_metrics.proto``."""
_Numbered = tuple[int, Program]
"""What a program is called in stats, and the program."""


def write_xspace(
    path: Path | str,
    program: Program,
    chip: Chip,
    result: ExecutionResult,
    cores: Sequence[ExecutionResult] = (),
) -> None:
    """Write the XSpace of a run, whole or not at all; `cores` are those of a slice, `result` the slowest."""
    write_whole(path, xspace(program, chip, result, cores))


def xspace(
    program: Program, chip: Chip, result: ExecutionResult, cores: Sequence[ExecutionResult] = ()
) -> bytes:
    """The bytes of the XSpace of a run: of a slice's devices, from the first, as many as have `MOST_CALLS`.

    The slowest is there besides, and alone has what happened within its calls.
    """
    if not cores:
        return xspace_of({0: [(program, chip, result)]})
    slowest = max(range(len(cores)), key=lambda number: cores[number].cycles)
    calls = accumulate(len(core.kernels) for core in cores)
    shown = [n for n, count in enumerate(calls) if count <= MOST_CALLS or n == slowest]
    return xspace_of({n: [(program, chip, cores[n])] for n in shown}, followed=slowest)


def xspace_of(devices: Mapping[int, Sequence[Run]], followed: int | None = None) -> bytes:
    """The bytes of the XSpace of what devices ran: of each, by its number, one run after the other.

    The calls of one device, or of all, are followed to say what happened within them.
    """
    programs: dict[int, tuple[int, Program]] = {}
    for runs in devices.values():
        for program, _, _ in runs:
            programs.setdefault(id(program), (len(programs) + 1, program))
    planes = [
        _device_plane(number, runs, programs, is_followed=followed in (None, number))
        for number, runs in devices.items()
        if runs
    ]
    chip = next((chip for runs in devices.values() for _, chip, _ in runs), None)
    if chip is not None:
        behind = max(devices) + 2
        planes.append(_modules(programs.values(), chip, behind))
        everything = [run for runs in devices.values() for run in runs]
        planes.append(_utilisation(everything, chip, behind + 1))
    return b"".join(bytes_field(1, plane) for plane in planes) + text_field(4, "tpuc")


def _device_plane(
    device: int, runs: Sequence[Run], programs: Mapping[int, _Numbered], *, is_followed: bool
) -> bytes:
    chip = runs[0][1]
    plane = _Plane(f"/device:TPU:{device}", chip)
    plane.stats = {
        "device_type_string": f"TPU {chip.name}",
        "peak_teraflops_per_second": chip.device_peak_flops / 1e12,
        "peak_hbm_bw_gigabytes_per_second": chip.device_hbm_peak_bytes_per_cycle
        * chip.clock_hz
        / 1e9,
    }
    before = plane.kind("0", "0", {"group_id": 0})
    lines: dict[str, list[_Event]] = {
        "Steps": [(before, 0, 0, {"group_id": 0})],
        "XLA Modules": [],
        "XLA Ops": [],
    }
    begin = 0
    for group, (program, _, result) in enumerate(runs, 1):
        number, name = programs[id(program)][0], _name(program)
        step = plane.kind(str(group), str(group), {"group_id": group})
        module = plane.kind(f"{name}({number})", name, {"program_id": number})
        lines["Steps"].append((step, begin, result.cycles, {"group_id": group}))
        about = {"run_id": group, "group_id": group}
        lines["XLA Modules"].append((module, begin, result.cycles, about))
        calls = result.kernels[:MOST_RECORDS]
        details = CallDetails(program, chip)
        lines["XLA Ops"] += _ops(program, number, calls, plane, begin, group, details)
        for call in details.chosen(calls) if is_followed else ():
            for detail in details.of_call(call):
                stats = {k: v for k, v in detail.about.items() if isinstance(v, int | str)}
                kind = plane.kind(detail.name, detail.name, {})
                start = begin + call.start_cycle + detail.start
                event = (kind, start, detail.end - detail.start, stats)
                lines.setdefault(detail.track, []).append(event)
        begin += result.cycles
    for track, events in lines.items():
        plane.line(track, sorted(events, key=lambda event: event[1]))
    return plane.message(device + 1)


def _utilisation(runs: Sequence[Run], chip: Chip, number: int) -> bytes:
    """The plane where xprof looks for how busy the devices were, in percent of what they could do."""
    found = [(run[2].cycles, utilisation_of(*run)) for run in runs]
    cycles = max(1, sum(count for count, _ in found))
    plane = _Plane("/host:CPU", chip)
    plane.stats = {
        "matrix_unit_utilization_percent": 100 * sum(n * use.mxu for n, use in found) / cycles,
        "hbm_utilization_percent": 100 * sum(n * use.hbm for n, use in found) / cycles,
    }
    return plane.message(number)


def _name(program: Program) -> str:
    return program.metadata.get("module", "program")


def _modules(programs: Iterable[_Numbered], chip: Chip, number: int) -> bytes:
    """The plane where xprof looks for modules and their buffers."""
    plane = _Plane("/host:metadata", chip)
    for known, program in programs:
        name = _name(program)
        plane.kind(f"{name}({known})", name, {"Hlo Proto": hlo_proto(program)})
    return plane.message(number)


_Event = tuple[int, int, int, Stats]
"""The number of its kind, start and length in cycles, stats."""


def _ops(
    program: Program,
    number: int,
    runs: Sequence[KernelRun],
    plane: _Plane,
    begin: int,
    group: int,
    details: CallDetails,
) -> Iterator[_Event]:
    table = origin_table(program.metadata)
    symbols: dict[str, int] = {}
    for run in runs:
        site, kernel = run.site or run.name, program.kernels[run.name]
        about = _about(kernel, site, run, table) | {"program_id": number}
        about["memory_access_breakdown"] = _accesses(run, details.written_share(run.name))
        about["symbol_id"] = symbols.setdefault(site, len(symbols) + 1)
        kind = plane.kind(f"%{site} = {kernel.note}", site, about)
        yield kind, begin + run.start_cycle, run.cycles, {"group_id": group}


def _about(kernel: Kernel, site: str, run: KernelRun, table: OriginTable) -> dict[str, Stat]:
    origins = table.of(site)
    names = [o.op_name for o in origins if o.op_name]
    places = [o.place for o in origins if o.place]
    return {
        "hlo_category": _category(kernel),
        "flops": kernel.flops + kernel.element_ops,
        "model_flops": kernel.flops + kernel.element_ops,
        "bytes_accessed": run.hbm_bytes // run.calls,
        **({"tf_op": f"{names[0]}:"} if names else {}),
        **({"source": places[0]} if places else {}),
    }


def _accesses(run: KernelRun, written_share: float) -> bytes:
    """xprof's ``MemoryAccessBreakdown`` of a call: bytes read from HBM and written to it."""
    total = run.hbm_bytes // run.calls
    written = round(total * written_share)
    return b"".join(
        bytes_field(1, number_field(1, kind) + number_field(2, _HBM) + number_field(3, size))
        for kind, size in ((_READ, total - written), (_WRITE, written))
    )


def _category(kernel: Kernel) -> str:
    """As XLA's profiles call it: products apart from all else."""
    if kernel.flops:
        return "convolution fusion"
    kinds = {"kLoop": "loop fusion", "kInput": "input fusion", "kOutput": "output fusion"}
    return next((name for kind, name in kinds.items() if kind in kernel.note), "custom fusion")


@dataclass
class _Plane:
    """A plane as it is filled; kinds of events and names of stats are numbered from 1."""

    name: str
    chip: Chip
    stats: Stats = field(default_factory=dict)
    _kinds: dict[str, tuple[int, str, Stats]] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)
    _lines: list[bytes] = field(default_factory=list)

    def kind(self, name: str, shown: str, stats: Stats) -> int:
        """The number of a kind of event."""
        found = self._kinds.setdefault(name, (len(self._kinds) + 1, shown, stats))
        return found[0]

    def line(self, name: str, events: Sequence[_Event]) -> None:
        """Add a line of events in the order of their starts."""
        number = len(self._lines) + 1
        parts = [number_field(1, number), number_field(10, number), text_field(2, name)]
        for kind, start, cycles, stats in events:
            begin, end = self._picoseconds(start), self._picoseconds(start + cycles)
            event = number_field(1, kind) + number_field(2, begin) + number_field(3, end - begin)
            parts.append(bytes_field(4, event + self._stats(4, stats)))
        self._lines.append(b"".join(parts))

    def message(self, number: int = 1) -> bytes:
        """The XPlane of that number."""
        head = number_field(1, number) + text_field(2, self.name) + self._stats(6, self.stats)
        kinds = b"".join(
            bytes_field(4, number_field(1, n) + bytes_field(2, self._kind(n, name, shown, stats)))
            for name, (n, shown, stats) in self._kinds.items()
        )
        lines = b"".join(bytes_field(3, line) for line in self._lines)
        names = b"".join(
            bytes_field(
                5, number_field(1, n) + bytes_field(2, number_field(1, n) + text_field(2, name))
            )
            for name, n in self._names.items()
        )
        return head + lines + kinds + names

    def _kind(self, number: int, name: str, shown: str, stats: Stats) -> bytes:
        return (
            number_field(1, number)
            + text_field(2, name)
            + text_field(4, shown)
            + self._stats(5, stats)
        )

    def _stats(self, at: int, stats: Stats) -> bytes:
        return b"".join(bytes_field(at, self._stat(name, value)) for name, value in stats.items())

    def _stat(self, name: str, value: Stat) -> bytes:
        head = number_field(1, self._names.setdefault(name, len(self._names) + 1))
        if isinstance(value, str):
            return head + text_field(5, value)
        if isinstance(value, bytes):
            return head + bytes_field(6, value)
        if isinstance(value, float):
            return head + double_field(2, value)
        return head + number_field(4, value)

    def _picoseconds(self, cycles: int) -> int:
        return round(cycles * 1e12 / self.chip.clock_hz)
