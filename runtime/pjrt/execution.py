"""Calls: buffers in, buffers out, on the devices of the program."""

from __future__ import annotations

import ctypes
from typing import Any

from runtime.buffer import Array
from runtime.pjrt.buffers import PjrtBuffer, ints_at, put
from runtime.pjrt.failures import PjrtError
from runtime.pjrt.layouts import Code, structure
from runtime.pjrt.native import drain, leaves, objects
from runtime.pjrt.programs import PjrtProgram

_POINTER = ctypes.c_void_p


def execute(a: Any) -> None:
    """`LoadedExecutable_Execute`: `argument_lists` has a row of buffers for each device."""
    drain()
    program: PjrtProgram = objects[a.executable]
    if program.block.get("is_deleted"):
        raise PjrtError("the executable was deleted", Code.FAILED_PRECONDITION)
    rows = [_buffers(a.argument_lists, device, a.num_args) for device in range(a.num_devices)]
    results = run(program, rows[0], _kept(a.options))
    if results:
        outputs = _POINTER.from_address(a.output_lists).value
        assert outputs is not None
        row = (_POINTER * len(results)).from_address(outputs)
        row[:] = [buffer.block.address for buffer in results]
    if a.device_complete_events:
        events = (_POINTER * a.num_devices).from_address(a.device_complete_events)
        events[:] = [leaves().ready] * a.num_devices


def _buffers(lists: int, device: int, count: int) -> list[PjrtBuffer]:
    if not count:
        return []
    row = (_POINTER * (device + 1)).from_address(lists)[device]
    assert row is not None
    return [objects[handle] for handle in (ctypes.c_uint64 * count).from_address(row)]


def _kept(options: int | None) -> frozenset[int]:
    """The arguments that the caller keeps, though the program would take them."""
    if not options:
        return frozenset()
    found = structure("ExecuteOptions").from_address(options)
    count = found.num_non_donatable_input_indices
    return frozenset(ints_at(found.non_donatable_input_indices, count))


def run(
    program: PjrtProgram, arguments: list[PjrtBuffer], kept: frozenset[int]
) -> list[PjrtBuffer]:
    """Run a program of one device, whose results lie there; returns when it has run."""
    device, donated = program.devices[0], program.signature.donated
    values: list[Array] = []
    for number, buffer in enumerate(arguments):
        is_kept = number in donated and number in kept
        values.append((put(buffer.host(), buffer.dtype, device) if is_kept else buffer).value())
    called = program.executable.call(values, on_device=True, device=device.device).wait()
    for number in donated - kept:
        arguments[number].block.set(is_deleted=1)
    return [
        PjrtBuffer(array, result.local.dtype, device)
        for array, result in zip(called.results, program.signature.results, strict=True)
        if isinstance(array, Array)
    ]


FUNCTIONS = {"LoadedExecutable_Execute": execute}
