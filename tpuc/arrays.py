"""Model inputs and outputs as ``.npz`` files: in0.., out0.., compared by normalised error."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import CompileError, UnreadableFileError
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.files import fill_whole

Array = npt.NDArray[np.generic]
# What zipfile, zlib and NumPy raise for bytes that are no archive of arrays.
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, MemoryError, struct.error,
)  # fmt: skip


def load_arrays(path: str, prefix: str, shapes: Sequence[ArrayShape]) -> list[Array]:
    """Read ``<prefix>0..`` from an .npz and check them against `shapes`."""
    return list(loaded(path, prefix, shapes))


def loaded(path: str, prefix: str, shapes: Sequence[ArrayShape]) -> Iterator[Array]:
    """The arrays of `load_arrays`, each read when it is asked for.

    NumPy stores ml_dtypes as raw bytes; those are viewed as the wanted type again.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _expect_no_more(path, archive, prefix, len(shapes))
            for i, shape in enumerate(shapes):
                yield _checked(path, f"{prefix}{i}", _member(archive, f"{prefix}{i}"), shape)
    except KeyError as error:
        wanted = " to ".join(f"{prefix}{i}" for i in sorted({0, len(shapes) - 1}))
        message = f"{path} has no array {error.args[0]}; the model wants {wanted}"
        raise CompileError(message) from error
    except _DAMAGED as error:
        raise CompileError(f"cannot read {path}: damaged, or no .npz file ({error})") from error
    except OSError as error:
        raise UnreadableFileError(f"cannot read {path}: {error.strerror or error}") from error


def _expect_no_more(path: str, archive: zipfile.ZipFile, prefix: str, count: int) -> None:
    """Refuse arrays of the kind that the model has no place for: they were made for another one."""
    numbered = re.compile(rf"{prefix}(\d+)\.npy")
    found = (numbered.fullmatch(name) for name in archive.NameToInfo)
    numbers = sorted(int(match[1]) for match in found if match)
    has_all = set(range(count)) <= set(numbers)  # one that is missing is said first
    if has_all and numbers and numbers[-1] >= count:
        takes = (
            f"{prefix}0 to {prefix}{count - 1}" if count > 1 else f"{prefix}0" if count else "none"
        )
        raise CompileError(f"{path} has an array {prefix}{numbers[-1]}; the model wants {takes}")


def _member(archive: zipfile.ZipFile, name: str) -> Array:
    """The array of that name; KeyError without one."""
    if f"{name}.npy" not in archive.NameToInfo:
        raise KeyError(name)
    with archive.open(f"{name}.npy") as file:
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
    return array


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


def fitting(name: str, arrays: Sequence[Array], shapes: Sequence[ArrayShape]) -> list[Array]:
    """Arrays that lie beside a model in its file, checked against `shapes`; `name` is the file's."""
    if len(arrays) != len(shapes):
        raise CompileError(f"{name} holds {len(arrays)} arrays, the model wants {len(shapes)}")
    pairs = enumerate(zip(arrays, shapes, strict=True))
    return [_checked(name, f"array {i}", array, shape) for i, (array, shape) in pairs]


def randoms(shapes: Sequence[ArrayShape], seed: int) -> Iterator[Array]:
    """Random inputs, each made when asked for: floats 0.1 N(0, 1), integers uniform in [0, 16), pred fair."""
    rng = np.random.default_rng(seed)
    for shape in shapes:
        yield _random(rng, shape)


def _random(rng: np.random.Generator, shape: ArrayShape) -> Array:
    dtype = shape.dtype
    if dtype.kind == "pred":
        return rng.integers(0, 2, shape.dims).astype(np.bool_)
    if dtype.is_integer:
        limit = min(16, 1 << (dtype.bits - (1 if dtype.is_signed else 0)))
        return rng.integers(0, limit, shape.dims).astype(dtype.numpy)
    values = np.asarray(rng.standard_normal(shape.dims, np.float32))
    values *= np.float32(0.1)  # in place: inputs may be gigabytes
    if dtype.is_complex:
        imaginary = rng.standard_normal(shape.dims, np.float32) * np.float32(0.1)
        return (values + 1j * imaginary).astype(dtype.numpy)
    return values.astype(dtype.numpy, copy=False)


def save_arrays(path: str, arrays: Sequence[Array]) -> None:
    """Write out0.. to `path`, whole or not at all."""
    named = {f"out{i}": a for i, a in enumerate(arrays)}
    fill_whole(path, lambda file: np.savez(file, **named))  # type: ignore[arg-type]


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
