"""What a pass may read and write besides the module."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol


class Chip(Protocol):
    """What passes ask of a chip: its memory sizes, in bytes."""

    @property
    def hbm_bytes(self) -> int:
        """Device memory."""

    @property
    def vmem_bytes(self) -> int:
        """Vector memory."""


@dataclass
class PassContext:
    """What a pass reads (the chip) and writes (counts and remarks of what it did)."""

    chip: Chip
    counts: Counter[str] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)
