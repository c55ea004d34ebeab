"""Arrays passed for donated parameters: overwritten where they lie, and gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from compiler.diagnostics import CompileError, ResourceExhaustedError
from runtime.api import compile, device_put
from runtime.buffer import Array
from runtime.executable import Executable
from runtime.machines import MachineOptions
from tpu_sim.machine.faults import CycleLimitFault

SHAPE = (256, 2048)  # 2 MB: large enough for its pages to go back to the host
STEP = """HloModule step, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, must-alias) }

ENTRY e {
  a = TYPE[256,2048]{1,0} parameter(0)
  b = TYPE[256,2048]{1,0} parameter(1)
  x = TYPE[256,2048]{1,0} parameter(2)
  c = TYPE[256,2048]{1,0} add(a, x)
  d = TYPE[256,2048]{1,0} subtract(b, x)
  s = TYPE[256,2048]{1,0} add(c, d)
  ROOT r = (TYPE[256,2048]{1,0}, TYPE[256,2048]{1,0}, TYPE[256,2048]{1,0}) tuple(c, d, s)
}
"""


def host(start: float, dtype: str = "f4") -> np.ndarray:
    return np.arange(start, start + SHAPE[0] * SHAPE[1], dtype=dtype).reshape(SHAPE)


def address(array: Array) -> int:
    return int(array.planes()[0].ctypes.data)


def ready(arrays: Sequence[np.ndarray | Array]) -> list[Array]:
    """The results of a call that has ended."""
    return [array.block_until_ready() for array in arrays if isinstance(array, Array)]


@pytest.fixture
def step() -> Executable:
    return compile(STEP.replace("TYPE", "f32"))


@pytest.fixture
def state() -> list[Array]:
    return [device_put(host(k)) for k in (0, 100, 7)]


def test_state_is_updated_in_place_without_a_copy(step: Executable, state: list[Array]) -> None:
    a, b, x = state
    assert [port.is_donated for port in step.inputs] == [True, True, False]
    a, b, total = ready(step(a, b, x))
    del total  # what is still held of the third result would have to move
    before, places = step.device.memory.copied_bytes, (address(a), address(b))
    for _ in range(3):
        a, b = ready(step(a, b, x))[:2]
        assert (address(a), address(b)) == places
    assert step.device.memory.copied_bytes == before
    np.testing.assert_array_equal(a.numpy(), host(0) + 4 * host(7))
    np.testing.assert_array_equal(b.numpy(), host(100) - 4 * host(7))
    np.testing.assert_array_equal(x.numpy(), host(7))


def test_only_what_is_kept_of_the_results_is_copied(step: Executable, state: list[Array]) -> None:
    a, b, x = state
    before = step.device.memory.copied_bytes
    a, b, total = ready(step(a, b, x))
    assert step.device.memory.copied_bytes == before + 3 * a.size_bytes  # into the program's places
    a, b, _ = ready(step(a, b, x))
    assert step.device.memory.copied_bytes == before + 4 * a.size_bytes  # and `total` out of them
    np.testing.assert_array_equal(total.numpy(), host(0) + host(100))
    np.testing.assert_array_equal(a.numpy(), host(0) + 2 * host(7))


def test_pairs_of_words_are_donated_too() -> None:
    step = compile(STEP.replace("TYPE", "s64"))
    a, b = device_put(np.ones(SHAPE, "i8")), device_put(np.ones(SHAPE, "i8"))
    assert a.dtype == np.int32 and step.inputs[0].is_donated  # s64 is s32 on the device
    (c, d, _) = step(a, b, host(0, "i8"))
    assert a.is_deleted() and b.is_deleted()
    assert np.asarray(c)[0, 2] == 3 and np.asarray(d)[0, 2] == -1


def test_a_donated_array_is_gone(step: Executable, state: list[Array]) -> None:
    a, b, x = state
    used = step.device.memory.allocator.array_bytes
    results = ready(step(a, b, x))
    assert (
        step.device.memory.allocator.array_bytes == used - 3 * a.size_bytes
    )  # x lies in the arena
    assert (a.is_deleted(), b.is_deleted(), x.is_deleted()) == (True, True, False)
    assert a.shape == SHAPE and a.dtype == np.float32 and "deleted" in repr(a)
    for use in (a.numpy, lambda: np.asarray(a), lambda: device_put(a), lambda: step(b, a, x)):
        with pytest.raises(RuntimeError, match=r"f32\[256, 2048\] was deleted when a program took"):
            use()
    with pytest.raises(RuntimeError, match=r"for its donated input 1 \(b\)"):
        b.numpy()
    np.testing.assert_array_equal(np.asarray(results[0]), host(0) + host(7))
    np.testing.assert_array_equal(x.numpy(), host(7))


def test_states_that_change_places_move_out_first(step: Executable, state: list[Array]) -> None:
    a, b, x = state
    c, d, _ = step(a, b, x)
    e, f, _ = step(d, c, x)
    np.testing.assert_array_equal(e.numpy(), host(100) - host(7) + host(7))
    np.testing.assert_array_equal(f.numpy(), host(0) + host(7) - host(7))


def test_a_result_becomes_a_kept_argument_and_then_a_donated_one(
    step: Executable, state: list[Array]
) -> None:
    a, b, x = state
    c, d, s = step(a, b, x)
    e, f, _ = step(c, d, s)
    np.testing.assert_array_equal(s.numpy(), host(0) + host(100))
    g, h, _ = step(s, f, x)  # s lies in the arena, as the third argument of the call before
    assert s.is_deleted() and not e.is_deleted()
    np.testing.assert_array_equal(g.numpy(), host(0) + host(100) + host(7))
    np.testing.assert_array_equal(h.numpy(), host(100) - host(7) - host(0) - host(100) - host(7))
    np.testing.assert_array_equal(e.numpy(), host(0) + host(7) + host(0) + host(100))


def test_one_array_cannot_be_donated_and_read(step: Executable, state: list[Array]) -> None:
    a, b, _ = state
    for arguments in ((a, b, a), (a, a, b)):
        with pytest.raises(CompileError, match=r"input 0 \(a\) is donated, and the same array"):
            step(*arguments)
    assert not a.is_deleted() and not b.is_deleted()


def test_an_array_and_a_host_array(step: Executable, state: list[Array]) -> None:
    a, _, x = state
    results = step(a, host(100), x)
    assert all(isinstance(r, np.ndarray) for r in results) and a.is_deleted()
    np.testing.assert_array_equal(results[1], host(100) - host(7))


def test_arrays_of_an_iterator_are_donated_too(step: Executable, state: list[Array]) -> None:
    def each() -> Iterator[Array]:
        yield from state

    c, d, _ = step.call(each(), on_device=True).results
    assert state[0].is_deleted()
    e, _, _ = step.call(iter([c, d, state[2]]), on_device=True).results
    np.testing.assert_array_equal(np.asarray(e), host(0) + 2 * host(7))


def test_a_call_that_is_refused_deletes_nothing(step: Executable, state: list[Array]) -> None:
    a, b, x = state
    with pytest.raises(CompileError, match="takes 3 inputs, got 2"):
        step(a, b)
    memory = step.device.memory
    a, b, total = ready(step(a, b, x))
    fillers = []
    with pytest.raises(ResourceExhaustedError):
        while True:
            fillers.append(memory.allocate(memory.allocator.largest_free_bytes or 512))
    with pytest.raises(ResourceExhaustedError):  # there is no room for `total` outside
        step(a, b, x)[0].numpy()
    fillers.clear()
    np.testing.assert_array_equal(a.numpy(), host(0) + host(7))
    np.testing.assert_array_equal(np.asarray(step(a, b, x)[2]), host(0) + host(100))
    np.testing.assert_array_equal(total.numpy(), host(0) + host(100))


def test_another_program_finds_the_state_moved(step: Executable, state: list[Array]) -> None:
    a, b, x = state
    a, b, _ = step(a, b, x)
    other = compile(STEP.replace("TYPE", "f32").replace("subtract(b, x)", "multiply(b, x)"))
    c, d, _ = other(a, b, x)
    assert a.is_deleted()
    np.testing.assert_array_equal(c.numpy(), host(0) + 2 * host(7))
    np.testing.assert_array_equal(d.numpy(), (host(100) - host(7)) * host(7))


def test_after_a_fault_the_donated_arrays_are_gone(step: Executable, state: list[Array]) -> None:
    limited = Executable(step.program, step.device, MachineOptions(max_cycles=10))
    results = limited(*state)
    for result in results:
        with pytest.raises(CycleLimitFault):
            result.numpy()
    assert [array.is_deleted() for array in state] == [True, True, False]
    np.testing.assert_array_equal(state[2].numpy(), host(7))


def test_delete_gives_memory_back_at_once() -> None:
    array = device_put(host(0))
    used = array.device.memory.allocator.array_bytes
    array.delete()
    array.delete()
    assert array.device.memory.allocator.array_bytes == used - array.size_bytes
    with pytest.raises(RuntimeError, match=r"was deleted by delete\(\)"):
        array.numpy()
