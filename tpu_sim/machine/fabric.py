"""The fabric between memories: what a transfer costs is asked of it, never compiled in.

It is asked when a transfer starts; native code then looks up what its machine was told of the route.
`LocalFabric` is a chip's own, and the links that leave it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import HBM, SMEM, VMEM, Route
from tpu_sim.isa.timing import DmaCost, dma_cost, route_cost
from tpu_sim.machine.far_core import FarCore
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.state import CoreState

SPACES = (HBM, VMEM, SMEM)
ROUTES = tuple((source, target) for source in SPACES for target in SPACES)
"""Ways of a core's own transfers, from space to space; native code knows them by their place here."""


class Fabric(Protocol):
    """What moves bytes."""

    def cost(self, source: int, target: int) -> DmaCost:
        """What transfers between two memory spaces of a core cost."""
        ...

    def route_cost(self, route: Route, *, is_flag: bool) -> DmaCost:
        """What transfers to another core cost, of bytes or of a flag alone."""
        ...


@dataclass(frozen=True)
class Links:
    """What core `number` sees of the others: the state and HBM of each that it may send to, and the
    program's routes."""

    number: int
    cores: Mapping[int, tuple[CoreState | FarCore, HbmMemory]]
    routes: Sequence[Route]
    sent: list[int]
    """Bytes that this core sent over each route."""


class LocalFabric:
    """The DMA engine of a chip and its ports to other chips."""

    def __init__(self, chip: Chip) -> None:
        self._chip = chip

    def cost(self, source: int, target: int) -> DmaCost:
        """See `Fabric`."""
        return dma_cost(source, target, self._chip)

    def route_cost(self, route: Route, *, is_flag: bool) -> DmaCost:
        """See `Fabric`."""
        return route_cost(route, self._chip, is_flag=is_flag)
