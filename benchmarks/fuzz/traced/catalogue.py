"""The functions of JAX's namespaces, found by looking: a new one is called as soon as JAX has it."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

NAMESPACES = (
    ("jax.numpy", 30), ("jax.lax", 22), ("jax.numpy.linalg", 4), ("jax.numpy.fft", 3), ("jax.nn", 8),
    ("jax.random", 6), ("jax.scipy.special", 6), ("jax.scipy.signal", 3), ("jax.scipy.linalg", 2),
    ("jax.scipy.ndimage", 2), ("jax.scipy.fft", 1), ("jax.lax.linalg", 2), ("jax.image", 2),
    ("jax.ops", 4), ("jax.scipy.stats", 2), ("jax.scipy.integrate", 1),
)  # fmt: skip

# What reads or writes files, is no computation, or has values that are the implementation's to choose.
_NOT_CALLED = frozenset({
    "save", "savez", "load", "fromfile", "frombuffer", "fromstring", "fromiter", "from_dlpack",
    "set_printoptions", "get_printoptions", "printoptions", "array_repr", "array_str",
    "array2string", "save_npz", "empty", "empty_like", "infeed", "outfeed", "rng_uniform",
    "create_token", "after_all", "psum", "pmean", "all_gather", "dce_sink", "approx_max_k",
    "approx_min_k", "composite", "custom_root", "custom_linear_solve", "map", "scan",
    "while_loop", "fori_loop", "cond", "switch", "associative_scan", "reduce", "reduce_window",
    "gather", "scatter", "scatter_add", "scatter_mul", "scatter_min", "scatter_max",
    "scatter_sub", "scatter_apply", "conv_general_dilated", "dot_general", "split_key_data",
    "broadcast_shapes",
    # Signs and bases of their results are the implementation's own.
    "svd", "eigh", "eig", "schur", "rsf2csf", "null_space", "orth",
})  # fmt: skip  # what is left out here and takes functions or numbers of dimensions is in `structured`

UFUNC_METHODS = ("reduce", "accumulate", "outer", "reduceat")


@functools.cache
def functions() -> dict[str, list[tuple[str, Callable[..., Any]]]]:
    """The functions of each namespace, by name."""
    return {name: list(_public(name)) for name, _ in NAMESPACES}


def _public(namespace: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    module = importlib.import_module(namespace)
    if namespace == "jax.scipy.stats":
        yield from _distributions(module)
        return
    for name in sorted(dir(module)):
        function = getattr(module, name)
        if name.startswith("_") or name in _NOT_CALLED or not callable(function):
            continue
        if inspect.isclass(function):
            continue
        yield f"{namespace}.{name}", function
        if type(function).__name__ == "ufunc":
            for method in UFUNC_METHODS:
                yield f"{namespace}.{name}.{method}", getattr(function, method)


def _distributions(module: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in sorted(dir(module)):
        part = getattr(module, name)
        if inspect.ismodule(part) and not name.startswith("_"):
            for inner in sorted(dir(part)):
                function = getattr(part, inner)
                if inspect.isfunction(function) and not inner.startswith("_"):
                    yield f"stats.{name}.{inner}", function


@functools.cache
def parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """The parameters of a function, those of a ufunc by their number."""
    if type(function).__name__ == "ufunc":
        names = ("x1", "x2", "x3")[: function.nin]  # type: ignore[attr-defined]
        kind = inspect.Parameter.POSITIONAL_ONLY
        return tuple(inspect.Parameter(name, kind) for name in names)
    return tuple(inspect.signature(function).parameters.values())
