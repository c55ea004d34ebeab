"""NumPy's functions as functions of `tpuc.numpy`.

Arrays of the host among the arguments become constants of the program being traced, or are placed on the
device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from compiler.frontends.numpy.methods import ArrayMethods
from compiler.frontends.numpy.tracer import Rule, Tracer, open_trace
from runtime import array_ops
from runtime.api import DEFAULT_TARGET
from runtime.array_api.creation import asarray
from runtime.array_api.types import known_dtype
from runtime.buffer import Array
from runtime.client import Device, device_for

_UFUNC_METHODS = ("accumulate", "at", "outer", "reduce", "reduceat")
"""What a ufunc of two arguments has beside the call."""


def lifted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function for arguments without arrays of tpuc's too: it computes on the chip all the same."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "dtype" in kwargs:
            kwargs["dtype"] = known_dtype(kwargs["dtype"])
        args, kwargs = with_arrays(args, kwargs)
        found = (_traced_inside(arg) for arg in args)
        inside = next((one for one in found if one is not None), None)
        if inside is None:
            return function(*args, **kwargs)
        if isinstance(getattr(function, "__self__", function), np.ufunc):
            joined = [arg if _traced_inside(arg) is None else asarray(arg) for arg in args]
            return function(*joined, **kwargs)
        return inside.__array_function__(function, (Tracer,), args, kwargs)

    if isinstance(function, np.ufunc) and (function.nin, function.nout) == (2, 1):
        for method in _UFUNC_METHODS:
            setattr(call, method, lifted(getattr(function, method)))
    return call


def with_arrays(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments with arrays of the host lifted; the first one is an array if no other is."""
    device = _device_of((args, kwargs))
    args = tuple(_lifted(item, device) for item in args)
    kwargs = {key: _lifted(item, device) for key, item in kwargs.items()}
    if args and not any(isinstance(leaf, ArrayMethods) for leaf in _leaves((args, kwargs))):
        first = args[0]
        sequence = type(first)(map(asarray, first)) if _holds_arrays(first) else asarray(first)
        args = (sequence, *args[1:])
    return args, kwargs


def apply(rule: Rule, *known: Any, **options: Any) -> Any:
    """Apply a rule of the frontend, which NumPy has no function for, to the open trace."""
    trace = open_trace()
    assert trace is not None, "array_ops.run opens one"
    return trace.run(f"tpuc.numpy.{rule.__name__}", rule, known, options)


def on_arrays(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function of traced arrays on arrays of any kind (`array_ops.run`)."""
    args, kwargs = with_arrays(args, kwargs)
    return array_ops.run(function, args, kwargs)


def _traced_inside(value: Any) -> Tracer | None:
    """A traced array within nested lists, where NumPy looks for none but asks for its value."""
    if not isinstance(value, list | tuple):
        return None
    return next((leaf for leaf in _leaves(value) if isinstance(leaf, Tracer)), None)


def _holds_arrays(value: Any) -> bool:
    """Whether a sequence of arrays is meant, not nested numbers."""
    return isinstance(value, list | tuple) and any(isinstance(v, np.ndarray) for v in value)


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, list | tuple):
        for item in tree:
            yield from _leaves(item)
    elif isinstance(tree, dict):
        yield from _leaves(list(tree.values()))
    else:
        yield tree


def _device_of(tree: Any) -> Device:
    arrays = (leaf for leaf in _leaves(tree) if isinstance(leaf, Array))
    first = next(arrays, None)
    return device_for(DEFAULT_TARGET) if first is None else first.device


def _lifted(tree: Any, device: Device) -> Any:
    if isinstance(tree, np.ndarray):
        return asarray(tree, device=device)
    if type(tree) in (list, tuple) and any(isinstance(x, np.ndarray) for x in tree):
        return type(tree)(_lifted(item, device) for item in tree)
    return tree
