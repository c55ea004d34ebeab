"""`tpuc.Mesh`, `PartitionSpec` and `NamedSharding`, in JAX's manner: which device has which part of an array.

    mesh = tpuc.make_mesh((4, 2), ("data", "model"), "v5e:4x2")
    rows = tpuc.NamedSharding(mesh, tpuc.PartitionSpec("data"))
    x = tpuc.device_put(array, rows)

A program for a mesh numbers its devices in the mesh's order: partition p runs on ``mesh.devices.flat[p]``,
wherever that stands in the slice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import CompileError
from compiler.hlo.shape import ArrayShape
from compiler.hlo.sharding import HloSharding
from compiler.sharding import mesh as shardy
from compiler.sharding.placement import local_dims, tile_counts, tile_index
from runtime.client import Device, client_for, cores_of
from runtime.spread import Spread
from tpu_sim.isa.cached_property import cached_property
from tpu_sim.isa.torus import Slice

Part: TypeAlias = "str | tuple[str, ...] | Unconstrained | None"
"""What cuts one dimension: nothing, an axis, several axes (major first), or whatever is best."""


class Unconstrained:
    """The type of `PartitionSpec.UNCONSTRAINED`."""

    def __repr__(self) -> str:
        return "UNCONSTRAINED"


class PartitionSpec:
    """For each dimension of an array the mesh axes that cut it; dimensions not named are not cut."""

    UNCONSTRAINED = Unconstrained()
    """In a constraint: propagation decides how this dimension is cut."""

    def __init__(self, *parts: str | Sequence[str] | Unconstrained | None) -> None:
        self.parts: tuple[Part, ...] = tuple(
            part if part is None or isinstance(part, str | Unconstrained) else tuple(part)
            for part in parts
        )

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionSpec) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(map(repr, self.parts))})"

    def axes(self, dim: int) -> tuple[str, ...]:
        """The axes that cut a dimension, major first."""
        part = self.parts[dim] if dim < len(self.parts) else None
        if part is None or isinstance(part, Unconstrained):
            return ()
        return (part,) if isinstance(part, str) else part

    @property
    def open_dims(self) -> tuple[int, ...]:
        """The dimensions that are left to propagation."""
        return tuple(i for i, part in enumerate(self.parts) if isinstance(part, Unconstrained))


class Mesh:
    """Devices of one slice in an array whose dimensions have names.

    `devices` may leave out some of the slice's; an array of `tpuc.Device`, as `tpuc.devices(target)`
    lists them, in any order and shape.
    """

    def __init__(self, devices: npt.ArrayLike, axis_names: str | Sequence[str]) -> None:
        found = np.asarray(devices, dtype=object)
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if found.ndim != len(names) or len(set(names)) != len(names):
            raise ValueError(f"a mesh of {found.ndim} dimensions, the axis names are {names}")
        flat = list(found.flat)
        if not flat or any(not isinstance(device, Device) for device in flat):
            raise ValueError("a mesh is made of tpuc devices, as tpuc.devices(target) lists them")
        if len(set(flat)) != len(flat) or len({d.topology for d in flat}) != 1:
            raise ValueError("the devices of a mesh are different ones of one slice")
        self.devices = found
        self.axis_names: tuple[str, ...] = names

    @property
    def shape(self) -> dict[str, int]:
        """The size of each axis."""
        return dict(zip(self.axis_names, self.devices.shape, strict=True))

    @property
    def size(self) -> int:
        """How many devices it has."""
        return self.devices.size

    @cached_property
    def device_list(self) -> tuple[Device, ...]:
        """The devices in the order of partitions."""
        return tuple(self.devices.flat)

    @property
    def cores(self) -> Slice:
        """What a program for it is compiled for."""
        return cores_of(self.device_list)

    @cached_property
    def axes(self) -> shardy.Mesh:
        """Its axes as the compiler knows them."""
        return shardy.Mesh(tuple(self.shape.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return self.axis_names, self.devices.shape, self.device_list

    def __repr__(self) -> str:
        axes = ", ".join(f"{name!r}: {size}" for name, size in self.shape.items())
        return f"Mesh({axes}; {self.device_list[0].topology.name})"


def make_mesh(axis_shapes: Sequence[int], axis_names: Sequence[str], target: str) -> Mesh:
    """A mesh over all devices of a target, in an order that suits its links.

    Axes of the sizes of the slice's dimensions go along these, one axis goes round a ring; all others
    take the devices in the order of their numbers.
    """
    client = client_for(target)
    shape, count = tuple(axis_shapes), len(client.devices)
    if math.prod(shape) != count:
        raise ValueError(f"a mesh of {'x'.join(map(str, shape))} devices, {target} has {count}")
    order = np.arange(count)
    topology = client.topology
    long = [size for size in shape if size > 1]
    if topology.devices_per_chip == 1:
        grid = order.reshape(topology.dims[::-1]).transpose()  # [x, y, z]
        fits = [p for p in permutations(range(3)) if _long(topology.dims, p) == long]
        if len(long) == 1:
            order = np.array(topology.torus.ring(range(count)))
        elif fits:
            order = grid.transpose(fits[0])
    devices = np.empty(count, object)
    devices[:] = [client.devices[number] for number in order.flat]
    return Mesh(devices.reshape(shape), axis_names)


def _long(dims: Sequence[int], order: Sequence[int]) -> list[int]:
    return [dims[axis] for axis in order if dims[axis] > 1]


@dataclass(frozen=True)
class NamedSharding:
    """How an array of any shape with enough dimensions lies on a mesh."""

    mesh: Mesh
    spec: PartitionSpec

    def __post_init__(self) -> None:
        named = [axis for dim in range(len(self.spec)) for axis in self.spec.axes(dim)]
        strange = [axis for axis in named if axis not in self.mesh.axis_names]
        if strange or len(set(named)) != len(named):
            why = f"axis {strange[0]!r} is none of it" if strange else "an axis is there twice"
            raise ValueError(f"{self.spec} over {self.mesh}: {why}")

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device has all of the array."""
        return all(
            self.mesh.shape[axis] == 1
            for dim in range(len(self.spec))
            for axis in self.spec.axes(dim)
        )

    def to_hlo(self, rank: int) -> HloSharding:
        """What an instruction's attribute `sharding` says of an array of that many dimensions."""
        if len(self.spec) > rank:
            raise CompileError(f"{self.spec} for an array of {rank} dimensions")
        axes = self.mesh.axes
        dims = tuple(
            shardy.DimSharding(tuple(axes.axis(name) for name in self.spec.axes(dim)))
            for dim in range(rank)
        )
        return shardy.TensorSharding(axes, dims).to_hlo()

    def shard_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a device's part; the last parts are padded where the cut is uneven."""
        return local_dims(self.to_hlo(len(shape)), shape)

    def spread(self, shape: ArrayShape) -> Spread:
        """Which part of an array of that shape each device of the mesh has."""
        rank, sharding = shape.rank, self.to_hlo(shape.rank)
        places = tuple(tile_index(sharding, rank, number) for number in range(self.mesh.size))
        local = ArrayShape(shape.dtype, local_dims(sharding, shape.dims))
        return Spread(shape, local, 1, tile_counts(sharding, rank), places)


def sharding_of(spread: Spread, mesh: Mesh) -> NamedSharding | None:
    """The sharding over whole axes of a mesh that puts an array where it is; None if there is none."""
    if spread.replicas > 1 or len(spread.places) != mesh.size:
        return None
    places = np.array(spread.places).reshape(*mesh.devices.shape, len(spread.tiles))
    parts: list[tuple[str, ...]] = []
    for dim in range(len(spread.tiles)):
        numbers = places[..., dim]
        steps = {
            name: int(np.take(numbers, 1, axis).flat[0])
            for axis, name in enumerate(mesh.axis_names)
            if numbers.shape[axis] > 1 and np.take(numbers, 1, axis).flat[0]
        }
        parts.append(tuple(sorted(steps, key=lambda name, steps=steps: -steps[name])))  # type: ignore[misc]
    named = [name for part in parts for name in part]
    if len(set(named)) != len(named):
        return None
    spec = PartitionSpec(*(part[0] if len(part) == 1 else part or None for part in parts))
    sharding = NamedSharding(mesh, spec)
    return sharding if sharding.spread(spread.shape).places == spread.places else None
