"""An argument that a program keeps lies in the program's arena alone, and moves out in time."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from compiler.diagnostics import CompileError
from runtime.api import compile, device_put
from runtime.buffer import Array
from runtime.executable import Executable

SHAPE = (256, 2048)  # 2 MB: large enough for its pages to go back to the host
TEXT = """HloModule two

ENTRY main {
  a = f32[256,2048]{1,0} parameter(0)
  b = f32[256,2048]{1,0} parameter(1)
  ROOT r = f32[256,2048]{1,0} OPCODE(a, b)
}
"""


def program(opcode: str) -> Executable:
    return compile(TEXT.replace("OPCODE", opcode))


def host(start: float) -> np.ndarray:
    return np.arange(start, start + SHAPE[0] * SHAPE[1], dtype=np.float32).reshape(SHAPE)


def lies_in_arena(executable: Executable, array: Array, number: int) -> bool:
    place = executable.inputs[number].buffers[0].offset_bytes
    wanted = executable.device.hbm.view(place, array.size_bytes)
    return array.planes()[0].ctypes.data == wanted.ctypes.data


@pytest.fixture
def subtract() -> Executable:
    gc.collect()
    return program("subtract")


def test_a_kept_argument_gives_up_its_block(subtract: Executable) -> None:
    allocator = subtract.device.allocator
    before = allocator.used_bytes
    a, b = device_put(host(0)), device_put(host(5))
    assert allocator.used_bytes == before + a.size_bytes + b.size_bytes
    (result,) = subtract(a, b)
    np.testing.assert_array_equal(np.asarray(result), host(0) - host(5))
    assert all(port.is_kept for port in subtract.inputs)
    assert allocator.used_bytes == before
    assert lies_in_arena(subtract, a, 0) and lies_in_arena(subtract, b, 1)
    np.testing.assert_array_equal(a.numpy(), host(0))
    np.testing.assert_array_equal(np.asarray(subtract(a, b)[0]), host(0) - host(5))


def test_arguments_move_out_for_another_program(subtract: Executable) -> None:
    add = program("add")
    a, b = device_put(host(0)), device_put(host(5))
    subtract(a, b)
    np.testing.assert_array_equal(np.asarray(add(b, b)[0]), host(5) + host(5))
    np.testing.assert_array_equal(a.numpy(), host(0))
    np.testing.assert_array_equal(b.numpy(), host(5))
    np.testing.assert_array_equal(np.asarray(subtract(a, b)[0]), host(0) - host(5))
    np.testing.assert_array_equal(np.asarray(add(a, b)[0]), host(0) + host(5))


def test_an_argument_moves_out_for_its_successor(subtract: Executable) -> None:
    a, b = device_put(host(0)), device_put(host(5))
    subtract(a, b)
    np.testing.assert_array_equal(np.asarray(subtract(b, a)[0]), host(5) - host(0))
    np.testing.assert_array_equal(np.asarray(subtract(host(9), b)[0]), host(9) - host(5))
    for array, start in ((a, 0), (b, 5)):
        np.testing.assert_array_equal(array.numpy(), host(start))


def test_one_array_for_two_parameters(subtract: Executable) -> None:
    a, b = device_put(host(1)), device_put(host(7))
    assert not np.asarray(subtract(a, a)[0]).any()
    assert not np.asarray(subtract(a, a)[0]).any()
    np.testing.assert_array_equal(np.asarray(subtract(b, a)[0]), host(7) - host(1))
    np.testing.assert_array_equal(np.asarray(subtract(b, b)[0]), host(0) - host(0))
    np.testing.assert_array_equal(a.numpy(), host(1))


def test_what_a_dead_argument_leaves_is_free(subtract: Executable) -> None:
    allocator = subtract.device.allocator
    before = allocator.used_bytes
    a, b = device_put(host(0)), device_put(host(5))
    subtract(a, b)
    del a
    gc.collect()
    c = device_put(host(3))
    np.testing.assert_array_equal(np.asarray(subtract(c, b)[0]), host(3) - host(5))
    del b, c
    gc.collect()
    program("multiply")(host(0), host(1))
    assert allocator.used_bytes == before


def test_a_result_becomes_an_argument(subtract: Executable) -> None:
    state, step = device_put(host(0)), device_put(host(1))
    for number in range(1, 4):
        (state,) = subtract(state, step)
        np.testing.assert_array_equal(np.asarray(state), host(0) - number * host(1))


def test_arguments_of_an_iterator_are_taken_one_by_one(subtract: Executable) -> None:
    made = []

    def each() -> Iterator[np.ndarray]:
        for start in (4, 1):
            made.append(start)
            yield host(start)

    (result,) = subtract.call(each(), on_device=False)
    np.testing.assert_array_equal(result, host(4) - host(1))
    assert made == [4, 1]
    with pytest.raises(CompileError, match="takes 2 inputs, got 1"):
        subtract.call(iter([host(0)]), on_device=False)
    with pytest.raises(CompileError, match="takes 2 inputs, got 3"):
        subtract.call(iter([host(0), host(1), host(2)]), on_device=False)
