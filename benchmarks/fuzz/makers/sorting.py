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
    count = rng.choice((0, 0, 1, 1, 2))
    if x.count <= scope.room(300) and rng.random() < 0.06:
        count = rng.randint(6, 32)  # more than a kernel reads or gives
    others = [
        scope.like(kinds.dtype(rng), x.dims) if rng.random() < 0.7 else x for _ in range(count)
    ]
    total = kinds.is_float(x.dtype) and (not _is_of_numbers(x) or rng.random() < 0.5)
    strict = ("LT", "GT")
    direction = rng.choice(strict)
    second = bool(others) and rng.random() < 0.2 and others[0].dtype in kinds.INTEGERS
    apply = _order(scope, [x, *others], direction, total, second)
    if rng.random() < 0.4:
        apply = _usual_order(scope, [x, *others], direction)
    odd = _odd_order(scope, [x, *others], direction) if rng.random() < 0.15 else ""
    apply = odd or apply
    names = ", ".join(v.name for v in [x, *others])
    stable = ", is_stable=true"
    if (
        not others
        and not odd
        and kinds.is_integer(x.dtype)
        and "abs(" not in scope.program.computations[apply]
    ):
        stable = rng.choice((stable, ", is_stable=false", ""))  # equal elements look alike
    call = f"sort({names}), dimensions={{{along}}}{stable}, to_apply={apply}"
    if not others:
        return scope.add(call, x.dtype, x.dims, x.most)
    name = scope.raw(f"({', '.join(v.shape for v in [x, *others])})", call)
    made = [scope.element(name, i, v.dtype, v.dims, v.most) for i, v in enumerate([x, *others])]
    return rng.choice(made)


def _is_of_numbers(x: Value) -> bool:
    """Whether there is no NaN, which has no place in an order: bounds of what is known do not say."""
    return x.name.rpartition("_")[2] in ("tame", "whole", "positive")


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


def _usual_order(scope: Scope, operands: list[Value], direction: str) -> str:
    """As frameworks write it: zeros alike, all NaN alike and last, ties by further keys; or by a
    function of the key."""
    rng = scope.rng
    lines = []
    for i, v in enumerate(operands):
        lines.append(f"  a{i} = {v.dtype}[] parameter({2 * i})")
        lines.append(f"  b{i} = {v.dtype}[] parameter({2 * i + 1})")
    sortable = [i for i, v in enumerate(operands) if not kinds.is_complex(v.dtype)]
    count = rng.randint(1, len(sortable)) if sortable[0] == 0 else 1
    by_size = operands[0].dtype in ("f32", "s32", "bf16", "f16", "s16", "s8") and rng.random() < 0.3
    result = ""
    for i in reversed(sortable[:count]):
        dtype = operands[i].dtype
        names = [_key(lines, f"{side}{i}", dtype, by_size and i == 0) for side in "ab"]
        order = ", type=TOTALORDER" if kinds.is_float(dtype) else ""
        lines.append(f"  lt{i} = pred[] compare({', '.join(names)}), direction={direction}{order}")
        if not result:
            result = f"lt{i}"
            continue
        lines.append(f"  eq{i} = pred[] compare({', '.join(names)}), direction=EQ{order}")
        lines.append(f"  next{i} = pred[] and(eq{i}, {result})")
        lines.append(f"  or{i} = pred[] or(lt{i}, next{i})")
        result = f"or{i}"
    lines.append(f"  ROOT r = pred[] and({result}, {result})")
    return scope.program.computation(scope.program.name("order"), "\n".join(lines))


def _odd_order(scope: Scope, operands: list[Value], direction: str) -> str:
    """By a number that is made of an element: some of its bits, a remainder, another operand."""
    rng = scope.rng
    lines = []
    for i, v in enumerate(operands):
        lines.append(f"  a{i} = {v.dtype}[] parameter({2 * i})")
        lines.append(f"  b{i} = {v.dtype}[] parameter({2 * i + 1})")
    whole = [i for i, v in enumerate(operands) if kinds.is_integer(v.dtype)]
    floats = [i for i, v in enumerate(operands) if v.dtype in ("f32", "bf16", "f16")]
    if whole:
        at = rng.choice(whole)
        t = operands[at].dtype
        opcode = rng.choice(("and", "remainder", "xor", "shift-right-logical"))
        lines.append(f"  n = {t}[] constant(1)\n  p = {t}[] {opcode}(a{at}, n)")
        lines.append(f"  q = {t}[] {opcode}(b{at}, n)")
    elif floats:
        at = rng.choice(floats)
        t = "s32" if operands[at].dtype == "f32" else "s16"
        lines.append(f"  p = {t}[] bitcast-convert(a{at})\n  q = {t}[] bitcast-convert(b{at})")
    else:
        return ""
    lines.append(f"  ROOT r = pred[] compare(p, q), direction={direction}")
    return scope.program.computation(scope.program.name("order"), "\n".join(lines))


def _key(lines: list[str], name: str, dtype: str, by_size: bool) -> str:
    """What is compared of an operand; its lines."""
    if by_size:
        lines.append(f"  {name}_size = {dtype}[] abs({name})")
        name = f"{name}_size"
    if not kinds.has_zero(dtype) or not kinds.has_nan(dtype):
        return name
    lines += [
        f"  {name}_o = {dtype}[] constant(0)",
        f"  {name}_z = pred[] compare({name}, {name}_o), direction=EQ",
        f"  {name}_p = {dtype}[] select({name}_z, {name}_o, {name})",
        f"  {name}_n = pred[] compare({name}, {name}), direction=NE",
        f"  {name}_q = {dtype}[] constant(nan)",
        f"  {name}_k = {dtype}[] select({name}_n, {name}_q, {name}_p)",
    ]
    return f"{name}_k"


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
