"""Regions without the cycle collector: what they make can be collected later, and is, in time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from tpu_sim.isa import collector
from tpu_sim.isa.collector import collect_if_much_was_made, no_cyclic_gc


class Knot:
    """An object that only the cycle collector can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _collecting() -> Iterator[None]:
    gc.collect()
    yield
    assert gc.isenabled()


def test_the_collector_rests_inside_and_works_again_after_errors_too() -> None:
    with pytest.raises(KeyError), no_cyclic_gc():
        with no_cyclic_gc():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    with no_cyclic_gc():
        pass
    assert not gc.isenabled()
    gc.enable()


def test_what_was_made_is_old_unseen_and_still_collected() -> None:
    collections = [generation["collections"] for generation in gc.get_stats()]
    with no_cyclic_gc():
        kept = [[] for _ in range(5000)]
        knot = weakref.ref(Knot())
    assert [generation["collections"] for generation in gc.get_stats()][1:] == collections[1:]
    gc.collect(1)
    assert knot() is not None and len(gc.get_objects(generation=2)) > len(kept)
    gc.collect()
    assert knot() is None


def test_what_earlier_work_left_is_collected_when_it_is_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collector, "MOST_UNSEEN", 20_000)
    collect_if_much_was_made()
    knots = []
    kept: list[list[int]] = []
    for _ in range(12):
        collect_if_much_was_made()
        with no_cyclic_gc():
            kept += [[] for _ in range(3000)]
            knots.append(weakref.ref(Knot()))
    assert 6 <= sum(knot() is None for knot in knots) < 12


def test_what_was_freed_meanwhile_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "MOST_UNSEEN", 20_000)
    collect_if_much_was_made()
    collections = gc.get_stats()[2]["collections"]
    for _ in range(12):
        collect_if_much_was_made()
        with no_cyclic_gc():
            passing = [[] for _ in range(5000)]
        del passing
    assert gc.get_stats()[2]["collections"] == collections


def test_objects_that_somebody_froze_stay_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with no_cyclic_gc():
            kept = [[] for _ in range(100)]
        assert gc.get_freeze_count() == frozen
        assert kept
    finally:
        gc.unfreeze()
