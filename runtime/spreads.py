"""What a program's metadata say of its devices: how many, and how arguments and results are cut."""

from __future__ import annotations

import json
from collections.abc import Sequence

from compiler.hlo.shape import ArrayShape
from compiler.hlo.shape_text import parse_shape
from runtime.ports import Port
from runtime.spread import Spread
from tpu_sim.isa.program import Program

DEVICES = "devices"
"""The metadata key of a program for several devices (`compiler.partitioner.placement_text`)."""


def device_shape(program: Program) -> tuple[int, int]:
    """Replicas and partitions of a program."""
    replicas, partitions = json.loads(program.metadata.get(DEVICES, "[1, 1]"))
    return int(replicas), int(partitions)


def slice_of(program: Program) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The dimensions of the slice that a program was compiled for, and the chip of each device; None for
    a program of one device."""
    if DEVICES not in program.metadata:
        return None
    dims, chips = json.loads(program.metadata["slice"])
    return tuple(dims), tuple(chips)


def program_spreads(program: Program, ports: Sequence[Port], kind: str) -> list[Spread]:
    """How each input or output of a program lies on its devices.

    The metadata give, by `kind`, the global shape, the tiles of each dimension and each partition's
    place among them (and addend, of partial sums); without them every partition has all of it.
    """
    stated = program.metadata.get(f"{kind}_spreads", "[]")
    return stated_spreads(stated, [port.shape for port in ports], *device_shape(program))


def stated_spreads(
    text: str, shapes: Sequence[ArrayShape], replicas: int, partitions: int
) -> list[Spread]:
    """The same of the text that metadata have for arrays, whose `shapes` are those on a device."""
    stated = json.loads(text)
    found = []
    for number, local in enumerate(shapes):
        whole = Spread.whole(local, replicas, partitions)
        if number < len(stated) and stated[number] is not None:
            text, tiles, places, *addends = stated[number]
            shape = parse_shape(text)
            assert isinstance(shape, ArrayShape)
            dims = (replicas, *shape.dims) if replicas > 1 else shape.dims
            whole = Spread(
                ArrayShape(shape.dtype, dims),
                whole.local,
                replicas,
                tuple(tiles),
                tuple(tuple(place) for place in places),
                tuple(addends[0]) if addends else (),
            )
        found.append(whole)
    return found
