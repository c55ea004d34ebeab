"""The contract of calling an executable: what goes in, what comes out, what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from compiler.diagnostics import CompileError, ResourceExhaustedError
from compiler.hlo import host_types
from compiler.hlo.host_types import PrecisionWarning
from runtime.api import compile, device_put, load_executable
from runtime.buffer import Array
from runtime.client import Device
from runtime.executable import Executable
from runtime.machines import MachineOptions
from runtime.memory import Memory
from tpu_sim.isa.chips import load_chip
from tpu_sim.machine.faults import CycleLimitFault

SCALED_SUM = """
HloModule scaled_sum

ENTRY e {
  x = f32[9,130] parameter(0)
  y = f32[9,130] parameter(1)
  c = f32[1,130] constant({CONSTANT})
  flat = f32[130] reshape(c)
  wide = f32[9,130] broadcast(flat), dimensions={1}
  s = f32[9,130] add(x, y)
  ROOT r = f32[9,130] multiply(s, wide)
}
"""


def scaled_sum(first: int) -> tuple[Executable, np.ndarray]:
    """(x + y) * row, with a row of constants of its own."""
    row = np.arange(first, first + 130, dtype=np.float32)
    text = ", ".join(str(int(v)) for v in row)
    return compile(SCALED_SUM.replace("CONSTANT", "{" + text + "}")), row


@pytest.fixture(scope="module")
def model() -> tuple[Executable, np.ndarray]:
    return scaled_sum(1)


def operands(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(-50, 50, (2, 9, 130)).astype(np.float32)
    return x, y


def single(results: list[np.ndarray] | list[Array]) -> np.ndarray:
    assert len(results) == 1
    return np.asarray(results[0])


def test_numpy_in_numpy_out(model: tuple[Executable, np.ndarray]) -> None:
    exe, row = model
    x, y = operands(0)
    (out,) = exe(x, y)
    assert isinstance(out, np.ndarray) and out.dtype == np.float32
    assert (out == (x + y) * row).all()


def test_results_stay_what_they_are_when_the_model_runs_again(
    model: tuple[Executable, np.ndarray],
) -> None:
    exe, row = model
    (x, y), (u, v) = operands(1), operands(2)
    for put in (np.asarray, device_put):
        first = exe(put(x), put(y))
        exe(put(u), put(v))
        assert (single(first) == (x + y) * row).all()


def test_device_arrays_in_device_arrays_out(model: tuple[Executable, np.ndarray]) -> None:
    exe, row = model
    x, y = operands(3)
    on_device = device_put(x), device_put(y)
    for _ in range(3):
        (out,) = exe(*on_device)
        assert isinstance(out, Array)
        assert (out.numpy() == (x + y) * row).all()
    (again,) = exe(out, on_device[1])
    assert (np.asarray(again) == ((x + y) * row + y) * row).all()


def test_one_host_array_makes_host_results(model: tuple[Executable, np.ndarray]) -> None:
    exe, row = model
    x, y = operands(4)
    (out,) = exe(device_put(x), y)
    assert isinstance(out, np.ndarray)
    assert (out == (x + y) * row).all()


def test_what_is_resident_is_replaced_by_other_arguments(
    model: tuple[Executable, np.ndarray],
) -> None:
    exe, row = model
    x, y = operands(5)
    a, b = device_put(x), device_put(y)
    calls = [(a, b), (b, b), (a, a), (x, b), (a, b), (a, y * 2), (a, b), (b, a)]
    for first, second in calls:
        want = (np.asarray(first) + np.asarray(second)) * row
        assert (single(exe(first, second)) == want).all()


def test_a_dead_array_is_not_taken_for_the_new_one_in_its_place(
    model: tuple[Executable, np.ndarray],
) -> None:
    exe, row = model
    for seed in range(6):
        x, y = operands(seed)
        assert (single(exe(device_put(x), device_put(y))) == (x + y) * row).all()


def test_two_executables_take_turns_on_a_device() -> None:
    pairs = [scaled_sum(1), scaled_sum(1000)]
    x, y = operands(6)
    arguments = device_put(x), device_put(y)
    for turn in (0, 1, 1, 0, 0, 1, 0):
        exe, row = pairs[turn]
        assert (single(exe(*arguments)) == (x + y) * row).all()


def test_after_a_fault_everything_is_loaded_anew() -> None:
    exe, row = scaled_sum(5)
    limited = Executable(exe.program, exe.device, MachineOptions(max_cycles=10))
    x, y = operands(7)
    arguments = device_put(x), device_put(y)
    for _ in range(2):
        (lost,) = limited(*arguments)
        assert isinstance(lost, Array)
        for use in (lost.numpy, lost.block_until_ready):
            with pytest.raises(CycleLimitFault):
                use()
        with pytest.raises(CycleLimitFault):
            single(exe(lost, arguments[1]))
        with pytest.raises(CycleLimitFault):
            limited(x, y)
        assert (single(exe(*arguments)) == (x + y) * row).all()
    with pytest.raises(CycleLimitFault):
        _ = limited.report


def test_wrong_arguments_are_named(model: tuple[Executable, np.ndarray]) -> None:
    exe, _ = model
    x, y = operands(8)
    with pytest.raises(CompileError, match="the model takes 2 inputs, got 1"):
        exe(x)
    with pytest.raises(CompileError, match=r"input 1 \(y\): found float32\[9, 131\], want"):
        exe(x, np.zeros((9, 131), np.float32))
    with pytest.raises(CompileError, match=r"input 1 .*: found float64\[130, 9\], want float32"):
        exe(x, np.zeros((130, 9)))
    with pytest.raises(CompileError, match=r"input 0 \(x\): found int32\[9, 130\], want float32"):
        exe(x.astype(np.int32), y)
    with pytest.raises(CompileError, match=r"input 0 \(x\): found float16"):
        exe(device_put(x.astype(np.float16)), y)
    with pytest.raises(CompileError, match=r"input 0 .*: found .*, want float32\[9, 130\]"):
        exe("text", y)


def test_f64_is_narrowed_with_one_warning(model: tuple[Executable, np.ndarray]) -> None:
    exe, row = model
    x, y = operands(9)
    host_types._warn_about_f64_once.cache_clear()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert (single(exe(x.tolist(), y)) == (x + y) * row).all()
        assert not seen
        for _ in range(2):
            assert (single(exe(x.astype(np.float64), y)) == (x + y) * row).all()
    assert [w.category for w in seen] == [PrecisionWarning]


def test_64_bit_integers_stand_for_32_bit_ones() -> None:
    exe = compile(
        "HloModule m\nENTRY e {\n p = s32[4] parameter(0)\n ROOT r = s32[4] add(p, p)\n}\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert exe(np.arange(4))[0].tolist() == [0, 2, 4, 6]
        assert exe([1, 2, 3, 4])[0].tolist() == [2, 4, 6, 8]
    with pytest.raises(CompileError, match=r"input 0 \(p\): found uint64\[4\], want int32\[4\]"):
        exe(np.arange(4, dtype=np.uint64))


def test_reports_are_those_of_the_last_call(model: tuple[Executable, np.ndarray]) -> None:
    exe, _ = scaled_sum(3)
    assert exe.report is None
    exe(*operands(10))
    report = exe.report
    assert report is not None and report.cycles > 0 and report.kernels
    assert exe.report is report
    exe(*operands(11))
    assert exe.report is not report
    assert exe.report is not None and exe.report.cycles == report.cycles


def test_a_saved_program_runs_and_holds_no_other_text(
    model: tuple[Executable, np.ndarray], tmp_path: Path
) -> None:
    exe, row = model
    exe.save(tmp_path / "m.tpux")
    loaded = load_executable(tmp_path / "m.tpux")
    x, y = operands(12)
    assert (single(loaded(x, y)) == (x + y) * row).all()
    assert loaded.text("tpu") == exe.text("tpu")
    with pytest.raises(ValueError, match="holds no HLO text"):
        loaded.text("hlo")
    with pytest.raises(ValueError, match="unknown level"):
        exe.text("ptx")


def test_a_program_that_does_not_fit_beside_the_arrays_is_refused(
    model: tuple[Executable, np.ndarray],
) -> None:
    exe, row = model
    chip = load_chip("v5e")
    size = -(-exe.program.hbm_bytes // 512) * 512 + 2 * 512
    device = Device(chip, Memory(size))
    small = Executable(exe.program, device)
    allocator = device.memory.allocator
    block = allocator.allocate(3 * 512)
    x, y = operands(13)
    with pytest.raises(ResourceExhaustedError, match="in HBM for the program; 1,536 of"):
        small(x, y)
    del block
    assert (single(small(x, y)) == (x + y) * row).all()
    with pytest.raises(ResourceExhaustedError, match="no room for"):
        allocator.allocate(3 * 512)
