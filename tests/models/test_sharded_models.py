"""Sharded models at a small size, in every form they come in: global arrays in and out of a slice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiler.driver import CompileOptions
from runtime.api import compile as compile_model
from tpuc.arrays import compare, load_arrays

DATA = Path(__file__).resolve().parents[1] / "data" / "sharded"
FORMS = sorted(path.name for path in DATA.iterdir() if path.suffix in (".hlo", ".mlir"))
TOLERANCE = 2e-3


@pytest.mark.parametrize("file", FORMS)
def test_values_on_a_slice_are_those_of_xla(file: str) -> None:
    executable = compile_model(DATA / file, "v5e:4x2", options=CompileOptions(precision="highest"))
    arrays = str(DATA / f"{file.split('.')[0]}.npz")
    outputs = executable(*load_arrays(arrays, "in", executable.argument_shapes))
    expected = load_arrays(arrays, "out", executable.result_shapes)
    for difference in compare([np.asarray(output) for output in outputs], expected):
        assert difference.normalised <= TOLERANCE, difference


def test_every_form_of_a_model_takes_the_same_collectives() -> None:
    kinds: dict[str, set[tuple[str, ...]]] = {}
    for file in FORMS:
        executable = compile_model(DATA / file, "v5e:4x2")
        found = tuple(sorted(str(one["kind"]) for one in executable.collectives))
        kinds.setdefault(file.split(".")[0], set()).add(found)
    assert all(len(found) == 1 and () not in found for found in kinds.values()), kinds
