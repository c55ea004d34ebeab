"""Loops and branches of traced functions (`tpuc.lax`): run by the chip instead of unrolled by Python.

Called in a function that is being traced, they become instructions of it. Called with arrays
outside of one, they are compiled and run on their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from compiler.frontends.numpy import control
from compiler.frontends.numpy.tracer import Rule
from runtime.rules import apply_rule

_KEPT = 128
"""Functions whose form without a carry is kept: more than a program's loops have."""

Function = Callable[..., object]


def while_loop(cond_fun: Function, body_fun: Function, init_val: Any) -> Any:
    """``while cond_fun(val): val = body_fun(val)``; the last `val`, a tree like `init_val`.

    Shapes and element types of `val` stay the same; CompileError says which leaf does not.
    """
    return _apply(control.while_loop, (cond_fun, body_fun), (init_val,))


def fori_loop(lower: Any, upper: Any, body_fun: Function, init_val: Any) -> Any:
    """``for i in range(lower, upper): val = body_fun(i, val)``; the last `val`.

    The number of steps of bounds that are Python integers is known to the compiler.
    """
    if isinstance(lower, int) and isinstance(upper, int):
        return _apply(control.fori_loop, (body_fun, lower, upper), (init_val,))
    return _apply(control.fori_loop, (body_fun,), (lower, upper, init_val))


def scan(
    f: Function, init: Any, xs: Any = None, length: int | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    """``carry, y = f(carry, x)`` for each slice of `xs` along first axes: the last carry, and all `y`
    stacked along a new first axis.

    `xs` is a tree of arrays with first axes of one length, or None with `length` given. With
    `reverse` the last slice comes first; each `y` still lies where its `x` did.
    """
    carry, ys = _apply(control.scan, (f, length, reverse), (init, xs))
    return carry, ys


def map(f: Function, xs: Any) -> Any:
    """`f` of each slice of `xs` along first axes, one after the other, stacked."""
    return scan(_without_carry(f), None, xs)[1]


def cond(pred: Any, true_fun: Function, false_fun: Function, *operands: Any) -> Any:
    """``true_fun(*operands)`` if the scalar `pred` holds, else ``false_fun(*operands)``.

    Both are compiled and one runs; their results are trees of one form, shapes and types.
    """
    return _apply(control.cond, (true_fun, false_fun), (pred, *operands))


def switch(index: Any, branches: Sequence[Function], *operands: Any) -> Any:
    """``branches[index](*operands)`` for a scalar integer, clamped into the branches there are."""
    return _apply(control.switch, (tuple(branches),), (index, *operands))


def _apply(rule: Rule, known: tuple[object, ...], operands: tuple[object, ...]) -> Any:
    return apply_rule("lax", rule, known, operands)


@functools.lru_cache(_KEPT)
def _without_carry(f: Function) -> Function:
    return lambda _, x: (None, f(x))
