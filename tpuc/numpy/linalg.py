"""Linear algebra of `tpuc.numpy`, as ``numpy.linalg``."""

from __future__ import annotations

from typing import Any

from runtime.array_api.names import linalg_names

_NAMES = linalg_names()
__all__ = list(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        message = f"module 'tpuc.numpy.linalg' has no attribute {name!r}"
        raise AttributeError(message)
    return _NAMES[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
