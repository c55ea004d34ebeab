"""Products that read products, with dimensions in every order, against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.against_evaluator import check

SIZES = {"h": 5, "b": 3, "c": 4, "w": 9}


def dims(names: str) -> str:
    return ",".join(str(SIZES[n]) for n in names)


def program(lies: str, contracted: str, is_right: bool) -> str:
    """x, which lies as `lies`, is turned to h b w c, summed over h, then over `contracted`."""
    order = ",".join(str(lies.index(n)) for n in "hbwc")
    side = "y, k" if is_right else "k, y"
    first = "bwc".index(contracted) + 1
    left = [n for n in "bwc" if n != contracted]
    sizes = [6, *(SIZES[n] for n in left)]
    shape = [*sizes, 7] if is_right else [7, *sizes]
    contracting = (first, 0) if is_right else (0, first)
    return f"""HloModule m
ENTRY e {{
  x = f32[{dims(lies)}] parameter(0)
  a = f32[6,5] parameter(1)
  k = f32[{SIZES[contracted]},7] parameter(2)
  t = f32[{dims("hbwc")}] transpose(x), dimensions={{{order}}}
  y = f32[6,{dims("bwc")}] dot(a, t), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT z = f32[{",".join(map(str, shape))}] dot({side}), lhs_contracting_dims={{{contracting[0]}}},
    rhs_contracting_dims={{{contracting[1]}}}
}}
"""


@pytest.mark.parametrize("lies", ["hbwc", "hbcw", "bhcw", "cbwh", "wchb", "chwb", "bcwh"])
@pytest.mark.parametrize("contracted", ["b", "w", "c"])
def test_chains(lies: str, contracted: str) -> None:
    for is_right in (True, False):
        text = program(lies, contracted, is_right)
        shapes = (tuple(SIZES[n] for n in lies), (6, 5), (SIZES[contracted], 7))
        rng = np.random.default_rng(3)
        check(text, [rng.integers(1, 9, shape).astype(np.float32) for shape in shapes])
