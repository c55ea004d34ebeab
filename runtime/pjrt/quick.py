"""Quick calls: a small program, once it is known to be short, is run by one native function.

`QuickProgram` has a place in HBM of its own, apart from the one that ordinary calls use, and stacks of
buffers for its results. What is not as a quick call wants it (an argument without a fixed place, a device
that is at work, a fault) goes the ordinary way, which also says what is wrong. Reports are made by ordinary
calls alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any

from compiler.hlo.dtypes import DType
from runtime.allocator import Block, in_granules
from runtime.buffer import SMALL_BYTES, Array, Buffer
from runtime.executable import Executable
from runtime.loaded import SHORT_SECONDS, LoadedProgram
from runtime.pjrt.blocks import HOME
from runtime.pjrt.buffers import PjrtBuffer, handles_at, layout_number
from runtime.pjrt.devices import PjrtDevice
from runtime.pjrt.native import SlotBlock, drain, forget, leaves, objects, when_gone
from runtime.pjrt.quick_leaf import QuickTable, Status
from runtime.pjrt.signature import ProgramSignature, stated_memories, token_places
from runtime.pjrt.stacks import BufferStack
from runtime.pjrt.staged import Staged
from runtime.ports import Port
from runtime.slice_executable import SliceExecutable

_MOST_BYTES = 1 << 20
"""A program that takes more of HBM has no second place there."""
_MOST_COPIED_BYTES = 1 << 16
"""Of arguments and results together: larger copies take longer than what the quick way saves."""


class QuickProgram:
    """A program on one device, ready to be run by native code.

    `memory.keep` has it as one that may be given up when HBM is short.
    """

    def __init__(
        self,
        code: Executable,
        signature: ProgramSignature,
        device: PjrtDevice,
        loaded: LoadedProgram,
    ) -> None:
        memory, program = device.device.memory, code.program
        self._device, self._memory = device, memory
        self.size_bytes, self.last_use = in_granules(program.hbm_bytes), memory.uses
        self._block: Block | None = memory.allocate(self.size_bytes, for_program=True)
        self._hbm = memory.hbm.part(self._block.offset, self.size_bytes)
        for place, constant in program.constants:
            self._hbm.write(place, constant)
        types = [shape.dtype for shape in signature.results]
        self._stacks = stacks = [
            BufferStack(partial(_new_result, port, dtype, device))
            for port, dtype in zip(code.outputs, types, strict=True)
        ]
        when_gone(self, partial(_close, stacks))
        runner = loaded.runnable.quick(self._hbm)
        assert runner is not None, "who may be quick has native code"
        self._row = self._filled(code, runner.row)
        self._begin, self._execute = runner.begin, leaves().execute_quickly
        self._row_address = ctypes.addressof(self._row)
        memory.keep(self)

    @property
    def is_idle(self) -> bool:
        """Whether it takes room: nobody looks while it runs."""
        return self._block is not None

    def evict(self) -> None:
        """Give up its place and the results that nobody holds."""
        self._block = None
        _close(self._stacks)

    def run(self, a: Any) -> bool:
        """Do the call with these arguments; False if it is to go the ordinary way."""
        self._row[QuickTable.HANDED_OUT] = 0
        try:
            return self._run(a)
        except BaseException:  # PJRT is told that its call failed
            if self._row[QuickTable.HANDED_OUT]:
                _take_back(handles_at(a.output_lists, 0, len(self._stacks)))
            raise

    def _run(self, a: Any) -> bool:
        address = ctypes.addressof(a)
        status = self._once(address)
        if status == Status.UNPLACED and self._has_settled(a):
            status = self._once(address)
        if status == Status.EMPTY:
            for stack in self._stacks:
                stack.refill()
            status = self._once(address)
        if status == Status.DONE_AND_KEPT:
            drain()
        return status in (Status.DONE, Status.DONE_AND_KEPT)

    def _once(self, address: int) -> int | None:
        """A `Status`, or None if the device is not free now."""
        return self._device.device.queue.at_once(self._work, address)

    def _work(self, address: int) -> int:
        if self._block is None:
            return Status.BROKEN
        self._begin()
        found: int | None = self._execute(address, self._row_address)
        return found or Status.DONE

    def _has_settled(self, a: Any) -> bool:
        """Give each argument a place where it stays; whether all have one."""
        handles = handles_at(a.argument_lists, 0, a.num_args)
        return all(objects[handle].settle() for handle in handles)

    def _filled(self, code: Executable, runner: Sequence[int]) -> Any:
        """The words of `runtime.pjrt.quick_leaf`."""
        copies_in, copies_out = self._copies(code.inputs), self._copies(code.outputs)
        counts = [len(code.inputs), len(code.outputs), len(copies_in), len(copies_out)]
        layouts = [layout_number(port.device_shape) for port in code.inputs]
        stacks = [stack.address for stack in self._stacks]
        copies = [word for copy in (*copies_in, *copies_out) for word in copy]
        words = [*runner, *counts, 0, *layouts, *stacks, *copies]
        return (ctypes.c_int64 * len(words))(*words)

    def _copies(self, ports: Sequence[Port]) -> list[tuple[int, int, int, int]]:
        """A copy for each plane of each port."""
        copies = []
        for number, port in enumerate(ports):
            size = port.size_bytes // len(port.places)
            for plane, place in enumerate(port.places):
                target = self._hbm.address + place
                copies.append((number, plane * size, target, size))
        return copies


def _new_result(port: Port, dtype: DType, device: PjrtDevice) -> SlotBlock:
    """The block of a buffer for what comes out of `port`."""
    buffer = Buffer(device.device.memory, port.size_bytes, len(port.buffers))
    array = Array(device.device, port.device_shape, buffer)
    return PjrtBuffer(array, dtype, device.memory).block


def _close(stacks: Sequence[BufferStack]) -> None:
    for stack in stacks:
        stack.close()


def _take_back(handles: Sequence[int]) -> None:
    """Nobody gets these results."""
    for handle in handles:
        objects[handle].block.words[HOME] = 0
        forget(handle)


def may_be_quick(code: Executable | Staged) -> bool:
    """Whether it is a small program of one device that leaves its arguments as they are, and its results in
    HBM."""
    if not isinstance(code, Executable) or isinstance(code, SliceExecutable):
        return False
    ports = (*code.inputs, *code.outputs)
    return (
        not any(token_places(code))
        and not stated_memories(code)
        and code.program.hbm_bytes <= _MOST_BYTES
        and all(0 < port.size_bytes <= SMALL_BYTES for port in ports)
        and sum(port.size_bytes for port in ports) <= _MOST_COPIED_BYTES
        and not any(port.is_donated for port in code.inputs)
    )


def quick_program(
    code: Executable | Staged, signature: ProgramSignature, device: PjrtDevice
) -> QuickProgram | None:
    """A small program for quick calls, once it was found to be short."""
    assert isinstance(code, Executable)
    loaded = code.loaded_on(device.device)
    if loaded is None or loaded.busy_seconds > SHORT_SECONDS:
        return None
    with device.device.memory.lock.here:
        runner = loaded.runnable.quick(loaded.arena.hbm) if loaded.arena.is_idle else None
    return None if runner is None else QuickProgram(code, signature, device, loaded)
