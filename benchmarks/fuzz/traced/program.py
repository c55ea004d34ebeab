"""A JAX program that grows a call at a time: what JAX refuses to trace is not added.

Nothing here knows what an operation means. A call is drawn, traced on abstract values, and kept when
JAX takes it, when it is small enough, and when none of its values has a type that is refused (f64).
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr

from benchmarks.fuzz.traced import draw

Spec = jax.ShapeDtypeStruct
Function = Callable[..., Any]

_REFUSED = frozenset({"float64", "complex128"})
_FORBIDDEN = frozenset(
    {"rng_uniform", "infeed", "outfeed", "pure_callback", "io_callback", "debug_callback",
     "debug_print", "create_token", "after_all", "mutable_array", "ref"}
)  # fmt: skip
_MOST_EQUATIONS = 1500
_MOST_CALLS_OF_LINALG = 4


class NotAddedError(Exception):
    """JAX refuses the call, or its values are too large or of a type that is refused."""


@dataclass(frozen=True)
class Step:
    """A call: `function` of the values numbered `arguments`; its results are numbered from `first`."""

    label: str
    function: Function
    arguments: tuple[int, ...]
    first: int


@dataclass
class Program:
    """A function of arrays, made at random. `most` elements an array has at most."""

    rng: random.Random
    most: int
    real: bool = False
    specs: list[Spec] = field(default_factory=list)
    given: dict[int, str] = field(default_factory=dict)
    """Numbers of parameters, in order, and the kind of their values (`benchmarks.fuzz.inputs`)."""
    steps: list[Step] = field(default_factory=list)
    used: set[int] = field(default_factory=set)

    def give(self, dtype: str, dims: Sequence[int], kind: str = "") -> int:
        """A new parameter."""
        self.given[len(self.specs)] = kind or draw.kind(self.rng, dtype)
        self.specs.append(Spec(tuple(dims), jnp.dtype(dtype)))
        return len(self.specs) - 1

    def pick(self, accept: Callable[[Spec], bool] = lambda spec: True) -> int | None:
        """A value there is, later ones and unused ones more often."""
        numbers = [n for n, spec in enumerate(self.specs) if accept(spec)]
        if not numbers:
            return None
        weights = [(1 + n) * (3 if n not in self.used else 1) for n in range(len(numbers))]
        return self.rng.choices(numbers, weights)[0]

    def add(self, label: str, function: Function, arguments: Sequence[int]) -> tuple[int, ...]:
        """Call `function`; the numbers of its results. Raises `NotAddedError`."""
        wrapped = _arrays_of(function)
        specs = [self.specs[n] for n in arguments]
        results = traced(wrapped, specs, self._most_between())
        if not results or any(spec.size > self.most for spec in results):
            raise NotAddedError("no results, or too large")
        first = len(self.specs)
        self.steps.append(Step(label, wrapped, tuple(arguments), first))
        self.used.update(arguments)
        self.specs += results
        return tuple(range(first, len(self.specs)))

    def _most_between(self) -> int:
        return min(4 * self.most, 2**28) if self.real else 16 * self.most

    def results(self) -> list[int]:
        """What nobody used, and some of the rest."""
        made = [n for n in range(len(self.specs)) if n not in self.given]
        last = [n for n in made if n not in self.used][-5:]
        return last + [n for n in made if n in self.used and self.rng.random() < 0.08][:3]

    def function(self, results: Sequence[int]) -> Function:
        """The program as a function of its parameters."""

        def run(*inputs: Any) -> tuple[Any, ...]:
            values = dict(zip(self.given, inputs, strict=True))
            for step in self.steps:
                made = step.function(*(values[n] for n in step.arguments))
                values.update(enumerate(made, step.first))
            return tuple(values[n] for n in results)

        return run


def _arrays_of(function: Function) -> Function:
    """Its results as a flat list, without what is no array of numbers."""

    def run(*arguments: Any) -> list[Any]:
        leaves = jax.tree.leaves(function(*arguments))
        kept = [x for x in leaves if isinstance(x, jax.Array) and not _is_odd(x.dtype)]
        return kept[:6]

    return run


def _is_odd(dtype: Any) -> bool:
    return bool(dtype == jax.dtypes.float0 or jnp.issubdtype(dtype, jax.dtypes.extended))


def traced(function: Function, specs: Sequence[Spec], most: int) -> list[Spec]:
    """What `function` returns. Raises `NotAddedError` for what is not to be added."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            closed = jax.make_jaxpr(function)(*specs)
    except Exception as error:
        raise NotAddedError(str(error)[:200]) from None
    equations = 0
    for jaxpr in _within(closed.jaxpr):
        equations += len(jaxpr.eqns)
        for equation in jaxpr.eqns:
            if equation.primitive.name in _FORBIDDEN or equations > _MOST_EQUATIONS:
                raise NotAddedError(equation.primitive.name)
            for variable in equation.outvars:
                _look(variable.aval, most)
    return [Spec(v.aval.shape, v.aval.dtype) for v in closed.jaxpr.outvars]


def _look(aval: Any, most: int) -> None:
    if getattr(getattr(aval, "dtype", None), "name", "") in _REFUSED:
        raise NotAddedError("a type of 64-bit floats")
    if getattr(aval, "size", 0) > most:
        raise NotAddedError("too large between")


def _within(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The program and what it calls."""
    yield jaxpr
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from _within(inner)
