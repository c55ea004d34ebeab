"""The Python array API standard (2024.12) with NumPy's names beside it, on the chip.

    import tpuc.numpy as xp
    y = xp.sum(xp.linspace(0, 1, 100) ** 2)     # computed on the default device

Functions work on traced arrays inside of `tpuc.jit` and on `tpuc.Array` outside of it, where each call is a
program that is kept. docs/tpuc-numpy.md has types, sizes and differences.

To be imported from outside: the package alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from runtime.array_api.names import main_names
from tpuc.numpy import fft, linalg

__array_api_version__ = "2024.12"

_NAMES = main_names()
__all__ = ["fft", "linalg", *(name for name in _NAMES if not name.startswith("__"))]


_ELSEWHERE = {
    "polynomial": "polyval, polyfit, polyadd and others are functions here",
    "poly1d": "polyval, polyfit, polyadd and others are functions here",
    "random": "tpuc.random has random numbers, with keys as in jax.random",
}
"""Where else there is what NumPy has under a name."""


def _advice(name: str) -> str:
    """What to write for a name that NumPy has."""
    if name in _ELSEWHERE:
        return f"; {_ELSEWHERE[name]}"
    is_numpys = not name.startswith("_") and hasattr(np, name)
    return "; NumPy's own takes what np.asarray(x) copies to the host" if is_numpys else ""


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return _NAMES[name]
    message = f"module 'tpuc.numpy' has no attribute {name!r}{_advice(name)}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
