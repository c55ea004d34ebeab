"""Calls: buffers in, buffers out, on the devices of the program.

A long program of one device is left to the device's thread: results are handed out at once, and whoever waits
for one gets the error if the run fails. What has failed already when the call returns is its own error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler.hlo.dtypes import PRED, DType
from runtime.buffer import Array, place
from runtime.pjrt.buffers import PjrtBuffer, array_on_host, copied, handles_at, ints_at
from runtime.pjrt.devices import PjrtDevice, PjrtMemory
from runtime.pjrt.events import event_of
from runtime.pjrt.failures import PjrtError
from runtime.pjrt.host_calls import HostCalls
from runtime.pjrt.layouts import ErrorCode, structure
from runtime.pjrt.native import drain, objects
from runtime.pjrt.profile import profile
from runtime.pjrt.programs import PjrtProgram
from runtime.pjrt.signature import token_places, with_tokens
from runtime.pjrt.staged import Staged
from runtime.queue import Task
from runtime.report import Report
from runtime.slice_executable import SliceExecutable

_POINTER = ctypes.c_void_p


def execute(a: Any) -> None:
    """`LoadedExecutable_Execute`: `argument_lists` has a row of buffers for each device."""
    program: PjrtProgram = objects[a.executable]
    if program.quick is not None and not profile.is_on and program.quick.run(a):
        return
    drain()
    if program.block.get("is_deleted"):
        raise PjrtError("the executable was deleted", ErrorCode.FAILED_PRECONDITION)
    rows = [
        [objects[handle] for handle in handles_at(a.argument_lists, number, a.num_args)]
        for number in range(a.num_devices)
    ]
    devices = [objects[a.execute_device]] if a.execute_device else program.devices
    if len(rows) != len(devices):
        raise PjrtError(f"arguments for {len(rows)} devices, the program runs on {len(devices)}")
    hosts: list[HostCalls] = []
    if isinstance(program.code, Staged):
        hosts = [HostCalls(a.options, number) for number in range(a.num_devices)]
    results, task = run(program, devices, rows, _kept(a.options), hosts)
    lists = (_POINTER * a.num_devices).from_address(a.output_lists)
    for start, made in zip(lists, results, strict=True):
        if made:
            assert start is not None
            row = (_POINTER * len(made)).from_address(start)
            row[:] = [buffer.block.address for buffer in made]
    if a.device_complete_events:
        events = (_POINTER * a.num_devices).from_address(a.device_complete_events)
        events[:] = [event_of(task) for _ in range(a.num_devices)]
    program.prepare_quick_calls()


def _kept(options: int | None) -> frozenset[int]:
    """The arguments that the caller keeps, though the program would take them."""
    if not options:
        return frozenset()
    found = structure("ExecuteOptions").from_address(options)
    count = found.num_non_donatable_input_indices
    return frozenset(ints_at(found.non_donatable_input_indices, count))


def run(
    program: PjrtProgram,
    devices: Sequence[PjrtDevice],
    rows: Sequence[Sequence[PjrtBuffer]],
    kept: frozenset[int],
    hosts: Sequence[HostCalls],
) -> tuple[list[list[PjrtBuffer]], Task | None]:
    """Run a program with a row of arguments for each device; a row of results for each, and what may still
    be under way. Arguments that it takes are deleted, but for those of the numbers `kept`."""
    donated = program.signature.donated
    values = [
        [
            (
                copied(buffer, buffer.memory) if number in donated and number in kept else buffer
            ).value()
            for number, buffer in enumerate(row)
        ]
        for row in rows
    ]
    made, reports, task = _called(program, devices, values, hosts)
    if profile.is_on:
        profile.add_run(program.signature.name, devices[0].device.id, reports())
    for number in donated - kept:
        for row in rows:
            row[number].block.set(is_deleted=1)
    signature = program.signature
    results = [
        [
            _result(_token(device) if array is None else array, shape.dtype, device.memory_of(kind))
            for array, shape, kind in zip(
                arrays, signature.results, signature.memories, strict=True
            )
        ]
        for device, arrays in zip(devices, made, strict=True)
    ]
    return results, task


def _result(array: Array, dtype: DType, memory: PjrtMemory) -> PjrtBuffer:
    """A result, which waits to be copied if it is to lie in the host's memory."""
    return PjrtBuffer(array_on_host(array, dtype) if memory.is_host else array, dtype, memory)


def _token(device: PjrtDevice) -> Array:
    return place(np.zeros(0, np.bool_), PRED, device.device)


def _called(
    program: PjrtProgram,
    devices: Sequence[PjrtDevice],
    values: list[list[Array]],
    hosts: Sequence[HostCalls],
) -> tuple[Sequence[Sequence[Array | None]], Callable[[], list[Report]], Task | None]:
    """A row of results for each device, what gives the reports of what ran, and what may run still."""
    code = program.code
    if isinstance(code, Staged):
        staged = code.run(values, [device.device for device in devices], hosts)
        return staged.results, staged.reports, None
    if isinstance(code, SliceExecutable):
        rows = code.call_pieces(values)
        return rows, lambda: [] if code.report is None else [code.report], None
    tokens_given, tokens_made = token_places(code)
    given = [value for n, value in enumerate(values[0]) if n not in tokens_given]
    run = code.call(given, on_device=True, device=devices[0].device)
    if run.is_done():
        run.wait()
    arrays = (array for array in run.results if isinstance(array, Array))
    made: tuple[Array | None, ...] = with_tokens(arrays, tokens_made, None)
    return [made], lambda: [run.report()], run.task


FUNCTIONS = {"LoadedExecutable_Execute": execute}
