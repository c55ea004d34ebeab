"""Collectives of one device: what a program for several has left when compiled for one."""

from __future__ import annotations

from benchmarks.fuzz.makers.reductions import combiner
from benchmarks.fuzz.makers.registry import maker
from benchmarks.fuzz.scope import Scope, Value

_ALONE = "replica_groups={{0}}"


@maker("all-reduce", "all-reduce-start", "all-reduce-done", "collective-reduce", weight=0.2)
def all_reduce(scope: Scope) -> Value:
    """Of one array."""
    x = scope.pick()
    apply, _ = combiner(scope, [x.dtype])
    if scope.rng.random() < 0.3:
        started = scope.add(
            f"all-reduce-start({x.name}), {_ALONE}, to_apply={apply}", x.dtype, x.dims
        )
        scope.values.remove(started)
        return scope.add(f"all-reduce-done({started.name})", x.dtype, x.dims, x.most)
    opcode = scope.rng.choice(("all-reduce", "all-reduce", "collective-reduce"))
    return scope.add(f"{opcode}({x.name}), {_ALONE}, to_apply={apply}", x.dtype, x.dims, x.most)


@maker("all-gather", "all-gather-start", "all-gather-done", "all-to-all", "reduce-scatter",
       weight=0.25)  # fmt: skip
def along_a_dimension(scope: Scope) -> Value:
    """Groups of one: nothing moves."""
    x = scope.pick(least_rank=1)
    along = scope.rng.randrange(x.rank)
    opcode = scope.rng.choice(("all-gather", "all-gather-start", "all-to-all", "reduce-scatter"))
    more = f"{_ALONE}, dimensions={{{along}}}"
    if opcode == "all-gather-start":
        started = scope.raw(f"({x.shape}, {x.shape})", f"{opcode}({x.name}), {more}")
        return scope.add(f"all-gather-done({started})", x.dtype, x.dims, x.most)
    if opcode == "reduce-scatter":
        more += f", to_apply={combiner(scope, [x.dtype])[0]}"
    return scope.add(f"{opcode}({x.name}), {more}", x.dtype, x.dims, x.most)


@maker("collective-permute", "collective-permute-start", "collective-permute-done",
       "collective-broadcast", weight=0.2)  # fmt: skip
def permute(scope: Scope) -> Value:
    """To itself."""
    x = scope.pick()
    draw = scope.rng.random()
    if draw < 0.3:
        return scope.add(f"collective-broadcast({x.name}), {_ALONE}", x.dtype, x.dims, x.most)
    pairs = "source_target_pairs={{0,0}}"
    if draw < 0.7:
        return scope.add(f"collective-permute({x.name}), {pairs}", x.dtype, x.dims, x.most)
    shape = f"({x.shape}, {x.shape}, u32[], u32[])"
    started = scope.raw(shape, f"collective-permute-start({x.name}), {pairs}")
    return scope.add(f"collective-permute-done({started})", x.dtype, x.dims, x.most)


@maker("all-reduce", "all-gather", "all-to-all", "collective-permute", weight=0.15)
def of_several(scope: Scope) -> Value:
    """Two operands at once, which gives a tuple."""
    rng = scope.rng
    x = scope.pick(least_rank=1)
    y = scope.like(x.dtype, x.dims)
    opcode = rng.choice(("all-reduce", "all-gather", "all-to-all"))
    more = f"{_ALONE}"
    if opcode == "all-reduce":
        more += f", to_apply={combiner(scope, [x.dtype])[0]}"
    if opcode == "all-gather":
        more += f", dimensions={{{rng.randrange(x.rank)}}}"
    count = 1 if opcode == "all-to-all" else 2
    names = ", ".join((x.name, y.name)[:count])
    name = scope.raw(f"({', '.join([x.shape] * count)})", f"{opcode}({names}), {more}")
    return scope.element(name, rng.randrange(count), x.dtype, x.dims, max(x.most, y.most))


@maker("partition-id", "replica-id", weight=0.15)
def device(scope: Scope) -> Value:
    """Zero, on one device."""
    opcode = scope.rng.choice(("partition-id", "replica-id"))
    return scope.add(f"{opcode}()", "u32", (), 0.0)
