"""Functions of the standard with arguments that NumPy's have not."""

from __future__ import annotations

from typing import Any

from compiler.frontends.numpy import reductions as rules
from runtime.array_api.calls import apply, on_arrays


def _sorted(x: Any, axis: int | None, descending: bool) -> Any:
    return apply(rules.sort, x, axis, descending=descending)


def _order(x: Any, axis: int | None, descending: bool) -> Any:
    return apply(rules.argsort, x, axis, descending=descending)


def sort(x: Any, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Any:
    """Ascending, NaN last; or descending, NaN first. Always stable."""
    return on_arrays(_sorted, x, axis, bool(descending))


def argsort(
    x: Any, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True
) -> Any:
    """The positions of the elements in the order of `sort`. Always stable."""
    return on_arrays(_order, x, axis, bool(descending))
