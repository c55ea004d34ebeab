"""Random programs under random shardings compute what they do without any."""

from __future__ import annotations

import pytest

from benchmarks.fuzz.annotations import annotated, without_shardings
from benchmarks.fuzz.check import OK
from benchmarks.fuzz.generator import generate
from benchmarks.fuzz.sharded import check_sharded
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module


@pytest.mark.parametrize("seed", [1, 2, 5, 7, 9, 10])
def test_devices_compute_what_one_computes(seed: int) -> None:
    outcome = check_sharded(generate(seed), seed)
    assert outcome.kind == OK, outcome.detail


def test_both_ways_of_annotating_are_made_and_undone() -> None:
    texts = [annotated(generate(seed), seed) for seed in (1, 2, 5, 7, 9, 10)]
    assert any("xla.sdy.meshes" in text for text in texts)
    assert any("sharding={devices=" in text and "xla.sdy" not in text for text in texts)
    for text in texts:
        plain = print_module(parse_module(without_shardings(text)))
        assert "sharding" not in plain.lower()
        assert "num_partitions" not in plain
