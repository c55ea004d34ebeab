"""Client, devices and memories as PJRT sees them: one block each, filled once."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from compiler.diagnostics import UnsupportedError
from compiler.hlo.result_memories import DEVICE_MEMORY
from runtime.client import Client, Device, client_for
from runtime.pjrt.failures import PjrtError
from runtime.pjrt.layouts import ErrorCode, is_within
from runtime.pjrt.native import SlotBlock, objects
from runtime.pjrt.values import NamedValues

PLATFORM = "tpu"
"""The platform whose lowering rules JAX takes. We are registered under another name
(`runtime.pjrt.plugin`)."""
TARGET_VARIABLE = "TPUC_TARGET"
DEFAULT_TARGET = "v5e"


KINDS = (DEVICE_MEMORY, "pinned_host", "unpinned_host")
"""The memories that a device has: its HBM, and two of the host, as beside a TPU."""


class PjrtMemory:
    """A memory of one device: its HBM, or what the host has for it."""

    def __init__(self, kind: str, device: PjrtDevice) -> None:
        self.kind, self.device, self.is_host = kind, device, kind != DEVICE_MEMORY
        self.block = block = SlotBlock("memory", self, is_permanent=True)
        number = KINDS.index(kind)
        block.set(id=device.device.id * len(KINDS) + number, kind_id=number)
        block.set_words("kind", kind)
        block.set_words("text", f"{kind} memory of {device.device!r}")
        block.set_row("devices", ctypes.c_void_p, [device.block.address], "device_count")


class PjrtDevice:
    """A device, which is its own description, and its memories."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.block = block = SlotBlock("device", self, is_permanent=True)
        block.set(id=device.id, process_index=device.process_index, description=block.address)
        block.set_words("kind", device.device_kind)
        x, y, z = device.coords
        place = f"coords=({x},{y},{z}), core_on_chip={device.core_on_chip}"
        block.set_words("text", f"TpuDevice(id={device.id}, process_index=0, {place})")
        attributes = NamedValues(
            {
                "coords": [x, y, z],
                "core_on_chip": device.core_on_chip,
                "num_cores": 1,
                "slice_index": 0,
            }
        )
        block.kept.append(attributes)
        block.set(attributes=attributes.address, attribute_count=attributes.count)
        self.memories = {kind: PjrtMemory(kind, self) for kind in KINDS}
        self.memory = self.memories[DEVICE_MEMORY]
        block.set(default_memory=self.memory.block.address)
        handles = [memory.block.address for memory in self.memories.values()]
        block.set_row("memories", ctypes.c_void_p, handles, "memory_count")

    def memory_of(self, kind: str) -> PjrtMemory:
        """Its memory of a kind. Raises UnsupportedError."""
        if kind not in self.memories:
            raise UnsupportedError(f"a memory of kind {kind!r}: a device has {', '.join(KINDS)}")
        return self.memories[kind]


class PjrtClient:
    """The devices of the target; also the description of their topology."""

    def __init__(self, client: Client, target: str) -> None:
        self.client, self.target = client, target
        self.devices = [PjrtDevice(device) for device in client.devices]
        self.block = block = SlotBlock("client", self, is_permanent=True)
        block.set(process_index=0, topology=block.address)
        block.set_words("name", PLATFORM)
        version = f"tpuc: emulated {client.topology.device_kind}"
        block.set_words("version", version)
        # JAX compiles for a topology with a client of the same version, if it has one, and keeps the
        # interpreter's lock while a thread of its own asks us to: it would wait for ever.
        block.set_words("topology_version", f"{version}, to compile for")
        handles = [device.block.address for device in self.devices]
        block.set_row("devices", ctypes.c_void_p, handles, "device_count")
        memories = [m.block.address for device in self.devices for m in device.memories.values()]
        block.set_row("memories", ctypes.c_void_p, memories, "memory_count")

    def device(self, number: int) -> PjrtDevice:
        """The device of that id; raises `PjrtError`."""
        if not 0 <= number < len(self.devices):
            raise PjrtError(
                f"there is no device {number}, but {len(self.devices)}", ErrorCode.NOT_FOUND
            )
        return self.devices[number]


_clients: dict[str, PjrtClient] = {}


def target_name() -> str:
    """The chip or slice that programs run on: TPUC_TARGET, else one v5e."""
    return os.environ.get(TARGET_VARIABLE, DEFAULT_TARGET)


def client_of_target(target: str) -> PjrtClient:
    """The client of a target; the same one each time, as its devices are."""
    if target not in _clients:
        _clients[target] = PjrtClient(client_for(target), target)
    return _clients[target]


def client_create(a: Any) -> None:
    """The client of TPUC_TARGET."""
    a.client = client_of_target(target_name()).block.address


def lookup_device(a: Any) -> None:
    """The device of an id."""
    a.device = objects[a.client].device(a.id).block.address


def lookup_addressable_device(a: Any) -> None:
    """The same: all devices are of this process."""
    a.addressable_device = objects[a.client].device(a.local_hardware_id).block.address


def default_device_assignment(a: Any) -> None:
    """Devices in their order."""
    count = len(objects[a.client].devices)
    row = (ctypes.c_int32 * a.default_assignment_size).from_address(a.default_assignment)
    row[:] = [number % count for number in range(a.default_assignment_size)]


def memory_stats(a: Any) -> None:
    """What the device's HBM says of itself."""
    found = objects[a.device].device.memory_stats()
    fields = [field for field, _ in type(a)._fields_[3:] if is_within(a, field)]
    for field in fields:
        name = field.removesuffix("_is_set")
        setattr(a, field, name in found if name != field else found.get(field, 0))


FUNCTIONS = {
    "Client_Create": client_create,
    "Client_LookupDevice": lookup_device,
    "Client_LookupAddressableDevice": lookup_addressable_device,
    "Client_DefaultDeviceAssignment": default_device_assignment,
    "Device_MemoryStats": memory_stats,
}
