"""``sharding={...}`` in XLA's form.

XLA brings shardings into a normal form when it reads them: iota tile assignments lose what their
reshape does not need, subgroups are merged and sorted, what tiles nothing becomes ``replicated``
or ``manual``, and one sharding of a tuple is repeated for each of its arrays.

>>> parse_sharding("{devices=[2,1,4]<=[2,2,2]T(0,1,2) last_tile_dim_replicate}").text()
'{devices=[2,1,4]<=[8] last_tile_dim_replicate}'
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from compiler.hlo.escapes import without_comments
from compiler.hlo.iota_order import Ints, canonical_iota
from compiler.hlo.json_text import object_end
from compiler.hlo.mesh_text import canonical_mesh_sharding, is_mesh_sharding
from compiler.hlo.metadata_text import canonical_metadata
from compiler.hlo.shape_text import inside_braces
from compiler.hlo.sharding import KINDS, HloSharding, Tiles

_ASSIGNMENT = re.compile(
    r"\s*\[([\d,\s]+)\]\s*(?:<=\s*\[([\d,\s]+)\]\s*(?:T\s*\(([\d,\s]+)\))?|([\d,\s]+))"
)
_WORD = re.compile(r"\s*([a-z_]+)\s*(=?)\s*")
_SUBGROUP_ORDER = ("maximal", "manual", "unreduced", "replicated")


def parse_sharding(text: str) -> HloSharding:
    """Read the sharding of an array or a tuple into its normal form; ValueError when malformed."""
    plain = without_comments(text).strip()
    if plain == "{}" or re.match(r"\{\s*\{", plain):
        return HloSharding.of_tuple(_leaf(part) for part in _parts(plain))
    return _leaf(plain)


def _parts(text: str) -> list[str]:
    inside = inside_braces(text)
    parts: list[str] = []
    position = 0
    while position < len(inside):
        if inside[position] == "{":
            end = object_end(inside, position)
            if end < 0:
                raise ValueError(f"braces do not match in {text[:60]!r}")
            parts.append(inside[position:end])
            position = end
        elif inside[position] in ", \n\t":
            position += 1
        else:
            raise ValueError(f"want a sharding in braces, found {inside[position:][:40]!r}")
    return parts


@functools.lru_cache(maxsize=4096)
def _leaf(text: str) -> HloSharding:
    """The sharding of one array; a program repeats a few texts many times."""
    if is_mesh_sharding(text):
        return HloSharding(named=canonical_mesh_sharding(text))
    inside = inside_braces(text)
    found = HloSharding()
    position = 0
    while inside[position:].strip():
        word = _WORD.match(inside, position)
        if word is None:
            raise ValueError(f"want a word of a sharding, found {inside[position:][:40]!r}")
        found, position = _field(found, word[1], bool(word[2]), inside, word.end())
    if not found.kind and found.tiles is None:
        raise ValueError(f"want devices=, replicated, manual, ... in {text[:60]!r}")
    return found if found.tiles is None else normalised(found)


def _field(
    found: HloSharding, word: str, has_value: bool, text: str, at: int
) -> tuple[HloSharding, int]:
    """Add one word, with its value, to what has been read."""
    if word in KINDS and not has_value:
        return replace(found, kind=word), at
    if word == "last_tile_dim_replicate":
        return replace(found, subgroups=("replicated",)), at
    if word in ("shard_as", "shard_like", "device"):
        number = re.compile(r"-?\d+").match(text, at)
        if number is None:
            raise ValueError(f"want a number after {word}")
        if word == "device":
            return replace(found, device=int(number[0])), number.end()
        return replace(found, group=f"{word} {number[0]}"), number.end()
    if word == "devices":
        return _with_tiles(found, text, at)
    if word in ("last_tile_dims", "metadata") and text[at : at + 1] == "{":
        end = object_end(text, at)
        value = text[at:end]
        if word == "metadata":
            several = _parts(value) if re.match(r"\{\s*\{", value) else [value]
            return replace(found, metadata=tuple(canonical_metadata(v) for v in several)), end
        types = tuple(part.strip() for part in value[1:-1].split(",") if part.strip())
        if not set(types) <= set(_SUBGROUP_ORDER):
            raise ValueError(f"want subgroup types, found {value}")
        return replace(found, subgroups=types), end
    raise ValueError(f"unknown word {word!r} in a sharding")


def _with_tiles(found: HloSharding, text: str, at: int) -> tuple[HloSharding, int]:
    match = _ASSIGNMENT.match(text, at)
    if match is None:
        raise ValueError(
            f"want devices=[dims]<=[...] or devices=[dims]list, found {text[at:][:40]!r}"
        )
    dims = _ints(match[1])
    if match[2] is not None:
        reshape = _ints(match[2])
        perm = _ints(match[3]) if match[3] is not None else tuple(range(len(reshape)))
        if sorted(perm) != list(range(len(reshape))) or math.prod(reshape) != math.prod(dims):
            raise ValueError(f"the tile assignment {match[0]} does not fit its dimensions")
        reshape, perm = canonical_iota(reshape, perm)
        tiles = Tiles(dims, reshape, perm)
    else:
        devices = _ints(match[4])
        if len(devices) != math.prod(dims) or len(devices) < 2:
            raise ValueError(f"want {math.prod(dims)} devices (at least 2), found {len(devices)}")
        tiles = Tiles(dims, devices=devices)
    return replace(found, tiles=tiles), match.end()


def normalised(found: HloSharding) -> HloSharding:
    """Merge and sort subgroups; tiles that split nothing become a plain kind."""
    tiles, types = found.tiles, found.subgroups
    assert tiles is not None
    if len(types) > len(tiles.dims):
        raise ValueError("more subgroup types than dimensions of the tile assignment")
    if not types:
        return found
    rank = len(tiles.dims) - len(types)
    if math.prod(tiles.dims[:rank]) == 1 and len(set(types)) == 1:
        return HloSharding(types[0], group=found.group, metadata=found.metadata)
    order = [
        rank + i
        for wanted in _SUBGROUP_ORDER
        for i, kind in enumerate(types)
        if kind == wanted and tiles.dims[rank + i] != 1
    ]
    merged = [t for t in _SUBGROUP_ORDER if any(types[d - rank] == t for d in order)]
    sizes = [math.prod(tiles.dims[d] for d in order if types[d - rank] == kind) for kind in merged]
    dims = (*tiles.dims[:rank], *sizes)
    if order == sorted(order):
        tiles = replace(tiles, dims=dims)
    else:
        ones = [rank + i for i in range(len(types)) if rank + i not in order]
        turned = _transposed_iota(tiles, (*range(rank), *order, *ones))
        if turned is not None:
            return replace(found, tiles=replace(turned, dims=dims), subgroups=tuple(merged))
        array = tiles.array().transpose([*range(rank), *order, *ones]).reshape(dims)
        tiles = Tiles(dims, devices=tuple(array.reshape(-1).tolist()))
    if merged and merged[-1] == "replicated":
        tiles = _sorted_replicas(tiles)
    return replace(found, tiles=tiles, subgroups=tuple(merged))


def _transposed_iota(tiles: Tiles, order: Ints) -> Tiles | None:
    """The same tiles with their dimensions in another order, as an iota again if that can be.

    The iota's dimensions are split until each tile dimension is a run of whole ones.
    """
    if not tiles.reshape:
        return None
    sizes = [tiles.reshape[d] for d in tiles.perm]
    parts = _common_parts(sizes, tiles.dims)
    if parts is None:
        return None
    by_source, by_tile = parts
    number = 0
    runs: list[list[tuple[int, int]]] = []  # per permuted iota dimension: (part number, size)
    for sizes_of_one in by_source:
        runs.append([(number + i, size) for i, size in enumerate(sizes_of_one)])
        number += len(sizes_of_one)
    position = {source: i for i, source in enumerate(tiles.perm)}
    source_order = [part for d in range(len(sizes)) for part in runs[position[d]]]
    new_index = {part: i for i, (part, _) in enumerate(source_order)}
    starts = np.cumsum([0, *(len(run) for run in by_tile)])
    turned = [p for d in order for p in range(int(starts[d]), int(starts[d + 1]))]
    reshape = tuple(size for _, size in source_order)
    iota = canonical_iota(reshape, tuple(new_index[p] for p in turned))
    return Tiles(tuple(tiles.dims[d] for d in order), *iota)


def _with_sorted_last(tiles: Tiles) -> Tiles | None:
    """The iota whose parts within the last tile dimension are in ascending order."""
    if not tiles.reshape:
        return None
    parts = _common_parts([tiles.reshape[d] for d in tiles.perm], tiles.dims)
    if parts is None:
        return None
    by_source, by_tile = parts
    order = [(d, i, size) for d, run in zip(tiles.perm, by_source, strict=True)
             for i, size in enumerate(run)]  # fmt: skip
    last = len(by_tile[-1])
    order[len(order) - last :] = sorted(order[len(order) - last :])
    source = sorted(order)
    perm = tuple(source.index(part) for part in order)
    return Tiles(tiles.dims, *canonical_iota(tuple(size for _, _, size in source), perm))


def _common_parts(
    a: Sequence[int], b: Sequence[int]
) -> tuple[list[list[int]], list[list[int]]] | None:
    """Split both lists of factors so that they read the same; None when they cannot."""
    split_a: list[list[int]] = [[] for _ in a]
    split_b: list[list[int]] = [[] for _ in b]
    i, j = 0, 0
    left_a, left_b = (a[0] if a else 1), (b[0] if b else 1)
    while i < len(a) and j < len(b):
        part = min(left_a, left_b)
        if left_a % part or left_b % part:
            return None
        if part > 1:
            split_a[i].append(part)
            split_b[j].append(part)
        left_a, left_b = left_a // part, left_b // part
        if left_a == 1:
            i += 1
            left_a = a[i] if i < len(a) else 1
        if left_b == 1:
            j += 1
            left_b = b[j] if j < len(b) else 1
    return split_a, split_b


def _sorted_replicas(tiles: Tiles) -> Tiles:
    """Devices that hold the same data are listed in ascending order."""
    array = tiles.array()
    ordered = np.sort(array, axis=-1)
    if np.array_equal(array, ordered):
        return tiles
    iota = _with_sorted_last(tiles)
    if iota is not None and np.array_equal(iota.array(), ordered):
        return iota
    return Tiles(tiles.dims, devices=tuple(ordered.reshape(-1).tolist()))


def _ints(text: str) -> Ints:
    parts = [part.strip() for part in text.split(",")]
    return tuple(int(part) for part in parts if part)
