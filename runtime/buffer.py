"""`Array`: a value that lies in emulated HBM, in device layout, and the `Buffer` it lies in."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from compiler.frontends.numpy.methods import ArrayMethods
from compiler.frontends.numpy.use_sites import stored_at
from compiler.hlo.device_types import device_type, plane_type
from compiler.hlo.dtypes import DType, from_numpy
from compiler.hlo.host_types import device_dtype, fitted
from compiler.hlo.shape import ArrayShape
from runtime.allocator import Block
from runtime.arena import Arena
from runtime.client import Device, device_for
from runtime.memory import Memory
from runtime.queue import Task
from runtime.storage import (
    read_planes,
    stored_bytes,
    with_default_layout,
    write_planes,
)
from runtime.transfer import Bytes
from tpu_sim.isa.chips import Chip

_DISCARDED_BYTES = 1 << 20
"""From this size on, the pages of a new array's block go back to the host when it is given up. Those
of an array that moves out and in again are wanted again."""


SMALL_BYTES = 1 << 14
"""An array of at most so many bytes that has a block of its own keeps it: native code may know where it
lies, and a second copy in a program's arena costs little."""
_SHOWN = 32
"""Arrays of more elements than this are shown by their edges."""


class Buffer:
    """The storage of one array's planes (`runtime.storage`) in a device's HBM.

    It has a block of its own, or lies at `places` of a program's arena: a result stays where the
    program left it until that program runs again (by then most results are no longer wanted), an
    argument that a program leaves as it is for as long as it is passed again. The result of a call
    that has not ended has neither, and `task` is the call. Whoever moves or reads it holds
    ``memory.lock``. The block is free when the last one who holds the buffer lets go of it.
    """

    __slots__ = (
        "__weakref__", "_arena", "_block", "_is_new", "_places", "is_lent", "memory", "plane_count",
        "size_bytes", "task",
    )  # fmt: skip

    def __init__(
        self, memory: Memory, size_bytes: int, plane_count: int, task: Task | None = None
    ) -> None:
        """Storage for planes of `size_bytes` together: a new block, or none yet if `task` makes it."""
        self.memory = memory
        self.size_bytes = size_bytes
        self.plane_count = plane_count
        self.task = task
        self._block: Block | None = None
        self._arena: Arena | None = None
        self._places: tuple[int, ...] = ()
        self._is_new = task is None
        self.is_lent = False  # it lies where the next run of a program may write
        if task is None:
            self._block = memory.allocate(size_bytes)

    def wait(self) -> None:
        """Return when the value is there; raise what the call that was to make it failed with."""
        task = self.task
        if task is not None:
            task.result()
            self.task = None

    def planes(self) -> list[Bytes]:
        """Views of the bytes of each plane, valid while ``memory.lock`` is held."""
        if self._block is not None:
            return self._planes_in(self._block)
        assert self._arena is not None, "it lies somewhere: its task has ended"
        hbm, size = self._arena.hbm, self.size_bytes // self.plane_count
        return [hbm.view(place, size) for place in self._places]

    def _planes_in(self, block: Block) -> list[Bytes]:
        hbm, size = self.memory.hbm, self.size_bytes // self.plane_count
        return [hbm.view(block.offset + k * size, size) for k in range(self.plane_count)]

    def lie_at(self, arena: Arena, places: tuple[int, ...]) -> None:
        """It is a result, and its value is there."""
        self._arena, self._places, self.task, self.is_lent = arena, places, None, True

    def settle(self, arena: Arena, places: tuple[int, ...]) -> None:
        """Lie at `places` of the arena, where a copy is already, and nowhere else.

        A result that another program has lent stays there, and a small array in its own block.
        """
        block = self._block
        if block is None and self._arena is not arena:
            return
        if block is not None and self.size_bytes <= SMALL_BYTES:
            return
        self._arena, self._places, self.is_lent = arena, places, False
        arena.settled.add(self)
        if block is not None:
            if self._is_new and self.size_bytes >= _DISCARDED_BYTES:
                self.memory.hbm.discard(block.offset, self.size_bytes)
            self._is_new, self._block = False, None

    def leave_arena(self) -> None:
        """Move to a block of its own; raises `ResourceExhaustedError` when none is free."""
        if self._block is not None:
            return
        block = self.memory.allocate(self.size_bytes, waits=False)
        self.memory.copy(self.planes(), self._planes_in(block))
        # At last: whoever is interrupted before leaves it where it was.
        self._block, self._arena, self.is_lent = block, None, False

    @property
    def address(self) -> int:
        """The host's address of a small array with a block of its own, where it stays; else 0."""
        if self._block is None or self.size_bytes > SMALL_BYTES:
            return 0
        return self.memory.hbm.address + self._block.offset

    def is_lent_by(self, arena: Arena) -> bool:
        """Whether it lies in that arena as a result."""
        return self.is_lent and self._arena is arena

    def lies_at(self, arena: Arena, places: tuple[int, ...]) -> bool:
        """Whether it has no block of its own but lies in that arena, at exactly these `places`."""
        return self._block is None and self._arena is arena and self._places == places


