"""Sorts of one and several operands, and the largest elements."""

from __future__ import annotations

from benchmarks.fuzz import kinds
from benchmarks.fuzz.makers.registry import maker
from benchmarks.fuzz.scope import Scope, Value

_SORTED = tuple(t for t in kinds.ALL if not kinds.is_complex(t))


@maker("sort", weight=1.5)
def sort(scope: Scope) -> Value:
    """By the first operand, in any order; others go with it."""
    rng = scope.rng
    x = scope.pick(_SORTED, least_rank=1, accept=lambda v: v.count <= scope.room(3000))
    along = rng.randrange(x.rank)
    others = [
        scope.like(kinds.dtype(rng), x.dims) if rng.random() < 0.7 else x
        for _ in range(rng.choice((0, 0, 1, 1, 2)))
    ]
    total = kinds.is_float(x.dtype) and (not x.is_tame or rng.random() < 0.5)
    strict = ("LT", "GT")
    direction = rng.choice(strict)
    second = bool(others) and rng.random() < 0.2 and others[0].dtype in kinds.INTEGERS
    apply = _order(scope, [x, *others], direction, total, second)
    names = ", ".join(v.name for v in [x, *others])
    call = f"sort({names}), dimensions={{{along}}}, is_stable=true, to_apply={apply}"
    if not others:
        return scope.add(call, x.dtype, x.dims, x.most)
    name = scope.raw(f"({', '.join(v.shape for v in [x, *others])})", call)
    made = [scope.element(name, i, v.dtype, v.dims, v.most) for i, v in enumerate([x, *others])]
    return rng.choice(made)


def _order(scope: Scope, operands: list[Value], direction: str, total: bool, second: bool) -> str:
    lines = []
    for i, v in enumerate(operands):
        lines.append(f"  a{i} = {v.dtype}[] parameter({2 * i})")
        lines.append(f"  b{i} = {v.dtype}[] parameter({2 * i + 1})")
    order = ", type=TOTALORDER" if total else ""
    if second:
        lines.append(f"  less = pred[] compare(a0, b0), direction={direction}{order}")
        lines.append(f"  more = pred[] compare(b0, a0), direction={direction}{order}")
        lines.append("  apart = pred[] or(less, more)\n  same = pred[] not(apart)")
        lines.append("  next = pred[] compare(a1, b1), direction=GT")
        lines.append("  tie = pred[] and(same, next)\n  ROOT r = pred[] or(less, tie)")
    else:
        lines.append(f"  ROOT r = pred[] compare(a0, b0), direction={direction}{order}")
    name = scope.program.name("order")
    return scope.program.computation(name, "\n".join(lines))


@maker("topk", weight=0.4)
def topk(scope: Scope) -> Value:
    """The largest or smallest of the last dimension, and where they are."""
    rng = scope.rng
    accepted = tuple(t for t in _SORTED if t != "pred")
    x = scope.pick(accepted, least_rank=1, tame=True, accept=lambda v: v.dims[-1] > 0)
    count = rng.randint(0 if rng.random() < 0.05 else min(1, x.dims[-1]), x.dims[-1])
    dims = (*x.dims[:-1], count)
    shape = f"({kinds.text(x.dtype, dims)}, {kinds.text('s32', dims)})"
    largest = rng.choice(("true", "true", "false"))
    name = scope.raw(shape, f"topk({x.name}), k={count}, largest={largest}")
    scope.element(name, 1, "s32", dims)
    return scope.element(name, 0, x.dtype, dims, x.most)
