"""Loops, calls and branches whose arguments are not flat tuples: one array, tuples in tuples."""

from __future__ import annotations

from benchmarks.fuzz import kinds
from benchmarks.fuzz.makers.filling import fill, result_like
from benchmarks.fuzz.makers.registry import maker
from benchmarks.fuzz.scope import Scope, Value


class _Given(Scope):
    """A computation that sees what it is given and nothing else: what is new is a constant."""

    def capture(self, outer: Value) -> Value:
        """A constant of the shape."""
        if outer.written <= 24:
            return self.constant(outer.dtype, outer.dims)
        one = self.constant(outer.dtype)
        call = f"broadcast({one.name}), dimensions={{}}"
        return self.add(call, outer.dtype, outer.dims, one.most)


@maker("while", weight=0.4, nested=True)
def loop_of_an_array(scope: Scope) -> Value:
    """The state is an array, the condition a reduction of it or a comparison."""
    rng, program = scope.rng, scope.program
    dtype = rng.choice(("s32", "s32", "u32", "s16", "u8", "s64"))
    dims = () if rng.random() < 0.5 else scope.dims(1, 3, scope.room(500))
    if 0 in dims:
        return scope.constant("s32")
    x = scope.like(dtype, dims, "small", fresh=1.0)
    trips, step = rng.randint(0, 4), rng.choice((1, 2, 7))
    low, high = kinds.integer_range(dtype)
    bound = min(high - step, 10 + trips * step)
    body = program.name("body")
    shape = kinds.text(dtype, dims)
    program.computations[body] = (
        f"{body} {{\n  x = {shape} parameter(0)\n  c = {dtype}[] constant({step})\n"
        f"  b = {shape} broadcast(c), dimensions={{}}\n  ROOT r = {shape} add(x, b)\n}}\n"
    )
    lines = [f"  x = {shape} parameter(0)", f"  n = {dtype}[] constant({bound})"]
    least = "x"
    if dims:
        least = "m"
        over = ",".join(map(str, range(len(dims))))
        lines.append(f"  o = {dtype}[] constant({low})")
        lines.append(
            f"  m = {dtype}[] reduce(x, o), dimensions={{{over}}}, "
            f"to_apply={program.pair('maximum', dtype)}"
        )
    lines.append(f"  ROOT r = pred[] compare({least}, n), direction=LT")
    condition = program.name("cond")
    program.computations[condition] = f"{condition} {{\n" + "\n".join(lines) + "\n}\n"
    call = f"while({x.name}), condition={condition}, body={body}"
    return scope.add(call, dtype, dims, float(high))


@maker("while", "call", "conditional", weight=0.6, nested=True)
def nested_state(scope: Scope) -> Value:
    """A loop, a call or a branch with a state like ``((a, b), i, (c))``."""
    rng, room = scope.rng, scope.room(2000)
    picked = [scope.pick(accept=lambda v: v.count <= room) for _ in range(rng.randint(1, 4))]
    state = [v for v in picked if v.count <= room] or [scope.new("f32", (5,))]
    counter = scope.zero("s32")
    groups = [state[: len(state) // 2], [counter], state[len(state) // 2 :]]
    groups = [g for g in groups if g]
    name, shape = _packed(scope, groups)
    form = rng.choice(("while", "while", "call", "conditional"))
    body = _body(scope, groups, shape, form)
    if form == "while":
        condition = _counted(scope, groups, shape, counter)
        call = f"while({name}), condition={condition}, body={body}"
    elif form == "call":
        call = f"call({name}), to_apply={body}"
    else:
        chosen = scope.like("pred", ())
        other = body if rng.random() < 0.3 else _body(scope, groups, shape, form)
        call = (
            f"conditional({chosen.name}, {name}, {name}), true_computation={body}, "
            f"false_computation={other}"
        )
    done = scope.raw(shape, call)
    made: list[Value] = []
    for i, group in enumerate(groups):
        part = scope.raw(_shape_of(group), f"get-tuple-element({done}), index={i}")
        made += [
            scope.element(part, j, v.dtype, v.dims)
            for j, v in enumerate(group)
            if rng.random() < 0.8
        ]
    return rng.choice(made) if made else counter


def _shape_of(group: list[Value]) -> str:
    return f"({', '.join(v.shape for v in group)})"


def _packed(scope: Scope, groups: list[list[Value]]) -> tuple[str, str]:
    inner = [scope.tuple(group) for group in groups]
    shape = f"({', '.join(s for _, s in inner)})"
    return scope.raw(shape, f"tuple({', '.join(n for n, _ in inner)})"), shape


def _taken(inner: Scope, groups: list[list[Value]], shape: str) -> list[list[Value]]:
    state = inner.raw(shape, "parameter(0)", "state")
    taken = []
    for i, group in enumerate(groups):
        part = inner.raw(_shape_of(group), f"get-tuple-element({state}), index={i}")
        taken.append([inner.element(part, j, v.dtype, v.dims) for j, v in enumerate(group)])
    return taken


def _body(scope: Scope, groups: list[list[Value]], shape: str, form: str) -> str:
    rng, program = scope.rng, scope.program
    inner = _Given(program, "flat", scope)
    taken = _taken(inner, groups, shape)
    fill(inner, rng.randint(1, 3), lambda row: not row.nested)
    results: list[list[Value]] = []
    for group, held in zip(groups, taken, strict=True):
        row: list[Value] = []
        for outer, value in zip(group, held, strict=True):
            if outer.shape == "s32[]" and len(group) == 1 and form == "while":
                one = inner.constant("s32", (), "1")
                row.append(inner.add(f"add({value.name}, {one.name})", "s32", ()))
            elif rng.random() < 0.3:
                row.append(value)
            else:
                row.append(result_like(inner, value))
        results.append(row)
    name, _ = _packed(inner, results)
    text = f"ROOT {name} = "
    inner.lines = [
        line.replace(f"{name} = ", text, 1) if line.startswith(f"  {name} = ") else line
        for line in inner.lines
    ]
    called = program.name("nested")
    program.computations[called] = f"{called} {{\n" + "\n".join(inner.lines) + "\n}\n"
    return called


def _counted(scope: Scope, groups: list[list[Value]], shape: str, counter: Value) -> str:
    """Runs while the counter, wherever it is, is below a few."""
    inner = _Given(scope.program, "flat", scope)
    taken = _taken(inner, groups, shape)
    (at,) = [i for i, group in enumerate(groups) if len(group) == 1 and group[0] is counter]
    bound = inner.constant("s32", (), str(scope.rng.randint(0, 4)))
    root = inner.add(f"compare({taken[at][0].name}, {bound.name}), direction=LT", "pred", ())
    name = scope.program.name("cond")
    scope.program.computations[name] = inner.text(name, [root], False)
    return name
