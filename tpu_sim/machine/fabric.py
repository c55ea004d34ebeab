"""The fabric between memories: what a transfer costs is asked of it, never compiled in.

It is asked when a transfer starts; native code then looks up what its machine was told of the route.
`LocalFabric` is a chip with one core; that of a slice knows other cores and the links to them.
"""

from __future__ import annotations

from typing import Protocol

from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import HBM, SMEM, VMEM
from tpu_sim.isa.timing import DmaCost, dma_cost

SPACES = (HBM, VMEM, SMEM)
ROUTES = tuple((source, target) for source in SPACES for target in SPACES)
"""Ways of a core's own transfers, from space to space; native code knows them by their place here."""


class Fabric(Protocol):
    """What moves bytes."""

    def cost(self, source: int, target: int) -> DmaCost:
        """What transfers between two memory spaces of a core cost."""
        ...


class LocalFabric:
    """The DMA engine of a chip, for its own memories alone."""

    def __init__(self, chip: Chip) -> None:
        self._chip = chip

    def cost(self, source: int, target: int) -> DmaCost:
        """See `Fabric`."""
        return dma_cost(source, target, self._chip)
