"""Run a module's text on evaluator and machines with made-up inputs, and compare."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np

from compiler.hlo.parser import parse_module
from compiler.hlo.shape import ArrayShape
from tests.support.run_hlo import Array, compile_text, expected, normalised_error, run_compiled

LAST_FAILURE = Path(".hypothesis") / "last_random_module.hlo"
_TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-2}


def inputs_for(text: str, seed: int = 0) -> list[Array]:
    """Small numbers: halves for floats, integers of which some lie outside of any index range."""
    module = parse_module(text)
    rng = np.random.default_rng(seed)
    return [_values(rng, p.array) for p in module.entry.parameters]


def _values(rng: np.random.Generator, shape: ArrayShape) -> Array:
    dtype = shape.dtype
    if dtype.kind == "pred":
        return rng.integers(0, 2, shape.dims).astype(np.bool_)
    if dtype.is_integer:
        low = -3 if dtype.is_signed else 0
        return rng.integers(low, 11, shape.dims).astype(dtype.numpy)
    return (rng.integers(-8, 9, shape.dims) / 2).astype(dtype.numpy)


def check_module(text: str, machines: tuple[str, ...] = ("llvm",), seed: int = 0) -> None:
    """Evaluator and machines agree; a text that fails is kept in `LAST_FAILURE`."""
    try:
        inputs = inputs_for(text, seed)
        wants = expected(text, inputs)
        compiled = compile_text(text)
        for machine in machines:
            for want, got in zip(
                wants, run_compiled(compiled, inputs, machine).outputs, strict=True
            ):
                compare(want, got)
    except BaseException:
        LAST_FAILURE.parent.mkdir(exist_ok=True)
        LAST_FAILURE.write_text(text)
        raise


def compare(want: Array, got: Array) -> None:
    """Equal integers; floats within the rounding of sums and of the machine's functions."""
    assert (want.shape, want.dtype) == (got.shape, got.dtype)
    if want.dtype.kind == "f" or want.dtype == ml_dtypes.bfloat16:
        assert np.array_equal(np.isnan(want), np.isnan(got))
        assert normalised_error(want, got) <= _TOLERANCE[str(want.dtype)]
    else:
        np.testing.assert_array_equal(got, want)
