"""Shardy's data: meshes of named axes, and an array's sharding over them.

A `TensorSharding` says for each dimension which axes cut it, major to minor. An axis may be used
in part: ``"x":(2)4`` are the 4 values of axis x that remain when its first 2 are taken out before.
Text forms are in `compiler.sharding.shardy_text`.

>>> mesh = Mesh((("x", 4), ("y", 2)))
>>> sharding = TensorSharding(mesh, (DimSharding(), DimSharding((mesh.axis("y"),))))
>>> str(sharding.to_hlo())
'{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}'
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from compiler.hlo.iota_order import Ints, canonical_iota
from compiler.hlo.sharding import HloSharding, Tiles
from compiler.hlo.sharding_text import normalised


@dataclass(frozen=True, order=True)
class Axis:
    """A mesh axis or a part of one: `size` values, after `before` times as many are told apart."""

    name: str
    before: int
    size: int

    @property
    def end(self) -> int:
        """How many values of the axis are told apart by this part and all before it."""
        return self.before * self.size

    def overlaps(self, other: Axis) -> bool:
        """Whether both tell apart some of the same devices."""
        return self.name == other.name and self.before < other.end and other.before < self.end

    def excludes(self, other: Axis) -> bool:
        """Whether no grid of devices has both: they overlap, or what lies between them is no number of
        values, as with the first 2 and the last 2 of 6."""
        if self.name != other.name:
            return False
        ends = sorted((self.before, self.end, other.before, other.end))
        return self.overlaps(other) or any(b % a for a, b in itertools.pairwise(ends))

    def without(self, other: Axis) -> Axis | None:
        """The largest first part of this axis that may be used beside `other`; None without any."""
        if not self.excludes(other):
            return self
        sizes = (size for size in range(self.size, 1, -1) if self.size % size == 0)
        parts = (Axis(self.name, self.before, size) for size in sizes)
        return next((part for part in parts if not part.excludes(other)), None)


Axes = tuple[Axis, ...]
Devices: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True)
class Mesh:
    """Axes of (name, size), major first; `device_ids` when the devices are not in order.

    A mesh without axes is a single device, the only one of `device_ids`. Names of meshes do not
    tell them apart.
    """

    axes: tuple[tuple[str, int], ...]
    device_ids: Ints = ()
    name: str = field(default="mesh", compare=False)

    def __post_init__(self) -> None:
        if len(dict(self.axes)) != len(self.axes):
            raise ValueError(f"an axis of mesh @{self.name} is there twice")
        if self.axes and self.device_ids and len(self.device_ids) != self.device_count:
            raise ValueError(
                f"mesh @{self.name} has {self.device_count} devices, "
                f"device_ids lists {len(self.device_ids)}"
            )

    @property
    def device_count(self) -> int:
        """How many devices it has."""
        return math.prod(size for _, size in self.axes)

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        """The axes' sizes by name."""
        return dict(self.axes)

    @property
    def is_maximal(self) -> bool:
        """Whether it names one device."""
        return not self.axes and len(self.device_ids) == 1

    def axis(self, name: str, before: int = 1, size: int = 0) -> Axis:
        """An axis, or a part of one; ValueError when there is none such."""
        if name not in self.sizes:
            raise ValueError(f"axis {name} is not in mesh @{self.name}")
        full = self.sizes[name]
        found = Axis(name, before, size or full // before)
        if full % found.end:
            raise ValueError(f'"{name}":({before}){size} is no part of axis {name} of size {full}')
        return found

    def all_axes(self) -> Axes:
        """Every axis as a whole."""
        return tuple(Axis(name, 1, size) for name, size in self.axes)

    def rest(self, used: Iterable[Axis]) -> Axes:
        """What is left of the axes, in the mesh's order, when parts are used."""
        return tuple(
            axis
            for axis in self._parts(tuple(used))
            if not any(axis.overlaps(other) for other in used)
        )

    def _parts(self, used: Axes) -> list[Axis]:
        """All axes, cut wherever a part that is used begins or ends."""
        found = []
        for name, size in self.axes:
            ends = {1, size, *(p for a in used if a.name == name for p in (a.before, a.end))}
            cuts = sorted(ends)
            found += [Axis(name, low, high // low) for low, high in itertools.pairwise(cuts)]
        return found

    def tiles(self, groups: Sequence[Axes]) -> Tiles:
        """The tile assignment whose dimensions are told apart by these groups of axes.

        The groups hold every axis that is larger than one.
        """
        used = tuple(axis for group in groups for axis in group)
        parts = [part for part in self._parts(used) if part.size > 1]
        order = tuple(
            index for axis in used for index, part in enumerate(parts) if axis.overlaps(part)
        )
        dims = tuple(math.prod(axis.size for axis in group) for group in groups)
        sizes = tuple(part.size for part in parts)
        if not self.device_ids:
            return Tiles(dims, *canonical_iota(sizes, order))
        devices = np.array(self.device_ids).reshape(sizes).transpose(order)
        return Tiles(dims, devices=tuple(devices.reshape(-1).tolist()))

    def is_within(self, axis: Axis, other: Mesh, axes: Axes) -> bool:
        """Whether devices that only this axis tells apart are so by no axis of another mesh but these."""
        groups = other.tiles([other.rest(axes), axes]).array()
        group_of = np.empty(groups.size, np.int64)
        group_of[groups] = np.arange(len(groups))[:, None]
        lines = group_of[self.tiles([self.rest((axis,)), (axis,)]).array()]
        return bool((lines == lines[:, :1]).all())

    @functools.cached_property
    def _position(self) -> Devices:
        """Where in the order of the mesh each device stands."""
        ids = np.array(self.device_ids or range(self.device_count), np.int64)
        position = np.full(int(ids.max()) + 1, -1, np.int64)
        position[ids] = np.arange(ids.size)
        return position

    def axes_of_tiles(self, devices: Devices, has_replicas: bool) -> list[Axes] | None:
        """The axes that tell apart the devices along each dimension of a tile assignment.

        The last dimension is left out when it holds replicas, whose order means nothing. None
        when the assignment is not made of the mesh's axes or whole parts of them.
        """
        if devices.size != self.device_count or int(devices.max()) >= self._position.size:
            return None
        positions = self._position[devices]
        if has_replicas:
            positions = np.sort(positions, axis=-1)
        kept = positions[..., 0] if has_replicas else positions
        found: list[Axes] = []
        for dim, size in enumerate(kept.shape):
            axes = self._axes_of_line(np.moveaxis(kept, dim, 0).reshape(size, -1)[:, 0])
            if axes is None:
                return None
            found.append(axes)
        used = tuple(axis for axes in found for axis in axes)
        if any(a.excludes(b) for a, b in itertools.combinations(used, 2)):
            return None
        groups = [*found, self.rest(used)] if has_replicas else found
        made = self._position[self.tiles(groups).array()]
        return found if np.array_equal(made, positions) else None

    def _axes_of_line(self, line: Devices) -> Axes | None:
        """The axes, major first, along which these positions go."""
        found: list[Axis] = []
        step = 1
        while step < line.size:
            part = self._part_at(int(line[step] - line[0]), line[::step])
            if part is None:
                return None
            step *= part.size
            found.insert(0, part)
        return merged_axes(found) if step == line.size else None

    def _part_at(self, stride: int, line: Devices) -> Axis | None:
        """The largest part of an axis that makes the first steps of a line, each of `stride`."""
        below = 1
        for name, size in reversed(self.axes):
            if below <= stride < below * size and stride % below == 0:
                within = stride // below
                if size % within:
                    return None
                for count in range(size // within, 1, -1):
                    steps = np.arange(count) * stride + line[0]
                    if (size // within) % count or line.size % count:
                        continue
                    if np.array_equal(line[:count], steps):
                        return Axis(name, size // within // count, count)
            below *= size
        return None


def merged_axes(axes: Iterable[Axis]) -> Axes:
    """The same list with parts joined that follow each other in one axis."""
    found: list[Axis] = []
    for axis in axes:
        last = found[-1] if found else None
        if last is not None and last.name == axis.name and last.end == axis.before:
            found[-1] = Axis(axis.name, last.before, last.size * axis.size)
        else:
            found.append(axis)
    return tuple(found)


@dataclass(frozen=True)
class DimSharding:
    """The axes that cut one dimension, major first; more may be added while it is open."""

    axes: Axes = ()
    is_open: bool = False
    priority: int | None = None

    @property
    def count(self) -> int:
        """Into how many tiles the dimension is cut."""
        return math.prod(axis.size for axis in self.axes)


@dataclass(frozen=True)
class TensorSharding:
    """How an array lies on a mesh.

    Axes of `replicated` must not cut it; along those of `unreduced` devices hold partial results
    that are still to be added; along those of `manual` its shape is a device's own already.
    """

    mesh: Mesh
    dims: tuple[DimSharding, ...]
    replicated: Axes = ()
    unreduced: Axes = ()
    manual: Axes = ()

    def __post_init__(self) -> None:
        for a, b in itertools.combinations(self.used(), 2):
            if a.excludes(b):
                raise ValueError(
                    f"axis {a.name} is used twice, or in parts that exclude each other, in {self.dims}"
                )

    @staticmethod
    def open(mesh: Mesh, rank: int) -> TensorSharding:
        """Nothing is said yet about any dimension."""
        return TensorSharding(mesh, (DimSharding(is_open=True),) * rank)

    @staticmethod
    def closed(mesh: Mesh, rank: int) -> TensorSharding:
        """Replicated, for good."""
        return TensorSharding(mesh, (DimSharding(),) * rank)

    def used(self) -> Axes:
        """All axes that it names."""
        by_dims = tuple(axis for dim in self.dims for axis in dim.axes)
        return (*by_dims, *self.replicated, *self.unreduced, *self.manual)

    def with_axes(self, axes: Sequence[Axes]) -> TensorSharding:
        """The same with other axes for each dimension."""
        pairs = zip(self.dims, axes, strict=True)
        return replace(self, dims=tuple(replace(dim, axes=found) for dim, found in pairs))

    def to_hlo(self) -> HloSharding:
        """The `HloSharding` in XLA's normal form: axes of the dimensions, then all others."""
        if self.mesh.is_maximal:
            return HloSharding.maximal(self.mesh.device_ids[0])
        cut = [dim.axes for dim in self.dims]
        rest = self.mesh.rest((*itertools.chain(*cut), *self.manual, *self.unreduced))
        in_order = self.mesh.all_axes()
        groups = {
            "manual": _in_mesh_order(self.manual, in_order),
            "unreduced": _in_mesh_order(self.unreduced, in_order),
            "replicated": rest,
        }
        kinds = tuple(kind for kind, axes in groups.items() if math.prod(a.size for a in axes) > 1)
        if not any(dim.count > 1 for dim in self.dims) and len(kinds) <= 1:
            return HloSharding(kinds[0] if kinds else "replicated")
        tiles = self.mesh.tiles([*cut, *(groups[kind] for kind in kinds)])
        return normalised(HloSharding.tiled(tiles, kinds))

    @staticmethod
    def from_hlo(sharding: HloSharding, mesh: Mesh, rank: int) -> TensorSharding | None:
        """An array's sharding over a mesh, closed; None when the mesh cannot express it."""
        if sharding.kind == "replicated":
            return TensorSharding.closed(mesh, rank)
        if sharding.kind == "manual":
            return replace(TensorSharding.closed(mesh, rank), manual=mesh.all_axes())
        if sharding.kind == "unreduced":
            return replace(TensorSharding.closed(mesh, rank), unreduced=mesh.all_axes())
        if sharding.tiles is None or sharding.is_tuple:
            return None
        subgroups = [kind for kind in sharding.subgroups if kind != "replicated"]
        has_replicas = len(subgroups) < len(sharding.subgroups)
        axes = mesh.axes_of_tiles(sharding.tiles.array(), has_replicas)
        if axes is None or len(axes) - len(subgroups) != rank or "maximal" in subgroups:
            return None
        rest = dict(zip(subgroups, axes[rank:], strict=True))
        dims = tuple(DimSharding(found) for found in axes[:rank])
        return TensorSharding(
            mesh, dims, manual=rest.get("manual", ()), unreduced=rest.get("unreduced", ())
        )


def _in_mesh_order(axes: Axes, order: Axes) -> Axes:
    names = [axis.name for axis in order]
    return tuple(sorted(axes, key=lambda axis: (names.index(axis.name), axis.before)))
