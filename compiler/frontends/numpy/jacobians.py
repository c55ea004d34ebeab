"""Jacobians: the pullback or the tangent of every unit vector, batched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.autodiff.values import has_derivative
from compiler.diagnostics import CompileError
from compiler.frontends.numpy import derivatives, vectorize
from compiler.frontends.numpy.derivatives import Argnums, argument_numbers, of_chosen
from compiler.frontends.numpy.ops import as_tracer, reshape, transpose
from compiler.frontends.numpy.pytree import flatten, unflatten
from compiler.frontends.numpy.tracer import Trace, Tracer, open_trace

Function = Callable[..., Any]


def jacrev(
    trace: Trace,
    function: Function,
    argnums: Argnums,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The Jacobian, a row for each element of the result: reverse mode."""
    numbers = argument_numbers(argnums, len(args))
    chosen = tuple(args[i] for i in numbers)
    reduced = of_chosen(function, numbers, args, kwargs)
    value, _ = derivatives.vjp(trace, reduced, False, chosen)
    outputs, out_tree = _leaves(trace, value), flatten(value)[1]
    for x in (*_leaves(trace, chosen), *outputs):
        _expect_real("jacrev", x)

    def pulled(number: int, unit: Any) -> Any:
        seeds = [np.zeros(y.shape, y.dtype) for y in outputs]
        seeds[number] = unit
        _, pull = derivatives.vjp(_current(), reduced, False, chosen)
        return pull(unflatten(out_tree, seeds))

    rows = []
    for number, y in enumerate(outputs):
        found = _of_units(trace, lambda unit, n=number: pulled(n, unit), y)
        mine = found[0] if isinstance(argnums, int) else found
        shaped = [reshape(x, (*y.shape, *x.shape[1:])) for x in _leaves(trace, mine)]
        rows.append(unflatten(flatten(mine)[1], shaped))
    return unflatten(out_tree, rows)


def jacfwd(
    trace: Trace,
    function: Function,
    argnums: Argnums,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The Jacobian, a column for each element of the arguments: forward mode."""
    numbers = argument_numbers(argnums, len(args))
    chosen = tuple(args[i] for i in numbers)
    reduced = of_chosen(function, numbers, args, kwargs)
    primals, in_tree = _leaves(trace, chosen), flatten(chosen)[1]

    def moved(number: int, unit: Any) -> Any:
        tangents = [np.zeros(x.shape, x.dtype) for x in primals]
        tangents[number] = unit
        changes = unflatten(in_tree, tangents)
        assert isinstance(changes, tuple), "as `chosen` is"
        return derivatives.jvp(_current(), reduced, False, chosen, changes)[1]

    columns, out_tree = [], None
    for number, x in enumerate(primals):
        _expect_real("jacfwd", x)
        found = _of_units(trace, lambda unit, n=number: moved(n, unit), x)
        out_tree = flatten(found)[1]
        columns.append([_column_last(y, x) for y in _leaves(trace, found)])
    assert out_tree is not None
    parts = []
    for k in range(out_tree.leaf_count):
        tree = unflatten(in_tree, [column[k] for column in columns])
        assert isinstance(tree, tuple)
        parts.append(tree[0] if isinstance(argnums, int) else tree)
    return unflatten(out_tree, parts)


def hessian(
    trace: Trace,
    function: Function,
    argnums: Argnums,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Second derivatives: forward mode over reverse mode."""

    def first(*args: Any, **kwargs: Any) -> Any:
        return jacrev(_current(), function, argnums, args, kwargs)

    return jacfwd(trace, first, argnums, args, kwargs)


def _current() -> Trace:
    trace = open_trace()
    assert trace is not None
    return trace


def _leaves(trace: Trace, tree: Any) -> list[Tracer]:
    return [as_tracer(trace, leaf) for leaf in flatten(tree)[0]]


def _expect_real(name: str, x: Any) -> None:
    if not has_derivative(x.instr.shape) or x.dtype.kind == "c":
        raise CompileError(f"{name}: {x!r}; want real floating-point arguments and results")


def _of_units(trace: Trace, function: Function, like: Tracer) -> Any:
    """A function of each array like `like` that is 1 in one place and 0 elsewhere."""
    units = np.eye(like.size, dtype=np.float32).astype(like.dtype).reshape(like.size, *like.shape)
    return vectorize.vmap(trace, function, 0, 0, like.size, (as_tracer(trace, units),), {})


def _column_last(y: Tracer, x: Tracer) -> Tracer:
    """The batch of x's elements behind the dimensions of the result."""
    moved = transpose(y, (*range(1, y.ndim), 0))
    return reshape(moved, (*y.shape[1:], *x.shape))
