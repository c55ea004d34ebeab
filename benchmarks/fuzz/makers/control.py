"""Calls, conditionals, fusions and asynchronous calls: computations within computations."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.fuzz import kinds
from benchmarks.fuzz.makers.filling import fill, result_like, some_of
from benchmarks.fuzz.makers.registry import Maker, maker
from benchmarks.fuzz.scope import Scope, Value

_NOT_FUSED = frozenset({
    "custom-call", "sort", "rng-bit-generator", "cholesky", "triangular-solve", "fft", "scan",
    "after-all", "add-dependency", "opt-barrier", "domain", "async-start", "copy-start", "topk",
    "all-reduce", "all-gather", "convolution", "dot", "scaled-dot", "ragged-dot", "map",
    "get-tuple-element", "partition-id", "batch-norm-training", "select-and-scatter",
})  # fmt: skip


def _finish(inner: Scope, name: str, results: Sequence[Value], as_tuple: bool) -> str:
    text = inner.text(name, results, as_tuple)
    inner.program.computations[name] = text
    return name


def _unpack(
    scope: Scope, results: Sequence[Value], as_tuple: bool, call: str, stem: str = "v"
) -> Value:
    """The instruction of a call, and its results taken apart."""
    if not as_tuple:
        return scope.add(call, results[0].dtype, results[0].dims, results[0].most, stem)
    shape = f"({', '.join(v.shape for v in results)})"
    name = scope.raw(shape, call)
    made = [
        scope.element(name, i, v.dtype, v.dims, v.most)
        for i, v in enumerate(results)
        if scope.rng.random() < 0.85 or i == 0
    ]
    return made[-1]


@maker("call", weight=1.2, nested=True)
def call(scope: Scope) -> Value:
    """A new computation, or one that was called before."""
    known = scope.program.callables
    if known and scope.rng.random() < 0.4:
        name, parameters, results, as_tuple = scope.rng.choice(known)
        operands = [scope.like(v.dtype, v.dims, _kind(v)) for v in parameters]
        text = f"call({', '.join(v.name for v in operands)}), to_apply={name}"
        return _unpack(scope, results, as_tuple, text)
    inner = Scope(scope.program, "flat", scope)
    inner.capture(scope.pick())
    fill(inner, scope.rng.randint(1, 5))
    results = some_of(inner)
    as_tuple = len(results) > 1 or scope.rng.random() < 0.2
    name = _finish(inner, scope.program.name("fn"), results, as_tuple)
    scope.program.callables.append(
        (name, tuple(i for _, i in inner.captured), tuple(results), as_tuple)
    )
    operands = ", ".join(outer.name for outer, _ in inner.captured)
    text = f"call({operands}), to_apply={name}"
    if scope.rng.random() < 0.15:
        text += ', is_composite=true, frontend_attributes={composite.name="my.op",'
        text += 'composite.attributes={},composite.version="1"}'
    return _unpack(scope, results, as_tuple, text)


def _kind(value: Value) -> str:
    """The kind of operand that keeps a parameter's bound."""
    is_bounded = value.most <= 64 and value.dtype[0] in "fbc"
    return "tame" if is_bounded else ""


@maker("conditional", weight=1.2, nested=True)
def conditional(scope: Scope) -> Value:
    """Two branches by a predicate, or several by a number that may be out of range."""
    rng = scope.rng
    targets = some_of(scope)
    as_tuple = len(targets) > 1 or rng.random() < 0.2
    count = rng.choice((2, 2, 2, 1, 3, 4))
    names, operands, results = [], [], []
    for _ in range(count):
        if names and rng.random() < 0.15:
            names.append(names[-1])
            operands.append(operands[-1])
            continue
        inner = Scope(scope.program, rng.choice(("tuple", "tuple", "flat")), scope)
        if inner.style == "flat":  # exactly one parameter: nothing else may be captured
            inner = _branch_of_one(scope, targets, as_tuple)
            outer = inner.captured[0][0].name
        else:
            fill(inner, rng.randint(0, 4))
            outer = ""
        results = [result_like(inner, v) for v in targets]
        if not outer:
            outer = scope.tuple([o for o, _ in inner.captured])[0]
        names.append(_finish(inner, scope.program.name("branch"), results, as_tuple))
        operands.append(outer)
    if rng.random() < 0.02:  # more than there are ifs in each other
        most = rng.choice((65, 100))
        names, operands = (names * most)[:most], (operands * most)[:most]
        count = most
    if count == 2 and rng.random() < 0.7:
        chooser = scope.like("pred", ())
        which = f"true_computation={names[0]}, false_computation={names[1]}"
    else:
        chooser = scope.like("s32", (), "index", fresh=0.6)
        which = f"branch_computations={{{', '.join(names)}}}"
    text = f"conditional({', '.join([chooser.name, *operands])}), {which}"
    return _unpack(scope, targets, as_tuple, text)


