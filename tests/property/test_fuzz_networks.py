"""Random networks: a few are judged; any number is run by ``python -m benchmarks.fuzz --networks``."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")

from benchmarks.fuzz import check as fuzz
from benchmarks.fuzz.networks import generator
from benchmarks.fuzz.series import NetworkSeries
from compiler.hlo.parser import parse_module


def test_a_seed_gives_one_network_in_both_forms() -> None:
    made, again = generator.generate(8), generator.generate(8)
    assert (made.hlo, made.stablehlo) == (again.hlo, again.stablehlo)
    names = [p.name for p in parse_module(made.hlo).entry.parameters]
    assert {name.rpartition("_")[2] for name in names} == {"tame", "small"}


def test_networks_are_of_many_layers_and_losses() -> None:
    words = {label.split()[0] for seed in range(5) for label in generator.generate(seed).labels}
    assert len(words) > 12


def test_a_network_of_real_size_is_larger() -> None:
    tiny, real = (parse_module(generator.generate(6, real).hlo) for real in (False, True))
    counts = [sum(p.array.element_count for p in m.entry.parameters) for m in (tiny, real)]
    assert counts[1] > 100 * counts[0]


@pytest.mark.parametrize("seed", [4, 6])
def test_chip_evaluator_and_frontends_agree(seed: int) -> None:
    text, other = NetworkSeries().small(seed)
    outcome = fuzz.check(text, fuzz.Ways(other=other), seed)
    assert outcome.kind == fuzz.OK, f"{outcome.kind}: {outcome.detail}"
