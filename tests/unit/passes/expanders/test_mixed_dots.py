"""Dots of floats and integers, and custom calls of the host's libraries."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.diagnostics import UnsupportedError
from tests.support.run_hlo import check_text, compile_text, normal

MIXED = """HloModule m
ENTRY main {{
  a = {left}[40,200] parameter(0)
  b = {right}[200,130] parameter(1)
  ROOT d = f32[40,130] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""


@pytest.mark.parametrize(("left", "right"), [("f32", "s32"), ("s8", "f32")])
def test_the_integers_of_a_float_dot_become_floats(left: str, right: str) -> None:
    whole = np.random.default_rng(0).integers(-9, 9, (40, 200) if left == "s8" else (200, 130))
    inputs = (
        [whole.astype(np.int8), normal(1, 200, 130)]
        if left == "s8"
        else [normal(1, 40, 200), whole.astype(np.int32)]
    )
    check_text(MIXED.format(left=left, right=right), inputs)


def test_a_call_of_the_hosts_library_says_how_to_lower() -> None:
    text = """HloModule m
ENTRY main {
  a = f32[8,8] parameter(0)
  ROOT c = f32[8,8] custom-call(a), custom_call_target="lapack_sgeev_ffi"
}
"""
    with pytest.raises(UnsupportedError, match="lowering_platforms"):
        compile_text(text)
