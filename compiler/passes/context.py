"""What a pass may read and write besides the module."""

from __future__ import annotations

from collections import Counter
from dataclasses import InitVar, dataclass, field

from compiler.analysis.window_planner import WindowPlanner
from compiler.analysis.window_request import WindowRequests
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.torus import Slice


@dataclass
class PassContext:
    """What a pass reads (the chip) and writes (counts and remarks of what it did).

    `remarks` explain decisions to whoever reads a dump. `fallbacks` tell the user of a plan of last
    resort: reports show them.

    `planner` plans windows, one for all passes of a pipeline (`shared_planner`). `windows` are those asked
    for by name. `cores` is the slice that runs the program; None: one core, or
    nobody knows.
    """

    chip: Chip
    counts: Counter[str] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    shared_planner: InitVar[WindowPlanner | None] = None
    windows: WindowRequests = field(default_factory=WindowRequests)
    cores: Slice | None = None
    planner: WindowPlanner = field(init=False)

    def __post_init__(self, shared_planner: WindowPlanner | None) -> None:
        self.planner = shared_planner or WindowPlanner(self.chip)
