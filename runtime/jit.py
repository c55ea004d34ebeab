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
from runtime.client import Device
from runtime.executable import Executable
from runtime.jit_shardings import JitShardings, meshes_of_constraints
from runtime.machines import MachineOptions
from runtime.program_store import Compilation, executable_of
from runtime.sharded_array import ShardedArray
from runtime.slice_executable import SliceExecutable

_ON_DEVICES = (Array, ShardedArray)


@dataclass
class _Compiled:
    executable: Executable
    out_tree: TreeDef


class JitFunction:
    """A function that compiles itself for each new signature of its arguments.

    Arguments may be nested tuples, lists and dicts of arrays and Python scalars; arguments named in
    `static` are passed to the function as they are and must be hashable. Results are NumPy arrays,
    or `tpuc.Array` when all array arguments are (scalars aside), `tpuc.ShardedArray` alike.
    With shardings of arguments, results or values between it runs on all devices of their mesh.
    `executable` is the one used last.
    """

    def __init__(
        self,
        function: Callable[..., object],
        target: str | Device = DEFAULT_TARGET,
        precision: str = "default",
        static: Sequence[str] = (),
        in_shardings: object = None,
        out_shardings: object = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.target = target
        self.precision = precision
        self.static = frozenset(static)
        self.shardings = JitShardings(target, in_shardings, out_shardings)
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
            self.shardings.key(leaves),
        )
        compiled = self._cache.get(key)
        if compiled is None:
            compiled = self._cache[key] = self._compile(dynamic, statics)
        self.executable = compiled.executable
        arrays = [
            leaf if isinstance(leaf, _ON_DEVICES) else fitted(np.asarray(leaf), type.dtype)
            for leaf, type in zip(leaves, types, strict=True)
        ]
        sized = [leaf for leaf in leaves if hasattr(leaf, "shape")]
        on_device = bool(sized) and all(isinstance(leaf, _ON_DEVICES) for leaf in sized)
        run = compiled.executable.call(arrays, on_device=on_device)
        return unflatten(compiled.out_tree, run.results)

    def _compile(self, dynamic: dict[str, object], statics: dict[str, object]) -> _Compiled:
        def call(arguments: dict[str, object]) -> object:
            bound = self._signature.bind_partial()
            bound.arguments.update({**arguments, **statics})
            return self.function(*bound.args, **bound.kwargs)

        call.__name__ = getattr(self.function, "__name__", "function")
        with meshes_of_constraints() as meshes:
            module, _, out_tree = trace(call, (dynamic,))
        placing = self.shardings.place(module, dynamic, out_tree, meshes)
        options, chip = CompileOptions(precision=self.precision), placing.devices[0].chip

        def compile_now() -> Compilation:
            compiler = importlib.import_module("runtime.compilation")
            made: Compilation = compiler.compile_hlo(module, chip, options, placing.cores)
            return made

        executable = executable_of(
            print_module(module),
            placing.devices,
            options,
            MachineOptions(),
            compile_now,
            placing.cores,
        )
        if isinstance(executable, SliceExecutable):
            executable.mesh = placing.mesh
        return _Compiled(executable, out_tree)


@overload
def jit(
    function: Callable[..., object],
    *,
    target: str | Device = ...,
    precision: str = ...,
    static: Sequence[str] = ...,
    in_shardings: object = ...,
    out_shardings: object = ...,
) -> JitFunction: ...


@overload
def jit(
    function: None = None,
    *,
    target: str | Device = ...,
    precision: str = ...,
    static: Sequence[str] = ...,
    in_shardings: object = ...,
    out_shardings: object = ...,
) -> Callable[[Callable[..., object]], JitFunction]: ...


def jit(
    function: Callable[..., object] | None = None,
    *,
    target: str | Device = DEFAULT_TARGET,
    precision: str = "default",
    static: Sequence[str] = (),
    in_shardings: object = None,
    out_shardings: object = None,
) -> JitFunction | Callable[[Callable[..., object]], JitFunction]:
    """Compile NumPy code for the emulated chip: ``@tpuc.jit`` or ``@tpuc.jit(precision=...)``.

    `in_shardings` is a `NamedSharding` for all arguments, or a tuple with one, or a tree of them, for
    each; `out_shardings` the same for the result. None says nothing: an argument then stays as it lies.
    """
    made = functools.partial(
        JitFunction,
        target=target,
        precision=precision,
        static=static,
        in_shardings=in_shardings,
        out_shardings=out_shardings,
    )
    return made if function is None else made(function)


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
