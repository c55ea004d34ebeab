"""Replica groups over the axes of a mesh: ``#stablehlo.replica_group_mesh_axes<...>`` as numbers."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np

_NAMED_MESH = re.compile(r"mesh\s*=\s*@(\"[^\"]*\"|[\w$.\-]+)")
_AXIS_SIZE = re.compile(
    r'<\s*name\s*=\s*"([^"]*)"\s*,\s*size\s*=\s*(\d+)\s*>|"([^"]*)"\s*=\s*(\d+)'
)
_AXIS_USE = re.compile(
    r'axis_ref<\s*name\s*=\s*"([^"]*)"\s*(?:,\s*sub_axis_info\s*=\s*\((\d+)\)\s*(\d+)\s*)?>'
)
_DEVICES = re.compile(r"device_ids\s*=\s*(?:dense<)?\[([\d,\s]*)\]")


def mesh_axes_groups(text: str, meshes: dict[str, str]) -> tuple[tuple[int, ...], ...]:
    """The devices of each group; devices that differ only in the axes named are one group.

    Raises ValueError when the mesh or an axis is not known.
    """
    named = _NAMED_MESH.search(text)
    mesh = text[: text.rindex("axes")] if named is None else _mesh(named[1].strip('"'), meshes)
    sizes = {a or c: int(b or d) for a, b, c, d in _AXIS_SIZE.findall(mesh)}
    count = math.prod(sizes.values())
    listed = _DEVICES.search(mesh)
    ids = np.arange(count)
    if listed is not None and listed[1].strip():
        ids = np.array([int(n) for n in listed[1].split(",")])
    if ids.size != count:
        raise ValueError(f"the mesh has {count} devices, device_ids lists {ids.size}")
    dims: list[int] = []
    inside: dict[tuple[str, int], int] = {}  # (axis, what stands before the part) -> dimension
    uses = _AXIS_USE.findall(text)
    for name, size in sizes.items():
        for before, part, is_used in _parts(name, size, uses):
            if is_used:
                inside[name, before] = len(dims)
            dims.append(part)
    unknown = [name for name, _, _ in uses if name not in sizes]
    if unknown:
        raise ValueError(f"axis {unknown[0]} is not in the mesh")
    order = [inside[name, int(before or 1)] for name, before, _ in uses]
    rest = [d for d in range(len(dims)) if d not in order]
    grouped = ids.reshape(dims).transpose([*rest, *order])
    rows = grouped.reshape(-1, math.prod(dims[d] for d in order)).tolist()
    return tuple(tuple(int(i) for i in row) for row in rows)


def _mesh(name: str, meshes: dict[str, str]) -> str:
    if name not in meshes:
        raise ValueError(f"mesh @{name} is not defined")
    return meshes[name]


def _parts(name: str, size: int, uses: list[tuple[str, str, str]]) -> list[tuple[int, int, bool]]:
    """An axis cut where its parts begin and end: (what stands before, size, whether used)."""
    ranges = [(int(b or 1), int(n or size)) for axis, b, n in uses if axis == name]
    cuts = sorted({1, size, *(b for b, _ in ranges), *(b * n for b, n in ranges)})
    found = []
    for low, high in itertools.pairwise(cuts):
        if high % low:
            raise ValueError(f"parts of axis {name} do not divide its size {size}")
        found.append((low, high // low, (low, high // low) in ranges))
    if any(b >= size or b * n > size for b, n in ranges) and size > 1:
        raise ValueError(f"a part of axis {name} is larger than its size {size}")
    return found or [(1, 1, bool(ranges))]
