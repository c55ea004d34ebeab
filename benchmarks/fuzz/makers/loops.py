"""While loops: counters of every type that may wrap, shared computations, states of every kind."""

from __future__ import annotations

import operator
from dataclasses import dataclass

from benchmarks.fuzz import kinds
from benchmarks.fuzz.makers.filling import fill, result_like
from benchmarks.fuzz.makers.registry import maker
from benchmarks.fuzz.scope import Scope, Value

_COMPARE = {
    "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge, "NE": operator.ne,
}  # fmt: skip
_MOST_TRIPS = 9


@dataclass(frozen=True)
class Counter:
    """A counter and when it stops; `start` is None when it comes at run time."""

    dtype: str
    start: int
    step: int
    bound: int
    direction: str

    def wrapped(self, value: int) -> int:
        """The value modulo the type's range."""
        low, high = kinds.integer_range(self.dtype)
        return (value - low) % (high - low + 1) + low

    def trips(self) -> int:
        """How often the loop runs; more than allowed when it does not stop soon."""
        value, count = self.start, 0
        while _COMPARE[self.direction](value, self.bound) and count <= _MOST_TRIPS:
            value, count = self.wrapped(value + self.step), count + 1
        return count


def _counter(scope: Scope) -> Counter:
    rng = scope.rng
    for _ in range(50):
        dtype = kinds.dtype(rng, kinds.INDICES)
        low, high = kinds.integer_range(dtype)
        start = rng.choice((0, 0, 0, 1, 5, high - 2, low, low + 1))
        step = rng.choice((1, 1, 1, 2, 3, -1, -2, 50, 100))
        bound = rng.choice((3, 4, 5, 1, 0, high, low, high - 1, 120))
        counter = Counter(dtype, start, step, bound, rng.choice(("LT", "LT", *_COMPARE)))
        if low <= bound <= high and 0 <= counter.trips() <= _MOST_TRIPS:
            return counter
    return Counter("s32", 0, 1, 3, "LT")


def _condition(scope: Scope, state: list[Value], at: int, counter: Counter, flag: int) -> str:
    """The computation of a condition: of the counter alone, or of a flag of the state too."""
    program = scope.program
    inner = Scope(program, "tuple", scope)
    inner.given = [Value(program.name("in"), v.dtype, v.dims, v.most) for v in state]
    i = inner.given[at]
    n = inner.constant(counter.dtype, (), str(counter.bound))
    swapped = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}
    if scope.rng.random() < 0.15:
        names, direction = f"{n.name}, {i.name}", swapped[counter.direction]
    else:
        names, direction = f"{i.name}, {n.name}", counter.direction
    root = inner.add(f"compare({names}), direction={direction}", "pred", ())
    if flag >= 0:
        more = inner.given[flag].name
        root = inner.add(f"and({root.name}, {more})", "pred", ())
    name = program.name("cond")
    program.computations[name] = inner.text(name, [root], False)
    return name


def _updates(inner: Scope, at: int, counter: Counter) -> list[Value]:
    rng = inner.rng
    results: list[Value] = []
    for i, v in enumerate(inner.given):
        draw = rng.random()
        others = [w for w in (*results, *inner.given) if (w.dtype, w.dims) == (v.dtype, v.dims)]
        if i == at:
            results.append(_stepped(inner, v, counter))
        elif draw < 0.2:
            results.append(v)  # unchanged
        elif draw < 0.3 and v.rank + i != at:
            results.append(rng.choice([w for w in others if w is not inner.given[at]] or [v]))
        else:
            results.append(result_like(inner, v))
    return results


def _stepped(inner: Scope, i: Value, counter: Counter) -> Value:
    size = abs(counter.step)
    down = counter.step < 0
    low, _ = kinds.integer_range(counter.dtype)
    if down and low < 0 and inner.rng.random() < 0.5:
        size, down = -size, False
    one = inner.constant(counter.dtype, (), str(size))
    names = f"{i.name}, {one.name}"
    if not down and inner.rng.random() < 0.2:
        names = f"{one.name}, {i.name}"
    return inner.add(f"{'subtract' if down else 'add'}({names})", i.dtype, ())


