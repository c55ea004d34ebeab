"""Arguments of a call: which are taken for a program's inputs, and which are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import CompileError
from compiler.hlo.dtypes import BY_NUMPY
from compiler.hlo.host_types import device_dtype, fitted
from compiler.hlo.shape import ArrayShape
from runtime.buffer import Array
from runtime.client import Device
from runtime.ports import Port

HostArray = npt.NDArray[np.generic]


class Shaped(Protocol):
    """What has a shape and an element type."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The element type."""


def checked(
    number: int, value: npt.ArrayLike | Array, port: Port, device: Device
) -> HostArray | Array:
    """Return the argument if it has the wanted dimensions and a dtype that stands for the port's.

    An array on another device than the program's is refused.

    64-bit host types stand for their 32-bit ones and the other way round, as in JAX by default;
    one warning says so of f64 arrays. Integers that do not fit are refused.
    """
    array = value if isinstance(value, Array) else np.asarray(value)
    if isinstance(array, Array):
        array.buffer()  # it is not deleted
    expect_shape(number, array, port, port.shape)
    if isinstance(value, Array) and value.device is not device:
        raise CompileError(_elsewhere(number, value, port, device))
    if isinstance(array, Array):
        return array
    return _as_wanted(number, value, array, port)


def checked_shape(number: int, value: npt.ArrayLike, port: Port, want: ArrayShape) -> HostArray:
    """The argument on the host, if it has the dimensions `want` and a dtype as in `checked`."""
    array = np.asarray(value)
    expect_shape(number, array, port, want)
    return _as_wanted(number, value, array, port)


def expect_shape(number: int, array: Shaped, port: Port, want: ArrayShape) -> None:
    """Raise `CompileError` unless the argument has these dimensions and a dtype that stands for theirs."""
    if array.shape != want.dims or not _stands_for(array.dtype, want.dtype.numpy):
        raise CompileError(
            f"input {number} ({port.buffers[0].name}): found {array.dtype}{list(array.shape)}, "
            f"want {want.dtype.numpy}{list(want.dims)}"
        )


def _as_wanted(
    number: int, value: npt.ArrayLike | Array, array: HostArray, port: Port
) -> HostArray:
    want = port.shape
    if array.dtype == want.dtype.numpy:
        return array
    if isinstance(value, np.ndarray):
        device_dtype(value.dtype, warns=True)
    try:
        return fitted(array, want.dtype.numpy)
    except CompileError as error:
        raise CompileError(f"input {number} ({port.buffers[0].name}): {error}") from None


def _stands_for(found: np.dtype[np.generic], want: np.dtype[np.generic]) -> bool:
    return found == want or (found in BY_NUMPY and device_dtype(found) == device_dtype(want))


def _elsewhere(number: int, value: Array, port: Port, device: Device) -> str:
    """Why an array of another device than the call's is refused, and what to do."""
    found, chip = value.device, device.chip
    end = "" if found.chip.name != chip.name else " of other parameters"
    if found.chip == chip:
        end = f": it runs on {device!r}, the array is on {found!r}"
    return (
        f"input {number} ({port.buffers[0].name}): the array lies on device {found.name}, the "
        f"program is for {device.name}{end}: pass .numpy() of it, or place it there with "
        "device_put(.., device)"
    )


def expect_donated_once(values: Sequence[HostArray | Array], inputs: Sequence[Port]) -> None:
    """Raise `CompileError` for an array that is donated and passed a second time: its value is
    wanted where it is overwritten."""
    for number, (value, port) in enumerate(zip(values, inputs, strict=True)):
        if not port.is_donated or not isinstance(value, Array):
            continue
        if sum(other is value for other in values) > 1:
            raise CompileError(
                f"input {number} ({port.buffers[0].name}) is donated, and the same array is passed "
                "for another input too: pass a copy, device_put(array.numpy())"
            )
