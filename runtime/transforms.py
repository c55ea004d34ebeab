"""Derivatives of NumPy functions: `tpuc.grad` and its kin.

Used by a function that is being traced (`tpuc.jit`) they become part of it. Called with arrays, what they
return is compiled and runs on the chip by itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from compiler.frontends.numpy import derivatives
from compiler.frontends.numpy.derivatives import Argnums
from compiler.frontends.numpy.tracer import Trace, open_trace
from runtime.jit import JitFunction

Function = Callable[..., Any]


def grad(
    fun: Function, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> JitFunction:
    """The gradient of a function that returns one real scalar.

    It has the arguments of `fun` and returns a tree like argument `argnums` (a tuple of trees for several
    numbers). With `has_aux` `fun` returns a pair, and so does the gradient: ``gradient, aux``. By complex
    arguments it is ``∂/∂x - i ∂/∂y``; `holomorphic` is for functions that are, and return complex numbers.
    Raises `CompileError` for integer arguments, `UnsupportedError` for what has no derivative.
    """
    both = value_and_grad(fun, argnums, has_aux, holomorphic).function

    @functools.wraps(fun)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        found: Any = both(*args, **kwargs)
        return (found[1], found[0][1]) if has_aux else found[1]

    return JitFunction(gradient)


def value_and_grad(
    fun: Function, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> JitFunction:
    """A function that returns ``fun(...), grad(fun)(...)``, computed together; see `grad`.

    With `has_aux`: ``(value, aux), gradient``.
    """

    @functools.wraps(fun)
    def traced(*args: Any, **kwargs: Any) -> Any:
        known = (fun, argnums, has_aux, holomorphic, args, kwargs)
        return _current().run("value_and_grad", derivatives.value_and_grad, known, {})

    return JitFunction(traced)


def vjp(fun: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """``fun(*primals)`` and its pullback: a function from the result's cotangent, a tree like the result,
    to a tuple of the arguments' cotangents. With `has_aux`: ``value, pullback, aux``.

    Outside of a traced function, each call of the pullback computes `fun` again.
    """
    trace = open_trace()
    if trace is not None:
        found: tuple[Any, ...] = trace.run("vjp", derivatives.vjp, (fun, has_aux, primals), {})
        return found

    def again(primals: tuple[Any, ...]) -> tuple[Any, ...]:
        return vjp(fun, *primals, has_aux=has_aux)

    value, *aux = JitFunction(lambda primals: _without_pullback(again(primals)))(primals)
    pull = JitFunction(lambda primals, cotangents: again(primals)[1](cotangents))
    return value, lambda cotangents: pull(primals, cotangents), *aux


def _without_pullback(found: Sequence[Any]) -> tuple[Any, ...]:
    value, _, *aux = found
    return value, *aux


def jvp(
    fun: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> tuple[Any, ...]:
    """``fun(*primals)`` and the tangent of it that belongs to the arguments' `tangents`.

    With `has_aux`: ``value, tangent, aux``. Tangents of integers are zeros, whatever is given.
    """

    def traced(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        return _current().run("jvp", derivatives.jvp, (fun, has_aux, primals, tangents), {})

    found: tuple[Any, ...] = JitFunction(traced)(tuple(primals), tuple(tangents))
    return found


def _current() -> Trace:
    trace = open_trace()
    assert trace is not None, "a JitFunction runs what it wraps in a trace"
    return trace
