"""Inputs of a run, and its results beside others."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import click
import numpy as np
import numpy.typing as npt

from compiler.hlo.shape import ArrayShape
from tpuc import tables
from tpuc.arrays import Difference, load_arrays, loaded, randoms

Array = npt.NDArray[np.generic]

_TOLERANCE = {"highest": 2e-3}
_LOOSE_TOLERANCE = 2e-2


def read_or_random(path: str | None, shapes: list[ArrayShape], seed: int) -> Iterator[Array]:
    """The inputs, each read or made when it is asked for."""
    return randoms(shapes, seed) if path is None else loaded(path, "in", shapes)


def expected_results(path: str | None, shapes: list[ArrayShape]) -> list[Array] | None:
    """What ``--expect`` names, out0.. in the results' shapes and types."""
    return None if path is None else load_arrays(path, "out", shapes)


def tolerance_of(given: float | None, precision: str) -> float:
    """The largest normalised error allowed: as given, or as the precision of products asks."""
    return given if given is not None else _TOLERANCE.get(precision, _LOOSE_TOLERANCE)


def judge(differences: list[Difference] | None, tolerance: float, *, quiet: bool) -> None:
    """Print the errors and exit 1 if one is beyond the tolerance."""
    if differences is None:
        return
    if not quiet:
        tables.print_differences(differences, tolerance)
    if any(not d.normalised <= tolerance for d in differences):
        raise click.exceptions.Exit(1)


def print_json(
    record: dict[str, object], differences: list[Difference] | None, tolerance: float
) -> None:
    """Print what ``--json`` asks for, with the errors where a comparison was made."""
    if differences is not None:
        record["tolerance"] = tolerance
        record["errors"] = [
            {
                "output": d.output,
                "absolute": _finite(d.absolute),
                "normalised": _finite(d.normalised),
                "ok": d.normalised <= tolerance,
            }
            for d in differences
        ]
    click.echo(json.dumps(record, allow_nan=False))


def _finite(value: float) -> float | None:
    """JSON has no infinity: null stands for it."""
    return value if math.isfinite(value) else None
