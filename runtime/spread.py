"""How the arrays of a call lie on the devices of a slice: cut into pieces, and put together again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from compiler.hlo.shape import ArrayShape

HostArray = npt.NDArray[np.generic]
Tile = tuple[int, ...]


@dataclass(frozen=True)
class Spread:
    """An argument or a result of a program of `replicas` times some partitions.

    `shape` is the caller's: with several replicas its first dimension tells them apart. `tiles` are
    how many pieces each other dimension is cut into, and `places` which of them a partition has. A piece
    has the shape `local`: the last ones may be padded at their ends, with nothing that matters. With
    `addends` pieces of the same place are parts of a sum, and each partition has the one of that number.
    """

    shape: ArrayShape
    local: ArrayShape
    replicas: int
    tiles: Tile
    places: tuple[Tile, ...]
    addends: tuple[int, ...] = ()

    @classmethod
    def whole(cls, local: ArrayShape, replicas: int, partitions: int) -> Spread:
        """All of the array on each partition."""
        dims = (replicas, *local.dims) if replicas > 1 else local.dims
        shape = ArrayShape(local.dtype, dims)
        rank = len(local.dims)
        return cls(
            shape, replace(local, layout=None), replicas, (1,) * rank, ((0,) * rank,) * partitions
        )

    def cut(self, array: HostArray) -> list[HostArray]:
        """The pieces, device by device; equal ones are one array."""
        each = [np.asarray(part) for part in array] if self.replicas > 1 else [array]
        pieces: list[HostArray] = []
        for number, part in enumerate(each):
            made: dict[Tile, HostArray] = {}
            for partition, place in enumerate(self.places):
                if place not in made:
                    made[place] = self._piece(part, place)
                is_first = not self.addends or self.addends[partition] == 0
                pieces.append(made[place] if is_first else np.zeros_like(made[place]))
            assert len(pieces) == (number + 1) * len(self.places)
        return pieces

    def join(self, pieces: Sequence[HostArray]) -> HostArray:
        """The array of the pieces of all devices; of equal pieces the first one's, and addends added."""
        count = len(self.places)
        if self.addends:
            pieces = self._summed(pieces)
        whole = [self._joined(pieces[r * count : (r + 1) * count]) for r in range(self.replicas)]
        return np.stack(whole) if self.replicas > 1 else whole[0]

    def _summed(self, pieces: Sequence[HostArray]) -> list[HostArray]:
        """For each device the sum of the addends of its place."""
        sums: dict[tuple[int, Tile], dict[int, HostArray]] = {}
        count = len(self.places)
        for device, piece in enumerate(pieces):
            found = sums.setdefault(self.held(device), {})
            found.setdefault(self.addends[device % count], piece)
        return [sum(sums[self.held(device)].values()) for device in range(len(pieces))]  # type: ignore[misc]

    def held(self, device: int) -> tuple[int, Tile]:
        """What a device has: devices of the same replica's same place have the same."""
        replica, partition = divmod(device, len(self.places))
        return replica, self.places[partition]

    def index(self, device: int) -> tuple[slice, ...]:
        """Which part of the caller's array a device has."""
        replica, place = self.held(device)
        dims = self.shape.dims[1:] if self.replicas > 1 else self.shape.dims
        ranges = [
            slice(min(part.start, size), min(part.stop, size))
            for part, size in zip(self._slices(place), dims, strict=True)
        ]
        return (slice(replica, replica + 1), *ranges) if self.replicas > 1 else tuple(ranges)

    @property
    def is_replicated(self) -> bool:
        """Whether every device has all of it."""
        return self.replicas == 1 and len(set(self.places)) == 1 and not self.addends

    def _piece(self, array: HostArray, place: Tile) -> HostArray:
        found = np.asarray(array[self._slices(place)])
        if found.shape == self.local.dims:
            return found
        piece = np.zeros(self.local.dims, array.dtype)
        piece[tuple(slice(0, n) for n in found.shape)] = found
        return piece

    def _joined(self, pieces: Sequence[HostArray]) -> HostArray:
        if max(self.tiles, default=1) == 1:
            return pieces[0]
        dims = self.shape.dims[1:] if self.replicas > 1 else self.shape.dims
        array = np.empty(dims, pieces[0].dtype)
        for place, piece in reversed(list(zip(self.places, pieces, strict=True))):
            where = self._slices(place)
            sizes = [len(range(*part.indices(n))) for part, n in zip(where, dims, strict=True)]
            array[where] = piece[tuple(slice(0, size) for size in sizes)]
        return array

    def _slices(self, place: Tile) -> tuple[slice, ...]:
        steps = self.local.dims
        return tuple(slice(k * step, (k + 1) * step) for k, step in zip(place, steps, strict=True))
