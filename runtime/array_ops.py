"""What `tpuc.Array` does as an array: each operation is a small program, compiled once for its shapes and
types, that runs on the device where the arrays lie.

`runtime.buffer` asks for this when an array is first computed with. Host arrays beside device arrays
are put on their device; Python scalars stay arguments, so that another value compiles nothing.
"""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.diagnostics import UnsupportedError
from compiler.frontends.numpy.changing import CHANGED
from compiler.frontends.numpy.indexing import normal_index
from compiler.frontends.numpy.ops import as_tracer
from compiler.frontends.numpy.promotion import promote_pair
from compiler.frontends.numpy.tracer import SIZED, Tracer, open_trace
from compiler.hlo.host_types import stated_dtype
from runtime.buffer import Array, device_put
from runtime.client import Device
from runtime.jit import JitFunction

_KEPT = 1024
"""So many operations keep their programs."""
_READERS = frozenset({
    np.allclose, np.array2string, np.array_equal, np.array_equiv, np.array_repr, np.array_str, np.can_cast,
    np.copyto, np.iscomplexobj, np.isrealobj, np.may_share_memory, np.ndim, np.result_type, np.save,
    np.savetxt, np.savez, np.savez_compressed, np.shape, np.shares_memory, np.size,
})  # fmt: skip
"""NumPy's functions that read values to say something of them: these work on a copy in the host."""

_SCALARS = (bool, int, float, complex)


@dataclass(frozen=True)
class _Hole:
    """The place of an array among the arguments of a call."""

    number: int


@dataclass(frozen=True)
class _Node:
    """A container of arguments, or a slice."""

    kind: type
    items: tuple[Any, ...]
    keys: tuple[Hashable, ...] = ()


@dataclass(frozen=True)
class _Known:
    """A value that the program is made for; 1, 1.0 and True are different ones."""

    kind: type
    value: Hashable


class _Call:
    """The arguments of a call, taken apart into arrays and the rest."""

    def __init__(self, *, scalars_vary: bool) -> None:
        self.leaves: list[Any] = []
        self._kinds = (Array, Tracer, np.ndarray, np.generic, *(_SCALARS if scalars_vary else ()))

    def frozen(self, tree: Any) -> Hashable:
        """The tree without its arrays."""
        if isinstance(tree, self._kinds) and not _is_wide(tree):
            self.leaves.append(tree)
            return _Hole(len(self.leaves) - 1)
        if type(tree) in (list, tuple):
            return _Node(type(tree), tuple(map(self.frozen, tree)))
        if type(tree) is dict:
            return _Node(dict, tuple(map(self.frozen, tree.values())), tuple(tree))
        if isinstance(tree, slice):
            return _Node(slice, tuple(map(self.frozen, (tree.start, tree.stop, tree.step))))
        if hasattr(tree, "__array__") and not isinstance(tree, type):
            kind = type(tree).__name__
            raise UnsupportedError(
                f"a tpuc.Array together with a {kind}: compute in a tpuc.jit function"
            )
        return _Known(type(tree), tree)


def _is_wide(value: Any) -> bool:
    """Whether this is an integer of Python's that only a 64-bit array can take."""
    return isinstance(value, int) and not -(2**31) <= value < 2**31


def _thawed(tree: Any, leaves: Any) -> Any:
    """The arguments, with arrays in their places."""
    if isinstance(tree, _Hole):
        return leaves[tree.number]
    if isinstance(tree, _Known):
        return tree.value
    items = [_thawed(item, leaves) for item in tree.items]
    if tree.kind is dict:
        return dict(zip(tree.keys, items, strict=True))
    return slice(*items) if tree.kind is slice else tree.kind(items)


@functools.lru_cache(_KEPT)
def _program(function: Callable[..., Any], structure: Hashable, device: Device) -> JitFunction:
    def call(leaves: tuple[Any, ...]) -> Any:
        args, kwargs = _thawed(structure, leaves)
        return function(*args, **kwargs)

    call.__name__ = getattr(function, "__name__", "operation")
    return JitFunction(call, target=device)


