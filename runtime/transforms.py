"""Derivatives of NumPy functions: `tpuc.grad` and its kin.

Used by a function that is being traced (`tpuc.jit`) they become part of it. Called with arrays, what they
return is compiled and runs on the chip by itself.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError
from compiler.frontends.numpy import custom_rules, derivatives, jacobians, vectorize
from compiler.frontends.numpy.derivatives import Argnums
from compiler.frontends.numpy.pytree import flatten, unflatten
from compiler.frontends.numpy.tracer import Trace, open_trace
from compiler.hlo.dtypes import from_numpy
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


def vmap(
    fun: Function, in_axes: Any = 0, out_axes: Any = 0, axis_size: int | None = None
) -> JitFunction:
    """`fun` of many examples at once, which lie along `in_axes` of its arguments.

    An axis for all, or a tuple with one for each argument, or trees of them; None for what all examples
    share. Results get their examples along `out_axes`; None for what does not depend on the example.
    Arguments given by name have theirs along the first axis. What has no form for many examples runs for
    one after the other; `UnsupportedError` for what is more than a value (collectives, sends).
    """

    @functools.wraps(fun)
    def traced(*args: Any, **kwargs: Any) -> Any:
        known = (fun, in_axes, out_axes, axis_size, args, kwargs)
        return _current().run("vmap", vectorize.vmap, known, {})

    return JitFunction(traced)


def jacrev(fun: Function, argnums: Argnums = 0) -> JitFunction:
    """The Jacobian by argument `argnums`, in reverse mode: one pass for each element of the result.

    A tree like the result of trees like the argument (of a tuple of them for several numbers), of arrays
    whose first dimensions are the result's, the others the argument's.
    """
    return _of_derivatives(jacobians.jacrev, fun, argnums)


def jacfwd(fun: Function, argnums: Argnums = 0) -> JitFunction:
    """As `jacrev`, in forward mode: one pass for each element of the argument."""
    return _of_derivatives(jacobians.jacfwd, fun, argnums)


jacobian = jacrev


def hessian(fun: Function, argnums: Argnums = 0) -> JitFunction:
    """The second derivatives: the forward-mode Jacobian of the reverse-mode one."""
    return _of_derivatives(jacobians.hessian, fun, argnums)


def _of_derivatives(rule: Callable[..., Any], fun: Function, argnums: Argnums) -> JitFunction:
    @functools.wraps(fun)
    def traced(*args: Any, **kwargs: Any) -> Any:
        return _current().run(rule.__name__, rule, (fun, argnums, args, kwargs), {})

    return JitFunction(traced)


def checkpoint(fun: Function) -> JitFunction:
    """A function whose derivatives keep its arguments alone, and compute what is inside again.

    Takes memory from a backward pass for time. Positional arguments are trees of arrays; keyword arguments
    may be anything.
    """

    @functools.wraps(fun)
    def traced(*args: Any, **kwargs: Any) -> Any:
        return _current().run("checkpoint", custom_rules.checkpoint, (fun, args, kwargs), {})

    return JitFunction(traced)


class _CustomRule:
    """A function with a rule for its derivative; arguments in `nondiff_argnums` are values of Python."""

    def __init__(self, fun: Function, nondiff_argnums: Sequence[int] = ()) -> None:
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.nondiff_argnums = tuple(nondiff_argnums)
        self._signature = inspect.signature(fun)
        self._begun: dict[Hashable, custom_rules.Begun] = {}
        self._alone = JitFunction(fun, static_argnums=self.nondiff_argnums)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the function itself."""
        trace = open_trace()
        if trace is None:
            return self._alone(*args, **kwargs)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        every = list(bound.args)
        known = [every[i] for i in self.nondiff_argnums]
        dynamic = [i for i in range(len(every)) if i not in self.nondiff_argnums]

        def full(function: Function) -> Function:
            def of_all(*given: Any) -> Any:
                mixed = dict(zip(dynamic, given, strict=True))
                return function(*(mixed.get(i, x) for i, x in enumerate(every)))

            return of_all

        return self._apply(trace, full, known, tuple(every[i] for i in dynamic))

    def _apply(
        self,
        trace: Trace,
        full: Callable[[Function], Function],
        known: list[Any],
        args: tuple[Any, ...],
    ) -> Any:
        raise NotImplementedError


class custom_vjp(_CustomRule):  # named and used as in JAX
    """A function with a reverse-mode rule: after ``f.defvjp(fwd, bwd)``, derivatives of `f` call

        result, residuals = fwd(*args)
        cotangents = bwd(*nondiff_args, residuals, cotangent_of_result)   # a tuple, one for each argument

    None stands for a zero cotangent. Forward mode is refused; `custom_jvp` serves both modes.
    """

    _rules: tuple[Function, Function] | None = None

    def defvjp(self, fwd: Function, bwd: Function) -> None:
        """Give the rule."""
        self._rules = fwd, bwd

    def _apply(
        self,
        trace: Trace,
        full: Callable[[Function], Function],
        known: list[Any],
        args: tuple[Any, ...],
    ) -> Any:
        if self._rules is None:
            raise CompileError(
                f"{self.fun.__name__}: custom_vjp has no rule: call defvjp(fwd, bwd)"
            )
        fwd, bwd = self._rules
        begun = self._begun.setdefault(_key(known), custom_rules.Begun())
        given = full(self.fun), full(fwd), functools.partial(bwd, *known), begun, args
        return trace.run("custom_vjp", custom_rules.custom_vjp, given, {})


class custom_jvp(_CustomRule):  # named and used as in JAX
    """A function with a rule for both modes: after ``f.defjvp(rule)``, derivatives of `f` call

        result, tangent = rule(*nondiff_args, primals, tangents)

    with tuples of the other arguments and of their tangents; `tangent` is linear in them.
    """

    _rule: Function | None = None

    def defjvp(self, jvp: Function) -> Function:
        """Give the rule; returns it, so that this may decorate it."""
        self._rule = jvp
        return jvp

    def _apply(
        self,
        trace: Trace,
        full: Callable[[Function], Function],
        known: list[Any],
        args: tuple[Any, ...],
    ) -> Any:
        if self._rule is None:
            raise CompileError(f"{self.fun.__name__}: custom_jvp has no rule: call defjvp(rule)")
        begun = self._begun.setdefault(_key(known), custom_rules.Begun())
        given = full(self.fun), functools.partial(self._rule, *known), begun, args
        return trace.run("custom_jvp", custom_rules.custom_jvp, given, {})


def stop_gradient(x: Any) -> Any:
    """A tree of arrays as it is, of which every derivative is 0."""
    leaves, tree = flatten(x)
    return unflatten(tree, [_held(leaf) if _has_derivative(leaf) else leaf for leaf in leaves])


def _has_derivative(leaf: Any) -> bool:
    if not hasattr(leaf, "dtype"):
        return isinstance(leaf, float | complex)
    kind = from_numpy(leaf.dtype)
    return kind.is_float or kind.is_complex


@custom_jvp
def _held(x: Any) -> Any:
    return x


@_held.defjvp
def _without_tangent(primals: tuple[Any], _: tuple[Any]) -> tuple[Any, Any]:
    return _held(primals[0]), np.zeros_like(primals[0])  # held in derivatives of derivatives, too


def _key(known: Sequence[Any]) -> Hashable:
    """What tells values of Python apart: themselves, or which they are."""
    return tuple(x if isinstance(x, Hashable) else id(x) for x in known)


def _current() -> Trace:
    trace = open_trace()
    assert trace is not None, "a JitFunction runs what it wraps in a trace"
    return trace
