"""The end of an array before its beginning: every device sends its rows once."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from runtime.slice_executable import SliceExecutable

TARGET = "v5e:2x2"


def rolled(shift: int, rows: int = 12) -> SliceExecutable:
    exe = tpuc.compile(
        f"HloModule m, num_partitions=4\nENTRY e {{\n x = f32[{rows},3] parameter(0), "
        f"sharding={{devices=[4,1]<=[4]}}\n"
        f" a = f32[{rows - shift},3] slice(x), slice={{[{shift}:{rows}], [0:3]}}\n"
        f" b = f32[{shift},3] slice(x), slice={{[0:{shift}], [0:3]}}\n"
        f" ROOT r = f32[{rows},3] concatenate(a, b), dimensions={{0}}, sharding={{devices=[4,1]<=[4]}}\n}}",
        target=TARGET,
    )
    assert isinstance(exe, SliceExecutable)
    return exe


@pytest.mark.parametrize("shift", [1, 3, 7, 11])
def test_rows_are_sent_once(shift: int) -> None:
    exe = rolled(shift)
    x = np.arange(36, dtype=np.float32).reshape(12, 3)
    np.testing.assert_array_equal(np.asarray(exe(x)[0]), np.roll(x, -shift, axis=0))
    sent = [c["operand_bytes"] for c in exe.collectives]
    assert {c["kind"] for c in exe.collectives} == {"collective-permute"}
    assert sum(int(str(size)) for size in sent) <= 36


def test_uneven_tiles_go_another_way() -> None:
    exe = rolled(4, rows=10)
    x = np.arange(30, dtype=np.float32).reshape(10, 3)
    np.testing.assert_array_equal(np.asarray(exe(x)[0]), np.roll(x, -4, axis=0))
