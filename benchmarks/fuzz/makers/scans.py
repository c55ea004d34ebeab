"""Loops as frameworks lower them: a counter, rows of stacked arrays read and written at it."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.fuzz import kinds
from benchmarks.fuzz.makers.filling import fill, result_like
from benchmarks.fuzz.makers.movement import listed
from benchmarks.fuzz.makers.registry import maker
from benchmarks.fuzz.scope import Scope, Value


@dataclass(frozen=True)
class _Loop:
    """What a scan's state holds besides the counter, in this order."""

    count: int
    counter: str
    carries: list[Value]
    read: list[Value]
    written: list[Value]

    @property
    def state(self) -> list[Value]:
        """All arrays of the state."""
        return [*self.carries, *self.read, *self.written]


@maker("while", weight=1.0, nested=True)
def scan_loop(scope: Scope) -> Value:
    """`lax.scan`: carries, stacked inputs and stacked results, from either end; loops within."""
    rng, program = scope.rng, scope.program
    count = rng.choice((1, 2, 3, 4, 5, 7))
    room = scope.room(2000)
    carries = [scope.pick(accept=lambda v: v.count <= room) for _ in range(rng.choice((0, 1, 2)))]
    carries = [v for v in carries if v.count <= room]
    rows = [scope.dims(most=scope.room(600), most_rank=4) for _ in range(rng.choice((1, 1, 2)))]
    read = [scope.like(kinds.dtype(rng), (count, *row)) for row in rows]
    written = [
        _filled(scope, kinds.dtype(rng), (count, *scope.dims(most=scope.room(400), most_rank=4)))
        for _ in range(rng.choice((0, 1, 1, 2)))
    ]
    counter = rng.choice(("s32", "s32", "s32", "u32", "s64", "u8", "s8"))
    loop = _Loop(count, counter, carries, read, written)
    body, outer = _body(scope, loop)
    condition = program.name("cond")
    start = scope.zero(counter)
    state = [start, *loop.state, *outer]
    shape = f"({', '.join(v.shape for v in state)})"
    program.computations[condition] = (
        f"{condition} {{\n  s = {shape} parameter(0)\n"
        f"  i = {counter}[] get-tuple-element(s), index=0\n  n = {counter}[] constant({count})\n"
        f"  ROOT r = pred[] compare(i, n), direction=LT\n}}\n"
    )
    name, shape = scope.tuple(state)
    done = scope.raw(shape, f"while({name}), condition={condition}, body={body}")
    results = [(1 + i, v) for i, v in enumerate(carries)]
    results += [(1 + len(carries) + len(read) + i, v) for i, v in enumerate(written)]
    results = results or [(1, read[0])]
    made = [scope.element(done, i, v.dtype, v.dims) for i, v in results]
    return rng.choice(made)


def _filled(scope: Scope, dtype: str, dims: tuple[int, ...]) -> Value:
    one = scope.constant(dtype)
    return scope.add(f"broadcast({one.name}), dimensions={{}}", dtype, dims, one.most)


def _body(scope: Scope, loop: _Loop) -> tuple[str, list[Value]]:
    """The computation of one step, and what it captured of the caller."""
    rng, program = scope.rng, scope.program
    inner = Scope(program, "tuple", scope)
    held = [Value(program.name("in"), v.dtype, v.dims) for v in loop.state]
    counter = Value(program.name("i"), loop.counter, (), 8.0)
    inner.given = [counter, *held]
    carried = held[: len(loop.carries)]
    stacked = held[len(carried) : len(carried) + len(loop.read)]
    stacks = held[len(carried) + len(loop.read) :]
    at = _position(inner, counter, loop.count)
    inner.values += carried
    for stack in stacked:
        _read_row(inner, stack, at)
    fill(inner, rng.randint(1, 4))
    results = [result_like(inner, v) for v in carried]
    if rng.random() < 0.2:
        results = (
            results[::-1]
            if [v.shape for v in results] == [v.shape for v in results[::-1]]
            else results
        )
    written = [_written_row(inner, stack, at) for stack in stacks]
    one = inner.constant(loop.counter, (), "1")
    after = inner.add(f"add({counter.name}, {one.name})", loop.counter, ())
    name = program.name("body")
    invariant = [inside for _, inside in inner.captured]
    outputs = [after, *results, *stacked, *written, *invariant]
    program.computations[name] = inner.text(name, outputs, True)
    return name, [outer for outer, _ in inner.captured]


def _position(inner: Scope, counter: Value, count: int) -> Value:
    """The row: the counter, from the other end, or guarded against negative numbers."""
    draw, dtype = inner.rng.random(), counter.dtype
    if draw < 0.4:
        return counter
    last = inner.constant(dtype, (), str(count - 1 if draw < 0.7 else count))
    if draw < 0.7:
        return inner.add(f"subtract({last.name}, {counter.name})", dtype, (), 8.0)
    zero = inner.zero(dtype)
    below = inner.add(f"compare({counter.name}, {zero.name}), direction=LT", "pred", ())
    moved = inner.add(f"add({counter.name}, {last.name})", dtype, ())
    return inner.add(f"select({below.name}, {moved.name}, {counter.name})", dtype, (), 8.0)


def _starts(inner: Scope, rank: int, at: Value) -> str:
    if rank == 0:
        return at.name
    zero = inner.zero(at.dtype)
    return ", ".join([at.name, *[zero.name] * rank])


def _read_row(inner: Scope, stack: Value, at: Value) -> Value:
    row = stack.dims[1:]
    sizes = listed((1, *row))
    call = (
        f"dynamic-slice({stack.name}, {_starts(inner, len(row), at)}), "
        f"dynamic_slice_sizes={{{sizes}}}"
    )
    cut = inner.hidden(call, stack.dtype, (1, *row))
    return inner.add(f"reshape({cut.name})", stack.dtype, row)


def _written_row(inner: Scope, stack: Value, at: Value) -> Value:
    row = stack.dims[1:]
    value = result_like(inner, Value("", stack.dtype, row))
    flat = inner.hidden(f"reshape({value.name})", stack.dtype, (1, *row))
    call = f"dynamic-update-slice({stack.name}, {flat.name}, {_starts(inner, len(row), at)})"
    return inner.hidden(call, stack.dtype, stack.dims)
