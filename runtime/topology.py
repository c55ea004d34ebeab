"""A target's topology: which chip, how many of them, where each stands.

    v5e            one chip
    v5e:4x2        a slice of 8: 4 along x, 2 along y
    my.toml:2x2x2  a slice of a chip described in a file

Chips are numbered along x first: ``id = x + X * (y + Y * z)``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from tpu_sim.isa.chips import Chip, ChipError, load_chip
from tpu_sim.isa.torus import Coordinates, Slice, Torus, torus_of

_SLICE = re.compile(r"(?P<chip>.+):(?P<dims>\d+(?:x\d+)*)")
_MOST_CHIPS = 16 * 16 * 24  # the largest slice there is, of v5p (Cloud TPU documentation)
_CORES_AS_DEVICES = {"7x": 2}
"""Chips whose cores are a device each (Cloud TPU documentation of 7x). On v4 and v5p the two cores of
a chip are one device (megacore)."""
_KINDS = {
    "v4": "TPU v4", "v5e": "TPU v5 lite", "v5p": "TPU v5", "v6e": "TPU v6 lite", "7x": "TPU7x",
}  # fmt: skip
"""What JAX calls a device of these chips (`jax.Device.device_kind`)."""


@dataclass(frozen=True)
class Topology:
    """`dims` chips along x, y and z."""

    chip: Chip
    dims: Coordinates = (1, 1, 1)

    @property
    def torus(self) -> Torus:
        """The network between its chips."""
        return torus_of(self.chip, self.dims)

    @property
    def cores(self) -> Slice:
        """What a program for all of its devices is compiled for."""
        chips = [chip for chip in range(self.chip_count) for _ in range(self.devices_per_chip)]
        return Slice(self.torus, tuple(chips))

    @property
    def chip_count(self) -> int:
        """How many chips there are."""
        return prod(self.dims)

    @property
    def devices_per_chip(self) -> int:
        """How many devices a chip is."""
        return _CORES_AS_DEVICES.get(self.chip.name, 1)

    @property
    def device_kind(self) -> str:
        """What JAX calls such a device; the chip's own name for a chip of one's own."""
        return _KINDS.get(self.chip.name, self.chip.name)

    def coordinates(self, chip: int) -> Coordinates:
        """Where a chip stands."""
        return self.torus.coordinates(chip)


def parse_target(target: str) -> Topology:
    """The topology that a target names; raises `ChipError` for one that there is none of."""
    found = _SLICE.fullmatch(target)
    if found is None:
        return Topology(load_chip(target))
    chip = load_chip(found["chip"])
    dims = tuple(int(size) for size in found["dims"].split("x"))
    if len(dims) > 3 or not 0 < prod(dims) <= _MOST_CHIPS:
        raise ChipError(
            f"target {target}: want one to three dimensions and at most {_MOST_CHIPS} chips, "
            f"as in {found['chip']}:4x2"
        )
    x, y, z = (*dims, 1, 1)[:3]
    return Topology(chip, (x, y, z))
