"""Derivatives of traced functions: the function is traced as a computation, which `compiler.autodiff`
copies into the open trace with its derivative beside it.

Every function here is applied by `Trace.run`: the trace comes first, then what is known while tracing,
then trees of what is traced. A function may use arrays of the traces around it: they count as constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler.autodiff.differentiate import Differentiator
from compiler.autodiff.values import Tangent, Value, array_of, has_derivative
from compiler.diagnostics import CompileError
from compiler.frontends.numpy.nested import Leaf, Nested, expect_tree, trace_nested
from compiler.frontends.numpy.ops import as_tracer, constant_like, convert
from compiler.frontends.numpy.pytree import LEAF, TreeDef, flatten, unflatten
from compiler.frontends.numpy.tracer import Trace, Tracer, open_trace
from compiler.hlo.ir import HloComputation, HloInstruction

Function = Callable[..., Any]
Argnums = int | Sequence[int]


class _AtPoint:
    """A function traced at a point: `primals`, the leaves of its positional arguments."""

    def __init__(self, trace: Trace, name: str, function: Function, args: tuple[Any, ...]) -> None:
        leaves, self.tree = flatten(args)
        self.trace = trace
        self.primals = [as_tracer(trace, leaf) for leaf in leaves]
        shapes = [Leaf.of(x) for x in self.primals]
        self.nested = trace_nested(trace, name, function, self.tree, shapes)

    @property
    def computation(self) -> HloComputation:
        """The function's, its result a tuple of leaves."""
        b = self.nested.builder
        if b.computation.root is None:
            b.computation.root = b.tuple([output.instr for output in self.nested.outputs])
        return b.computation

    def per_parameter(self, own: Sequence[Any], other: Any = None) -> list[Any]:
        """Something for each parameter: of the function's arguments, and of what it captured."""
        found = dict(zip(self.nested.inputs, own, strict=True))
        return [found.get(p, other) for p in self.computation.parameters]

    def operands(self) -> list[Value]:
        """The arrays that the parameters stand for."""
        found = dict(zip(self.nested.inputs, (x.instr for x in self.primals), strict=True))
        found |= {inner: outer for outer, inner in self.nested.captured.items()}
        return [found[p] for p in self.computation.parameters]

    def wrapped(self, value: Value) -> list[Tracer]:
        """The result's leaves as arrays of the open trace."""
        assert isinstance(value, tuple)
        pairs = zip(value, self.nested.outputs, strict=True)
        return [Tracer(self.trace, array_of(v), is_weak=o.is_weak) for v, o in pairs]


class Pullback:
    """From the cotangent of a function's result, a tree like it, to those of its arguments."""

    def __init__(self, point: _AtPoint, tree: TreeDef, count: int) -> None:
        self._point, self._tree, self._count = point, tree, count
        scope = Differentiator(point.trace.builder.computation)
        masks = point.per_parameter([has_derivative(x.instr.shape) for x in point.primals], False)
        value, self._pull = scope.vjp(point.computation, point.operands(), masks)
        self.outputs = point.wrapped(value)

    def __call__(self, cotangents: Any) -> Any:
        """A tuple with a tree for each argument; integers have zeros."""
        trace = self._point.trace
        if open_trace() is not trace:
            raise CompileError("vjp: call the pullback in the function that called vjp")
        return trace.run("vjp", self._apply, (cotangents,), {})

    def _apply(self, trace: Trace, cotangents: Any) -> Any:
        leaves, tree = flatten(cotangents)
        expect_tree("vjp: the cotangent", tree, self._tree)
        pairs = zip(leaves, self.outputs[: self._count], strict=True)
        given = [_like(trace, "cotangent", leaf, output) for leaf, output in pairs]
        rest: list[HloInstruction | None] = [None] * (len(self.outputs) - self._count)
        return unflatten(self._point.tree, self.pulled([*given, *rest]))

    def pulled(self, cotangents: Sequence[HloInstruction | None]) -> list[Tracer]:
        """The arguments' leaves' cotangents."""
        point = self._point
        found = dict(zip(point.computation.parameters, self._pull(tuple(cotangents)), strict=True))
        pairs = zip(point.nested.inputs, point.primals, strict=True)
        return [_or_zeros(found[parameter], x) for parameter, x in pairs]


def _or_zeros(derivative: Tangent, like: Tracer) -> Tracer:
    if derivative is None:
        zero = constant_like(like, 0)
        return Tracer(zero.owner, zero.instr)
    return Tracer(like.owner, array_of(derivative))


def _like(trace: Trace, what: str, leaf: object, like: Tracer) -> HloInstruction | None:
    """A cotangent or tangent in the type of what it belongs to; None for integers."""
    if not has_derivative(like.instr.shape):
        return None
    given = as_tracer(trace, leaf)
    if given.shape != like.shape:
        raise CompileError(f"the {what} is {given!r}, want the shape of {like!r}")
    return convert(given, like.dtype).instr