@maker("while", weight=1.6, nested=True)
def loop(scope: Scope) -> Value:
    """A loop; sometimes with the computations of an earlier one."""
    if scope.program.loops and scope.rng.random() < 0.3:
        return _again(scope)
    rng, program = scope.rng, scope.program
    counter = _counter(scope)
    start = _start(scope, counter)
    room = scope.room(3000)
    state = [scope.pick(accept=lambda v: v.count <= room) for _ in range(rng.randint(1, 4))]
    state = [v for v in state if v.count <= room] or [scope.new("f32", (3,))]
    at = rng.randint(0, len(state))
    state.insert(at, start)
    flags = [i for i, v in enumerate(state) if v.shape == "pred[]"]
    flag = rng.choice(flags) if flags and rng.random() < 0.5 else -1
    inner = Scope(program, "tuple", scope)
    inner.given = [
        Value(program.name("in"), v.dtype, v.dims, 8.0 if v.is_tame and v.most <= 8 else v.most)
        for v in state
    ]
    inner.values += inner.given
    fill(inner, rng.randint(1, 5))
    results = _updates(inner, at, counter)
    invariant = [inside for _, inside in inner.captured]
    state += [outer for outer, _ in inner.captured]
    body = program.name("body")
    program.computations[body] = inner.text(body, results + invariant, True)
    condition = _condition(scope, state, at, counter, flag)
    name, shape = scope.tuple(state)
    bounds = [v.most for v in inner.given] + [v.most for v in invariant]
    program.loops.append((condition, body, tuple((v.dtype, v.dims) for v in state)))
    program.loop_starts[body] = (at, counter)
    return _results(scope, name, shape, condition, body, bounds)


def _start(scope: Scope, counter: Counter) -> Value:
    """The counter's first value, known or (where any small one stops soon) not."""
    plain = counter.direction in ("LT", "LE") and 0 <= counter.bound <= 5 and counter.step == 1
    if plain and scope.rng.random() < 0.25 and counter.dtype in ("s32", "u32", "s8", "u8", "s64"):
        return scope.like(counter.dtype, (), "small", fresh=1.0)
    return scope.constant(counter.dtype, (), str(counter.start))


def _results(
    scope: Scope, name: str, shape: str, condition: str, body: str, bounds: list[float]
) -> Value:
    done = scope.raw(shape, f"while({name}), condition={condition}, body={body}")
    if scope.rng.random() < 0.15:
        done, bounds = _handed_on(scope, done, shape, condition, body), [float("inf")] * len(bounds)
    parts = kinds.split_shapes(shape)
    made = [
        scope.element(done, i, dtype, dims, bounds[i])
        for i, (dtype, dims) in enumerate(parts)
        if scope.rng.random() < 0.75
    ]
    if not made:
        made = [scope.element(done, 0, *parts[0], bounds[0])]
    return scope.rng.choice(made)


def _handed_on(scope: Scope, done: str, shape: str, condition: str, body: str) -> str:
    """The whole state of a loop that ended, as another loop, a call or a branch takes it on."""
    chosen = scope.like("pred", ())
    ways = (
        f"while({done}), condition={condition}, body={body}",
        f"call({done}), to_apply={body}",
        f"conditional({chosen.name}, {done}, {done}), "
        f"true_computation={body}, false_computation={body}",
        f"opt-barrier({done})",
    )
    return scope.raw(shape, scope.rng.choice(ways))


def _again(scope: Scope) -> Value:
    """The body and condition of an earlier loop: as a loop, a call, or with a condition of its own."""
    rng = scope.rng
    condition, body, parts = rng.choice(scope.program.loops)
    at, counter = scope.program.loop_starts[body]
    state = [
        scope.constant(counter.dtype, (), str(counter.start))
        if i == at
        else scope.like(dtype, dims)
        for i, (dtype, dims) in enumerate(parts)
    ]
    bounds = [float("inf")] * len(state)
    name, shape = scope.tuple(state)
    if rng.random() < 0.3:
        called = scope.raw(shape, f"call({name}), to_apply={body}")
        i = rng.randrange(len(parts))
        return scope.element(called, i, *parts[i])
    if rng.random() < 0.4:
        other = Counter(
            counter.dtype, counter.start, counter.step, counter.bound, counter.direction
        )
        for _ in range(5):
            nearer = counter.wrapped(counter.bound + rng.choice((1, -1, 2)))
            other = Counter(counter.dtype, counter.start, counter.step, nearer, counter.direction)
            if other.trips() <= _MOST_TRIPS:
                break
        else:
            other = counter
        condition = _condition(scope, state, at, other, -1)
    return _results(scope, name, shape, condition, body, bounds)
