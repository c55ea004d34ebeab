"""Functions with derivative rules of their own, and checkpoints, as calls that carry their rule."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from compiler.autodiff.custom import Bound, Checkpoint, CustomJvp, CustomVjp
from compiler.autodiff.rule import DerivativeRule
from compiler.autodiff.rule_names import DERIVATIVE
from compiler.autodiff.values import Value, array_of
from compiler.diagnostics import CompileError
from compiler.frontends.numpy.nested import Leaf, Nested, expect_tree, trace_nested
from compiler.frontends.numpy.ops import as_tracer
from compiler.frontends.numpy.pytree import TreeDef, flatten, unflatten
from compiler.frontends.numpy.tracer import Trace, Tracer
from compiler.hlo.builder import HloBuilder

Function = Callable[..., Any]


class Begun(dict[Hashable, DerivativeRule]):
    """The rules of a function that are being traced, by `_Call.key`."""


class _Call:
    """A call in the making: operands are the arguments' leaves, then what computations capture."""

    def __init__(self, trace: Trace, args: tuple[Any, ...]) -> None:
        leaves, self.tree = flatten(args)
        self.trace = trace
        self.leaves = [as_tracer(trace, leaf) for leaf in leaves]
        self._operands = [x.instr for x in self.leaves]
        self.count = len(leaves)

    @property
    def types(self) -> list[Leaf]:
        """What the arguments' leaves are; none is weak in a computation of its own."""
        return [Leaf(x.instr.array) for x in self.leaves]

    @property
    def key(self) -> Hashable:
        """Calls of one function with this in common have the same rule."""
        return threading.get_ident(), self.tree, tuple(leaf.shape for leaf in self.types)

    def traced(self, name: str, function: Function, tree: TreeDef, types: Sequence[Leaf]) -> Nested:
        """A function of the trees' leaves as a computation of a tuple."""
        nested = trace_nested(self.trace, name, function, tree, types)
        b = nested.builder
        b.computation.root = b.tuple([output.instr for output in nested.outputs])
        return nested

    def bound(self, nested: Nested) -> Bound:
        """The computation, with what it captured among the call's operands."""
        captured = []
        for outer, inner in nested.captured.items():
            if outer not in self._operands[self.count :]:
                self._operands.append(outer)
            captured.append((inner, self._operands.index(outer, self.count)))
        return Bound(nested.builder.computation, tuple(nested.inputs), tuple(captured))

    def emit(self, primal: Nested, rule: DerivativeRule) -> Any:
        """The call, with parameters for every operand; returns the function's result."""
        bound = self.bound(primal)
        module = self.trace.builder.module
        inner = primal.builder.build(primal.builder.computation.root_instruction)
        b = HloBuilder(module.unique_name(inner.name), module)
        given: list[Value] = [b.parameter(operand.shape) for operand in self._operands]
        arguments = bound.arguments(given[: self.count], given)
        callee = b.build(b.call(inner, [array_of(x) for x in arguments]))
        call = self.trace.builder.call(callee, self._operands)
        call.attrs[DERIVATIVE] = rule
        results = [
            Tracer(self.trace, self.trace.builder.get_tuple_element(call, k), is_weak=False)
            for k in range(len(primal.outputs))
        ]
        return unflatten(primal.tree, results)


