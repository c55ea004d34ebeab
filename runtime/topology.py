"""A target's topology: which chip, how many of them, where each stands.

    v5e            one chip
    v5e:4x2        a slice of 8: 4 along x, 2 along y
    v5e-8          the cloud's name of one: 8 chips, or cores where the cloud counts these (v4, v5p)
    my.toml:2x2x2  a slice of a chip described in a file
    v5e{vmem=32MiB}:4x2   a slice of a changed chip (`tpu_sim.isa.chip_settings`)

Chips are numbered along x first: ``id = x + X * (y + Y * z)``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tpu_sim.isa.chips import Chip, ChipError, chip_names, consistent, load_chip
from tpu_sim.isa.torus import Coordinates, Slice, Torus, torus_of

_SLICE = re.compile(r"(?P<chip>.+):(?P<dims>\d+(?:x\d+)*)")
_CLOUD = re.compile(r"(?P<chip>[^:]+)-(?P<count>\d+)")
_CLOUD_SLICES = {
    2: ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"),
    3: ("1x1x1", "2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16",
        "8x16x16", "16x16x16", "16x16x24"),
}  # fmt: skip
"""The shapes that the cloud gives out by number, by dimensions of a chip's network (Cloud TPU docs)."""
_TARGETS = (
    "a name such as 'v5e', 'v5e:4x2' or 'my.toml', a tpuc.Chip, a device or several of one slice"
)
_KINDS = {
    "v2": "TPU v2", "v3": "TPU v3",
    "v4": "TPU v4", "v5e": "TPU v5 lite", "v5p": "TPU v5", "v6e": "TPU v6 lite", "7x": "TPU7x",
}  # fmt: skip
"""What JAX calls a device of these chips (`jax.Device.device_kind`)."""


@dataclass(frozen=True)
class Topology:
    """`dims` chips along x, y and z."""

    chip: Chip
    dims: Coordinates = (1, 1, 1)

    @property
    def name(self) -> str:
        """What names it as a target: ``v5e``, ``v5e:4x2``."""
        return slice_name(self.chip.name, self.dims)

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
        return self.chip.devices_per_chip

    @property
    def device_kind(self) -> str:
        """What JAX calls such a device; the chip's own name for a chip of one's own."""
        return _KINDS.get(self.chip.family, self.chip.name)

    def coordinates(self, chip: int) -> Coordinates:
        """Where a chip stands."""
        return self.torus.coordinates(chip)


def slice_name(chip: str, dims: Sequence[int]) -> str:
    """What names a slice as a target; one chip by its own name."""
    shape = list(dims)
    while len(shape) > 1 and shape[-1] == 1:
        shape.pop()
    return chip if prod(dims) == 1 else f"{chip}:{'x'.join(map(str, shape))}"


def parse_target(target: str | Chip) -> Topology:
    """The topology that a target names, or one chip of this kind; raises `ChipError` for one that there is
    none of, `TypeError` for what is neither."""
    if isinstance(target, Chip):
        return Topology(consistent(target))
    if not isinstance(target, str):
        raise no_target(target)
    found = _SLICE.fullmatch(target)
    if found is not None:
        return _slice_of(load_chip(found["chip"]), found["dims"], target)
    name, colon, _ = target.partition(":")
    if colon and name in chip_names():
        raise ChipError(f"target {target}: want numbers with x between them, as in {name}:4x2")
    cloud = _CLOUD.fullmatch(target)
    if cloud is None or target.endswith(".toml"):
        return Topology(load_chip(target))
    return _cloud_slice(load_chip(cloud["chip"]), int(cloud["count"]), target)


def no_target(target: object) -> TypeError:
    """The error that says what a target is."""
    return TypeError(f"target {target!r}: want {_TARGETS}")


def _slice_of(chip: Chip, text: str, target: str) -> Topology:
    dims = tuple(int(size) for size in text.split("x"))
    if len(dims) > 3 or not 0 < prod(dims) <= chip.most_chips:
        raise ChipError(
            f"target {target}: want one to three dimensions and at most {chip.most_chips} chips, "
            f"as in {chip.name}:4x2"
        )
    if sum(size > 1 for size in dims) > chip.ici_dimensions:
        raise ChipError(
            f"target {target}: {chip.name} has links along {chip.ici_dimensions} dimensions"
        )
    x, y, z = (*dims, 1, 1)[:3]
    return Topology(chip, (x, y, z))


def _cloud_slice(chip: Chip, count: int, target: str) -> Topology:
    """The slice of so many chips, or cores."""
    if not chip.cloud_units:
        raise ChipError(f"target {target}: name a slice of {chip.name} by its shape, as in :2x2x1")
    shapes = _CLOUD_SLICES.get(chip.ici_dimensions, ())
    by_count = {
        prod(map(int, shape.split("x"))) * chip.cloud_units: shape
        for shape in shapes
        if prod(map(int, shape.split("x"))) <= chip.most_chips
    }
    if count not in by_count:
        unit = "chips" if chip.cloud_units == 1 else "cores"
        known = ", ".join(map(str, by_count))
        raise ChipError(f"target {target}: {count} {unit}, the cloud has {known} of {chip.name}")
    return _slice_of(chip, by_count[count], target)
