"""The derivative of a whole module, as a module: for programs that come as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.autodiff.differentiate import Differentiator
from compiler.autodiff.values import (
    Instr,
    arrays_of,
    flags_of,
    has_derivative,
    or_zeros,
    shaped_like,
    tangents_of,
    unpack,
)
from compiler.diagnostics import CompileError
from compiler.hlo.builder import HloBuilder
from compiler.hlo.call_graph import drop_unreachable
from compiler.hlo.cloning import clone_computation
from compiler.hlo.ir import HloComputation, HloModule
from compiler.hlo.shape import ArrayShape, leaves
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.graph import remove_unneeded

Build = Callable[[Differentiator, Emitter, HloComputation, list[Instr]], Sequence[Instr]]


def vjp_module(module: HloModule, wanted: Sequence[int] | None = None) -> HloModule:
    """The module that returns a module's results, then its parameters' cotangents.

    It takes further parameters: a cotangent for each array of the result that has a derivative. Those
    of the parameters numbered in `wanted` are returned; None means all that have a derivative. Raises
    `UnsupportedError` for an operation without derivative.
    """
    return _derived(module, "vjp", _reverse(wanted, lambda e, shape: e.parameter(shape)))


def grad_module(module: HloModule, wanted: Sequence[int] | None = None) -> HloModule:
    """The module that returns a module's one result, a real scalar, then its gradient by parameters.

    As `vjp_module` otherwise. Raises `CompileError` for a module of another result.
    """
    shapes = leaves(module.entry.root_instruction.shape)
    if len(shapes) != 1 or shapes[0].rank or not shapes[0].dtype.is_float:
        raise CompileError(f"module {module.name} returns no single real scalar: use vjp_module")
    return _derived(module, "grad", _reverse(wanted, lambda e, shape: e.constant(shape.dtype, 1)))


def _reverse(wanted: Sequence[int] | None, seed: Callable[[Emitter, ArrayShape], Instr]) -> Build:
    """Reverse mode from a `seed` for each array of the result."""

    def build(
        scope: Differentiator, e: Emitter, entry: HloComputation, parameters: list[Instr]
    ) -> Sequence[Instr]:
        shape = entry.root_instruction.shape
        kept = [bool(has_derivative(p.shape)) for p in parameters]
        if wanted is not None:
            kept = [flag and i in wanted for i, flag in enumerate(kept)]
        value, pull = scope.vjp(entry, [unpack(e, p) for p in parameters], kept)
        flags = flags_of(has_derivative(shape), shape)
        seeds = [seed(e, s) if f else None for s, f in zip(leaves(shape), flags, strict=True)]
        found = pull(shaped_like(shape, iter(seeds)))
        cotangents = [
            or_zeros(e, g, p.array)
            for p, flag, tree in zip(parameters, kept, found, strict=True)
            if flag
            for g in tangents_of(tree, p.shape)
        ]
        return [*arrays_of(value), *cotangents]

    return build


def jvp_module(module: HloModule) -> HloModule:
    """The module that returns a module's results, then their tangents (of those that have any).

    It takes further parameters: a tangent for each parameter that has a derivative.
    """

    def build(
        scope: Differentiator, e: Emitter, entry: HloComputation, parameters: list[Instr]
    ) -> Sequence[Instr]:
        shape = entry.root_instruction.shape
        moving = [e.parameter(p.shape) if has_derivative(p.shape) else None for p in parameters]
        value, tangent = scope.jvp(entry, [unpack(e, p) for p in parameters], moving)
        pairs = zip(
            tangents_of(tangent, shape), leaves(shape), flags_of(has_derivative(shape), shape), strict=True
        )  # fmt: skip
        return [*arrays_of(value), *(or_zeros(e, t, s) for t, s, flag in pairs if flag)]

    return _derived(module, "jvp", build)


def _derived(module: HloModule, name: str, build: Build) -> HloModule:
    """A module whose entry is built beside that of `module`, which is left as it is."""
    made = HloModule(f"{name}_{module.name}")
    entry = _copied_entry(module, made)
    b = HloBuilder(f"{name}_{module.entry.name}", made)
    parameters = [b.parameter(p.shape, p.name) for p in entry.parameters]
    if any(len(leaves(p.shape)) != 1 for p in parameters):
        raise CompileError(f"module {module.name}: a parameter is a tuple; want arrays")
    scope = Differentiator(b.computation)
    results = build(scope, Emitter(entry.root_instruction, b.computation), entry, parameters)
    root = b.tuple(results)
    b.computation.root = root
    remove_unneeded(b.computation)
    found = b.build_entry(root)
    drop_unreachable(found)
    return found


def _copied_entry(module: HloModule, target: HloModule) -> HloComputation:
    """A copy of the entry in another module, with copies of all that it calls."""
    copies: dict[HloComputation, HloComputation] = {}
    for computation in module.computations.values():
        copy = clone_computation(computation, computation.name, target)
        copies[computation] = copy
        for instr in copy:
            for name, value in instr.attrs.items():
                instr.attrs[name] = _renamed(value, copies)
    return copies[module.entry]


def _renamed(value: object, copies: dict[HloComputation, HloComputation]) -> object:
    if isinstance(value, HloComputation):
        return copies[value]
    if isinstance(value, tuple) and value and isinstance(value[0], HloComputation):
        return tuple(copies[c] for c in value)
    return value
