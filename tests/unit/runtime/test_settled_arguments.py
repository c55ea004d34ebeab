"""An argument that a program keeps lies in the program's arena alone, and moves out in time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from compiler.diagnostics import CompileError, ResourceExhaustedError
from runtime.api import compile, device_put
from runtime.arena import Arena
from runtime.buffer import Array
from runtime.client import client_for
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


def arena(executable: Executable) -> Arena:
    return executable._loaded[executable.device].arena


def lies_in_arena(executable: Executable, array: Array, number: int) -> bool:
    place = executable.inputs[number].buffers[0].offset_bytes
    wanted = arena(executable).hbm.view(place, array.size_bytes)
    return array.planes()[0].ctypes.data == wanted.ctypes.data


@pytest.fixture
def subtract() -> Executable:
    gc.collect()
    return program("subtract")


def test_a_kept_argument_gives_up_its_block(subtract: Executable) -> None:
    allocator = subtract.device.memory.allocator
    before = allocator.array_bytes
    a, b = device_put(host(0)), device_put(host(5))
    assert allocator.array_bytes == before + a.size_bytes + b.size_bytes
    (result,) = subtract(a, b)
    np.testing.assert_array_equal(np.asarray(result), host(0) - host(5))
    assert all(port.is_kept for port in subtract.inputs)
    assert allocator.array_bytes == before
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
    allocator = subtract.device.memory.allocator
    before = allocator.array_bytes
    a, b = device_put(host(0)), device_put(host(5))
    subtract(a, b)
    del a
    gc.collect()
    c = device_put(host(3))
    np.testing.assert_array_equal(np.asarray(subtract(c, b)[0]), host(3) - host(5))
    del b, c
    gc.collect()
    program("multiply")(host(0), host(1))
    assert allocator.array_bytes == before


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

    (result,) = subtract.call(each(), on_device=False).results
    np.testing.assert_array_equal(result, host(4) - host(1))
    assert made == [4, 1]
    with pytest.raises(CompileError, match="takes 2 inputs, got 1"):
        subtract.call(iter([host(0)]), on_device=False)
    with pytest.raises(CompileError, match="takes 2 inputs, got 3"):
        subtract.call(iter([host(0), host(1), host(2)]), on_device=False)


SMALL_CHIP = 'base = "v5e"\nname = "small"\nhbm_bytes = {value = 4194304, provenance = "assumed"}\n'
SLICE = """HloModule m
ENTRY e {
  a = f32[256,1024]{1,0} parameter(0)
  ROOT r = f32[8,128]{1,0} slice(a), slice={[0:8],[0:128]}
}
"""


def test_an_array_that_finds_no_room_outside_stays_where_it_is(tmp_path: Path) -> None:
    chip = tmp_path / "small.toml"
    chip.write_text(SMALL_CHIP)
    executable = compile(SLICE, target=str(chip))
    values = np.arange(256 * 1024, dtype=np.float32).reshape(256, 1024)
    array = device_put(values, target=str(chip))
    np.asarray(executable(array)[0])  # the program is idle before its memory is asked for
    filling = []
    with pytest.raises(ResourceExhaustedError):
        while True:
            filling.append(device_put(np.zeros((64, 1024), np.float32), target=str(chip)))
    for _ in range(2):
        with pytest.raises(ResourceExhaustedError):
            executable(np.zeros((256, 1024), np.float32))
        np.testing.assert_array_equal(array.numpy(), values)
    filling.clear()
    (result,) = executable(np.zeros((256, 1024), np.float32))
    assert not np.asarray(result).any()
    np.testing.assert_array_equal(array.numpy(), values)


def test_an_array_of_another_device_is_refused(subtract: Executable) -> None:
    other, own = device_put(host(0), target="v4"), device_put(host(5))
    with pytest.raises(CompileError, match=r"input 0 .* lies on device v4, the program is for v5e"):
        subtract(other, own)
    np.testing.assert_array_equal(np.asarray(other), host(0))
    np.testing.assert_array_equal(np.asarray(own), host(5))


def test_two_spellings_of_a_chip_file_are_one_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.toml").write_text(SMALL_CHIP)
    monkeypatch.chdir(tmp_path)
    device = client_for("small.toml").devices[0]
    assert client_for(str(tmp_path / "small.toml")).devices[0] is device
    edited = SMALL_CHIP.replace("4194304", "8388608")
    (tmp_path / "small.toml").write_text(edited)
    assert client_for("small.toml").devices[0].memory.size_bytes == 8388608
