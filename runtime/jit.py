"""`tpuc.jit`: ordinary NumPy code, traced once per argument signature, run on the emulated chip."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.pytree import TreeDef, flatten, unflatten
from compiler.frontends.numpy.tracing import abstract_type, trace
from compiler.hlo.host_types import fitted
from compiler.hlo.printer import print_module
from compiler.options import CompileOptions
from runtime.api import DEFAULT_TARGET
from runtime.buffer import Array
from runtime.executable import Executable
from runtime.machines import MachineOptions
from runtime.program_store import Compilation, executable_of


@dataclass
class _Compiled:
    executable: Executable
    out_tree: TreeDef


class JitFunction:
    """A function that compiles itself for each new signature of its arguments.

    Arguments may be nested tuples, lists and dicts of arrays and Python scalars; arguments named in
    `static` are passed to the function as they are and must be hashable. Results are NumPy arrays,
    or `tpuc.Array` when all array arguments are (scalars aside). `executable` is the one used last.
    """

    def __init__(
        self,
        function: Callable[..., object],
        target: str = DEFAULT_TARGET,
        precision: str = "default",
        static: Sequence[str] = (),
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.target = target
        self.precision = precision
        self.static = frozenset(static)
        self.executable: Executable | None = None
        self._signature = inspect.signature(function)
        self._cache: dict[object, _Compiled] = {}
        unknown = self.static - set(self._signature.parameters)
        if unknown:
            message = f"static argument {sorted(unknown)[0]!r} is no parameter of {function}"
            raise ValueError(message)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the function on the chip; the result is a tree like the function's."""
        bound = self._signature.bind(*args, **kwargs)  # defaults stay the function's own affair
        statics = {k: v for k, v in bound.arguments.items() if k in self.static}
        dynamic = {k: v for k, v in bound.arguments.items() if k not in self.static}
        leaves, tree = flatten(dynamic)
        key = (
            tuple(_static_key(name, statics[name]) for name in sorted(statics)),
            tree,
            tuple(_signature_of(leaf) for leaf in leaves),
        )
        compiled = self._cache.get(key)
        if compiled is None:
            compiled = self._cache[key] = self._compile(dynamic, statics)
        self.executable = compiled.executable
        arrays = [leaf if isinstance(leaf, Array) else _host_value(leaf) for leaf in leaves]
        sized = [leaf for leaf in leaves if hasattr(leaf, "shape")]
        on_device = bool(sized) and all(isinstance(leaf, Array) for leaf in sized)
        results = compiled.executable.call(arrays, on_device=on_device)
        return unflatten(compiled.out_tree, list(results))

    def _compile(self, dynamic: dict[str, object], statics: dict[str, object]) -> _Compiled:
        def call(arguments: dict[str, object]) -> object:
            bound = self._signature.bind_partial()
            bound.arguments.update({**arguments, **statics})
            return self.function(*bound.args, **bound.kwargs)

        call.__name__ = getattr(self.function, "__name__", "function")
        module, _, out_tree = trace(call, (dynamic,))
        options = CompileOptions(precision=self.precision)

        def compile_now() -> Compilation:
            compiler = importlib.import_module("runtime.compilation")
            made: Compilation = compiler.compile_hlo(module, self.target, options)
            return made

        text = print_module(module)
        machine = MachineOptions()
        executable = executable_of(text, self.target, options, machine, compile_now)
        return _Compiled(executable, out_tree)


@overload
def jit(
    function: Callable[..., object],
    *,
    target: str = ...,
    precision: str = ...,
    static: Sequence[str] = ...,
) -> JitFunction: ...


@overload
def jit(
    function: None = None,
    *,
    target: str = ...,
    precision: str = ...,
    static: Sequence[str] = ...,
) -> Callable[[Callable[..., object]], JitFunction]: ...


def jit(
    function: Callable[..., object] | None = None,
    *,
    target: str = DEFAULT_TARGET,
    precision: str = "default",
    static: Sequence[str] = (),
) -> JitFunction | Callable[[Callable[..., object]], JitFunction]:
    """Compile NumPy code for the emulated chip: ``@tpuc.jit`` or ``@tpuc.jit(precision=...)``."""
    if function is None:
        return functools.partial(JitFunction, target=target, precision=precision, static=static)
    return JitFunction(function, target, precision, static)


def _static_key(name: str, value: object) -> tuple[str, type, object]:
    """1, 1.0 and True are equal, but programs made with them are not."""
    try:
        hash(value)
    except TypeError as error:
        raise CompileError(f"static argument {name!r} must be hashable: {error}") from error
    return name, type(value), value


def _signature_of(leaf: object) -> tuple[object, ...]:
    return (tuple(getattr(leaf, "shape", ())), abstract_type(leaf))


def _host_value(leaf: object) -> npt.NDArray[np.generic]:
    return fitted(np.asarray(leaf), abstract_type(leaf).dtype)