def value_and_grad(
    trace: Trace,
    function: Function,
    argnums: Argnums,
    has_aux: bool,
    holomorphic: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Any, Any]:
    """``function(*args, **kwargs)`` and its gradient by the arguments numbered in `argnums`."""
    numbers = argument_numbers(argnums, len(args))
    chosen = tuple(args[i] for i in numbers)
    point = _AtPoint(trace, "grad", of_chosen(function, numbers, args, kwargs), chosen)
    for x in point.primals:
        _expect_differentiable(x, holomorphic)
    tree, aux = _split("grad", point.nested, has_aux)
    if tree != LEAF:
        raise CompileError(f"grad: {_name(function)} returns a tree, want one scalar; use vjp")
    _expect_scalar(function, point.nested.outputs[0], holomorphic)
    pullback = Pullback(point, tree, 1)
    value, *rest = pullback.outputs
    one = constant_like(value, 1).instr
    gradient = unflatten(point.tree, pullback.pulled([one, *(None for _ in rest)]))
    assert isinstance(gradient, tuple)
    result = (value, unflatten(aux, rest)) if aux is not None else value
    return result, gradient[0] if isinstance(argnums, int) else gradient


def vjp(
    trace: Trace, function: Function, has_aux: bool, primals: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The result of ``function(*primals)``, its pullback, and what else it returned if `has_aux`."""
    point = _AtPoint(trace, "vjp", function, primals)
    tree, aux = _split("vjp", point.nested, has_aux)
    pullback = Pullback(point, tree, tree.leaf_count)
    outputs = pullback.outputs
    value = unflatten(tree, outputs[: tree.leaf_count])
    if aux is None:
        return value, pullback
    return value, pullback, unflatten(aux, outputs[tree.leaf_count :])


def jvp(
    trace: Trace, function: Function, has_aux: bool, primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Any, ...]:  # fmt: skip
    """The result of ``function(*primals)``, its tangent, and what else it returned if `has_aux`."""
    point = _AtPoint(trace, "jvp", function, primals)
    leaves, tree = flatten(tangents)
    expect_tree("jvp: tangents", tree, point.tree)
    given = [_like(trace, "tangent", t, x) for t, x in zip(leaves, point.primals, strict=True)]
    scope = Differentiator(trace.builder.computation)
    value, found = scope.jvp(point.computation, point.operands(), point.per_parameter(given))
    outputs = point.wrapped(value)
    moved = found if isinstance(found, tuple) else (None,) * len(outputs)
    changes = [_or_zeros(t, x) for t, x in zip(moved, outputs, strict=True)]
    tree, aux = _split("jvp", point.nested, has_aux)
    count = tree.leaf_count
    results = unflatten(tree, outputs[:count]), unflatten(tree, changes[:count])
    return results if aux is None else (*results, unflatten(aux, outputs[count:]))


def argument_numbers(argnums: Argnums, count: int) -> list[int]:
    """The numbers of arguments, of `count` that are given by position; negative ones from the end."""
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    for number in numbers:
        if not -count <= number < count:
            raise CompileError(
                f"argnums: there is no argument {number}: {count} are given by position"
            )
    return [number % count for number in numbers]


def of_chosen(
    function: Function, numbers: Sequence[int], args: Sequence[Any], kwargs: dict[str, Any]
) -> Function:
    """The function of some of its arguments; the others stay as they are."""

    def call(*chosen: Any) -> Any:
        every = list(args)
        for number, value in zip(numbers, chosen, strict=True):
            every[number] = value
        return function(*every, **kwargs)

    return call


def _split(name: str, nested: Nested, has_aux: bool) -> tuple[TreeDef, TreeDef | None]:
    """The trees of what is differentiated and of what else is returned."""
    if not has_aux:
        return nested.tree, None
    if nested.tree.kind is not tuple or len(nested.tree.children) != 2:
        raise CompileError(f"{name} with has_aux: the function must return a pair (value, aux)")
    return nested.tree.children[0], nested.tree.children[1]


def _name(function: Function) -> str:
    return str(getattr(function, "__name__", "the function"))


def _expect_differentiable(x: Tracer, holomorphic: bool) -> None:
    if not has_derivative(x.instr.shape):
        raise CompileError(
            f"grad by {x!r}: want floating-point arguments; choose others with argnums, or convert "
            "them with np.float32"
        )
    if holomorphic and x.dtype.kind != "c":
        raise CompileError(f"grad with holomorphic=True by {x!r}: want complex arguments")


def _expect_scalar(function: Function, value: Tracer, holomorphic: bool) -> None:
    kind = "complex" if holomorphic else "real floating-point"
    is_complex = value.instr.array.dtype.is_complex
    if value.shape or not has_derivative(value.instr.shape) or is_complex != holomorphic:
        raise CompileError(
            f"grad: {_name(function)} returns {value!r}, want one {kind} scalar; sum it, or use vjp "
            "or jacobian"
        )
