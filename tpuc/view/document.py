"""The document that the page draws: typed records, one schema, which JSON holds.

    Main        the run: totals, kernels, costs, calls over time, buffers, chip (read first)
    Passes      the HLO after each pass that changed something, as differences
    Graph       a module's computations and instructions
    KernelCode  a kernel's grid, windows, LLO and bundles
    KernelTime  a call of a kernel: grid steps, transfers, passes of the matrix units

A document is these parts by name, ``main``, ``passes``, ``graph.input``, ``graph.final``, ``kernel.NAME``
and ``time.NAME``; the page reads each when it is looked at. Times are cycles, sizes bytes. `VERSION`
changes when a reader would misread.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import TypeAlias

VERSION = 1
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass
class ChipFacts:
    """What the page says of the chip; rates per second."""

    name: str
    clock_hz: float
    peak_flops: float
    hbm_bytes_per_second: float
    hbm_bytes: int
    vmem_bytes: int
    mxus: int
    mxu_units: int
    cores: int  # of a device; they share each kernel's grid
    vector_ops_per_second: float
    slots: dict[str, int]


@dataclass
class KernelSite:
    """All calls of a kernel from one instruction of the program."""

    name: str
    kernel: str
    note: str
    calls: int
    cycles: int
    causes: dict[str, int]
    mxu: float  # share of the matrix units' peak that the model's own multiply-adds reach
    hbm_bytes: int
    least_bytes: int
    flops: int
    element_ops: int
    roofline: str
    roofline_cycles: float
    origins: list[int]


@dataclass
class CostRow:
    """What one origin (a number in `Main.origins`, -1: none) cost."""

    origin: int
    causes: dict[str, float]
    sites: dict[str, float]


@dataclass
class Calls:
    """Kernel calls in order, flat: site number, start cycle, cycles, how many calls. Not all may be there."""

    rows: list[int]
    shown: int
    total: int


@dataclass
class ViewBuffer:
    """A range of memory; `live` are the first and last position in the program's schedule."""

    name: str
    kind: str  # parameter, output, constant, temp
    space: str  # HBM, VMEM, SMEM
    offset: int
    size: int
    live: list[int]
    shape: str = ""


@dataclass
class ViewMemory:
    """Buffers, and where in the schedule what runs: (position, instruction, start cycle)."""

    buffers: list[ViewBuffer]
    steps: list[list[int | str]]
    peak_bytes: int


@dataclass
class SliceFacts:
    """The chips of a slice and what its links carried."""

    name: str
    size: list[int]
    wraps: list[bool]
    chips: list[list[int]]
    core_cycles: list[int]
    links: list[list[int]]  # chip, axis, direction, bytes
    room_bytes: float  # what a link could have carried
    collectives: list[dict[str, Json]]


@dataclass
class AdviceRow:
    """What would help some call sites, and the cycles that it would save at most."""

    why: str
    remedy: str
    saved: float
    lines: list[str]
    sites: list[str]


@dataclass
class Main:
    """What the page opens with."""

    model: str
    module: str
    target: str
    is_estimate: bool
    chip: ChipFacts
    cycles: int
    seconds: float
    totals: dict[str, Json]
    causes: dict[str, int]
    remarks: list[str]
    sites: list[KernelSite]
    origins: list[list[str | int]]  # op_name, file, line
    lines: dict[str, str]  # the text of ``file:line``, where the file is at hand
    costs: list[CostRow]
    calls: Calls
    memory: ViewMemory
    kernels: list[str]
    slice: SliceFacts | None = None
    advice: list[AdviceRow] = field(default_factory=list)
    has_own_lines: bool = False  # lines are those of the model's text, which names no others
    version: int = VERSION


@dataclass
class PassStep:
    """A pass that ran. Of one that changed the module, `edits` make its text from the one before.

    An edit is (first line, lines that go, lines that come); lines of the text before are counted from 0.
    """

    name: str
    what: str
    milliseconds: float
    changed: bool
    instructions: int
    counts: dict[str, int]
    remarks: list[str]
    edits: list[list[Json]] = field(default_factory=list)


@dataclass
class Passes:
    """The input's text and what each pass made of it."""

    text: list[str]
    steps: list[PassStep]


@dataclass
class Computation:
    """A computation. Instructions are rows: name, opcode, shape, operands (numbers here), attributes,
    called computations, origins."""

    name: str
    role: str  # entry, body, fused, applied
    root: int
    instructions: list[list[Json]]


@dataclass
class Graph:
    """A module; the entry comes last. Origins are numbers in `Main.origins`."""

    computations: list[Computation]


@dataclass
class WindowRow:
    """A range of VMEM that a kernel uses."""

    name: str
    row: int
    rows: int
    is_kept: bool


@dataclass
class KernelCode:
    """A kernel as text and as bundles.

    `code` are rows: ``["open", depth, text]``, ``["close", depth]`` and, for a bundle, ``["b", depth,
    cycles run, cycles stalled, cause of the stall, [slot, text, source] ..]`` with numbers of `slots`,
    `texts` and `sources`. Cycles are -1 where they are not known.
    """

    name: str
    note: str
    arguments: int
    flags: int
    windows: list[WindowRow]
    vmem_rows: int
    spill_rows: int
    descriptors: list[str]
    plan: str
    llo: str
    slots: list[str]
    texts: list[str]
    sources: list[str]
    origins: dict[str, list[int]]  # of sources, by number in `Main.origins`
    code: list[list[Json]]


@dataclass
class KernelTime:
    """One call of a kernel in time, with values off; times are cycles since the call.

    `is_whole`: it was followed to its end; `is_same`: it then took what the run's calls took. Lists are
    flat: `steps` (start, end), `bursts` of passes (unit, start, end), `waits` (start, end; each with one
    of `wait_causes`), `transfers` (issued, engine from, engine to, done, bytes, cause, place in `moved`).
    """

    name: str
    cycles: int
    is_whole: bool
    is_same: bool
    steps: list[int]
    bursts: list[int]
    waits: list[int]
    transfers: list[int | str]
    moved: list[str]  # windows
    wait_causes: list[str] = field(default_factory=list)


@dataclass
class ViewDocument:
    """All parts by name."""

    parts: dict[str, Main | Passes | Graph | KernelCode | KernelTime]

    @property
    def main(self) -> Main:
        """The part that the page opens with."""
        found = self.parts["main"]
        assert isinstance(found, Main)
        return found

    @property
    def title(self) -> str:
        """What it is about."""
        return f"{self.main.model} on {self.main.target}"


def fields_of(value: object) -> dict[str, object]:
    """A record as JSON holds it, for `json.dumps` to go on with; raises TypeError for what is none."""
    if not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} is no part of a document")
    return {f.name: getattr(value, f.name) for f in fields(value)}
