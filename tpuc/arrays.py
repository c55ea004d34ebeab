"""Model inputs and outputs as ``.npz`` files: in0.., out0.., compared by normalised error."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import CompileError
from compiler.hlo.shape import ArrayShape

Array = npt.NDArray[np.generic]


def load_arrays(path: str, prefix: str, shapes: Sequence[ArrayShape]) -> list[Array]:
    """Read ``<prefix>0..`` from an .npz and check them against `shapes`.

    NumPy stores ml_dtypes as raw bytes; those are viewed as the wanted type again.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = [i for i in range(len(shapes)) if f"{prefix}{i}" not in archive]
            if missing:
                raise CompileError(
                    f"{path} has no array {prefix}{missing[0]}; the model has {len(shapes)} of them"
                )
            found = [archive[f"{prefix}{i}"] for i in range(len(shapes))]
    except (OSError, ValueError) as error:
        raise CompileError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}"
        ) from error
    return [
        _checked(path, f"{prefix}{i}", array, shape)
        for i, (array, shape) in enumerate(zip(found, shapes, strict=True))
    ]


def _checked(path: str, name: str, array: Array, shape: ArrayShape) -> Array:
    wanted = shape.dtype.numpy
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        array = array.view(wanted)
    if array.shape != shape.dims or array.dtype != wanted:
        raise CompileError(
            f"{path}: {name} is {array.dtype}{list(array.shape)}, "
            f"the model wants {wanted}{list(shape.dims)}"
        )
    return array


def random_arrays(shapes: Sequence[ArrayShape], seed: int) -> list[Array]:
    """Random inputs: floats 0.1 N(0, 1), integers uniform in [0, 16), pred fair."""
    rng = np.random.default_rng(seed)
    return [_random(rng, shape) for shape in shapes]


def _random(rng: np.random.Generator, shape: ArrayShape) -> Array:
    dtype = shape.dtype
    if dtype.kind == "pred":
        return rng.integers(0, 2, shape.dims).astype(np.bool_)
    if dtype.is_integer:
        limit = min(16, 1 << (dtype.bits - (1 if dtype.is_signed else 0)))
        return rng.integers(0, limit, shape.dims).astype(dtype.numpy)
    values = rng.standard_normal(shape.dims, np.float32) * np.float32(0.1)
    if dtype.is_complex:
        imaginary = rng.standard_normal(shape.dims, np.float32) * np.float32(0.1)
        return (values + 1j * imaginary).astype(dtype.numpy)
    return np.asarray(values).astype(dtype.numpy)


def save_arrays(path: str, arrays: Sequence[Array]) -> None:
    """Write out0.. to `path`: a temporary file first, so that no half file is ever seen."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent or ".", suffix=".npz")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **{f"out{i}": a for i, a in enumerate(arrays)})  # type: ignore[arg-type]
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@dataclass(frozen=True)
class Difference:
    """How far an output is from what was expected."""

    output: int
    absolute: float  # largest |got - want|
    normalised: float  # that over the largest |want|


def compare(got: Sequence[Array], want: Sequence[Array]) -> list[Difference]:
    """Compare outputs pairwise. A NaN on one side only, or infinities apart, count as infinite."""
    return [_difference(i, g, w) for i, (g, w) in enumerate(zip(got, want, strict=True))]


def _difference(number: int, got: Array, want: Array) -> Difference:
    if want.size == 0:
        return Difference(number, 0.0, 0.0)
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = got.astype(wide), want.astype(wide)
    with np.errstate(all="ignore"):
        error = np.abs(a - b)
        error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, error)
        error = np.where(np.isnan(error), np.inf, error)
        finite = np.abs(b)[np.isfinite(b)]
    absolute = float(error.max())
    scale = float(finite.max()) if finite.size else 0.0
    return Difference(number, absolute, absolute / scale if scale else absolute)
