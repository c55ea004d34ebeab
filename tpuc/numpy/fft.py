"""Fourier transforms of `tpuc.numpy`, as ``numpy.fft``."""

from __future__ import annotations

from typing import Any

from runtime.array_api.names import fft_names

_NAMES = fft_names()
__all__ = list(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        message = f"module 'tpuc.numpy.fft' has no attribute {name!r}"
        raise AttributeError(message)
    return _NAMES[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
