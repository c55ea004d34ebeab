"""Which device holds which part of a value: HLO's ``sharding={...}`` as an object.

`HloSharding` is what an instruction's attribute `sharding` holds. Its text is read by
`compiler.hlo.sharding_text`, which also brings it into XLA's normal form; what it means for
shapes and devices is in `compiler.sharding.placement`.

>>> HloSharding.tiled(Tiles((2, 1, 4), (8,), (0,)), ("replicated",)).text()
'{devices=[2,1,4]<=[8] last_tile_dim_replicate}'
>>> HloSharding.of_tuple([REPLICATED, HloSharding.maximal(2)]).text()
'{{replicated}, {maximal device=2}}'
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from compiler.hlo.iota_order import Ints
from compiler.hlo.mesh_text import canonical_mesh_sharding
from compiler.hlo.shape import Shape, TupleShape
from compiler.hlo.shape_text import join_indexed

KINDS = ("replicated", "manual", "unknown", "unreduced", "maximal")
"""What an array's sharding may be beside tiles and a sharding over the axes of a mesh."""


@dataclass(frozen=True)
class Tiles:
    """Which device has which tile: a reshaped, transposed iota, or a list of `devices`."""

    dims: Ints
    reshape: Ints = ()
    perm: Ints = ()
    devices: Ints = ()

    def array(self) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """The device of every tile, shaped `dims`."""
        if not self.reshape:
            return np.array(self.devices, np.int64).reshape(self.dims)
        ids = np.arange(math.prod(self.reshape)).reshape(self.reshape)
        return ids.transpose(self.perm).reshape(self.dims)

    def text(self) -> str:
        """``devices=[2,4]<=[4,2]T(1,0)`` or ``devices=[2]1,0``."""
        head = f"devices=[{_joined(self.dims)}]"
        if not self.reshape:
            return head + _joined(self.devices)
        order = f"T({_joined(self.perm)})" if len(self.reshape) > 1 else ""
        return f"{head}<=[{_joined(self.reshape)}]{order}"


@dataclass(frozen=True)
class HloSharding:
    """The sharding of one array, or of a tuple's arrays in order (`elements`).

    `kind` is a word of `KINDS`, or empty for `tiles`, a sharding over a mesh (`named`, its text)
    and tuples. The last ``len(subgroups)`` dimensions of the tiles split no dimension of the
    array: devices along them hold the same data (``replicated``), see shapes that are already
    their own (``manual``) or partial sums (``unreduced``). `group` is ``shard_as 3`` or
    ``shard_like 3``. `metadata` says where it comes from and does not tell shardings apart.
    """

    kind: str = ""
    device: int = 0
    tiles: Tiles | None = None
    subgroups: tuple[str, ...] = ()
    group: str = ""
    metadata: tuple[str, ...] = field(default=(), compare=False)
    named: str = ""
    elements: tuple[HloSharding, ...] | None = None

    @staticmethod
    def tiled(tiles: Tiles, subgroups: Iterable[str] = ()) -> HloSharding:
        """Tiles as they are given."""
        return HloSharding(tiles=tiles, subgroups=tuple(subgroups))

    @staticmethod
    def maximal(device: int) -> HloSharding:
        """All of the array on one device."""
        return HloSharding("maximal", device)

    @staticmethod
    def of_tuple(elements: Iterable[HloSharding]) -> HloSharding:
        """The shardings of a tuple's arrays, nested tuples flattened."""
        return HloSharding(elements=tuple(elements))

    @property
    def is_tuple(self) -> bool:
        """Whether it says something for each array of a tuple."""
        return self.elements is not None

    def of_leaf(self, index: int) -> HloSharding:
        """The sharding of one array of a value; one sharding stands for all arrays of a tuple."""
        return self if self.elements is None else self.elements[index]

    def for_leaves(self, count: int) -> HloSharding:
        """Itself as a tuple's sharding of so many arrays; ValueError when it has others."""
        if self.elements is None:
            return HloSharding.of_tuple([self] * count)
        if len(self.elements) != count:
            raise ValueError(
                f"the sharding is for {len(self.elements)} arrays, the value has {count}"
            )
        return self

    def text(self, with_metadata: bool = True) -> str:
        """XLA's text, braces included."""
        if self.elements is not None:
            return "{" + join_indexed([e.text(with_metadata) for e in self.elements]) + "}"
        if self.named:
            return canonical_mesh_sharding(self.named, with_metadata)
        if self.tiles is not None:
            body = self.tiles.text()
            if self.subgroups == ("replicated",):
                body += " last_tile_dim_replicate"
            elif self.subgroups:
                body += f" last_tile_dims={{{', '.join(self.subgroups)}}}"
        else:
            body = f"maximal device={self.device}" if self.kind == "maximal" else self.kind
        body += f" {self.group}" if self.group else ""
        if with_metadata and self.metadata:
            inner = self.metadata[0] if len(self.metadata) == 1 else ""
            body += f" metadata={inner or '{' + ', '.join(self.metadata) + '}'}"
        return f"{{{body}}}"

    def __str__(self) -> str:
        return self.text()


REPLICATED = HloSharding("replicated")


def leaf_count(shape: Shape) -> int:
    """For how many arrays (and tokens) a value's sharding speaks."""
    if isinstance(shape, TupleShape):
        return sum(leaf_count(element) for element in shape.elements)
    return 1


def _joined(numbers: Ints) -> str:
    return ",".join(map(str, numbers))
