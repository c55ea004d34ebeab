"""Compiling takes work in proportion to the program: calls are counted, which is not noisy."""

from __future__ import annotations

from cProfile import Profile

import pytest

from benchmarks.compile_scaling import PROGRAMS, compiled

_SMALL, _LARGE = 80, 240
_SHARED = {"reductions"}
"""Large ones consist of equal kernels, which are compiled once: they grow less than in proportion."""


def _calls(text: str) -> int:
    profile = Profile()
    profile.enable()
    compiled(text)
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - _SHARED))
def test_work_grows_in_proportion(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times the program takes about three times the calls; squared growth would be nine."""
    monkeypatch.setenv("TPUC_VERIFY", "0")
    compiled(PROGRAMS[name](40))  # what is done once in a process
    small, large = (_calls(PROGRAMS[name](size)) for size in (_SMALL, _LARGE))
    assert large / small < _LARGE / _SMALL * 1.25
