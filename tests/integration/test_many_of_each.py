"""Programs with many operands or branches, which no limit of kernels or control flow may refuse."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc


@pytest.mark.parametrize("count", (3, 4, 7, 150))
def test_a_branch_is_found_among_many(count: int) -> None:
    computations = [
        f"branch_{number} {{\n  p = s32[7,9] parameter(0)\n  c = s32[] constant({number})\n"
        f"  d = s32[7,9] broadcast(c), dimensions={{}}\n  ROOT r = s32[7,9] add(p, d)\n}}\n"
        for number in range(count)
    ]
    names = ", ".join(f"branch_{number}" for number in range(count))
    text = f"""HloModule branches
{"".join(computations)}
ENTRY main {{
  i = s32[] parameter(0)
  x = s32[7,9] parameter(1)
  ROOT r = s32[7,9] conditional(i{", x" * count}), branch_computations={{{names}}}
}}
"""
    run = tpuc.compile(text)
    x = np.arange(63, dtype=np.int32).reshape(7, 9)
    last = count - 1
    for index in (0, 1, last // 2, last // 2 + 1, last - 1, last, count, 1 << 30, -1, -(1 << 31)):
        (found,) = run(np.int32(index), x)
        np.testing.assert_array_equal(found, x + (index if 0 <= index < count else last))


def test_as_many_operands_as_there_are_words_for_arguments() -> None:
    widths = [number % 7 + 1 for number in range(300)]
    parameters = [f"p{k} = s32[3,{width}] parameter({k})" for k, width in enumerate(widths)]
    names, lines = ", ".join(f"p{k}" for k in range(len(widths))), "\n  ".join(parameters)
    text = f"""HloModule operands
ENTRY main {{
  {lines}
  ROOT c = s32[3,{sum(widths)}] concatenate({names}), dimensions={{1}}
}}
"""
    rng = np.random.default_rng(0)
    args = [rng.integers(-9, 9, (3, width)).astype(np.int32) for width in widths]
    (found,) = tpuc.compile(text)(*args)
    np.testing.assert_array_equal(np.asarray(found), np.concatenate(args, axis=1))
