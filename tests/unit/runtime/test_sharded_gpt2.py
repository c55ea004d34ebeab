"""A training step of GPT-2 on four devices, batch and weights cut: all of the compiler, and its checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tpuc

pytestmark = pytest.mark.slow

TEXT = Path(__file__).parents[2] / "data" / "gpt2_train_tiny.hlo"
CUTS = {
    r"batch_": "devices=[2,1,2]<=[4] last_tile_dim_replicate",
    r"(qkv|fc)____w__": "devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate",
    r"(__o|pr)____w__": "devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate",
}
"""How parameters with such names are cut: examples over one dimension of the slice, features over another."""


def test_a_step_with_collectives_compiles_and_has_an_estimate() -> None:
    text = "\n".join(_cut(line) for line in TEXT.read_text(encoding="utf-8").splitlines())
    program = tpuc.compile(text, target="v5e:2x2")  # which checks the machine program
    assert {"all-gather", "all-reduce"} <= {one["kind"] for one in program.collectives}
    assert program.estimate().cycles > 0


def _cut(line: str) -> str:
    if " parameter(" not in line:
        return line
    found = [cut for name, cut in CUTS.items() if re.search(name, line)]
    return f"{line}, sharding={{{found[0]}}}" if found else line
