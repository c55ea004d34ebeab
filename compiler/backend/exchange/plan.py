"""What the kernels of a program for several cores share: routes, tables in HBM, sync flags."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler.analysis.async_flags import MOST_FLAGS_UNDER_WAY
from compiler.backend.exchange.ways import all_to_all_routes
from compiler.hlo.replica_groups import Groups
from tpu_sim.isa.geometry import GRANULE_BYTES, WORD_BYTES
from tpu_sim.isa.program import Route
from tpu_sim.isa.torus import Slice

GRANULE_WORDS = GRANULE_BYTES // WORD_BYTES
_FIRST_READY, _KERNELS, _READY_FLAGS = 16, 60, 4
FIRST_ASYNC_FLAG = _FIRST_READY + _KERNELS * _READY_FLAGS
"""Flags below are those that tell other cores that this one is ready, and the kernel's own below
these. Here begin those of exchanges in halves, which are under way while other kernels run."""
FIRST_DATA_FLAG = FIRST_ASYNC_FLAG + MOST_FLAGS_UNDER_WAY
"""Data flags serve all kernels: nobody sends before the receiver said that it is ready."""


@dataclass
class ExchangePlan:
    """Routes and tables of a program; at `scratch_granule` of HBM is room for one
    reduction's partial sums, at `first_granule` its tables start."""

    cores: Slice
    scratch_granule: int
    first_granule: int
    permute_ports: Mapping[Groups, int] = field(default_factory=dict)
    """By a permute's pairs the port that its transfers hold."""
    routes: list[Route] = field(default_factory=list)
    tables: list[tuple[int, bytes]] = field(default_factory=list)
    table_kernels: list[str] = field(default_factory=list)
    """By table the kernel that asked for it first."""
    _route_ids: dict[Route, int] = field(default_factory=dict)
    _table_ids: dict[bytes, int] = field(default_factory=dict)
    _kernels: dict[str, int] = field(default_factory=dict)
    exchanges: dict[str, tuple[str, int, Groups]] = field(default_factory=dict)
    """By kernel what it exchanges: the kind, a device's bytes, the groups (of a permute the pairs)."""
    _used: int = 0

    def route(self, targets: Sequence[int], beside: Sequence[Sequence[int]], port: int) -> int:
        """The number of a route (`Slice.route`)."""
        return self.number_of(self.cores.route(targets, beside, port))

    def all_to_all(self, groups: Groups) -> list[int]:
        """The numbers of an all-to-all's routes, by slot (`all_to_all_routes`)."""
        return [self.number_of(route) for route in all_to_all_routes(self.cores, groups)]

    def number_of(self, route: Route) -> int:
        """The number of a route in the program."""
        found = self._route_ids.setdefault(route, len(self.routes))
        if found == len(self.routes):
            self.routes.append(route)
        return found

    def table(self, rows: Sequence[Sequence[int]], kernel: str) -> tuple[int, int]:
        """Granule and granules a row of a kernel's table with a row of words for each core."""
        width = -(-max(map(len, rows)) // GRANULE_WORDS)
        words = np.zeros((len(rows), width * GRANULE_WORDS), np.int32)
        for row, values in zip(words, rows, strict=True):
            row[: len(values)] = values
        data = words.tobytes()
        if data not in self._table_ids:
            self._table_ids[data] = self.first_granule + self._used
            self.tables.append((self._table_ids[data] * GRANULE_BYTES, data))
            self.table_kernels.append(kernel)
            self._used += len(data) // GRANULE_BYTES
        return self._table_ids[data], width

    @property
    def end_bytes(self) -> int:
        """Where the tables end in HBM."""
        return (self.first_granule + self._used) * GRANULE_BYTES

    def exchange_text(self) -> str:
        """`exchanges` as a program's metadata say them: all groups, then by kernel kind, bytes and the
        number of its groups."""
        groups = list(dict.fromkeys(own for _, _, own in self.exchanges.values()))
        kernels = {
            name: [kind, size, groups.index(own)]
            for name, (kind, size, own) in self.exchanges.items()
        }
        return json.dumps({"groups": groups, "kernels": kernels})

    def ready_flag(self, kernel: str) -> int:
        """The first of a kernel's own flags by which cores say that they are ready.

        They are used again by a kernel so much later that nobody can be that far ahead.
        """
        number = self._kernels.setdefault(kernel, len(self._kernels))
        return _FIRST_READY + number % _KERNELS * _READY_FLAGS
