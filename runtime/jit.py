"""`tpuc.jit`: ordinary NumPy code, traced once per argument signature, run on the emulated chip."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.pytree import TreeDef, flatten, unflatten
from compiler.frontends.numpy.tracing import abstract_type, trace
from compiler.hlo.host_types import fitted
from compiler.hlo.printer import print_module
from compiler.options import CompileOptions
from runtime.api import DEFAULT_TARGET
from runtime.buffer import Array
from runtime.client import Device, device_for
from runtime.executable import Executable
from runtime.machines import MachineOptions
from runtime.program_store import Compilation, executable_of
from runtime.topology import Topology


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
        target: str | Device = DEFAULT_TARGET,
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
        self._positional = _positional_names(self._signature)
        self._cache: dict[object, _Compiled] = {}
        unknown = self.static - set(self._signature.parameters)
        if unknown:
            message = f"static argument {sorted(unknown)[0]!r} is no parameter of {function}"
            raise ValueError(message)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the function on the chip; the result is a tree like the function's."""
        if not kwargs and len(args) == len(self._positional):
            arguments = dict(zip(self._positional, args, strict=True))
        else:  # defaults stay the function's own affair
            arguments = self._signature.bind(*args, **kwargs).arguments
        statics = {k: v for k, v in arguments.items() if k in self.static}
        dynamic = {k: v for k, v in arguments.items() if k not in self.static}
        leaves, tree = flatten(dynamic)
        types = [abstract_type(leaf) for leaf in leaves]
        key = (
            tuple(_static_key(name, statics[name]) for name in sorted(statics)),
            tree,
            tuple(
                (tuple(getattr(leaf, "shape", ())), type.dtype, type.is_weak)
                for leaf, type in zip(leaves, types, strict=True)
            ),
        )
        compiled = self._cache.get(key)
        if compiled is None:
            compiled = self._cache[key] = self._compile(dynamic, statics)
        self.executable = compiled.executable
        arrays = [
            leaf if isinstance(leaf, Array) else fitted(np.asarray(leaf), type.dtype)
            for leaf, type in zip(leaves, types, strict=True)
        ]
        sized = [leaf for leaf in leaves if hasattr(leaf, "shape")]
        on_device = bool(sized) and all(isinstance(leaf, Array) for leaf in sized)
        run = compiled.executable.call(arrays, on_device=on_device)
        return unflatten(compiled.out_tree, run.results)

    def _compile(self, dynamic: dict[str, object], statics: dict[str, object]) -> _Compiled:
        def call(arguments: dict[str, object]) -> object:
            bound = self._signature.bind_partial()
            bound.arguments.update({**arguments, **statics})
            return self.function(*bound.args, **bound.kwargs)

        call.__name__ = getattr(self.function, "__name__", "function")
        module, _, out_tree = trace(call, (dynamic,))
        options, device = CompileOptions(precision=self.precision), device_for(self.target)

        def compile_now() -> Compilation:
            compiler = importlib.import_module("runtime.compilation")
            made: Compilation = compiler.compile_hlo(module, device.chip, options)
            return made

        text = print_module(module)
        machine = MachineOptions()
        executable = executable_of(
            text, [device], options, machine, compile_now, Topology(device.chip).cores
        )
        return _Compiled(executable, out_tree)


@overload
def jit(
    function: Callable[..., object],
    *,
    target: str | Device = ...,
    precision: str = ...,
    static: Sequence[str] = ...,
) -> JitFunction: ...


@overload
def jit(
    function: None = None,
    *,
    target: str | Device = ...,
    precision: str = ...,
    static: Sequence[str] = ...,
) -> Callable[[Callable[..., object]], JitFunction]: ...


def jit(
    function: Callable[..., object] | None = None,
    *,
    target: str | Device = DEFAULT_TARGET,
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


def _positional_names(signature: inspect.Signature) -> tuple[str, ...]:
    """The parameters in order if a call that gives them all, without names, binds one to each."""
    parameters = signature.parameters.values()
    if any(p.kind is not p.POSITIONAL_OR_KEYWORD for p in parameters):
        return ()
    return tuple(p.name for p in parameters)
