"""Ports: the inputs and outputs of a program as the host sees them, and their HBM buffers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from compiler.hlo.device_types import device_type, plane_type
from compiler.hlo.shape import ArrayShape
from compiler.hlo.shape_text import parse_shape, print_shape
from runtime.storage import stored_bytes
from tpu_sim.isa.cached_property import cached_property
from tpu_sim.isa.errors import ProgramError
from tpu_sim.isa.program import HbmBuffer, Program


@dataclass(frozen=True)
class Port:
    """An input or output: a buffer for each plane, and the host's shape with the planes' layout.

    `is_kept` marks an input that the program leaves as it is: nothing else lies in its buffers.
    `is_donated` marks one whose place an output has in the end.
    """

    buffers: tuple[HbmBuffer, ...]
    shape: ArrayShape
    is_kept: bool = False
    is_donated: bool = False

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of all planes, padding included."""
        return stored_bytes(self.shape)

    @cached_property
    def places(self) -> tuple[int, ...]:
        """The offset of each plane in HBM."""
        return tuple(buffer.offset_bytes for buffer in self.buffers)

    @cached_property
    def device_shape(self) -> ArrayShape:
        """The shape of a device array that fits without conversion."""
        return replace(self.shape, dtype=device_type(self.shape.dtype))


def ports(program: Program, kind: str) -> list[Port]:
    """The program's inputs or outputs in order."""
    found = iter(sorted((b for b in program.buffers if b.kind == kind), key=lambda b: b.index))
    plain = [_port(buffer, found) for buffer in found]
    if kind != "input":
        return plain
    others = [b for b in program.buffers if b.kind != "input" and b.size_bytes]
    taken = {b.offset_bytes for b in others if b.kind == "output"}
    return [
        replace(
            port,
            is_kept=not _meets(port.buffers, others),
            is_donated=all(b.size_bytes and b.offset_bytes in taken for b in port.buffers),
        )
        for port in plain
    ]


def _meets(buffers: tuple[HbmBuffer, ...], others: list[HbmBuffer]) -> bool:
    return any(
        a.offset_bytes < b.offset_bytes + b.size_bytes
        and b.offset_bytes < a.offset_bytes + a.size_bytes
        for a in buffers
        for b in others
    )


def _port(first: HbmBuffer, rest: Iterator[HbmBuffer]) -> Port:
    device = _array(first, first.shape)
    if not first.host_shape:
        return _checked(Port((first,), device))
    host = _array(first, first.host_shape)
    more = islice(rest, plane_type(host.dtype)[1] - 1)
    layout = device.layout
    if layout is not None and host.layout is not None:  # the device lists dimensions in that order
        layout = replace(layout, minor_to_major=host.layout.minor_to_major)
    return _checked(Port((first, *more), host.with_layout(layout)))


def _array(buffer: HbmBuffer, text: str) -> ArrayShape:
    try:
        shape = parse_shape(text)
    except ValueError as error:
        raise ProgramError(f"buffer {buffer.name}: {error}") from error
    if not isinstance(shape, ArrayShape):
        raise ProgramError(f"buffer {buffer.name}: found {text}, want an array")
    return shape


def _checked(port: Port) -> Port:
    """The port, whose buffers must be as many and as large as its shape says."""
    name, shape = port.buffers[0].name, port.shape
    if shape.layout is not None and len(shape.layout.minor_to_major) != shape.rank:
        raise ProgramError(f"buffer {name}: the layouts of device and host shape differ in rank")
    planes = plane_type(shape.dtype)[1]
    found, want = [b.size_bytes for b in port.buffers], [stored_bytes(shape) // planes] * planes
    if found != want:
        text = print_shape(shape)
        raise ProgramError(f"buffer {name}: planes of {found} bytes, {text} wants {want}")
    return port
