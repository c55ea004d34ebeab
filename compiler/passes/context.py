"""What a pass may read and write besides the module."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from compiler.analysis.window_planner import WindowPlanner
from compiler.analysis.window_request import WindowRequests
from tpu_sim.isa import chips
from tpu_sim.isa.torus import Slice


class Chip(Protocol):
    """What passes ask of a chip: its memory sizes, in bytes if not said otherwise."""

    @property
    def hbm_bytes(self) -> int:
        """Device memory."""

    @property
    def vmem_bytes(self) -> int:
        """Vector memory."""

    @property
    def smem_words(self) -> int:
        """Memory of the scalar unit, in words."""


@dataclass
class PassContext:
    """What a pass reads (the chip) and writes (counts and remarks of what it did).

    `remarks` explain decisions to whoever reads a dump. `fallbacks` tell the user of a plan of last
    resort: reports show them.

    `planner` plans windows, one for all passes of a pipeline; None when the chip is not a whole one.
    `windows` are those asked for by name. `cores` is the slice that runs the program; None: one core, or
    nobody knows.
    """

    chip: Chip
    counts: Counter[str] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    planner: WindowPlanner | None = None
    windows: WindowRequests = field(default_factory=WindowRequests)
    cores: Slice | None = None

    def __post_init__(self) -> None:
        if self.planner is None and isinstance(self.chip, chips.Chip):
            self.planner = WindowPlanner(self.chip)
