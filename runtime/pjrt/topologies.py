"""Topologies: slices that programs are compiled for without a client, as `jax.experimental.topologies` does.

A topology is the client of its target (`runtime.pjrt.devices`): its devices use no memory and no core
until a program runs on them, and an executable that is only compiled never does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from runtime.pjrt.devices import PjrtClient, client_of_target, target_name
from runtime.pjrt.failures import PjrtError
from runtime.pjrt.lent_bytes import lend
from runtime.pjrt.native import objects
from runtime.pjrt.programs import compile_for_devices
from runtime.pjrt.values import read_named_values

_OF_HOSTS = frozenset({"chips_per_host_bounds", "chip_config_name"})
"""Options that say how a slice's chips are spread over hosts and what a device of a chip is. All devices are
those of one process here, and what a device is follows from the chip."""
_SLICES = "num_slices"


def create(a: Any) -> None:
    """`TopologyDescription_Create`: the name is a target, ``v5e:4x4``; without one it is that of
    TPUC_TARGET."""
    name = (
        ctypes.string_at(a.topology_name, a.topology_name_size).decode() if a.topology_name else ""
    )
    _check_options(read_named_values(a.create_options, a.num_options))
    a.topology = client_of_target(name or target_name()).block.address


def _check_options(options: dict[str, object]) -> None:
    for name, value in options.items():
        if name in _OF_HOSTS:
            continue
        if name != _SLICES:
            raise PjrtError(f"a topology has no option {name!r}, but {_SLICES}=1")
        if value != 1:
            raise PjrtError(f"{_SLICES}={value}: tpuc has one slice, so state {_SLICES}=1")


def compile_program(a: Any) -> None:
    """`Compile`: an executable for devices of a topology."""
    topology: PjrtClient = objects[a.topology]
    a.executable = compile_for_devices(topology, a).block.address


def serialize(a: Any) -> None:
    """`TopologyDescription_Serialize`: its target."""
    topology: PjrtClient = objects[a.topology]
    lent = lend(topology.target.encode())
    a.serialized_bytes, a.serialized_bytes_size = lent.address, lent.size
    a.serialized_topology, a.serialized_topology_deleter = lent.address, lent.deleter


def deserialize(a: Any) -> None:
    """`TopologyDescription_Deserialize`: the topology of a target."""
    target = ctypes.string_at(a.serialized_topology, a.serialized_topology_size).decode()
    a.topology = client_of_target(target).block.address


FUNCTIONS: dict[str, Callable[[Any], None]] = {
    "TopologyDescription_Create": create,
    "TopologyDescription_Serialize": serialize,
    "TopologyDescription_Deserialize": deserialize,
    "Compile": compile_program,
}
