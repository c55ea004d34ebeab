"""A number that limits or decides something says why it is what it is, or that it is assumed.

Numbers that are what they are called (masks, widths, fields of a format) need no reason.
"""

from __future__ import annotations

import pytest

from tests.architecture.sources import PACKAGES, modules, source

DECIDES = frozenset({
    "ABOUT", "AROUND", "BODY", "CAPACITY", "CHEAP", "COPIES", "COST", "FEW", "FEWEST", "GROUPS", "HOPEFUL",
    "KEPT", "LARGE", "LAUNCH", "LEAST", "LIMIT", "LONG", "MANY", "MAX", "MOST", "NEAR", "OPS", "PARTS",
    "RETRIES", "ROUNDS", "SHARE", "SHORT", "SHOWN", "SMALL", "SPARE", "STEPS", "STREAMS", "TARGETS",
    "TOGETHER", "TOLERANCE", "TRIALS", "TRIED", "TRIPS", "UNROLL", "WORK",
})  # fmt: skip
"""Words in the names of such numbers."""


@pytest.mark.parametrize("package", PACKAGES)
def test_limits_and_thresholds_say_why(package: str) -> None:
    found = [
        f"{module}: {name}"
        for module in modules()
        if module.split(".")[0] == package
        for name in source(module).unexplained
        if not DECIDES.isdisjoint(name.split("_"))
    ]
    assert not found, "a docstring below, or a comment: why so many, measured or assumed"
