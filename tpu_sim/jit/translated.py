"""What a translation of a program is: known without the translator, as when it comes from the disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tpu_sim.jit.context import ContextSizes
from tpu_sim.jit.emitter import NON_TEMPORAL
from tpu_sim.jit.library import LIBRARY_DECLARATIONS

MAIN_FUNCTION = "tpuc_main"
MODULE_HEAD = LIBRARY_DECLARATIONS + NON_TEMPORAL
"""What functions of a module may use without defining it."""
DEFAULT_TRIPS = 10
"""Iterations an estimate assumes of a loop whose trip count nobody knows."""


@dataclass(frozen=True)
class ModuleKind:
    """Whether a module computes values, or cycles alone.

    `trips` is how often a `While` without an expected trip count runs where values are off.
    """

    values: bool
    trips: int = DEFAULT_TRIPS


RUN = ModuleKind(values=True)


def estimate_kind(trips: int) -> ModuleKind:
    """The clock alone, with loops that depend on data running `trips` times."""
    return ModuleKind(values=False, trips=trips)


@dataclass(frozen=True)
class TranslatedModule:
    """IR text, and what its context needs; `calls` are kernel and site by call number.

    Behind `MODULE_HEAD`, `texts` are the functions in the order in which they were made. `rings` are, by
    body, the entries of the ring that an MXU's results lie in.
    """

    texts: tuple[str, ...]
    sites: Sequence[FaultSite]
    calls: tuple[tuple[str, str], ...]
    sizes: ContextSizes
    has_forks: bool
    rings: tuple[int, ...]

    @property
    def text(self) -> str:
        """The whole module."""
        return "\n".join((MODULE_HEAD, *self.texts))


class FaultKind(Enum):
    """Why native code stopped."""

    WINDOW = "window"
    MEMORY = "memory"
    DMA_COUNT = "dma count"
    FLAG = "flag"


@dataclass(frozen=True)
class FaultSite:
    """A place native code may stop at; its number is its position in `ModuleScope.sites` + 1."""

    kind: FaultKind
    message: str
    kernel: str
    bundle: str
