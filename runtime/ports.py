"""Ports: the inputs and outputs of a program as the host sees them, and their HBM buffers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from compiler.hlo.shape import ArrayShape
from compiler.hlo.shape_text import parse_shape
from runtime.storage import device_type, plane_type
from tpu_sim.isa.program import HbmBuffer, Program


@dataclass(frozen=True)
class Port:
    """An input or output: a buffer for each plane, and the host's shape with the planes' layout."""

    buffers: tuple[HbmBuffer, ...]
    shape: ArrayShape

    @property
    def device_shape(self) -> ArrayShape:
        """The shape of a device array that fits without conversion."""
        return replace(self.shape, dtype=device_type(self.shape.dtype))


def ports(program: Program, kind: str) -> list[Port]:
    """The program's inputs or outputs in order."""
    found = iter(sorted((b for b in program.buffers if b.kind == kind), key=lambda b: b.index))
    return [_port(buffer, found) for buffer in found]


def _port(first: HbmBuffer, rest: Iterator[HbmBuffer]) -> Port:
    device = _array(first.shape)
    if not first.host_shape:
        return Port((first,), device)
    host = _array(first.host_shape)
    more = [next(rest) for _ in range(plane_type(host.dtype)[1] - 1)]
    return Port((first, *more), host.with_layout(device.layout))


def _array(text: str) -> ArrayShape:
    shape = parse_shape(text)
    assert isinstance(shape, ArrayShape), text
    return shape
