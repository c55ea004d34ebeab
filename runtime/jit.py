"""`tpuc.jit`: ordinary NumPy code, traced once per argument signature, run on the emulated chip."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, TypeVar, overload

from compiler.diagnostics import note_users_line
from compiler.frontends.numpy.donation import donate
from compiler.frontends.numpy.tracer import open_trace
from compiler.frontends.numpy.tracing import trace
from compiler.options import CompileOptions
from runtime.api import DEFAULT_TARGET
from runtime.call_signature import BoundCall, CallSignature, SignatureKey
from runtime.client import Device
from runtime.executable import Executable
from runtime.jit_shardings import JitShardings, meshes_of_constraints
from runtime.lowered import Compiled, Lowered
from tpu_sim.isa.chips import Chip

_Which = TypeVar("_Which", int, str)
_MANY_PROGRAMS = 16
"""From this many signatures of one function on, somebody is compiling what he means to run."""


class RecompileWarning(UserWarning):
    """A function is compiled again and again; the message says what differed the last time."""


class JitFunction:
    """A function that compiles itself for each new signature of its arguments.

    Arguments may be nested tuples, lists, dicts and dataclasses of arrays and Python scalars; static
    arguments are passed to the function as they are and must be hashable. Results are NumPy arrays,
    or `tpuc.Array` when all array arguments are (scalars aside), `tpuc.ShardedArray` alike. With
    shardings of arguments, results or values between it runs on all devices of their mesh. Called by
    a function that is being traced, it is part of that one. `executable` is the one used last.
    """

    def __init__(
        self,
        function: Callable[..., object],
        target: str | Chip | Device = DEFAULT_TARGET,
        precision: str = "default",
        static_argnames: str | Sequence[str] = (),
        static_argnums: int | Sequence[int] = (),
        donate_argnums: int | Sequence[int] = (),
        donate_argnames: str | Sequence[str] = (),
        in_shardings: object = None,
        out_shardings: object = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.shardings = JitShardings(target, in_shardings, out_shardings)
        self.options = CompileOptions(precision=precision)
        self.executable: Executable | None = None
        self._signature = CallSignature(
            function, _several(static_argnames), _several(static_argnums)
        )
        self._donated = self._signature.named(
            "donated", _several(donate_argnames), _several(donate_argnums)
        )
        self._cache: dict[SignatureKey, Compiled] = {}

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the function on the chip; the result is a tree like the function's."""
        if open_trace() is not None:
            return self.function(*args, **kwargs)
        call = self._bind(args, kwargs)
        compiled = self._cache.get(call.key)
        if compiled is None:
            self._warn_of_many(call.key)
            compiled = self._cache[call.key] = self._lowered(call).compile()
        self.executable = compiled.executable
        return compiled.run(call)

    def lower(self, *args: object, **kwargs: object) -> Lowered:
        """Trace the function on these arguments, whose values do not matter: `Lowered`.

        Arguments may be anything with `shape` and `dtype`.
        """
        return self._lowered(self._bind(args, kwargs))

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """A method is bound to its object, which is an argument like any other: it must be a tree
        (a dataclass, say), or ``self`` be static."""
        return self if instance is None else MethodType(self, instance)

    def _bind(
        self,
        args: Sequence[object],
        kwargs: dict[str, object],
        statics: dict[str, object] | None = None,
    ) -> BoundCall:
        return self._signature.bind(args, kwargs, self.shardings.key, statics)

    def _lowered(self, call: BoundCall) -> Lowered:
        names = call.key.names

        def function(*arguments: object) -> object:
            given = {**dict(zip(names, arguments, strict=True)), **call.statics}
            return self._signature.apply(self.function, given)

        function.__name__ = getattr(self.function, "__name__", "function")
        with meshes_of_constraints() as meshes:
            try:
                module, in_tree, out_tree = trace(function, call.arguments, names)
            except Exception as error:
                note_users_line(error)
                raise
        given_up = [i for i, name in enumerate(names) if name in self._donated]
        donate(module, in_tree, given_up)
        placing = self.shardings.place(module, call.arguments, out_tree, meshes)
        return Lowered(self._bind, call, module, out_tree, placing, self.options)

    def _warn_of_many(self, key: SignatureKey) -> None:
        count = len(self._cache)
        if not count or count % _MANY_PROGRAMS:
            return
        last = next(reversed(self._cache))
        name = getattr(self.function, "__name__", "function")
        warnings.warn(
            f"{name} is compiled for the {count + 1}th time: {last.difference(key)}",
            RecompileWarning,
            stacklevel=3,
        )

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", "function")
        return f"<tpuc.jit of {name}, programs: {len(self._cache)}>"


@overload
def jit(
    function: Callable[..., object],
    *,
    target: str | Chip | Device = ...,
    precision: str = ...,
    static_argnames: str | Sequence[str] = ...,
    static_argnums: int | Sequence[int] = ...,
    donate_argnums: int | Sequence[int] = ...,
    donate_argnames: str | Sequence[str] = ...,
    in_shardings: object = ...,
    out_shardings: object = ...,
) -> JitFunction: ...


@overload
def jit(
    function: None = None,
    *,
    target: str | Chip | Device = ...,
    precision: str = ...,
    static_argnames: str | Sequence[str] = ...,
    static_argnums: int | Sequence[int] = ...,
    donate_argnums: int | Sequence[int] = ...,
    donate_argnames: str | Sequence[str] = ...,
    in_shardings: object = ...,
    out_shardings: object = ...,
) -> Callable[[Callable[..., object]], JitFunction]: ...


def jit(
    function: Callable[..., object] | None = None,
    *,
    target: str | Chip | Device = DEFAULT_TARGET,
    precision: str = "default",
    static_argnames: str | Sequence[str] = (),
    static_argnums: int | Sequence[int] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    in_shardings: object = None,
    out_shardings: object = None,
) -> JitFunction | Callable[[Callable[..., object]], JitFunction]:
    """Compile NumPy code for the emulated chip: ``@tpuc.jit`` or ``@tpuc.jit(precision=...)``.

    `static_argnames` names arguments, and `static_argnums` counts them, that are values of Python: a
    program is made for each. Arrays of arguments in `donate_argnums` and `donate_argnames` are given
    up, so that results of their shape and type may lie in their place.

    `in_shardings` is a `NamedSharding` for all arguments, or a tuple with one, or a tree of them, for
    each; `out_shardings` the same for the result. None says nothing: an argument then stays as it lies.
    """
    options: dict[str, Any] = {
        "target": target,
        "precision": precision,
        "static_argnames": static_argnames,
        "static_argnums": static_argnums,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "in_shardings": in_shardings,
        "out_shardings": out_shardings,
    }
    if function is None:
        return functools.partial(JitFunction, **options)
    return JitFunction(function, **options)


def _several(given: _Which | Sequence[_Which]) -> Sequence[_Which]:
    return (given,) if isinstance(given, int | str) else given
