"""Chips at the ends of what their files may say: programs are made and encoded, or the chip is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import tpuc
from tpu_sim.isa.chips import ChipError, latency_classes, load_chip
from tpu_sim.isa.instruction import Slot

PRODUCT = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY main {
  x = f32[300,256] parameter(0)
  w = f32[256,130] parameter(1)
  d = f32[300,130] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[300,130] exponential(d)
  z = f32[] constant(0)
  r = f32[300] reduce(e, z), dimensions={1}, to_apply=add
  t = f32[130,300] transpose(e), dimensions={1,0}
  ROOT o = (f32[130,300], f32[300]) tuple(t, r)
}
"""


@pytest.mark.parametrize("name", sorted(latency_classes()))
def test_what_a_later_block_needs_is_waited_for(name: str, tmp_path: Path) -> None:
    """Also where a chip's own latency is 1, so that nobody would have to."""
    executable = tpuc.compile(PRODUCT, target=f"v5e{{latencies.{name}=150}}")
    executable.save(tmp_path / "p.tpux")


@pytest.mark.parametrize(
    ("key", "least", "most"),
    [
        ("vregs", 8, 64),
        ("vmasks", 4, 32),
        ("sregs", 16, 64),
        ("mxu_count", 1, 8),
        ("mrf_entries", 4, 4096),
        ("eup_entries", 1, 1 << 20),
        ("xlu_entries", 1, 1 << 20),
        ("slots.mxu", 4, 32),
        ("slots.xlu", 1, 4),
        *((f"slots.{slot}", 1, 32) for slot in sorted({s.value for s in Slot} - {"mxu", "xlu"})),
    ],
)
def test_a_chip_that_loads_can_be_compiled_for(
    key: str, least: int, most: int, tmp_path: Path
) -> None:
    for value in (least - 1, most + 1):
        with pytest.raises(ChipError, match=key.replace("mxu_count", "mxu")):
            load_chip(f"v5e{{{key}={value}}}")
    for value in (least, most):
        tpuc.compile(PRODUCT, target=f"v5e{{{key}={value}}}").save(tmp_path / "p.tpux")
