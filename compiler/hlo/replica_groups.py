"""Which devices a collective joins: groups of any spelling as numbers of devices.

A program runs on ``replicas x partitions`` devices; device ``r * partitions + p`` runs replica
``r``'s partition ``p``. What the numbers in ``replica_groups`` mean depends on two attributes:

    no channel_id                               replicas; each partition by itself
    channel_id                                  replicas, all their partitions together
    channel_id and use_global_device_ids        devices
    channel_id of an opcode without that flag   partitions; each replica by itself
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from compiler.diagnostics import UnsupportedError
from compiler.hlo.attributes import FrontendAttributes, IotaReplicaGroups, RawText
from compiler.hlo.ir import HloInstruction, HloModule

Groups = tuple[tuple[int, ...], ...]
Pairs = tuple[tuple[int, int], ...]

_OF_REPLICAS_OR_DEVICES = frozenset(
    {
        "all-gather",
        "all-gather-start",
        "all-reduce",
        "all-reduce-start",
        "collective-reduce",
        "reduce-scatter",
    }
)
"""Opcodes that have the attribute use_global_device_ids."""

_MESH = re.compile(r"mesh\[(?P<axes>[^\]]*)\](?:, device_ids=\((?P<ids>.*?)\))? \{(?P<picked>.*)\}")
_AXIS = re.compile(r"'([^']+)'=(\d+)")
_PICKED = re.compile(r"'([^']+)'(?::\((\d+)\)(\d+))?")
_IOTA = re.compile(r"\[([\d,]+)\]T\(([\d,]+)")
_PARTITIONED = re.compile(r"_spmd(\.\d+)?$")
"""XLA's mark of a computation whose shapes are a device's own."""
_PAIR = re.compile(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")

MOST_DEVICES = 1 << 20
"""A hundred times the largest slice that there is: lists of devices stay small."""

SEND_PAIRS = "_xla_send_recv_source_target_pairs"
"""The frontend attribute of a send or recv that says who sends to whom."""


@dataclass(frozen=True)
class DeviceCounts:
    """How many devices run a program: replicas of a program of partitions."""

    replicas: int = 1
    partitions: int = 1

    @property
    def devices(self) -> int:
        """All of them."""
        return self.replicas * self.partitions


def device_counts(module: HloModule) -> DeviceCounts:
    """What the module's header says; UnsupportedError for more than MOST_DEVICES."""
    replicas = module.attrs.get("replica_count", 1)
    partitions = module.attrs.get("num_partitions", 1)
    assert isinstance(replicas, int)
    assert isinstance(partitions, int)
    counts = DeviceCounts(replicas, partitions)
    if counts.devices > MOST_DEVICES:
        raise UnsupportedError(
            f"HloModule {module.name} is for {replicas} replicas of {partitions} partitions; "
            f"there can be {MOST_DEVICES} devices"
        )
    return counts


def is_partitioned(module: HloModule) -> bool:
    """Whether the module's shapes are a device's own already: so its entry's name says."""
    return _PARTITIONED.search(module.entry_name) is not None


def explicit_groups(value: object) -> Groups:
    """The groups of any of XLA's three forms as they list them; empty stands for all."""
    if isinstance(value, IotaReplicaGroups):
        return value.groups()
    if isinstance(value, RawText):
        return _mesh_groups(value.text)
    assert isinstance(value, tuple), value
    return value


def device_groups(instr: HloInstruction, counts: DeviceCounts) -> Groups:
    """The groups of a collective, each in its order, as numbers of devices."""
    groups = explicit_groups(instr.attrs.get("replica_groups", ()))
    replicas, partitions = range(counts.replicas), range(counts.partitions)
    if _names_devices(instr):
        return groups or (tuple(range(counts.devices)),)
    if _names_partitions(instr, counts):
        groups = groups or (tuple(partitions),)
        return tuple(tuple(r * counts.partitions + p for p in g) for r in replicas for g in groups)
    groups = groups or (tuple(replicas),)
    if "channel_id" in instr.attrs and counts.partitions > 1:
        return tuple(
            tuple(r * counts.partitions + p for r in g for p in partitions) for g in groups
        )
    return tuple(tuple(r * counts.partitions + p for r in g) for g in groups for p in partitions)


