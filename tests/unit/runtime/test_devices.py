"""Targets and their devices: numbers, places, memories; a program runs on any of them."""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.diagnostics import CompileError, ResourceExhaustedError, UnsupportedError
from runtime.allocator import in_granules
from runtime.api import compile, device_put, devices
from runtime.arena import Arena
from runtime.buffer import Array
from runtime.client import Device, client_for
from runtime.executable import Executable
from runtime.jit import jit
from runtime.machines import MachineOptions
from runtime.memory import Memory
from runtime.queue import Task
from runtime.topology import parse_target
from tpu_sim.isa.chips import ChipError, load_chip

ADD = """HloModule add
ENTRY e {
  a = f32[8,128]{1,0} parameter(0)
  b = f32[8,128]{1,0} parameter(1)
  c = f32[8,128]{1,0} constant({CONSTANT})
  s = f32[8,128]{1,0} add(a, b)
  ROOT r = f32[8,128]{1,0} add(s, c)
}
"""


def adding(constant: int) -> Executable:
    """a + b + a table of constants, so that its arena holds something of its own."""
    row = "{" + ", ".join([str(constant)] * 128) + "}"
    return compile(ADD.replace("CONSTANT", ", ".join([row] * 8)))


def tile(value: float) -> np.ndarray:
    return np.full((8, 128), value, np.float32)


def arena_of(executable: Executable, device: Device) -> Arena:
    return executable._loaded[device].arena


@pytest.fixture
def add() -> Executable:
    return adding(1)


def test_a_slice_has_its_chips_along_x_first() -> None:
    found = devices("v5e:4x2")
    assert [device.id for device in found] == list(range(8))
    assert [device.coords for device in found[:5]] == [
        (0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0), (0, 1, 0),
    ]  # fmt: skip
    assert {device.core_on_chip for device in found} == {0}
    assert {device.device_kind for device in found} == {"TPU v5 lite"}
    assert devices("v5e:4x2") == found and client_for("v5e:4x2") is client_for("v5e:4x2")
    assert devices("v5e:4x2x1") == found and devices("v5e:2x4") != found
    assert devices("v5p:2x2x2")[7].coords == (1, 1, 1)
    assert len(devices()) == 1 and devices()[0] not in found


def test_cores_that_are_devices_share_coordinates() -> None:
    found = devices("7x:2x1x1")
    assert [(d.id, d.coords[0], d.core_on_chip) for d in found] == [
        (0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "target", ["v5e:0x2", "v5e:2x2x2x2", "v5e:1000x1000", "v9:2x2", "v5e:", "v5e:x"]
)
def test_what_is_no_target_is_refused(target: str) -> None:
    with pytest.raises(ChipError):
        parse_target(target)


def test_a_shape_that_is_none_is_no_unknown_chip() -> None:
    with pytest.raises(ChipError, match="v5e:9x: want numbers with x between them, as in v5e:4x2"):
        parse_target("v5e:9x")


def test_a_slice_of_a_chip_file(tmp_path: Path) -> None:
    chip = tmp_path / "small.toml"
    chip.write_text('base = "v5e"\nname = "small"\n')
    assert len(devices(f"{chip}:2x2")) == 4
    assert devices(f"{chip}:2x2")[3].device_kind == "small"


def test_many_devices_cost_nothing_until_they_are_used() -> None:
    found = devices("v5e:16x16")
    assert len(found) == 256
    assert not any("hbm" in vars(device.memory) for device in found)


def test_a_chip_is_a_target() -> None:
    chip = load_chip("v5e{vmem=32MiB}")
    assert client_for(chip) is client_for("v5e{vmem=32MiB}")
    mine = replace(load_chip("v5e"), name="mine", vmem_bytes=32 << 20)
    found = compile("ENTRY e { ROOT x = f32[8] parameter(0) }", target=mine)
    assert found.device.name == "mine" and found.device.chip.vmem_bytes == 32 << 20
    added = jit(lambda x: x + 1, target=mine)(device_put(np.ones(3, np.float32), mine))
    np.testing.assert_array_equal(np.asarray(added), [2, 2, 2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"vmem_bytes": 32 << 20},
            "v5e has another vmem_bytes than this chip: give it a name of its own",
        ),
        ({"name": "mine", "vmem_bytes": 12345}, "chip mine: parameter vmem_bytes: 12345, want"),
        ({"name": "mine", "mxu_count": 100}, "chip mine: parameter mxu_count: 100, want 1 to 8"),
    ],
)
def test_a_chip_that_contradicts_itself_or_its_name_is_none(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ChipError, match=message):
        compile(
            "ENTRY e { ROOT x = f32[8] parameter(0) }", target=replace(load_chip("v5e"), **changes)
        )


