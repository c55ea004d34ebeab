"""Inputs of a run, and its results beside others."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

import click
import numpy as np
import numpy.typing as npt

from compiler.frontends.hlo_proto.modules import Snapshot
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.cached_property import cached_property
from tpuc import tables
from tpuc.arrays import Difference, fitting, load_arrays, loaded, randoms
from tpuc.commands.models import snapshot_of

Array = npt.NDArray[np.generic]

_TOLERANCE = {"highest": 2e-3}
_LOOSE_TOLERANCE = 2e-2
"""Of products of one bf16 pass: 2^-8 an operand, summed over a model's layers."""


@dataclass(frozen=True)
class Given:
    """Where a command takes inputs and expected results from: files, or what a snapshot (.pb) holds.

    What neither has is random, or not compared.
    """

    model: str
    inputs: str | None
    expect: str | None
    seed: int

    @cached_property
    def _snapshot(self) -> Snapshot | None:
        return snapshot_of(self.model)

    @property
    def is_random(self) -> bool:
        """Whether the inputs are made up."""
        return self.inputs is None and not (self._snapshot and self._snapshot.arguments)

    def arguments(self, shapes: list[ArrayShape]) -> Iterator[Array]:
        """The inputs, each read or made when it is asked for."""
        if self.inputs is not None:
            return loaded(self.inputs, "in", shapes)
        if self._snapshot is not None and self._snapshot.arguments:
            return iter(fitting(self.model, self._snapshot.arguments, shapes))
        return randoms(shapes, self.seed)

    def expected(self, shapes: list[ArrayShape]) -> list[Array] | None:
        """The results to compare with: of ``--expect``, out0.. in the shapes and types of the results,
        or those of the snapshot whose arguments are used."""
        if self.expect is not None:
            return load_arrays(self.expect, "out", shapes)
        if self.inputs is None and self._snapshot is not None and self._snapshot.results:
            return fitting(self.model, self._snapshot.results, shapes)
        return None


def tolerance_of(given: float | None, precision: str) -> float:
    """The largest normalised error allowed: as given, or as the precision of products asks."""
    return given if given is not None else _TOLERANCE.get(precision, _LOOSE_TOLERANCE)


def check_tolerance(given: float | None, *, is_compared: bool, how: str) -> None:
    """Refuse a tolerance of nothing; `how` says what would compare."""
    if given is not None and not is_compared:
        raise click.UsageError(f"--tol is for a comparison: give {how}")


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
