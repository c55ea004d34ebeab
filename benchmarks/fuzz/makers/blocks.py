"""What models are built of: statistics of rows, normalisations, attention.

The compiler makes one kernel, or stages that share registers, of such neighbours; makers of single
operations seldom put them side by side.
"""

from __future__ import annotations

import math

from benchmarks.fuzz.makers.movement import listed
from benchmarks.fuzz.makers.reductions import GROWS, options
from benchmarks.fuzz.makers.registry import maker
from benchmarks.fuzz.scope import Scope, Value

_ROW_TYPES = ("f32", "f32", "bf16", "f16", "s32", "s8", "u8", "s16")
_STATISTIC_TYPES = ("f32", "pred", "s32", "bf16", "u8", "s8", "u16", "f16")
_SCORE_TYPES = ("f32", "f32", "bf16", "f16")


def _reduced(scope: Scope, x: Value, over: list[int], opcode: str, start: Value) -> Value:
    apply = scope.program.pair(opcode, x.dtype)
    dims = [n for d, n in enumerate(x.dims) if d not in over]
    count = math.prod(x.dims[d] for d in over) + 1
    most = max(x.most, start.most) * (count if opcode in GROWS else 1)
    call = f"reduce({x.name}, {start.name}), dimensions={{{listed(over)}}}, to_apply={apply}"
    return scope.add(call, x.dtype, dims, most)


def _spread(scope: Scope, row: Value, dims: tuple[int, ...], over: list[int]) -> Value:
    """A row's value at each of its elements."""
    kept = [d for d in range(len(dims)) if d not in over]
    call = f"broadcast({row.name}), dimensions={{{listed(kept)}}}"
    return scope.add(call, row.dtype, dims, row.most)


def _converted(scope: Scope, x: Value, dtype: str) -> Value:
    if x.dtype == dtype:
        return x
    if dtype == "pred":
        y = scope.like(x.dtype, x.dims)
        direction = scope.rng.choice(("EQ", "NE", "LT", "GE"))
        return scope.add(f"compare({x.name}, {y.name}), direction={direction}", "pred", x.dims, 1)
    return scope.add(f"convert({x.name})", dtype, x.dims, x.most)


def _either(scope: Scope, a: Value, b: Value) -> Value:
    """Two values of one shape in one."""
    if a.dtype == "pred":
        return scope.add(f"select({a.name}, {b.name}, {b.name})", b.dtype, b.dims, b.most)
    b = _converted(scope, b, a.dtype) if b.dtype != "pred" else b
    if b.dtype == "pred":
        other = scope.add(f"negate({a.name})", a.dtype, a.dims, a.most)
        call = f"select({b.name}, {a.name}, {other.name})"
        return scope.add(call, a.dtype, a.dims, a.most)
    opcode = scope.rng.choice(("add", "subtract", "maximum"))
    return scope.add(f"{opcode}({a.name}, {b.name})", a.dtype, a.dims, a.most + b.most)


@maker("reduce", "broadcast", "select", "compare", weight=0.7)
def statistics(scope: Scope) -> Value | None:
    """Two to four reductions of one array in several types, each perhaps of what the last one left."""
    rng = scope.rng
    x = scope.pick(_ROW_TYPES, least_rank=1, tame=True, accept=lambda v: 0 not in v.dims)
    over = (
        [x.rank - 1]
        if rng.random() < 0.7
        else sorted(rng.sample(range(x.rank), rng.randint(1, x.rank)))
    )
    rows: list[Value] = []
    current = x
    for _ in range(rng.randint(2, 4)):
        made = _converted(scope, current, rng.choice(_STATISTIC_TYPES))
        usable = [o for o in options(made.dtype) if o != "multiply"]
        start = (
            scope.zero(made.dtype) if made.dtype != "pred" else scope.constant("pred", (), "false")
        )
        rows.append(_reduced(scope, made, over, rng.choice(usable), start))
        if rng.random() < 0.4 and rows[-1].dtype != "pred":
            spread = _spread(scope, rows[-1], x.dims, over)
            current = scope.tamed(_either(scope, current, spread))
    total = rows[-1]
    for row in rows[:-1]:
        total = _either(scope, total, row)
    if rng.random() < 0.5:
        spread = _spread(scope, total, x.dims, over)
        return _either(scope, x, spread)
    return total


def _masked(scope: Scope, scores: Value) -> Value:
    """Scores with those of a mask at the least number, or as they are."""
    rng, dims = scope.rng, scores.dims
    draw = rng.random()
    if draw < 0.4:
        return scores
    if draw < 0.8:
        rows, cols = (
            scope.add(f"iota(), iota_dimension={d}", "s32", dims)
            for d in (len(dims) - 2, len(dims) - 1)
        )
        direction = rng.choice(("GE", "GE", "GT", "LE", "NE"))
        mask = scope.add(
            f"compare({rows.name}, {cols.name}), direction={direction}", "pred", dims, 1
        )
    else:
        mask = scope.like("pred", dims)
    text = rng.choice(("-1e30", "-inf", "-10000")) if scores.dtype != "f16" else "-60000"
    low = scope.constant(scores.dtype, (), text)
    lows = scope.add(f"broadcast({low.name}), dimensions={{}}", scores.dtype, dims)
    call = f"select({mask.name}, {scores.name}, {lows.name})"
    return scope.add(call, scores.dtype, dims)


