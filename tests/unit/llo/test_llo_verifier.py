"""Each invariant has a kernel that breaks it."""

from __future__ import annotations

import pytest

from compiler.diagnostics import VerifyError
from compiler.llo.parser import parse_llo
from compiler.llo.verifier import verify_llo

HEAD = 'kernel "k" args 0 flags 1 flops 0 ops 0 least 0 variables [s9] note "" {\n  window w0 "x" rows 8\n'

BROKEN = {
    "L1 range": ('block "" {\nvld v0 = [w0 + s0 + 0] stride 40000\n}', "L1"),
    "L2 never written": ('block "" {\nvadd.f32 v1 = v0, v0\n}', "L2"),
    "L2 other block": ('block "" {\nvlane v0\n}\nblock "" {\nvadd.f32 v1 = v0, v0\n}', "L2"),
    "L2 twice": ('block "" {\nvlane v0\nvlane v0\n}', "L2"),
    "L3 never": ('block "" {\nsst s0, 4, s1\n}', "L3"),
    "L3 branch": (
        'block "" {\nsmovi s1 = 1\n}\nif s1 {\nblock "" {\nsmovi s2 = 1\n}\n}\n'
        'block "" {\nsmov s3 = s2\n}',
        "L3",
    ),
    "L4 s0": ('block "" {\nsmovi s0 = 1\n}', "L4"),
    "L4 twice": ('block "" {\nsmovi s1 = 1\nsmovi s1 = 2\n}', "L4"),
    "L5 early": ('block "" {\nvpop.eup v0\n}', "L5"),
    "L5 left": ('block "" {\nvlane v0\nvtanh.f32 v0\n}', "L5"),
    "L6": ('block "" {\nvld v0 = [w1 + s0 + 0] stride 1\n}', "L6"),
    "L7": ('block "" {\nsmovi s1 = 1\n}\ncall "f" site ""\nblock "" {\nsmov s2 = s1\n}', "L7"),
    "L7 loop": (
        'block "" {\nsmovi s1 = 1\n}\nloop s2 = 0 .. 4 "" {\nblock "" {\nsmov s3 = s1\n}\n'
        'call "f" site ""\n}',
        "L7",
    ),
    "L8 slot": ('block "" {\nvlane v0\nvst.spill x0, v0\n}', "L8"),
    "L8 fill": ('spill 1\nblock "" {\nvld.fill v0 = x0\n}', "L8"),
}


@pytest.mark.parametrize(("body", "number"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_kernels_are_refused(body: str, number: str) -> None:
    kernel = parse_llo(HEAD + body + "\n}")
    with pytest.raises(VerifyError, match=rf"error\[{number}\]"):
        verify_llo(kernel)


def test_variables_may_be_written_often() -> None:
    verify_llo(parse_llo(HEAD + 'block "" {\nsmovi s9 = 1\nsmovi s9 = 2\n}\n}'))


def test_a_call_in_one_branch_is_none_in_the_other() -> None:
    branches = 'if s1 {\ncall "f" site ""\n} else {\nblock "" {\nsmov s2 = s1\n}\n}\n'
    text = HEAD + 'block "" {\nsmovi s1 = 1\n}\n' + branches
    verify_llo(parse_llo(text + "}"))
    with pytest.raises(VerifyError, match="L7"):
        verify_llo(parse_llo(text + 'block "" {\nsmov s3 = s1\n}\n}'))