class Array(ArrayMethods):
    """An array on a device, never changed. `numpy()` or `np.asarray` copies it to the host.

    Operators, indexing and NumPy's functions compute on its device and return arrays there
    (`runtime.array_ops`); ``bool``, ``int``, ``float``, ``repr``, `item` and `tolist` read values.

    The result of a call may still be in the making: whoever asks for values waits for them, and gets
    the error if the call failed. One that is passed for a donated parameter (``input_output_alias``)
    is given up: the result lies in its place. Like one after `delete`, it keeps shape and dtype, and
    any other use raises `RuntimeError`.

    Attributes: `shape` and `dtype` as in NumPy, `device_shape` with the tiled layout.
    """

    __slots__ = ("__weakref__", "_buffer", "_why_deleted", "device", "device_shape")

    def __init__(self, device: Device, device_shape: ArrayShape, buffer: Buffer) -> None:
        self.device = device
        self.device_shape = device_shape
        self._buffer: Buffer | None = buffer
        self._why_deleted = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical dimensions."""
        return self.device_shape.dims

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """NumPy element type."""
        return self.device_shape.dtype.numpy

    @property
    def size_bytes(self) -> int:
        """Bytes in device memory, padding included."""
        return stored_bytes(self.device_shape)

    def numpy(self, out: npt.NDArray[np.generic] | None = None) -> npt.NDArray[np.generic]:
        """Copy to the host; waits until the value is there. The copy may be `out`, if that is given: an array
        of the same dimensions."""
        buffer = self.buffer()
        buffer.wait()
        with self.device.memory.lock.here:  # nothing may move meanwhile
            return read_planes(buffer.planes(), self.device_shape, out)

    def buffer(self) -> Buffer:
        """What it lies in. Raises `RuntimeError`, with the reason, if it was deleted."""
        if self._buffer is None:
            kind = f"{self.device_shape.dtype}{list(self.shape)}"
            raise RuntimeError(f"the tpuc.Array of {kind} {self._why_deleted}")
        return self._buffer

    def planes(self) -> list[Bytes]:
        """Views of the bytes of each plane, valid while ``device.memory.lock`` is held."""
        self.buffer().wait()
        return self.buffer().planes()

    def block_until_ready(self) -> Array:
        """Wait until the value is there, and return the array."""
        self.buffer().wait()
        return self

    def is_ready(self) -> bool:
        """Whether nobody would have to wait for the value, or the error."""
        task = self.buffer().task
        return task is None or task.is_ended

    def is_deleted(self) -> bool:
        """Whether its value is gone: by `delete`, or since a call that it was donated to."""
        return self._buffer is None

    def delete(self, why: str = "by delete()") -> None:
        """Give its memory back, now or when a call that needs it has ended; waits for none.

        `why` completes the message of any later use.
        """
        self._why_deleted = self._why_deleted or f"was deleted {why}"
        self._buffer = None

    def undelete(self, other: Array) -> None:
        """Have the value of `other`, if that has one."""
        if other._buffer is not None:
            self._buffer, self._why_deleted = other._buffer, ""

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[Any, ...]]:
        """Its values and its chip: pickled or copied it is another array, on a device of that chip."""
        dtype = self.device_shape.dtype
        return _placed_again, (self.numpy(), dtype, self.device.chip)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[np.generic]:
        if copy is False:
            message = "a tpuc.Array lies in device memory: a host array is always a copy"
            raise ValueError(message)
        host = self.numpy()
        return host if dtype is None else host.astype(dtype)

    def asnumpy(self) -> npt.NDArray[np.generic]:
        """As `numpy`."""
        return self.numpy()

    def item(self, *index: int) -> Any:
        """One element as a value of Python's."""
        return self.numpy().item(*index)

    def tolist(self) -> Any:
        """All elements as nested lists of Python's values."""
        return self.numpy().tolist()

    # --- computed on the device -----------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _operations().ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(
        self, func: Callable[..., Any], types: object, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        return _operations().array_function(func, args, kwargs)

    def __getitem__(self, key: object) -> Array:
        found: Array = _operations().element(self, key)
        return found

    def _updated(self, method: str, key: object, value: object) -> Array:
        made: Array = _operations().updated(self, method, key, value)
        return made

    def view(self, dtype: object) -> Array:
        """The same bits as elements of another type, more or fewer of them along the last axis."""
        made: Array = _operations().viewed(self, dtype)
        return made

    def to_device(self, device: Device, /, *, stream: None = None) -> Array:
        """A copy on another device, or the array itself. Raises ValueError for a stream: there is none."""
        if stream is not None:
            raise ValueError("to_device: tpuc has no streams; want stream=None")
        return self if device is self.device else device_put(self, device)

    def __setitem__(self, key: object, value: object) -> NoReturn:
        array, at = stored_at()
        instead = f"{array} = {array}.at[{at}].set(...)"
        raise TypeError(f"{array}[{at}] = ...: a tpuc.Array is never changed; write {instead}")

    # --- read -----------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        return operator.index(self.numpy())

    def __contains__(self, value: object) -> bool:
        return bool((self == value).any())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and not self.shape else str(self)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A copy in the host's memory, for ``from_dlpack``. Raises BufferError for types it has not."""
        if copy is False:
            message = "a tpuc.Array lies in device memory: what leaves it is always a copy"
            raise BufferError(message)
        host: Any = self.numpy()
        return host.__dlpack__(stream=stream, max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return np.zeros(()).__dlpack_device__()

    def __buffer__(self, flags: int) -> memoryview:
        """A copy in the host's memory (Python 3.12 and newer ask for it)."""
        host: Any = self.numpy()
        return memoryview(host)

    def __repr__(self) -> str:
        kind = f"{self.device_shape.dtype}{list(self.shape)}"
        if self._buffer is None:
            return f"tpuc.Array({kind}, {self.device.name}, deleted)"
        try:
            host = self.numpy()
        except Exception as error:  # whatever the call failed with that was to make it
            return f"tpuc.Array({kind}, {self.device.name}, failed: {error})"
        text = np.array2string(
            host, separator=", ", threshold=_SHOWN, edgeitems=3, prefix="tpuc.Array("
        )
        return f"tpuc.Array({text}, {kind}, {self.device.name})"


def _operations() -> Any:
    """What computes with arrays: it needs the compiler, and that needs arrays."""
    return importlib.import_module("runtime.array_ops")


def device_put(value: npt.ArrayLike, device: Device) -> Array:
    """Copy a host array, or one of any device, to `device` in its default tiled layout.

    Host f64 and s64 become f32 and s32, as in JAX by default. Raises `CompileError` for a dtype
    that HLO does not have and for integers that do not fit 32 bits, `ResourceExhaustedError` when HBM
    is full.
    """
    host = np.asarray(value)
    dtype = device_dtype(host.dtype, warns=isinstance(value, np.ndarray))
    return place(fitted(host, dtype), from_numpy(dtype), device)


def _placed_again(host: npt.NDArray[np.generic], dtype: DType, chip: Chip) -> Array:
    return place(host, dtype, device_for(chip))


def place(host: npt.NDArray[np.generic], dtype: DType, device: Device) -> Array:
    """Copy a host array of an element type to `device`, as that type: 64-bit integers keep their bits,
    f64 and c128 are rounded (`compiler.hlo.device_types`)."""
    kind = device_type(dtype)
    shape = with_default_layout(ArrayShape(kind, host.shape))
    buffer = Buffer(device.memory, stored_bytes(shape), plane_type(kind)[1])
    write_planes(host.astype(kind.numpy, copy=False), shape, buffer.planes())
    return Array(device, shape, buffer)
