"""What a kernel takes its indices from lies in HBM, also where it is data of the same kernel."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from runtime.machines import MachineOptions

TEXT = """HloModule m
larger {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT m = s32[] maximum(a, b)
}
ENTRY main {
  a = s32[130] parameter(0)
  seven = s32[] constant(7)
  i = s32[2] broadcast(seven), dimensions={}
  ROOT s = s32[130] scatter(a, i, i), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=larger
}
"""  # noqa: E501


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
def test_indices_that_are_updates_too(machine: str) -> None:
    (got,) = tpuc.compile(TEXT, machine=MachineOptions(machine))(np.zeros(130, np.int32))
    want = np.zeros(130, np.int32)
    want[7] = 7
    np.testing.assert_array_equal(np.asarray(got), want)
