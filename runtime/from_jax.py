"""`tpuc.from_jax`: a JAX function compiled for the emulated chip, whatever platform JAX itself is on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from compiler.options import CompileOptions
from runtime.api import DEFAULT_TARGET
from runtime.api import compile as compile_for
from runtime.client import Device
from runtime.executable import Executable
from runtime.report import Report
from tpu_sim.isa.chips import Chip

try:
    import jax
    from jax.extend.core import jaxpr_as_fun
except ImportError as error:
    raise ImportError("tpuc.from_jax needs JAX: pip install tpuc[jax]") from error


class FromJax:
    """A JAX function for arguments of one signature, compiled.

    Call it with such arguments: it returns what the function does, with NumPy arrays in place of JAX's.
    `stablehlo` is what JAX handed over, `executable` what tpuc made of it.
    """

    def __init__(self, executable: Executable, stablehlo: str, trees: tuple[Any, Any]) -> None:
        self.executable = executable
        self.stablehlo = stablehlo
        self._in_tree, self._out_tree = trees

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run on the emulated chip. `TypeError` if the arguments are nested in another way."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != self._in_tree:
            raise TypeError(f"it was compiled for arguments {self._in_tree}, got {tree}")
        types = [shape.dtype.numpy for shape in self.executable.argument_shapes]
        hosts = [_host(leaf, dtype) for leaf, dtype in zip(leaves, types, strict=True)]
        results = self.executable.call(hosts, on_device=False).results
        return jax.tree.unflatten(self._out_tree, results)

    @property
    def report(self) -> Report:
        """What the last call cost; before the first, what a call would cost (`Executable.estimate`)."""
        return self.executable.report or self.executable.estimate()

    def text(self, level: str) -> str:
        """The program as "stablehlo", "hlo" (after passes), "llo" or "tpu" (bundles)."""
        return self.stablehlo if level == "stablehlo" else self.executable.text(level)

    def __repr__(self) -> str:
        return f"<tpuc.from_jax {self.executable!r}>"


def _host(leaf: Any, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """An argument on the host: a Python number as the type that JAX gave it, a key as its words."""
    if not hasattr(leaf, "dtype"):
        return np.asarray(leaf, dtype)
    is_key = jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def from_jax(
    function: Callable[..., object],
    *args: object,
    target: str | Chip | Device = DEFAULT_TARGET,
    options: CompileOptions | None = None,
    **kwargs: object,
) -> FromJax:
    """Compile `function`, jitted or not, for arguments like these.

    Static arguments of a jitted one are given here, and not in calls of the result. The
    others are arrays, `jax.ShapeDtypeStruct` or trees of them. JAX lowers as for a TPU and runs nothing.
    Raises `CompileError` for what tpuc does not compile.
    """
    traced = _traced(function, args, kwargs)
    lowered: Any = traced.flat.lower(lowering_platforms=("tpu",))
    text = str(lowered.as_text("stablehlo"))
    with_lines = str(lowered.as_text("stablehlo", debug_info=True))  # for reports and errors
    executable = compile_for(with_lines, target, options=options)
    return FromJax(executable, text, (traced.in_tree, traced.out_tree))


class _Traced(NamedTuple):
    """A function that JAX traced: of all leaves of its arguments, used or not."""

    flat: Any
    in_tree: Any
    out_tree: Any


def _traced(
    function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> _Traced:
    """Only what jitted a function knows its static arguments, so that is asked to trace it first."""
    given: Any = function if hasattr(function, "trace") else jax.jit(function)
    first: Any = given.trace(*args, **kwargs)
    in_tree, out_tree = map(jax.tree.structure, (first.args_info, first.out_info))
    of_leaves = jaxpr_as_fun(first.jaxpr)

    def flat(*leaves: object) -> object:
        return of_leaves(*leaves)

    flat.__name__ = flat.__qualname__ = first.fun_name
    again: Any = jax.jit(flat, keep_unused=True).trace(*first.jaxpr.in_avals)
    return _Traced(again, in_tree, out_tree)
