"""Reductions, their combiners, maps and scans."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.fuzz import kinds
from benchmarks.fuzz.makers.folds import (
    greatest_with_nan,
    odd_combiner,
    product_of_pairs,
)
from benchmarks.fuzz.makers.movement import listed
from benchmarks.fuzz.makers.registry import maker
from benchmarks.fuzz.scope import Scope, Value

_ORDERED = ("add", "multiply", "maximum", "minimum")
_BITS = ("and", "or", "xor")
GROWS = frozenset({"add", "subtract"})


def options(dtype: str) -> tuple[str, ...]:
    """The combiners of a type that give the same in any order."""
    if dtype == "pred":
        return (*_BITS, "maximum", "minimum", "add", "multiply")
    if kinds.is_complex(dtype):
        return ("add", "multiply")
    return (*_ORDERED, *_BITS) if kinds.is_integer(dtype) else _ORDERED


def combiner(scope: Scope, dtypes: Sequence[str], for_scatter: bool = False) -> tuple[str, bool]:
    """A computation of 2N scalars, and whether results outgrow operands."""
    rng, program = scope.rng, scope.program
    if len(dtypes) == 1:
        choices = list(options(dtypes[0]))
        if kinds.is_float(dtypes[0]) and rng.random() < 0.5:
            choices.remove("multiply")
        if for_scatter:
            choices += ["second", "second"]
            choices += ["subtract"] if dtypes[0] != "pred" else []
        if rng.random() < 0.1:
            odd = odd_combiner(scope, dtypes[0])
            if odd:
                return odd, True
        opcode = rng.choice(choices)
        if opcode == "second":
            return _second(scope, dtypes[0]), False
        if rng.random() < 0.12:
            written = _written_out(scope, opcode, dtypes[0])
            if written:
                return written, opcode in GROWS
        return program.pair(opcode, dtypes[0]), opcode in GROWS or opcode == "multiply"
    return _several(scope, dtypes, for_scatter)


def _written_out(scope: Scope, opcode: str, dtype: str) -> str:
    """The same function in other operations; empty where there is none."""
    t = f"{dtype}[]"
    bodies: dict[str, str] = {}
    if dtype not in ("pred", "c64"):
        for word, direction in (("maximum", "GE"), ("minimum", "LE")):
            bodies[word] = (
                f"  c = pred[] compare(a, b), direction={direction}\n"
                f"  n = pred[] compare(a, a), direction=NE\n  t = pred[] or(c, n)\n"
                f"  ROOT r = {t} select(t, a, b)"
            )
        if kinds.is_float(dtype):
            bodies = {}  # NaN and zeros of both signs: another function, that depends on the order
    if dtype in ("bf16", "f16"):
        bodies["add"] = (
            f"  p = f32[] convert(a)\n  q = f32[] convert(b)\n  s = f32[] add(p, q)\n"
            f"  ROOT r = {t} convert(s)"
        )
    if dtype == "pred" or kinds.is_integer(dtype):
        bodies["or"] = (
            f"  p = {t} not(a)\n  q = {t} not(b)\n  s = {t} and(p, q)\n  ROOT r = {t} not(s)"
        )
        bodies["add"] = f"  ROOT r = {t} add(b, a)"
    if opcode not in bodies:
        return ""
    name = scope.program.name("written")
    head = f"  a = {t} parameter(0)\n  b = {t} parameter(1)\n"
    return scope.program.computation(name, head + bodies[opcode])


def _second(scope: Scope, dtype: str) -> str:
    body = f"  a = {dtype}[] parameter(0)\n  ROOT b = {dtype}[] parameter(1)"
    return scope.program.computation(f"second_{dtype}", body)


def _several(scope: Scope, dtypes: Sequence[str], for_scatter: bool) -> tuple[str, bool]:
    """Each pair combined by itself."""
    name = scope.program.name("both")
    count = len(dtypes)
    lines = [
        f"  {side}{i} = {t}[] parameter({i + at})"
        for side, at in (("a", 0), ("b", count))
        for i, t in enumerate(dtypes)
    ]
    grows = False
    for i, t in enumerate(dtypes):
        choices = [o for o in options(t) if o != "multiply"]
        opcode = scope.rng.choice(choices + (["add"] if for_scatter and t != "pred" else []))
        grows |= opcode == "add"
        lines.append(f"  r{i} = {t}[] {opcode}(a{i}, b{i})")
    shapes = ", ".join(f"{t}[]" for t in dtypes)
    names = ", ".join(f"r{i}" for i in range(count))
    lines.append(f"  ROOT r = ({shapes}) tuple({names})")
    return scope.program.computation(name, "\n".join(lines)), grows


def _start(scope: Scope, dtype: str, kind: str = "") -> Value:
    """A start value: zero, the least, a number that matters, known or not."""
    rng = scope.rng
    draw = rng.random()
    if draw < 0.35:
        text = {"pred": "false", "c64": "(0, 0)", "f8e8m0fnu": "1"}.get(dtype, "0")
        return scope.add(f"constant({text})", dtype, (), 0.0)
    if draw < 0.6:
        return scope.constant(dtype)
    return scope.like(dtype, (), kind)


def _over(scope: Scope, x: Value) -> list[int]:
    over = sorted(scope.rng.sample(range(x.rank), scope.rng.randint(1, x.rank)))
    kept = math.prod(n for d, n in enumerate(x.dims) if d not in over)
    return (
        over if kept <= scope.program.most_elements else list(range(x.rank))
    )  # of an array of nothing


@maker("reduce", weight=3)
def reduce(scope: Scope) -> Value:
    """One operand over some dimensions."""
    rng = scope.rng
    x = scope.pick(least_rank=1, tame=rng.random() < 0.8)
    over = _over(scope, x)
    dtype = x.dtype
    if dtype in ("bf16", "f16") and rng.random() < 0.2:
        dtype = "f32"  # accumulated in a wider float
    apply, grows = combiner(scope, [dtype])
    start = scope.tamed(_start(scope, dtype)) if x.is_tame else _start(scope, dtype)
    dims = [n for d, n in enumerate(x.dims) if d not in over]
    count = math.prod(x.dims[d] for d in over)
    most = max(x.most, start.most) * (count + 1) if grows else max(x.most, start.most)
    most = math.inf if apply.startswith("multiply") else most
    call = f"reduce({x.name}, {start.name}), dimensions={{{listed(over)}}}, to_apply={apply}"
    return scope.add(call, dtype, dims, most)


@maker("reduce", weight=1)
def reduce_several(scope: Scope) -> Value:
    """Two or three operands, or an argmax."""
    rng = scope.rng
    x = scope.pick(("f32", "s32", "bf16", "s8", "u8", "s16"), least_rank=1, tame=True)
    over = _over(scope, x)
    if rng.random() < 0.5:
        return _arg_extreme(scope, x, over)
    others = [
        scope.like(kinds.dtype(rng, ("f32", "s32", "pred", "u8", "bf16")), x.dims, "tame")
        if rng.random() < 0.7 else x
        for _ in range(rng.choice((1, 1, 2)))
    ]  # fmt: skip
    operands = [x, *others]
    starts = [scope.tamed(_start(scope, v.dtype)) for v in operands]
    apply, _ = combiner(scope, [v.dtype for v in operands])
    return _variadic(scope, operands, starts, over, apply)


@maker("reduce", weight=0.5)
def reduce_pairs(scope: Scope) -> Value | None:
    """Two operands whose results depend on each other, or three to five by themselves."""
    rng = scope.rng
    draw = rng.random()
    if draw < 0.35:
        x = scope.pick(("f32",), least_rank=1)
        over = _over(scope, x)
        index = rng.choice(("s32", "s32", "u8", "s64"))
        along = scope.add(f"iota(), iota_dimension={rng.choice(over)}", index, x.dims)
        starts = [scope.constant("f32", (), "-inf"), scope.zero(index)]
        return _variadic(scope, [x, along], starts, over, greatest_with_nan(scope, index))
    if draw < 0.65:
        x = scope.pick(("s32",), least_rank=1)
        starts = [scope.constant("s32", (), text) for text in "10"]
        operands = [x, scope.like("s32", x.dims)]
        return _variadic(scope, operands, starts, _over(scope, x), product_of_pairs(scope))
    x = scope.pick(("s32", "u8", "f32", "pred"), least_rank=1, tame=True)
    others = [
        scope.like(kinds.dtype(rng, ("f32", "s32", "u16", "pred", "s8")), x.dims, "tame")
        for _ in range(rng.choice((2, 3, 4)))
    ]
    operands = [x, *others]
    starts = [scope.tamed(_start(scope, v.dtype)) for v in operands]
    apply, _ = _several(scope, [v.dtype for v in operands], False)
    return _variadic(scope, operands, starts, _over(scope, x), apply)


def _variadic(
    scope: Scope, operands: list[Value], starts: list[Value], over: list[int], apply: str
) -> Value:
    dims = [n for d, n in enumerate(operands[0].dims) if d not in over]
    shapes = ", ".join(kinds.text(v.dtype, tuple(dims)) for v in operands)
    names = ", ".join(v.name for v in operands + starts)
    call = f"reduce({names}), dimensions={{{listed(over)}}}, to_apply={apply}"
    result = scope.raw(f"({shapes})", call)
    count = operands[0].count + 1
    made = [
        scope.element(result, i, v.dtype, dims, count * max(v.most, s.most))
        for i, (v, s) in enumerate(zip(operands, starts, strict=True))
        if i == 0 or scope.rng.random() < 0.8
    ]
    return made[-1]


def _arg_extreme(scope: Scope, x: Value, over: list[int]) -> Value:
    rng, dtype = scope.rng, x.dtype
    index = rng.choice(("s32", "s32", "u32", "s16"))
    along = rng.choice(over)
    order = rng.choice(("GT", "LT", "GE", "LE"))
    positions = scope.add(f"iota(), iota_dimension={along}", index, x.dims)
    body = (
        f"  a = {dtype}[] parameter(0)\n  i = {index}[] parameter(1)\n"
        f"  b = {dtype}[] parameter(2)\n  j = {index}[] parameter(3)\n"
        f"  better = pred[] compare(a, b), direction={order}\n"
        f"  same = pred[] compare(a, b), direction=EQ\n"
        f"  first = pred[] compare(i, j), direction=LT\n  tie = pred[] and(same, first)\n"
        f"  strict = pred[] compare(a, b), direction={order[0]}T\n"
        f"  left = pred[] or(strict, tie)\n  v = {dtype}[] select(left, a, b)\n"
        f"  k = {index}[] select(left, i, j)\n  ROOT r = ({dtype}[], {index}[]) tuple(v, k)"
    )
    apply = scope.program.computation(f"arg_{order}_{dtype}_{index}", body)
    start = scope.tamed(_start(scope, dtype))
    zero = scope.zero(index)
    return _variadic(scope, [x, positions], [start, zero], over, apply)


@maker("map", weight=0.5)
def map_(scope: Scope) -> Value:
    """A computation of scalars over whole arrays."""
    x = scope.pick()
    y = scope.like(x.dtype, x.dims)
    known = ("add", "multiply", "subtract") if kinds.is_complex(x.dtype) else options(x.dtype)
    first, second = (scope.rng.choice(known) for _ in "ab")
    name = f"map_{first}_{second}_{x.dtype}"
    body = (
        f"  a = {x.dtype}[] parameter(0)\n  b = {x.dtype}[] parameter(1)\n"
        f"  c = {x.dtype}[] {first}(a, b)\n  ROOT r = {x.dtype}[] {second}(c, a)"
    )
    apply = scope.program.computation(name, body)
    call = f"map({x.name}, {y.name}), dimensions={{{listed(range(x.rank))}}}, to_apply={apply}"
    return scope.add(call, x.dtype, x.dims)


@maker("map", weight=0.3)
def map_of_some(scope: Scope) -> Value:
    """One to four operands of several types, another type of result, a constant inside."""
    rng = scope.rng
    x = scope.pick(("f32", "s32", "bf16", "u8"))
    y = scope.like("pred", x.dims)
    count = rng.randint(1, 4)
    operands = [x, y, scope.like(x.dtype, x.dims), x][:count]
    t = f"{x.dtype}[]"
    lines = [f"  p{i} = {v.dtype}[] parameter({i})" for i, v in enumerate(operands)]
    lines.append(f"  c = {t} constant(3)\n  s = {t} add(p0, c)")
    chosen = f"select(p1, s, {rng.choice(('p0', 'c'))})" if count > 1 else "add(s, s)"
    lines.append(f"  w = {t} {chosen}")
    lines.append(f"  v = {t} maximum(w, {'p2' if count > 2 else 'c'})")
    to_pred = rng.random() < 0.4
    root = "pred[] compare(v, c), direction=GE" if to_pred else f"{t} negate(v)"
    lines.append(f"  ROOT r = {root}")
    apply = scope.program.computation(scope.program.name("mapped"), "\n".join(lines))
    names = ", ".join(v.name for v in operands)
    call = f"map({names}), dimensions={{{listed(range(x.rank))}}}, to_apply={apply}"
    return scope.add(call, "pred" if to_pred else x.dtype, x.dims)


_OF_ARRAYS = (
    "  v = {t}[5] broadcast(a), dimensions={{}}\n  i = {t}[5] iota(), iota_dimension=0\n"
    "  w = {t}[5] add(v, i)\n  z = {t}[] constant(0)\n"
    "  ROOT r = {t}[] reduce(w, z), dimensions={{0}}, to_apply={apply}",
    "  v = {t}[4] constant({{1, 2, 3, 9}})\n  n = s32[] convert(a)\n"
    "  s = {t}[1] dynamic-slice(v, n), dynamic_slice_sizes={{1}}\n  ROOT r = {t}[] reshape(s)",
)


@maker("map", weight=0.1)
def map_of_arrays(scope: Scope) -> Value:
    """What is applied to an element has arrays of its own."""
    x = scope.pick(("f32", "s32", "u8"), tame=True, accept=lambda v: v.count <= 60)
    body = scope.rng.choice(_OF_ARRAYS)
    apply = scope.program.pair("maximum", x.dtype)
    text = f"  a = {x.dtype}[] parameter(0)\n" + body.format(t=x.dtype, apply=apply)
    name = scope.program.computation(scope.program.name("mapped"), text)
    call = f"map({x.name}), dimensions={{{listed(range(x.rank))}}}, to_apply={name}"
    return scope.add(call, x.dtype, x.dims, x.most + 9)


@maker("scan", weight=0.3)
def scan(scope: Scope) -> Value:
    """Carries along a dimension."""
    x = scope.pick(least_rank=1, most_rank=3, tame=True,
                   accept=lambda v: 0 < v.dims[0] <= 32 and v.count <= scope.room(2000))  # fmt: skip
    if not 0 < x.dims[0] <= 64:
        return x
    row = kinds.text(x.dtype, x.dims[1:])
    opcode = scope.rng.choice([o for o in options(x.dtype) if o != "multiply"])
    body = (
        f"  x = {row} parameter(0)\n  c = {row} parameter(1)\n  y = {row} {opcode}(c, x)\n"
        f"  ROOT r = ({row}, {row}) tuple(y, y)"
    )
    apply = scope.program.computation(scope.program.name("step"), body)
    start = scope.like(x.dtype, x.dims[1:], scope.tame_kind(x.dtype))
    backwards = scope.rng.choice(("true", "false"))
    call = (
        f"scan({x.name}, {start.name}), dimensions={{0}}, is_reverse={backwards}, "
        f"num_carries=1, to_apply={apply}"
    )
    name = scope.raw(f"({x.shape}, {row})", call)
    most = 65 * max(x.most, start.most)
    scope.element(name, 1, x.dtype, x.dims[1:], most)
    return scope.element(name, 0, x.dtype, x.dims, most)


@maker("batch-norm-grad", "batch-norm-inference", "batch-norm-training", weight=0.5)
def batch_norm(scope: Scope) -> Value | None:
    """Of the three kinds."""
    rng = scope.rng
    x = scope.pick(kinds.FLOATS, least_rank=2, most_rank=4, tame=True,
                   accept=lambda v: 0 not in v.dims)  # fmt: skip
    if 0 in x.dims:
        return None
    feature = rng.randrange(x.rank)
    dims = (x.dims[feature],)
    a, b, c = (scope.like(x.dtype, dims, "tame") for _ in range(3))
    spread = scope.new(x.dtype, dims, "positive") if scope.parent is None else c
    attributes = f"epsilon={rng.choice(('0.001', '0.01', '1'))}, feature_index={feature}"
    per = kinds.text(x.dtype, dims)
    if spread is c or rng.random() < 0.3:
        call = f"batch-norm-training({x.name}, {a.name}, {b.name}), {attributes}"
        name = scope.raw(f"({x.shape}, {per}, {per})", call)
        scope.element(name, 1, x.dtype, dims, x.most)
        return scope.element(name, 0, x.dtype, x.dims)
    if rng.random() < 0.5:
        names = ", ".join(v.name for v in (x, a, b, c, spread))
        return scope.add(f"batch-norm-inference({names}), {attributes}", x.dtype, x.dims)
    gradient = scope.like(x.dtype, x.dims, "tame")
    names = ", ".join(v.name for v in (x, a, c, spread, gradient))
    name = scope.raw(f"({x.shape}, {per}, {per})", f"batch-norm-grad({names}), {attributes}")
    scope.element(name, 2, x.dtype, dims)
    return scope.element(name, 0, x.dtype, x.dims)
