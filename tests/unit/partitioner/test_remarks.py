"""What is computed as a whole, or wanted on one device, is said; empty pieces are no matter."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from compiler.hlo.parser import parse_module
from compiler.partitioner.partitioner import partition_module
from compiler.passes.context import PassContext
from tpu_sim.isa import chips


def remarks(body: str) -> list[str]:
    context = PassContext(chips.load_chip("v5e"))
    partition_module(
        parse_module(f"HloModule m, num_partitions=4\nENTRY e {{\n{body}\n}}"), context
    )
    return context.remarks


ROWS = "x = f32[8,4] parameter(0), sharding={devices=[4,1]<=[4]}\n"


def test_what_every_device_computes_as_a_whole() -> None:
    whole = "its operands are gathered, all of it is computed on every device"
    cut = "y = f32[8,4] negate(x), sharding={devices=[4,1]<=[4]}\nROOT r = f32[8,4] copy(y)"
    assert remarks(ROWS + cut) == []
    found = remarks(
        ROWS
        + "y = c64[8,4] fft(x), fft_type=FFT, fft_length={8,4}\n"
        "ROOT r = f32[8,4] real(y), sharding={replicated}".replace("fft(x)", "fft(c)").replace(
            "y =", "c = c64[8,4] convert(x)\ny ="
        )
    )
    assert f"%y (fft): {whole}" in found


@pytest.mark.parametrize("target", ["annotate_device_placement", "MoveToHost"])
def test_what_moves_between_memories_stays_cut(target: str) -> None:
    body = (
        f'{ROWS}y = f32[8,4] custom-call(x), custom_call_target="{target}"\n'
        f"ROOT r = f32[8,4] negate(y)"
    )
    assert remarks(body) == []
    exe = tpuc.compile(f"HloModule m, num_partitions=4\nENTRY e {{\n{body}\n}}", target="v5e:2x2")
    assert [port.shape.dims for port in exe.outputs] == [(2, 4)]
    assert not exe.collectives
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    np.testing.assert_array_equal(np.asarray(exe(x)[0]), -x)


def test_one_device() -> None:
    found = remarks(
        ROWS + "y = f32[8,4] negate(x), sharding={maximal device=1}\n"
        "ROOT r = f32[8,4] add(x, y), sharding={devices=[4,1]<=[4]}"
    )
    assert found == ["%y (negate): wanted on one device, it is computed on all"]


def test_arrays_without_elements() -> None:
    exe = tpuc.compile(
        f"HloModule m, num_partitions=4\nENTRY e {{\n{ROWS}a = f32[0,4] slice(x), slice={{[8:8], [0:4]}}\n"
        "b = f32[8,4] negate(x)\nROOT r = f32[8,4] concatenate(a, b), dimensions={0}\n}",
        target="v5e:2x2",
    )
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    np.testing.assert_array_equal(np.asarray(exe(x)[0]), -x)
