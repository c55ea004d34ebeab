"""Sharded models at a small size, in every form they come in: global arrays in and out of a slice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiler.diagnostics import UnsupportedError
from compiler.driver import CompileOptions
from runtime.api import compile as compile_model
from runtime.slice_executable import SliceExecutable
from tpu_sim.isa.errors import TargetError
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


@pytest.mark.parametrize("file", FORMS)
def test_a_slice_of_another_size_is_refused(file: str) -> None:
    with pytest.raises(UnsupportedError, match=r"program of 8 devices .* the target has 4"):
        compile_model(DATA / file, "v5e:2x2")


def test_a_program_of_a_slice_is_saved_and_loaded(tmp_path: Path) -> None:
    executable = compile_model(DATA / FORMS[0], "v5e:4x2")
    path = tmp_path / "slice.tpux"
    executable.save(path)
    arrays = load_arrays(
        str(DATA / f"{FORMS[0].split('.')[0]}.npz"), "in", executable.argument_shapes
    )
    loaded = compile_model(path)
    assert isinstance(loaded, SliceExecutable)
    assert [device.name for device in loaded.devices] == [f"v5e:{number}" for number in range(8)]
    for ours, theirs in zip(loaded(*arrays), executable(*arrays), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    assert loaded.estimate().cycles == executable.estimate().cycles
    with pytest.raises(TargetError, match=r"is a program of v5e:4x2, not v5e:2x4"):
        compile_model(path, "v5e:2x4")


def test_every_form_of_a_model_takes_the_same_collectives() -> None:
    kinds: dict[str, set[tuple[str, ...]]] = {}
    for file in FORMS:
        executable = compile_model(DATA / file, "v5e:4x2")
        found = tuple(sorted(str(one["kind"]) for one in executable.collectives))
        kinds.setdefault(file.split(".")[0], set()).add(found)
    assert all(len(found) == 1 and () not in found for found in kinds.values()), kinds