def run(function: Callable[..., Any], args: Any, kwargs: Any, *, scalars_vary: bool = False) -> Any:
    """Call a function of traced arrays on device arrays, as a program that is kept for the next such call;
    while a function is traced, on traced arrays. What is no array must be hashable; Python scalars are
    arguments of the program if they vary."""
    call = _Call(scalars_vary=scalars_vary)
    structure = call.frozen((tuple(args), dict(kwargs)))
    trace = open_trace()
    if trace is not None:
        traced = [as_tracer(trace, leaf) for leaf in call.leaves]
        args, kwargs = _thawed(structure, traced)
        return function(*args, **kwargs)
    device = next(leaf.device for leaf in call.leaves if isinstance(leaf, Array))
    placed = [
        device_put(x, device) if isinstance(x, np.ndarray | np.generic) else x for x in call.leaves
    ]
    return _program(function, structure, device)(tuple(placed))


def ufunc(function: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A ufunc of device arrays, or its reduction."""
    if any(isinstance(x, Tracer) for x in inputs):
        return NotImplemented  # it is part of what is traced
    if kwargs.get("out") is not None or method == "at":
        suffix = ".at" if method == "at" else ""
        raise _never_changed(function.__name__ + suffix)
    if method == "__call__":
        _expect_scalars_fit(inputs)
    called = function if method == "__call__" else getattr(function, method)
    return run(called, inputs, kwargs, scalars_vary=method == "__call__" and not kwargs)


def _expect_scalars_fit(inputs: tuple[Any, ...]) -> None:
    """OverflowError for integers of Python's that the type of the arrays beside them does not hold."""
    numbers = [x for x in inputs if isinstance(x, int) and not isinstance(x, bool | np.generic)]
    types = [np.dtype(x.dtype) for x in inputs if hasattr(x, "shape")] if numbers else []
    if not types or any(dtype.kind not in "iub" for dtype in types):
        return
    common = functools.reduce(promote_pair, types)
    limits = np.iinfo(np.int32 if common == np.bool_ else common)
    for number in numbers:
        if not limits.min <= number <= limits.max:
            raise OverflowError(f"Python integer {number} does not fit {common}")


def array_function(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """A function of NumPy's that has arguments with device arrays."""
    if any(isinstance(x, Tracer) for x in _flat((args, kwargs))):
        return NotImplemented
    is_written = function in CHANGED and isinstance(args[0], Array)
    if is_written or isinstance(kwargs.get("out"), Array):
        raise _never_changed(function.__name__)
    if function in _READERS:
        args, kwargs = _on_host((args, kwargs))
        return function(*args, **kwargs)
    if function is np.repeat:
        args, kwargs = _with_counts(*args, **kwargs)
    name = f"np.{function.__name__}"
    if name in SIZED or (function is np.where and len(args) == 1):
        sized: Any = importlib.import_module("runtime.array_api.sized")  # it calls `run`
        return getattr(sized, function.__name__)(*args, **kwargs)
    return run(function, args, kwargs)


def _with_counts(a: Any, repeats: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `np.repeat`, with counts that are read: they say how large the result is."""
    if isinstance(repeats, Array | np.ndarray | np.generic):
        counts = np.asarray(repeats).tolist()
        repeats = tuple(counts) if isinstance(counts, list) else counts
    return (a, repeats), kwargs


def _never_changed(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"np.{name} is to change an array: a tpuc.Array is never changed; use x.at[key], or what "
        "the function returns, or do it in a tpuc.jit function"
    )


def _flat(tree: Any) -> Iterator[Any]:
    if isinstance(tree, list | tuple):
        for item in tree:
            yield from _flat(item)
    elif isinstance(tree, dict):
        yield from _flat(list(tree.values()))
    else:
        yield tree


def _on_host(tree: Any) -> Any:
    if isinstance(tree, Array):
        return tree.numpy()
    if type(tree) in (list, tuple):
        return type(tree)(map(_on_host, tree))
    if type(tree) is dict:
        return {key: _on_host(value) for key, value in tree.items()}
    return tree


def element(x: Array, key: Any) -> Any:
    """``x[key]``. Positions are arguments of the program, slices are part of it."""
    if _is_truth(key):
        x, key = _expanded(x), slice(0, int(bool(key)))
    return run(operator.getitem, (x, _static_key(x, key)), {})


def updated(x: Array, method: str, key: Any, value: Any) -> Any:
    """``x.at[key].set(value)`` and its kin: a new array."""
    if _is_truth(key):
        target = _expanded(x)
        made = updated(target, method, slice(0, int(bool(key))), value)
        return made.reshape(x.shape)
    if not isinstance(value, Array | np.ndarray):
        value = np.asarray(value, x.dtype)
    return run(_updater(method), (x, _static_key(x, key), value), {})


def viewed(x: Array, dtype: Any) -> Any:
    """``x.view(dtype)``."""
    return run(_view, (x, stated_dtype(dtype)), {})


def _view(x: Any, dtype: Any) -> Any:
    return x.view(dtype)


@functools.cache
def _updater(method: str) -> Callable[..., Any]:
    def update(x: Any, key: Any, value: Any) -> Any:
        return getattr(x.at[key], method)(value)

    return update


def _is_truth(key: Any) -> bool:
    """Whether a key is one truth value: x with a new first axis, of one element or none."""
    return isinstance(key, bool | np.bool_) or (
        getattr(key, "dtype", None) == np.bool_ and key.ndim == 0
    )


def _expanded(x: Array) -> Any:
    return x.reshape((1, *x.shape))


def _static_key(x: Array, key: Any) -> tuple[Any, ...]:
    return tuple(_positions(x, key if isinstance(key, tuple) else (key,)))


def _positions(x: Array, entries: tuple[Any, ...]) -> Iterator[Any]:
    """The entries of a key: integers in range, slices of integers, masks (which are read) as positions."""
    axis = 0
    used = sum(_axes_used(entry) for entry in entries)
    if used > len(x.shape):
        raise IndexError(f"an index for axis {len(x.shape)} of an array of {len(x.shape)} axes")
    for entry in entries:
        if entry is Ellipsis:
            axis += len(x.shape) - used
        elif isinstance(entry, int | np.integer) and not isinstance(entry, bool):
            if axis >= len(x.shape) or not -x.shape[axis] <= entry < x.shape[axis]:
                extent = x.shape[axis] if axis < len(x.shape) else None
                raise IndexError(f"index {entry} is out of range for axis {axis} of size {extent}")
            entry = np.int32(normal_index(int(entry), x.shape[axis]))
        elif isinstance(entry, slice):  # how many there are is part of the program
            entry = slice(*map(_bound, (entry.start, entry.stop, entry.step)))
        elif getattr(entry, "dtype", None) == np.bool_:
            yield from _places(np.asarray(entry), x.shape[axis:])
            axis += entry.ndim
            continue
        axis += _axes_used(entry)
        yield entry


def _bound(end: Any) -> int | None:
    """An end of a slice, or its step; that of an array is read."""
    return None if end is None else operator.index(end)


def _places(mask: np.ndarray[Any, Any], extents: tuple[int, ...]) -> Iterator[Any]:
    """Where a mask holds; IndexError unless it has the dimensions that it is for."""
    if mask.shape != extents[: mask.ndim]:
        raise IndexError(f"a mask of {list(mask.shape)} for axes of {list(extents[: mask.ndim])}")
    for places in np.nonzero(mask):
        yield places.astype(np.int32)


def _axes_used(entry: Any) -> int:
    if entry is None or entry is Ellipsis:
        return 0
    is_mask = getattr(entry, "dtype", None) == np.bool_
    return entry.ndim if is_mask else 1
