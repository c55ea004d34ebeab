"""How a partitioned module's arguments and results lie on its devices, as a program's metadata say it.

    devices          [replicas, partitions]
    input_spreads    for each array of the parameters [global shape, tiles, place of each partition]
    output_spreads   the same of the results

Tiles count the pieces of each dimension, a place is a piece's number in each. Of an array of partial sums
it follows which addend each partition has.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import mul

from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.replica_groups import device_counts, is_partitioned
from compiler.hlo.shape import ArrayShape, leaves
from compiler.hlo.shape_text import print_shape
from compiler.hlo.sharding import HloSharding
from compiler.sharding.placement import addend_index, in_tiles, tile_counts, tile_index

DEVICES, INPUTS, OUTPUTS = "devices", "input_spreads", "output_spreads"
Shapes = Sequence[ArrayShape]


def entry_shapes(module: HloModule) -> tuple[Shapes, Shapes]:
    """The global arrays of the parameters, and of the result; pieces of a partitioned module put together."""
    parameters = [leaf for p in module.entry.parameters for leaf in _whole(p)]
    return parameters, _whole(module.entry.root_instruction)


def _whole(instr: HloInstruction) -> Shapes:
    shapes = leaves(instr.shape)
    if not is_partitioned(instr.home.owner):
        return shapes
    return [
        ArrayShape(s.dtype, tuple(map(mul, s.dims, tile_counts(sharding, s.rank))))
        for s, sharding in zip(shapes, _shardings(instr), strict=True)
    ]


def sharded_devices(module: HloModule) -> int:
    """For how many devices the shardings of a module are; 1 if there are none."""
    most = 1
    for computation in module.computations.values():
        for instr in computation:
            sharding = instr.attrs.get("sharding")
            if not isinstance(sharding, HloSharding):
                continue
            for leaf in sharding.elements or (sharding,):
                tiles = in_tiles(leaf).tiles
                most = max(most, tiles.array().size if tiles is not None else 1)
    return most


def devices_text(module: HloModule) -> dict[str, str]:
    """How many replicas and partitions a module has."""
    counts = device_counts(module)
    return {DEVICES: json.dumps([counts.replicas, counts.partitions])}


def placement_texts(module: HloModule, shapes: tuple[Shapes, Shapes]) -> dict[str, str]:
    """The metadata of a partitioned module; `shapes` are the global ones.

    What a root without a sharding gives is taken for equal on all devices.
    """
    partitions = device_counts(module).partitions
    inputs, outputs = shapes
    given = [s for p in module.entry.parameters for s in _shardings(p)]
    made = _shardings(module.entry.root_instruction)
    return {
        INPUTS: json.dumps([_one(*pair, partitions) for pair in zip(given, inputs, strict=True)]),
        OUTPUTS: json.dumps([_one(*pair, partitions) for pair in zip(made, outputs, strict=True)]),
    }


def _shardings(instr: HloInstruction) -> Sequence[HloSharding]:
    sharding = instr.attrs.get("sharding", HloSharding("replicated"))
    assert isinstance(sharding, HloSharding)
    return sharding.for_leaves(len(leaves(instr.shape))).elements or ()


def _one(sharding: HloSharding, shape: ArrayShape, partitions: int) -> list[object]:
    rank = len(shape.dims)
    places = [_place(sharding, rank, device) for device in range(partitions)]
    addends = [addend_index(sharding, rank, device) for device in range(partitions)]
    found: list[object] = [print_shape(shape, False), list(tile_counts(sharding, rank)), places]
    return [*found, addends] if any(addends) else found


def _place(sharding: HloSharding, rank: int, device: int) -> list[int]:
    """A device that holds nothing is given what another one has."""
    if sharding.kind == "maximal":
        device = sharding.device
    return list(tile_index(sharding, rank, device))