class _Closed(Scope):
    """A computation of one parameter: nothing else can be captured, so new values are constants."""

    def capture(self, outer: Value) -> Value:
        """The one parameter; afterwards a constant of the same shape."""
        if not self.captured:
            return super().capture(outer)
        if self.captured[0][0] is outer:
            return self.captured[0][1]
        if outer.written <= 64:
            return self.constant(outer.dtype, outer.dims)
        one = self.constant(outer.dtype)
        return self.add(
            f"broadcast({one.name}), dimensions={{}}", outer.dtype, outer.dims, one.most
        )


def _branch_of_one(scope: Scope, targets: Sequence[Value], as_tuple: bool) -> Scope:
    inner = _Closed(scope.program, "flat", scope)
    inner.capture(scope.pick())
    fill(inner, scope.rng.randint(1, 3), lambda row: not row.nested)
    return inner


def fusable(row: Maker) -> bool:
    """Whether a maker's instructions may stand in a fusion."""
    return not row.nested and not _NOT_FUSED & set(row.opcodes)


@maker("fusion", weight=1.5, nested=True)
def fusion(scope: Scope) -> Value:
    """As XLA's dumps have them: loops, reductions, dots with what surrounds them."""
    rng = scope.rng
    kind = rng.choice(("kLoop", "kLoop", "kLoop", "kInput", "kOutput", "kCustom"))
    inner = Scope(scope.program, "flat", scope)
    inner.capture(scope.pick())
    fill(inner, rng.randint(1, 5), fusable)
    if kind == "kInput":
        fill(inner, 1, lambda row: "reduce" in row.opcodes)
    if kind == "kOutput":
        fill(inner, 1, lambda row: row.opcodes in (("dot",), ("convolution",)))
        fill(inner, rng.randint(0, 2), lambda row: "add" in row.opcodes)
    results = [inner.values[-1]] if rng.random() < 0.7 else some_of(inner)
    as_tuple = len(results) > 1 or rng.random() < 0.1
    inner.prune(results)
    name = _finish(inner, scope.program.name("fused"), results, as_tuple)
    operands = ", ".join(outer.name for outer, _ in inner.captured)
    return _unpack(scope, results, as_tuple, f"fusion({operands}), kind={kind}, calls={name}")


@maker("async-start", "async-update", "async-done", weight=0.2, nested=True)
def asynchronous(scope: Scope) -> Value:
    """A call in three steps."""
    inner = Scope(scope.program, "flat", scope)
    inner.capture(scope.pick())
    fill(inner, 2, fusable)
    result = inner.values[-1]
    name = _finish(inner, scope.program.name("wrapped"), [result], False)
    operands = [outer for outer, _ in inner.captured]
    shape = f"(({', '.join(v.shape for v in operands)}), {result.shape}, u32[])"
    names = ", ".join(v.name for v in operands)
    started = scope.raw(shape, f"async-start({names}), calls={name}")
    if scope.rng.random() < 0.5:
        started = scope.raw(shape, f"async-update({started})")
    return scope.add(f"async-done({started})", result.dtype, result.dims, result.most)


@maker("async-start", "async-done", weight=0.15)
def asynchronous_slice(scope: Scope) -> Value:
    """The short form: ``slice-start`` and its like, of one operation."""
    x = scope.pick(least_rank=1)
    d = scope.rng.randrange(x.rank)
    opcode, dims, attributes = scope.rng.choice(
        (
            ("reverse", x.dims, f"dimensions={{{d}}}"),
            ("slice", x.dims, f"slice={{{', '.join(f'[0:{n}]' for n in x.dims)}}}"),
            ("copy-of", x.dims, ""),
            (
                "transpose",
                x.dims[::-1],
                f"dimensions={{{','.join(map(str, range(x.rank)[::-1]))}}}",
            ),
        )
    )
    if opcode == "copy-of":
        opcode, attributes = "abs" if kinds.is_float(x.dtype) else "not", ""
    if opcode == "not" and kinds.is_complex(x.dtype):
        opcode = "negate"
    result = kinds.text(x.dtype, dims)
    more = f", {attributes}" if attributes else ""
    started = scope.raw(f"(({x.shape}), {result}, u32[])", f"{opcode}-start({x.name}){more}")
    return scope.add(f"{opcode}-done({started})", x.dtype, dims, x.most)
