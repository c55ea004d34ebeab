"""What makers of nested computations need: other makers, and results of a wanted shape."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.fuzz import kinds
from benchmarks.fuzz.makers.registry import MAKERS, Maker
from benchmarks.fuzz.scope import Scope, Value

DEEPEST = 3


def fill(scope: Scope, count: int, accept: Callable[[Maker], bool] = lambda row: True) -> None:
    """Ask makers of chance, until `count` have given something."""
    rows = [
        row
        for row in MAKERS
        if accept(row)
        and not (row.nested and scope.depth >= DEEPEST)
        and not (row.entry_only and scope.parent is not None)
    ]
    weights = [row.weight for row in rows]
    for _ in range(count):
        scope.rng.choices(rows, weights)[0].make(scope)


def some_of(scope: Scope, most: int = 3) -> list[Value]:
    """A few values of the scope, late ones more often."""
    count = scope.rng.randint(1, most)
    return [scope.pick() for _ in range(count)]


def result_like(scope: Scope, wanted: Value) -> Value:
    """A value of this shape made of what the scope has; floats bounded as `wanted` is."""
    rng = scope.rng
    same = [v for v in scope.values if (v.dtype, v.dims) == (wanted.dtype, wanted.dims)]
    value = same[-1] if same and rng.random() < 0.7 else _turned(scope, wanted)
    if value.most <= wanted.most or not kinds.is_float(value.dtype):
        return value
    return scope.tamed(value) if wanted.most >= 3 else scope.new(wanted.dtype, wanted.dims, "tame")


def _turned(scope: Scope, wanted: Value) -> Value:
    rng = scope.rng
    usable = [v for v in scope.values if v.dtype == wanted.dtype and v.count == wanted.count]
    if usable and rng.random() < 0.7:
        x = rng.choice(usable)
        return scope.add(f"reshape({x.name})", x.dtype, wanted.dims, x.most)
    scalars = [v for v in scope.values if v.dtype == wanted.dtype and v.rank == 0]
    if scalars and rng.random() < 0.5:
        x = rng.choice(scalars)
        return scope.add(f"broadcast({x.name}), dimensions={{}}", x.dtype, wanted.dims, x.most)
    return scope.like(wanted.dtype, wanted.dims)
