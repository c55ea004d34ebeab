"""What a cost in cycles follows when the chip changes.

A cost of generated code is known on one chip, by measuring a kernel there or by assuming. What it stands
for is mostly one thing that instructions wait for, a *unit*: a VALU slot, the transpose units, a transfer.
On another chip the cost changes as the unit does:

    cycles on a chip = cycles on v5e * unit on the chip / unit on v5e

so that a chip with two XLU slots for v5e's three takes half as long again for what XLUs do.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import lru_cache
from typing import Self, overload

from tpu_sim.isa.chips import Chip, load_chip
from tpu_sim.isa.geometry import LANES, SUBLANES
from tpu_sim.isa.instruction import Slot
from tpu_sim.isa.program import HBM, VMEM
from tpu_sim.isa.timing import dma_cost

REFERENCE = "v5e"
"""The chip on which costs are given."""

_TILE_BYTES = 4 * LANES * SUBLANES


class Unit(enum.Enum):
    """What code waits for; how long one takes on a chip is `unit_cycles`."""

    VALU = "an operation of a VALU slot"
    XLU = "an operation of an XLU slot"
    LOAD = "a load slot"
    STORE = "a store slot"
    SCALAR = "an operation of a scalar slot"
    PUSH = "an MXU slot"
    PASS = "a pass of 16 rows through one 128x128 unit of all the core has"
    DRAIN = "an MXU until its first result"
    TRANSPOSE = "a transpose unit until its results can be read"
    INDEXED_LOAD = "an indexed load"
    INDEXED_STORE = "an indexed store"
    CYCLE = "a cycle: nothing else that it follows is known"
    TRANSFER = "a transfer of one tile, on the engine"
    ROUND_TRIP = "a transfer until it has been waited for"
    KERNEL = "a kernel's launch, its first fetch and its last write-back"


def unit_cycles(unit: Unit, chip: Chip) -> float:
    """How long a unit takes on a chip."""
    match unit:
        case Unit.VALU | Unit.XLU | Unit.LOAD | Unit.STORE | Unit.SCALAR:
            return 1 / chip.slot_count(Slot[unit.name])
        case Unit.PUSH:
            return 1 / chip.slot_count(Slot.MXU)
        case Unit.PASS:
            return chip.matmul_cycles / chip.mxu_units
        case Unit.DRAIN:
            return chip.latency("mxu_result")
        case Unit.TRANSPOSE:
            return chip.latency("xpose_swap") / chip.transpose_units
        case Unit.INDEXED_LOAD:
            return chip.load_indexed_cycles / chip.slot_count(Slot.LOAD)
        case Unit.INDEXED_STORE:
            return chip.store_indexed_cycles / chip.slot_count(Slot.STORE)
        case Unit.CYCLE:
            return 1
        case Unit.TRANSFER:
            return dma_cost(HBM, VMEM, chip).cycles(_TILE_BYTES)
        case Unit.ROUND_TRIP:
            return chip.dma_latency_cycles + chip.dma_wait_cycles
        case Unit.KERNEL:
            return chip.call_overhead_cycles + 2 * chip.dma_latency_cycles


@lru_cache(maxsize=256)
def _slowdown(unit: Unit, chip: Chip) -> float:
    """How many times longer than on the reference chip a unit takes."""
    reference = unit_cycles(unit, load_chip(REFERENCE))
    return unit_cycles(unit, chip) / reference


class Provenance(enum.Enum):
    """Where a number comes from."""

    MEASURED = "cycles of kernels that this compiler makes"
    ASSUMED = "an estimate of what the code does"


class Cost:
    """A row of a `Costs` class: cycles on the reference chip, and the unit that they follow.

    Read from the class it is the row itself, from an instance the cycles on its chip.
    """

    def __init__(self, cycles: float, unit: Unit, provenance: Provenance, meaning: str) -> None:
        self.cycles = cycles
        self.unit = unit
        self.provenance = provenance
        self.meaning = meaning
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, costs: None, owner: type) -> Self: ...
    @overload
    def __get__(self, costs: Costs, owner: type) -> float: ...
    def __get__(self, costs: Costs | None, owner: type) -> Self | float:
        if costs is None:
            return self
        cycles = self.on(costs.chip)
        costs.__dict__[self.name] = cycles  # where the next reader finds it
        return cycles

    def on(self, chip: Chip) -> float:
        """The cycles on a chip."""
        return self.cycles * _slowdown(self.unit, chip)


class Rate(Cost):
    """A row whose number is of things done in a cycle: fewer where the unit takes longer."""

    def on(self, chip: Chip) -> float:
        """How many a cycle on a chip."""
        return self.cycles / _slowdown(self.unit, chip)


class Costs:
    """Costs of one subject on one chip; the rows are attributes of the classes that derive from it."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip

    @classmethod
    def rows(cls) -> dict[str, Cost]:
        """The rows by name."""
        return {name: row for name, row in vars(cls).items() if isinstance(row, Cost)}

    @classmethod
    def of(cls, chip: Chip) -> Self:
        """The costs on a chip."""
        make: Callable[[Chip], Costs] = cls
        costs = _costs(make, chip)
        assert isinstance(costs, cls)
        return costs


@lru_cache(maxsize=256)
def _costs(make: Callable[[Chip], Costs], chip: Chip) -> Costs:
    return make(chip)
