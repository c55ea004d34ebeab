"""Costs of generated code follow what the chip has."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.code_costs import page
from compiler.analysis import code_costs
from compiler.analysis.code_costs import DotCosts, OrderCosts, ScatterCosts, WindowCosts
from compiler.analysis.cost_units import REFERENCE, Costs, Unit, unit_cycles
from tpu_sim.isa.chips import chip_names, load_chip

PAGE = Path(__file__).parents[3] / "docs" / "cost-model.md"
CLASSES = [c for c in vars(code_costs).values() if inspect.isclass(c) and Costs in c.__bases__]


@pytest.mark.parametrize("kind", CLASSES)
def test_the_reference_chip_has_the_rows_own_numbers(kind: type[Costs]) -> None:
    costs = kind.of(load_chip(REFERENCE))
    assert kind.rows()
    for name, row in kind.rows().items():
        assert getattr(costs, name) == row.cycles
        assert row.meaning


def test_costs_follow_their_unit() -> None:
    chip = load_chip(REFERENCE)
    half = replace(chip, slots={**chip.slots, "valu": 2, "xlu": 1}, name="half")
    assert WindowCosts.of(half).operations == WindowCosts.of(chip).operations / 2
    assert OrderCosts.of(half).pick == pytest.approx(3 * OrderCosts.of(chip).pick)
    assert OrderCosts.of(half).turn == pytest.approx(3 * OrderCosts.of(chip).turn)
    assert WindowCosts.of(half).step == WindowCosts.of(chip).step


def test_memory_and_matrix_units_are_those_of_the_chip() -> None:
    small, large = load_chip("v5e"), load_chip("v6e")
    taken = [OrderCosts.of(c).tile_transfer for c in (small, large)]
    assert taken[1] == taken[0]
    passes = [OrderCosts.of(c).weights_pass for c in (small, large)]
    assert passes[1] == passes[0] / 4  # twice the units, each twice as fast
    assert DotCosts.of(large).region == DotCosts.of(small).region
    assert ScatterCosts.of(large).streamed > ScatterCosts.of(small).streamed


@pytest.mark.parametrize("name", chip_names())
def test_all_units_take_some_time(name: str) -> None:
    assert all(unit_cycles(unit, load_chip(name)) > 0 for unit in Unit)


def test_the_page_lists_all_rows(is_updating: bool) -> None:
    found = page(PAGE.read_text(encoding="utf-8"))
    if is_updating:
        PAGE.write_text(found, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == found, "run this test with --update"
