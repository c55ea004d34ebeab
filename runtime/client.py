"""Client and devices: what a target has, each device with its memory, its core and its queue."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.machines import DeviceCore
from runtime.memory import Memory
from runtime.queue import Queue
from runtime.topology import Topology, parse_target
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.torus import Coordinates, Slice
from tpu_sim.machine.fork_lock import Once


class Device:
    """What runs one program at a time: a TensorCore with its HBM.

    `id` counts the devices of a client, `coords` is where its chip stands in the slice, and
    `core_on_chip` tells the devices of one chip apart. Calls on it are done in the order they were made
    (`queue`), on its own `core`, in its own `memory`. What is not used costs nothing.
    """

    process_index = 0  # all devices are of this process

    def __init__(
        self,
        chip: Chip,
        memory: Memory | None = None,
        topology: Topology | None = None,
        id: int = 0,
    ) -> None:
        self.chip = chip
        topology = topology or Topology(chip)
        self.id, self.topology = id, topology
        chip_number, self.core_on_chip = divmod(id, topology.devices_per_chip)
        self.coords: Coordinates = topology.coordinates(chip_number)
        self.device_kind = topology.device_kind
        self.name = chip.name if topology.chip_count == 1 else f"{chip.name}:{id}"
        self.memory = memory or Memory(chip.hbm_bytes)
        self.core = DeviceCore(chip)
        self.queue = Queue(f"tpuc-device-{self.name}")
        self.memory.finish_work = self.queue.finish

    @property
    def memories(self) -> tuple[Memory, ...]:
        """The memories whose arrays it can use: its HBM."""
        return (self.memory,)

    def memory_stats(self) -> dict[str, int]:
        """`Memory.stats` of its HBM."""
        return self.memory.stats()

    def __repr__(self) -> str:
        place = ", ".join(map(str, self.coords))
        return (
            f"Device(id={self.id}, {self.device_kind}, coords=({place}), core={self.core_on_chip})"
        )


class Client:
    """The devices of a target. Chips are numbered along x first, devices chip by chip."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        count = topology.chip_count * topology.devices_per_chip
        self.cores = topology.cores
        self.devices = [Device(topology.chip, None, topology, id) for id in range(count)]


def cores_of(devices: Sequence[Device]) -> Slice:
    """What a program for these devices of one slice is compiled for; partition p runs on the p-th."""
    topology = devices[0].topology
    chips = tuple(device.id // topology.devices_per_chip for device in devices)
    return Slice(topology.torus, chips)


def client_for(target: str | Chip) -> Client:
    """Return the client of a target (`runtime.topology`); one per process and topology.

    Two spellings of a name or path give the same client, and a chip file that was edited another.
    """
    return client_of(parse_target(target))


def device_for(target: str | Chip | Device) -> Device:
    """The device itself, or the first one of a target."""
    return target if isinstance(target, Device) else client_for(target).devices[0]


@Once
def client_of(topology: Topology) -> Client:
    """The client of a topology, which is never dropped: arrays on it may be passed to programs made later."""
    return Client(topology)
