"""The messages that PJRT passes as protocol buffers: compile options and device assignments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.protobuf import bytes_field, encoded, fields, number_field, varint


@dataclass(frozen=True)
class Assignment:
    """Which device runs each replica of each partition: ``devices[replica][partition]``."""

    devices: tuple[tuple[int, ...], ...]

    @property
    def replicas(self) -> int:
        """How many replicas there are."""
        return len(self.devices)

    @property
    def partitions(self) -> int:
        """How many partitions a replica has."""
        return len(self.devices[0])

    @property
    def flat(self) -> list[int]:
        """The devices, replica by replica."""
        return [device for row in self.devices for device in row]

    def serialized(self) -> bytes:
        """A `DeviceAssignmentProto`."""
        parts = [number_field(1, self.replicas), number_field(2, self.partitions)]
        for partition in range(self.partitions):
            ids = b"".join(encoded(row[partition]) for row in self.devices)
            parts.append(bytes_field(3, bytes_field(1, ids)))
        return b"".join(parts)


@dataclass(frozen=True)
class CompileRequest:
    """What a `CompileOptionsProto` says that matters here.

    `may_shard_results` says of each result, or of all, whether the compiler chooses its sharding.
    `has_assignment` says whether the caller chose the devices; else they are taken in their order.
    `options` are the names of those that the caller gives (``compile(compiler_options=...)``).
    """

    assignment: Assignment
    may_shard_results: tuple[bool, ...] = ()
    options: tuple[str, ...] = ()
    has_assignment: bool = True


def compile_request(data: bytes) -> CompileRequest:
    """Read a `CompileOptionsProto`: its field 3 are the `ExecutableBuildOptionsProto`, field 7 are options
    by name."""
    named = tuple(_name(v) for number, v in fields(data) if number == 7 and isinstance(v, bytes))
    replicas = partitions = 1
    assignment: Assignment | None = None
    may_shard: list[bool] = []
    for number, options in fields(data):
        if number != 3 or not isinstance(options, bytes):
            continue
        for inner, value in fields(options):
            if inner == 4 and isinstance(value, int):
                replicas = value
            elif inner == 5 and isinstance(value, int):
                partitions = value
            elif inner == 9 and isinstance(value, bytes):
                assignment = _assignment(value)
            elif inner == 12:
                may_shard += [bool(v) for v in ([value] if isinstance(value, int) else value)]
    chosen = assignment or in_order(replicas, partitions)
    return CompileRequest(chosen, tuple(may_shard), named, assignment is not None)


def _name(entry: bytes) -> str:
    """The key of an entry of a map."""
    name = dict(fields(entry))[1]
    assert isinstance(name, bytes)
    return name.decode()


def in_order(replicas: int, partitions: int) -> Assignment:
    """Devices in their order."""
    rows = range(max(1, replicas))
    width = max(1, partitions)
    return Assignment(tuple(tuple(range(r * width, (r + 1) * width)) for r in rows))


def _assignment(data: bytes) -> Assignment:
    columns: list[Sequence[int]] = []
    for number, value in fields(data):
        if number == 3 and isinstance(value, bytes):
            columns.append(_integers(value))
    return Assignment(tuple(zip(*columns, strict=True)))


def _integers(data: bytes) -> list[int]:
    """The repeated integers of field 1, packed or one by one."""
    found: list[int] = []
    for number, value in fields(data):
        if number != 1:
            continue
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            item, at = varint(value, at)
            found.append(item)
    return found
