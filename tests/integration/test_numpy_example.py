"""The NumPy example: its functions give on the chip what they give on the host."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "numpy_jit.py"


def test_functions_are_those_of_numpy() -> None:
    found = runpy.run_path(str(EXAMPLE))["main"]()
    assert found.keys() == {"nearest", "smooth", "spectrum"}
    assert found["nearest"][1] == 0
    for cycles, apart in found.values():
        assert cycles > 1000
        assert apart < 1e-5
