"""Passes that are left out: by name, unless the program would be wrong."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.diagnostics import CompileError
from compiler.options import CompileOptions
from compiler.passes.pipeline import INDISPENSABLE, PIPELINE
from runtime.api import compile

DOT = """HloModule m
ENTRY e {
  x = f32[8,4,16]{2,1,0} parameter(0)
  w = f32[16,24]{1,0} parameter(1)
  d = f32[8,4,24]{2,1,0} dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  ROOT r = f32[8,4,24]{2,1,0} add(d, d)
}
"""


@pytest.mark.parametrize("name", sorted(set(PIPELINE)))
def test_a_program_without_a_pass_is_right_or_refused_by_name(name: str) -> None:
    x = np.arange(512, dtype=np.float32).reshape(8, 4, 16) % 7
    w = np.arange(384, dtype=np.float32).reshape(16, 24) % 5
    try:
        executable = compile(DOT, options=CompileOptions(skip=(name,)))
    except CompileError as error:
        assert f"'{name}' cannot be left out" in str(error) or f"run '{name}'" in str(error)
        return
    assert name not in INDISPENSABLE
    np.testing.assert_array_equal(np.asarray(executable(x, w)[0]), 2 * (x @ w))