def _softmax(scope: Scope, x: Value) -> Value:
    """Of the last dimension, with the greatest subtracted or not, divided or multiplied."""
    rng, over = scope.rng, [x.rank - 1]
    if rng.random() < 0.8:
        low = scope.constant(x.dtype, (), "-inf" if rng.random() < 0.8 else "0")
        most = _spread(scope, _reduced(scope, x, over, "maximum", low), x.dims, over)
        x = scope.add(f"subtract({x.name}, {most.name})", x.dtype, x.dims)
    else:
        x = scope.tamed(x)
    powers = scope.add(f"exponential({x.name})", x.dtype, x.dims)
    sums = _reduced(scope, powers, over, "add", scope.zero(x.dtype))
    if rng.random() < 0.3:
        one = scope.constant(x.dtype, (), "1")
        ones = scope.add(f"broadcast({one.name}), dimensions={{}}", x.dtype, sums.dims)
        sums = scope.add(f"divide({ones.name}, {sums.name})", x.dtype, sums.dims)
    opcode = "divide" if rng.random() < 0.7 else "multiply"
    spread = _spread(scope, sums, x.dims, over)
    return scope.add(f"{opcode}({powers.name}, {spread.name})", x.dtype, x.dims)


def _product(x: Value, y: Value, over: int) -> str:
    """The last dimension of `x` with dimension `over` of `y`; those before the last two are batched."""
    n = listed(range(x.rank - 2))
    batch = f"lhs_batch_dims={{{n}}}, rhs_batch_dims={{{n}}}, " if n else ""
    dims = f"lhs_contracting_dims={{{x.rank - 1}}}, rhs_contracting_dims={{{over}}}"
    return f"dot({x.name}, {y.name}), {batch}{dims}"


@maker("dot", "exponential", "reduce", "select", weight=0.5)
def attention(scope: Scope) -> Value | None:
    """Products of queries and keys, a softmax of each row, products with values."""
    rng = scope.rng
    q = scope.pick(
        _SCORE_TYPES, least_rank=2, most_rank=4, tame=True, accept=lambda v: 0 not in v.dims
    )
    *batch, rows, depth = q.dims
    keys, width = scope.size(), scope.size()
    sizes = [math.prod(batch) * n for n in (rows * keys, keys * depth, keys * width, rows * width)]
    if 0 in sizes or max(sizes) > scope.program.most_elements:
        return None
    kind = scope.tame_kind(q.dtype)
    k = scope.like(q.dtype, (*batch, keys, depth), kind)
    v = scope.like(q.dtype, (*batch, keys, width), kind)
    n = len(batch)
    made = rng.choice((q.dtype, "f32"))
    scores = scope.add(_product(q, k, n + 1), made, (*batch, rows, keys))
    if rng.random() < 0.6:
        scale = scope.constant(made, (), rng.choice(("0.125", "0.25", "0.0625")))
        scales = scope.add(f"broadcast({scale.name}), dimensions={{}}", made, scores.dims)
        scores = scope.add(f"multiply({scores.name}, {scales.name})", made, scores.dims)
    weights = _converted(scope, _softmax(scope, _masked(scope, scores)), q.dtype)
    made = rng.choice((q.dtype, "f32"))
    return scope.add(_product(weights, v, n), made, (*batch, rows, width))


@maker("reduce", "rsqrt", weight=0.4)
def normalised(scope: Scope) -> Value:
    """Rows, or columns, of mean 0 and deviation 1, perhaps scaled."""
    rng = scope.rng
    x = scope.pick(_SCORE_TYPES, least_rank=1, tame=True, accept=lambda v: 0 not in v.dims)
    over = (
        [x.rank - 1]
        if rng.random() < 0.6
        else sorted(rng.sample(range(x.rank), rng.randint(1, x.rank)))
    )
    wide = _converted(scope, x, "f32")
    zero = scope.zero("f32")
    share = scope.constant("f32", (), f"{1 / math.prod(x.dims[d] for d in over):.9g}")
    centred = _less_mean(scope, wide, over, zero, share)
    squares = scope.add(f"multiply({centred.name}, {centred.name})", "f32", x.dims)
    variance = _mean(scope, squares, over, zero, share)
    small = scope.constant("f32", (), rng.choice(("0.00001", "0.001", "1")))
    smalls = scope.add(f"broadcast({small.name}), dimensions={{}}", "f32", variance.dims)
    shifted = scope.add(f"add({variance.name}, {smalls.name})", "f32", variance.dims)
    factor = scope.add(f"rsqrt({shifted.name})", "f32", variance.dims)
    result = scope.add(
        f"multiply({centred.name}, {_spread(scope, factor, x.dims, over).name})", "f32", x.dims
    )
    return _converted(scope, result, rng.choice((x.dtype, "f32")))


def _mean(scope: Scope, x: Value, over: list[int], zero: Value, share: Value) -> Value:
    total = _reduced(scope, x, over, "add", zero)
    shares = scope.add(f"broadcast({share.name}), dimensions={{}}", "f32", total.dims)
    return scope.add(f"multiply({total.name}, {shares.name})", "f32", total.dims)


def _less_mean(scope: Scope, x: Value, over: list[int], zero: Value, share: Value) -> Value:
    spread = _spread(scope, _mean(scope, x, over, zero, share), x.dims, over)
    return scope.add(f"subtract({x.name}, {spread.name})", "f32", x.dims)
