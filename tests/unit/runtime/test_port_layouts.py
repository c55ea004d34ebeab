"""Arrays whose dimensions lie in another order on the device: there, back, and between programs."""

from __future__ import annotations

import numpy as np

from compiler.options import CompileOptions
from runtime.api import compile, device_put
from runtime.buffer import Array

DIMS = (16384, 3)
STEP = """HloModule step, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY e {
  a = f32[16384,3] parameter(0)
  x = f32[16384,3] parameter(1)
  ROOT r = (f32[16384,3]) tuple(b)
}
""".replace("ROOT", "b = f32[16384,3] add(a, x)\n  ROOT")
LARGE = STEP.replace("16384", "65536")


def counting(rows: int, start: int = 0) -> np.ndarray:
    return np.arange(start, start + 3 * rows, dtype=np.float32).reshape(rows, 3)


def test_arrays_lie_compactly_and_go_from_program_to_program() -> None:
    step, first, second = compile(LARGE), counting(65536), counting(65536, 5)
    array = device_put(first)
    assert array.size_bytes == 4 * 65536 * 4
    assert step.inputs[0].device_shape == step.outputs[0].device_shape == array.device_shape
    for count in range(1, 4):
        [array] = step(array, device_put(second))
        assert isinstance(array, Array)
        assert np.array_equal(array.numpy(), first + count * second)
    assert np.array_equal(step(first, second)[0], first + second)


def test_a_program_without_the_pass_takes_them_in_its_own_order() -> None:
    other = compile(LARGE, options=CompileOptions(skip=("port-layout",)))
    first, second = counting(65536), counting(65536, 5)
    array = device_put(first)
    assert other.inputs[0].device_shape != array.device_shape
    [result] = other(array, device_put(second))
    assert np.array_equal(np.asarray(result), first + second)
    [again] = compile(LARGE)(result, second)
    assert np.array_equal(np.asarray(again), first + 2 * second)


def test_small_arrays_stay_descending() -> None:
    assert compile(STEP).inputs[0].device_shape.minor_to_major == (0, 1)
    assert compile(STEP.replace("16384", "512")).inputs[0].device_shape.minor_to_major == (1, 0)
