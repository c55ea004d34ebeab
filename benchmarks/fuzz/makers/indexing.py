"""Opcodes whose indices are data: dynamic slices and updates, gather, scatter."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.fuzz import kinds
from benchmarks.fuzz.makers.movement import listed
from benchmarks.fuzz.makers.reductions import combiner
from benchmarks.fuzz.makers.registry import maker
from benchmarks.fuzz.scope import Scope, Value


def _starts(scope: Scope, rank: int) -> str:
    """Scalars of one integer type, some of them outside, some constant."""
    dtype = kinds.dtype(scope.rng, kinds.INDICES)
    names = []
    if scope.rng.random() < 0.05 and rank > 1:  # the older form: one array
        return f", {scope.like(dtype, (rank,), 'index').name}"
    for _ in range(rank):
        draw = scope.rng.random()
        if draw < 0.3:
            names.append(scope.constant(dtype, (), str(scope.rng.randint(0, 9))).name)
        elif draw < 0.5:
            names.append(scope.like(dtype, ()).name)
        else:
            names.append(scope.like(dtype, (), "index", fresh=0.3).name)
    return "".join(f", {name}" for name in names)


def _part(scope: Scope, dims: tuple[int, ...]) -> tuple[int, ...]:
    rng = scope.rng
    return tuple(
        rng.choice((n, n, 1, max(n - 1, 0), n // 2, rng.randint(0, n))) if n else 0 for n in dims
    )


@maker("dynamic-slice", weight=1.5)
def dynamic_slice(scope: Scope) -> Value:
    """A window at indices known at run time."""
    x = scope.pick(least_rank=1)
    dims = _part(scope, x.dims)
    call = (
        f"dynamic-slice({x.name}{_starts(scope, x.rank)}), dynamic_slice_sizes={{{listed(dims)}}}"
    )
    return scope.add(call, x.dtype, dims, x.most)


@maker("dynamic-update-slice", weight=1.5)
def dynamic_update_slice(scope: Scope) -> Value:
    """Overwrite such a window."""
    x = scope.pick(least_rank=1)
    update = scope.like(x.dtype, _part(scope, x.dims))
    call = f"dynamic-update-slice({x.name}, {update.name}{_starts(scope, x.rank)})"
    return scope.add(call, x.dtype, x.dims, max(x.most, update.most))


@dataclass(frozen=True)
class _Roles:
    """How the dimensions of an operand and of its indices take part; all lists of numbers."""

    indexed: list[int]  # operand dimensions that the index vector addresses, in its order
    dropped: list[int]  # collapsed or inserted
    batching: list[int]  # operand batching dimensions
    index_dims: tuple[int, ...]  # the index array
    vector_dim: int
    index_batching: list[int]  # batching dimensions of the indices


def _roles(scope: Scope, x: Value) -> _Roles:
    rng = scope.rng
    order = rng.sample(range(x.rank), x.rank)
    batching = []
    if x.rank > 1 and rng.random() < 0.25:
        batching = order[: rng.choice((1, 1, 2))]
        batching = [d for d in batching if x.dims[d] <= 64][: x.rank - 1]
    rest = [d for d in order if d not in batching]
    indexed = rest[: rng.randint(0 if rng.random() < 0.05 else 1, len(rest))]
    dropped = [d for d in rest if rng.random() < 0.5]
    free = list(kinds.dims(rng, 40, 0, 2))
    sizes = [(n, None) for n in free] + [(x.dims[d], d) for d in batching]
    rng.shuffle(sizes)
    index_dims = [n for n, _ in sizes]
    implicit = len(indexed) == 1 and rng.random() < 0.3
    vector_dim = len(index_dims) if implicit else rng.randint(0, len(index_dims))
    if not implicit:
        index_dims.insert(vector_dim, len(indexed))
    places = {d: i for i, (_, d) in enumerate(sizes) if d is not None}
    at = [i + (not implicit and i >= vector_dim) for i in (places[d] for d in batching)]
    return _Roles(indexed, sorted(dropped), batching, tuple(index_dims), vector_dim, at)


def _indices(scope: Scope, roles: _Roles) -> Value:
    dtype = kinds.dtype(scope.rng, kinds.INDICES)
    kind = "any" if scope.rng.random() < 0.15 else "index"
    if scope.rng.random() < 0.15 and math.prod(roles.index_dims) <= 24:
        return scope.constant(dtype, roles.index_dims)
    return scope.like(dtype, roles.index_dims, kind, fresh=0.5)


def _batching(roles: _Roles, operand_word: str, index_word: str) -> str:
    if not roles.batching:
        return ""
    pairs = sorted(zip(roles.batching, roles.index_batching, strict=True))
    return (
        f", {operand_word}={{{listed(d for d, _ in pairs)}}}"
        f", {index_word}={{{listed(i for _, i in pairs)}}}"
    )


@maker("gather", weight=2)
def gather(scope: Scope) -> Value | None:
    """All forms of dimension numbers."""
    rng = scope.rng
    x = scope.pick(least_rank=1, accept=lambda v: 0 not in v.dims)
    if 0 in x.dims:
        return None
    roles = _roles(scope, x)
    gone = {*roles.dropped, *roles.batching}
    sizes = [
        1 if d in gone else rng.choice((n, n, 1, max(1, n - 1), max(1, n // 2)))
        for d, n in enumerate(x.dims)
    ]
    kept = [s for d, s in enumerate(sizes) if d not in gone]
    batch = [n for i, n in enumerate(roles.index_dims) if i != roles.vector_dim]
    rank = len(kept) + len(batch)
    if rank > 8 or math.prod(kept) * math.prod(batch) > 3 * scope.program.most_elements:
        return None
    offsets = sorted(rng.sample(range(rank), len(kept)))
    a, b = iter(kept), iter(batch)
    dims = [next(a) if d in offsets else next(b) for d in range(rank)]
    indices = _indices(scope, roles)
    call = (
        f"gather({x.name}, {indices.name}), offset_dims={{{listed(offsets)}}}, "
        f"collapsed_slice_dims={{{listed(d for d in roles.dropped)}}}, "
        f"start_index_map={{{listed(roles.indexed)}}}"
        f"{_batching(roles, 'operand_batching_dims', 'start_indices_batching_dims')}, "
        f"index_vector_dim={roles.vector_dim}, slice_sizes={{{listed(sizes)}}}"
    )
    if rng.random() < 0.2 and _is_sorted_ok(indices):
        call += ", indices_are_sorted=true"
    return scope.add(call, x.dtype, dims, x.most)


def _is_sorted_ok(indices: Value) -> bool:
    """Claims about indices must be true: one index is sorted."""
    return indices.count <= 1


@maker("scatter", weight=2.5)
def scatter(scope: Scope) -> Value | None:
    """All forms of dimension numbers, several operands, any combiner."""
    rng = scope.rng
    x = scope.pick(least_rank=1, tame=rng.random() < 0.7, accept=lambda v: 0 not in v.dims)
    if 0 in x.dims:
        return None
    roles = _roles(scope, x)
    gone = {*roles.dropped, *roles.batching}
    kept = [
        n if rng.random() < 0.5 else rng.choice((1, max(1, n - 1), max(1, n // 2)))
        for d, n in enumerate(x.dims)
        if d not in gone
    ]
    batch = [n for i, n in enumerate(roles.index_dims) if i != roles.vector_dim]
    rank = len(kept) + len(batch)
    if rank > 8 or math.prod(kept) * math.prod(batch) > 3 * scope.program.most_elements:
        return None
    window = sorted(rng.sample(range(rank), len(kept)))
    a, b = iter(kept), iter(batch)
    dims = [next(a) if d in window else next(b) for d in range(rank)]
    operands = [x]
    if rng.random() < 0.12:
        operands += [
            scope.like(kinds.dtype(rng, ("f32", "s32", "s8", "bf16")), x.dims)
            for _ in range(rng.choice((1, 1, 2)))
        ]
    updates = [_update(scope, v, dims) for v in operands]
    indices = _indices(scope, roles)
    apply, growth = combiner(scope, [v.dtype for v in operands], for_scatter=True)
    names = ", ".join([v.name for v in operands] + [indices.name] + [v.name for v in updates])
    call = (
        f"scatter({names}), update_window_dims={{{listed(window)}}}, "
        f"inserted_window_dims={{{listed(roles.dropped)}}}, "
        f"scatter_dims_to_operand_dims={{{listed(roles.indexed)}}}"
        f"{_batching(roles, 'input_batching_dims', 'scatter_indices_batching_dims')}, "
        f"index_vector_dim={roles.vector_dim}, to_apply={apply}"
    )
    if indices.count <= 1 and not _is_of_several(batch) and rng.random() < 0.3:
        call += ", unique_indices=true, indices_are_sorted=true"
    count = max(1, math.prod(batch))
    most = [
        max(v.most, u.most) * (count + 1 if growth else 1)
        for v, u in zip(operands, updates, strict=True)
    ]
    if len(operands) == 1:
        return scope.add(call, x.dtype, x.dims, most[0])
    name = scope.raw(f"({', '.join(v.shape for v in operands)})", call)
    results = [scope.element(name, i, v.dtype, v.dims, most[i]) for i, v in enumerate(operands)]
    return results[-1]


def _is_of_several(batch: list[int]) -> bool:
    """Whether there are several updates: claims about indices must be true."""
    return math.prod(batch) > 1


def _update(scope: Scope, x: Value, dims: list[int]) -> Value:
    """Updates: an array, or one constant for all."""
    if scope.rng.random() < 0.15:
        one = scope.constant(x.dtype)
        call = f"broadcast({one.name}), dimensions={{}}"
        return scope.add(call, x.dtype, dims, one.most)
    kind = scope.tame_kind(x.dtype) if x.is_tame and x.dtype != "pred" else ""
    return scope.like(x.dtype, dims, kind)
