"""`ShardedArray`: one array that lies in pieces on the devices of a slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler.hlo.dtypes import from_numpy
from compiler.hlo.host_types import device_dtype, fitted
from compiler.hlo.shape import ArrayShape
from runtime.buffer import Array
from runtime.buffer import device_put as put_on_device
from runtime.client import Device
from runtime.mesh import Mesh, NamedSharding, sharding_of
from runtime.spread import Spread

HostArray = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Shard:
    """What one device has: ``array[index]``, the first so numbered or another copy of it.

    `data` has the shape of a whole piece; where the cut is uneven, what lies past the end of the
    array has no meaning.
    """

    device: Device
    index: tuple[slice, ...]
    replica_id: int
    data: Array


class ShardedArray:
    """A global array whose pieces lie on devices, never changed; `numpy()` puts them together.

    Attributes: `shape` and `dtype` of the whole; `devices`, in the order of a program's partitions.
    """

    def __init__(
        self,
        spread: Spread,
        devices: Sequence[Device],
        arrays: Sequence[Array],
        mesh: Mesh | None = None,
    ) -> None:
        self.spread = spread
        self.devices = tuple(devices)
        self.arrays = tuple(arrays)
        self.mesh = mesh

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions of the whole array."""
        return self.spread.shape.dims

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """NumPy element type."""
        return self.spread.shape.dtype.numpy

    @property
    def sharding(self) -> NamedSharding | None:
        """How it lies on its mesh; None without a mesh, or if its axes cannot say it."""
        return None if self.mesh is None else sharding_of(self.spread, self.mesh)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device has all of it."""
        return self.spread.is_replicated

    @property
    def addressable_shards(self) -> list[Shard]:
        """The piece on each device, in the order of `devices`."""
        seen: dict[object, int] = {}
        shards = []
        for number, (device, data) in enumerate(zip(self.devices, self.arrays, strict=True)):
            copy = seen[self.spread.held(number)] = seen.get(self.spread.held(number), -1) + 1
            shards.append(Shard(device, self.spread.index(number), copy, data))
        return shards

    def numpy(self) -> HostArray:
        """The whole array on the host; equal pieces are read once."""
        read: dict[object, HostArray] = {}
        pieces = []
        for number, array in enumerate(self.arrays):
            held = self.spread.held(number)
            if held not in read:
                read[held] = array.numpy()
            pieces.append(read[held])
        return self.spread.join(pieces)

    def lies_as(self, spread: Spread, devices: Sequence[Device]) -> list[Array] | None:
        """The pieces on `devices` if each has what `spread` says, else None."""
        if spread.shape.dims != self.shape or spread.tiles != self.spread.tiles:
            return None
        here = {device: number for number, device in enumerate(self.devices)}
        numbers = [here.get(device) for device in devices]
        found = []
        for wanted, number in enumerate(numbers):
            if number is None or self.spread.held(number) != spread.held(wanted):
                return None
            found.append(self.arrays[number])
        return found

    def block_until_ready(self) -> ShardedArray:
        """Wait until all pieces are there, and return the array."""
        for array in self.arrays:
            array.block_until_ready()
        return self

    def is_deleted(self) -> bool:
        """Whether its value is gone: by `delete`, or since a call that it was donated to."""
        return any(array.is_deleted() for array in self.arrays)

    def delete(self) -> None:
        """Give the memory of all pieces back."""
        for array in self.arrays:
            array.delete()

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[np.generic]:
        if copy is False:
            message = "a tpuc.ShardedArray lies in device memory: a host array is always a copy"
            raise ValueError(message)
        host = self.numpy()
        return host if dtype is None else host.astype(dtype)

    def __repr__(self) -> str:
        kind = f"{self.spread.shape.dtype}{list(self.shape)}"
        end = ", deleted" if self.is_deleted() else ""
        where = self.sharding.spec if self.sharding is not None else list(self.spread.tiles)
        return f"tpuc.ShardedArray({kind}, {where} on {len(self.devices)} devices{end})"


def put_sharded(
    value: npt.ArrayLike | Array | ShardedArray, sharding: NamedSharding
) -> ShardedArray:
    """Cut an array and place the pieces; types as in `device_put`."""
    host = np.asarray(value)
    dtype = device_dtype(host.dtype, warns=isinstance(value, np.ndarray))
    spread = sharding.spread(ArrayShape(from_numpy(dtype), host.shape))
    devices = sharding.mesh.device_list
    pieces = spread.cut(fitted(host, dtype))
    arrays = [put_on_device(piece, device) for piece, device in zip(pieces, devices, strict=True)]
    return ShardedArray(spread, devices, arrays, sharding.mesh)