@pytest.mark.parametrize("target", [5, None, [], ["v5e"]])
def test_what_is_no_target_is_told_what_one_is(target: Any) -> None:
    with pytest.raises(TypeError, match=r"want a name such as 'v5e', .* a tpuc\.Chip, a device"):
        compile("ENTRY e { ROOT x = f32[8] parameter(0) }", target=target)


def test_memory_is_accounted_for() -> None:
    device = Device(load_chip("v5e"))
    assert device.memories == (device.memory,) and device.memory.kind == "device"
    assert device.memory_stats()["bytes_limit"] == 16 << 30
    array = device_put(np.zeros((256, 1024), np.float32), device)
    assert device.memory_stats()["bytes_in_use"] == array.size_bytes == 1 << 20
    del array
    stats = device.memory_stats()
    assert (stats["bytes_in_use"], stats["peak_bytes_in_use"]) == (0, 1 << 20)
    assert (stats["num_allocs"], stats["largest_free_block_bytes"]) == (0, 16 << 30)


@pytest.mark.parametrize("machine", ["llvm", "numpy"])
def test_a_program_runs_where_its_arguments_lie(machine: str) -> None:
    add = Executable(adding(1).program, devices()[0], MachineOptions(machine=machine, cache=False))
    for number, device in enumerate(devices("v5e:2x2")):
        a, b = device_put(tile(number), device), device_put(tile(10), device)
        (result,) = add(a, b)
        assert isinstance(result, Array) and result.device is device
        np.testing.assert_array_equal(result.numpy(), tile(number + 11))
        (host,) = add(a, tile(20))
        np.testing.assert_array_equal(np.asarray(host), tile(number + 21))
    (result,) = add.call([tile(1), tile(2)], on_device=True, device=devices("v5e:2x2")[3]).results
    assert isinstance(result, Array) and result.device is devices("v5e:2x2")[3]
    np.testing.assert_array_equal(np.asarray(add(tile(0), tile(0))[0]), tile(1))


def test_a_traced_function_runs_where_its_arguments_lie() -> None:
    double = jit(lambda x: x + x)
    third = devices("v5e:4x2")[2]
    result = double(device_put(tile(3), third))
    assert result.device is third
    np.testing.assert_array_equal(result.numpy(), tile(6))
    on_third = jit(lambda x: x + x, target=third)
    on_third(tile(1))
    assert on_third.executable is not None and on_third.executable.device is third


def test_arrays_of_two_devices_do_not_meet(add: Executable) -> None:
    first, second = devices("v5e:2x1")
    a, b = device_put(tile(1), first), device_put(tile(2), second)
    with pytest.raises(CompileError, match=r"input 1 \(b\): the array lies on device v5e:1"):
        add(a, b)
    with pytest.raises(CompileError, match=r"input 0 \(a\): the array lies on device v5e:0"):
        add.call([a, tile(1)], device=second)
    np.testing.assert_array_equal(np.asarray(add(device_put(a, second), b)[0]), tile(4))


PARTITIONED = """HloModule spmd, num_partitions=8
ENTRY e {
  a = f32[8]{0} parameter(0)
  ROOT r = f32[8]{0} add(a, a)
}
"""


def test_a_program_of_several_devices_wants_as_many() -> None:
    for _ in range(2):
        with pytest.raises(UnsupportedError, match=r"spmd .*num_partitions=8\), the target has 4"):
            compile(PARTITIONED, target="v5e:2x2")
    compile(PARTITIONED)  # all of it on one device
    value = np.arange(8, dtype=np.float32)
    (doubled,) = compile(PARTITIONED, target="v5e:4x2")(value)
    np.testing.assert_array_equal(doubled, 2 * value)


def test_the_cloud_names_slices_by_chips_or_cores() -> None:
    assert parse_target("v5e-8").dims == (2, 4, 1)
    assert parse_target("v4-16").dims == (2, 2, 2)
    assert parse_target("v5p-128").torus.wraps == (True, True, True)
    for wrong in ("v5e-7", "7x-8", "v6e-512"):
        with pytest.raises(ChipError, match=wrong):
            parse_target(wrong)


def test_programs_keep_their_constants_and_arguments_side_by_side() -> None:
    device = Device(load_chip("v5e"))
    ones, tens = adding(1), adding(10)
    a, b = device_put(tile(1), device), device_put(tile(2), device)
    for executable in (ones, tens):
        executable(a, b)[0].block_until_ready()  # type: ignore[union-attr]
    places = {arena_of(e, device).hbm.address for e in (ones, tens)}
    assert len(places) == 2
    c, d = device_put(tile(5), device), device_put(tile(6), device)
    tens(c, d)[0].block_until_ready()  # type: ignore[union-attr]
    copied = device.memory.copied_bytes
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(ones(a, b)[0]), tile(4))
        np.testing.assert_array_equal(np.asarray(tens(c, d)[0]), tile(21))
    assert device.memory.copied_bytes == copied