def checkpoint(
    trace: Trace, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """``function(*args, **kwargs)``, of which derivatives keep the arguments alone."""
    call = _Call(trace, args)
    primal = call.traced("checkpoint", lambda *a: function(*a, **kwargs), call.tree, call.types)
    return call.emit(primal, Checkpoint())


def custom_vjp(
    trace: Trace,
    function: Function,
    forward: Function,
    backward: Function,
    begun: Begun,
    args: tuple[Any, ...],
) -> Any:
    """``function(*args)``; reverse mode calls `forward` and `backward` instead.

    `begun` has the rules that are being traced: of calls of the function inside of them.
    """
    call = _Call(trace, args)
    primal = call.traced("custom_vjp", function, call.tree, call.types)
    if call.key in begun:
        return call.emit(primal, begun[call.key])
    rule = CustomVjp(call.count)
    with _begun(begun, call.key, rule):
        _trace_both(call, primal, rule, forward, backward)
    return call.emit(primal, rule)


def _trace_both(
    call: _Call, primal: Nested, rule: CustomVjp, forward: Function, backward: Function
) -> None:
    made = call.traced("custom_vjp_forward", _split(forward), call.tree, call.types)
    if made.tree.children[0] != primal.tree:
        expect_tree("custom_vjp: the first result of fwd", made.tree.children[0], primal.tree)
    _expect_alike("custom_vjp: fwd", made.outputs[: len(primal.outputs)], primal.outputs)
    residuals = made.outputs[len(primal.outputs) :]
    pair = TreeDef(tuple, (), (made.tree.children[1], primal.tree))
    types = [Leaf(x.instr.array) for x in (*residuals, *primal.outputs)]
    back = call.traced("custom_vjp_backward", _cotangents(call, backward), pair, types)
    rule.forward, rule.backward = call.bound(made), call.bound(back)


def custom_jvp(
    trace: Trace,
    function: Function,
    derivative: Function,
    begun: Begun,
    args: tuple[Any, ...],
) -> Any:
    """``function(*args)``; derivatives are by a function of tuples of arguments and of tangents."""
    call = _Call(trace, args)
    primal = call.traced("custom_jvp", function, call.tree, call.types)
    if call.key in begun:
        return call.emit(primal, begun[call.key])
    rule = CustomJvp(call.count)
    pair = TreeDef(tuple, (), (call.tree, call.tree))
    with _begun(begun, call.key, rule):
        made = call.traced("custom_jvp_rule", _split(derivative), pair, [*call.types, *call.types])
    half = len(primal.outputs)
    for k, what in enumerate(("result", "tangent")):
        expect_tree(f"custom_jvp: the {what} of the rule", made.tree.children[k], primal.tree)
        _expect_alike(
            "custom_jvp: the rule", made.outputs[k * half : (k + 1) * half], primal.outputs
        )
    rule.rule = call.bound(made)
    return call.emit(primal, rule)


@contextmanager
def _begun(begun: Begun, key: Hashable, rule: DerivativeRule) -> Iterator[None]:
    begun[key] = rule
    try:
        yield
    finally:
        del begun[key]


def _split(function: Function) -> Function:
    def pair(*args: Any) -> Any:
        found = function(*args)
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise CompileError(f"{getattr(function, '__name__', function)} must return a pair")
        return tuple(found)

    return pair


def _cotangents(call: _Call, backward: Function) -> Function:
    """The backward function, its results as one leaf for each leaf of the arguments."""

    def normal(residuals: Any, cotangent: Any) -> tuple[Any, ...]:
        found = backward(residuals, cotangent)
        trees = call.tree.children
        if not isinstance(found, tuple | list) or len(found) != len(trees):
            raise CompileError(f"custom_vjp: bwd must return a tuple of {len(trees)} cotangents")
        made: list[Any] = []
        for number, (part, tree) in enumerate(zip(found, trees, strict=True)):
            types = call.types[len(made) : len(made) + tree.leaf_count]
            if part is None:
                made += [np.zeros(t.shape.dims, t.type.dtype) for t in types]
                continue
            leaves, found_tree = flatten(part)
            expect_tree(f"custom_vjp: cotangent {number} of bwd", found_tree, tree)
            made += [_in_type(number, x, t) for x, t in zip(leaves, types, strict=True)]
        return tuple(made)

    return normal


def _in_type(number: int, leaf: Any, wanted: Leaf) -> Any:
    shape = tuple(getattr(leaf, "shape", ()))
    if shape != wanted.shape.dims:
        raise CompileError(
            f"custom_vjp: cotangent {number} of bwd has shape {shape}, want {wanted}"
        )
    return leaf.astype(wanted.type.dtype) if hasattr(leaf, "astype") else leaf


def _expect_alike(what: str, found: Sequence[Tracer], want: Sequence[Tracer]) -> None:
    for a, b in zip(found, want, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise CompileError(f"{what} returns {a!r}, want {b!r}")