def device_pairs(instr: HloInstruction, counts: DeviceCounts) -> Pairs:
    """(source, target) of a collective-permute, a send or a recv, as numbers of devices.

    Raises ValueError for a send or recv that does not say who sends to whom.
    """
    pairs = instr.attrs.get("source_target_pairs", ())
    assert isinstance(pairs, tuple)
    if instr.opcode in ("send", "recv"):
        pairs = _send_pairs(instr)
    n = counts.partitions
    if _names_partitions(instr, counts):
        return tuple((r * n + a, r * n + b) for r in range(counts.replicas) for a, b in pairs)
    return tuple((a * n + p, b * n + p) for p in range(n) for a, b in pairs)


def named_devices(instr: HloInstruction, counts: DeviceCounts) -> tuple[int, ...]:
    """All devices that a collective's groups or pairs name, and those of a send or recv that has pairs."""
    if "replica_groups" in instr.attrs:
        return tuple(d for group in device_groups(instr, counts) for d in group)
    if instr.opcode in ("send", "recv") and _stated_pairs(instr) is None:
        return ()
    return tuple(d for pair in device_pairs(instr, counts) for d in pair)


def _send_pairs(instr: HloInstruction) -> Pairs:
    text = _stated_pairs(instr)
    if text is None:
        raise ValueError(f"want frontend_attributes={{{SEND_PAIRS}=...}}")
    return tuple((int(a), int(b)) for a, b in _PAIR.findall(text))


def _stated_pairs(instr: HloInstruction) -> str | None:
    """What a send or recv says of who sends to whom, if anything."""
    known = instr.attrs.get("frontend_attributes")
    return known.get(SEND_PAIRS) if isinstance(known, FrontendAttributes) else None


def _names_devices(instr: HloInstruction) -> bool:
    return bool(instr.attrs.get("use_global_device_ids")) and "channel_id" in instr.attrs


def _names_partitions(instr: HloInstruction, counts: DeviceCounts) -> bool:
    """A program of replicas alone has no partitions that a channel could join."""
    has_flag = instr.opcode in _OF_REPLICAS_OR_DEVICES
    is_of_replicas = counts.partitions == 1 and counts.replicas > 1
    return "channel_id" in instr.attrs and not has_flag and not is_of_replicas


def _mesh_groups(text: str) -> Groups:
    """Groups along some axes, or parts of axes, of a mesh: ``mesh['x'=2,'y'=4] {'y':(1)2}``."""
    found = _MESH.fullmatch(text)
    assert found is not None, text
    axes = [(name, int(size)) for name, size in _AXIS.findall(found["axes"])]
    picked = [
        (n, int(before or 1), int(size or 0))
        for n, before, size in _PICKED.findall(found["picked"])
    ]
    sizes: list[int] = []
    chosen: dict[tuple[str, int], int] = {}
    for name, size in axes:
        at = 1
        for before, part in sorted((b, s or size) for n, b, s in picked if n == name):
            sizes += [before // at, part]
            chosen[name, before] = len(sizes) - 1
            at = before * part
        sizes.append(size // at)
    order = [chosen[name, before] for name, before, _ in picked]
    rest = [d for d in range(len(sizes)) if d not in order]
    ids = _mesh_devices(found["ids"], math.prod(sizes)).reshape(sizes).transpose(*rest, *order)
    rows = ids.reshape(-1, math.prod(sizes[d] for d in order))
    return tuple(tuple(int(i) for i in row) for row in rows)


def _mesh_devices(text: str | None, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    if not text:
        return np.arange(count)
    iota = _IOTA.match(text)
    if iota is None:
        return np.array([int(i) for i in text.split(",")])
    dims, perm = ([int(i) for i in part.split(",")] for part in iota.groups())
    return np.arange(count).reshape(dims).transpose(perm)