def test_a_program_runs_anywhere_in_memory(add: Executable) -> None:
    device = Device(load_chip("v5e"))
    results, others = [], []
    for size in (512, 3 * 512, 1 << 20):
        others.append(device.memory.allocate(size, for_program=True))
        call = add.call([tile(1), tile(size)], on_device=True, device=device)
        (result,) = call.wait().results
        results.append((size, result))
        arena_of(add, device).evict()
    for size, result in results:
        np.testing.assert_array_equal(np.asarray(result), tile(size + 2))


def test_idle_programs_make_room() -> None:
    programs = [adding(k) for k in range(4)]
    size = programs[0].program.hbm_bytes
    device = Device(load_chip("v5e"), Memory(in_granules(2 * size) + 2 * 4096))
    calls = [p.call([tile(1), tile(2)], on_device=True, device=device) for p in programs]
    results = [call.wait().results for call in calls]
    assert sum(arena_of(p, device).is_idle for p in programs) == 2
    assert arena_of(programs[3], device).is_idle and not arena_of(programs[0], device).is_idle
    for number, (result,) in enumerate(results):
        np.testing.assert_array_equal(np.asarray(result), tile(3 + number))
    del calls, results, result  # what cannot move out would hold its arena
    filler = device.memory.allocate(device.memory.allocator.largest_free_bytes + 512)
    assert sum(arena_of(p, device).is_idle for p in programs) < 2
    with pytest.raises(ResourceExhaustedError, match="no room"):
        device.memory.allocate(device.memory.size_bytes)
    del filler
    np.testing.assert_array_equal(
        np.asarray(programs[0].call([tile(1), tile(2)], device=device).results[0]), tile(3)
    )


class Using(Task):
    """A task that uses an arena until somebody opens the gate."""

    def __init__(self, arena: Arena) -> None:
        super().__init__()
        self.arena, self.gate = arena, threading.Event()

    def work(self) -> None:
        self.arena.in_use = True
        self.gate.wait()
        self.arena.in_use = False


def test_who_needs_room_waits_for_the_programs_that_run() -> None:
    program = adding(1)
    device = Device(load_chip("v5e"), Memory(in_granules(program.program.hbm_bytes) + 2 * 4096))
    program.call([tile(1), tile(2)], device=device)
    using = Using(arena_of(program, device))
    device.queue.put(using)
    while not using.arena.in_use:
        time.sleep(0.001)
    opener = threading.Timer(0.05, using.gate.set)
    opener.start()
    device.memory.allocate(device.memory.allocator.largest_free_bytes + 512)
    assert using.is_ended
    opener.join()


def test_who_needs_room_in_a_task_of_the_device_does_not_wait_for_it() -> None:
    device = Device(load_chip("v5e"), Memory(1 << 20))
    with device.queue.turn(), pytest.raises(ResourceExhaustedError, match="no room"):
        device.memory.allocate(2 << 20)


def test_idle_programs_keep_no_more_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.memory._MOST_IDLE_BYTES", 0)
    device = Device(load_chip("v5e"))
    first, second = adding(1), adding(2)
    (kept,) = first.call([tile(0), tile(0)], on_device=True, device=device).results
    second.call([tile(0), tile(0)], device=device)
    assert not arena_of(first, device).is_idle and arena_of(second, device).is_idle
    np.testing.assert_array_equal(np.asarray(kept), tile(1))


def test_a_result_outlives_its_program() -> None:
    device = Device(load_chip("v5e"))
    add = adding(1)
    (result,) = add.call([tile(1), tile(2)], on_device=True, device=device).results
    np.asarray(result)
    del add
    gc.collect()
    other = adding(5)
    other.call([tile(0), tile(0)], device=device)
    np.testing.assert_array_equal(np.asarray(result), tile(4))
    del result, other
    gc.collect()
    assert device.memory.allocator.used_bytes == 0


def test_devices_run_at_the_same_time() -> None:
    """Two programs that each wait for the other to have begun."""
    add = adding(1)
    both = threading.Barrier(2, timeout=60)
    found = devices("v5e:2x1")
    for device in found:
        add.call([tile(0), tile(0)], device=device)
        runnable = add._loaded[device].runnable
        run = runnable.run
        add._loaded[device].busy_seconds = 1.0
        setattr(runnable, "run", lambda *a, run=run: (both.wait(), run(*a))[1])  # noqa: B010
    arguments = [(device_put(tile(1), d), device_put(tile(2), d)) for d in found]
    results = [add(*pair)[0] for pair in arguments]
    for result in results:
        np.testing.assert_array_equal(np.asarray(result), tile(4))
