"""Tuples, tokens, barriers, and copies in two halves."""

from __future__ import annotations

from benchmarks.fuzz import kinds
from benchmarks.fuzz.makers.filling import some_of
from benchmarks.fuzz.makers.registry import maker
from benchmarks.fuzz.scope import Scope, Value


@maker("tuple", "get-tuple-element", weight=0.8)
def nested_tuple(scope: Scope) -> Value:
    """A tuple in a tuple, and one element of it."""
    values = some_of(scope)
    inner, shape = scope.tuple(values)
    x = scope.pick()
    outer = scope.raw(f"({x.shape}, {shape})", f"tuple({x.name}, {inner})")
    back = scope.raw(shape, f"get-tuple-element({outer}), index=1")
    i = scope.rng.randrange(len(values))
    return scope.element(back, i, values[i].dtype, values[i].dims, values[i].most)


@maker("constant", weight=0.15)
def tuple_constant(scope: Scope) -> Value:
    """A constant that is a tuple, and one of its arrays."""
    values = [scope.constant(kinds.dtype(scope.rng), scope.dims(most=6)) for _ in range(2)]
    texts = [scope.lines[-2:][i].partition(" constant(")[2].rstrip()[:-1] for i in range(2)]
    name = scope.raw(f"({', '.join(v.shape for v in values)})", f"constant(({', '.join(texts)}))")
    i = scope.rng.randrange(2)
    return scope.element(name, i, values[i].dtype, values[i].dims, values[i].most)


@maker("opt-barrier", weight=0.4)
def barrier(scope: Scope) -> Value:
    """Of an array or a tuple."""
    if scope.rng.random() < 0.5:
        x = scope.pick()
        return scope.add(f"opt-barrier({x.name})", x.dtype, x.dims, x.most)
    values = some_of(scope)
    name, shape = scope.tuple(values)
    behind = scope.raw(shape, f"opt-barrier({name})")
    i = scope.rng.randrange(len(values))
    return scope.element(behind, i, values[i].dtype, values[i].dims, values[i].most)


@maker("after-all", "add-dependency", weight=0.3)
def dependency(scope: Scope) -> Value:
    """A value that waits for a token."""
    token = scope.raw("token[]", "after-all()", "token")
    if scope.rng.random() < 0.4:
        token = scope.raw("token[]", f"after-all({token}, {token})", "token")
    x = scope.pick()
    return scope.add(f"add-dependency({x.name}, {token})", x.dtype, x.dims, x.most)


@maker("copy-start", "copy-done", weight=0.2)
def copy_halves(scope: Scope) -> Value:
    """An asynchronous copy."""
    x = scope.pick()
    started = scope.raw(f"({x.shape}, {x.shape}, u32[])", f"copy-start({x.name})")
    return scope.add(f"copy-done({started})", x.dtype, x.dims, x.most)


@maker("domain", weight=0.15)
def domain(scope: Scope) -> Value:
    """A border of shardings, of one device here."""
    x = scope.pick()
    call = (
        f'domain({x.name}), domain={{kind="sharding", entry={{maximal device=0}}, '
        "exit={maximal device=0}}"
    )
    return scope.add(call, x.dtype, x.dims, x.most)
