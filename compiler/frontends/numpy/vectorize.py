"""`vmap` of traced functions: traced for one example, batched into the open trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler.autodiff.values import Mask, array_of
from compiler.batching.batch import Batcher
from compiler.batching.step import spread
from compiler.diagnostics import CompileError
from compiler.frontends.numpy.nested import Leaf, trace_nested
from compiler.frontends.numpy.ops import as_tracer, transpose
from compiler.frontends.numpy.pytree import LEAF, TreeDef, flatten, unflatten
from compiler.frontends.numpy.tracer import Trace, Tracer
from compiler.rewrite.emitter import Emitter

Axes = Any
"""An axis, or None for what all examples share: one for a whole tree, or a tree of them."""


def vmap(
    trace: Trace,
    function: Callable[..., Any],
    in_axes: Axes,
    out_axes: Axes,
    axis_size: int | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """`function` of each example; those of arguments given by name lie along their first axes."""
    axes_tree = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    if isinstance(axes_tree, tuple) and len(axes_tree) != len(args):
        raise CompileError(f"vmap: in_axes has {len(axes_tree)} entries for {len(args)} arguments")
    leaves, tree = flatten((args, kwargs))
    xs = [as_tracer(trace, leaf) for leaf in leaves]
    wanted = [
        *spread_axes("in_axes", axes_tree, tree.children[0]),
        *(0 for _ in flatten(kwargs)[0]),
    ]
    axes = [_normal("in_axes", axis, x) for axis, x in zip(wanted, xs, strict=True)]
    size = _size(xs, axes, axis_size)
    moved = [x if axis is None else _to_front(x, axis) for x, axis in zip(xs, axes, strict=True)]
    types = [_of_one(x, axis is not None) for x, axis in zip(moved, axes, strict=True)]

    def of_pair(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return function(*args, **kwargs)

    nested = trace_nested(trace, "vmap", of_pair, tree, types)
    b = nested.builder
    b.computation.root = b.tuple([output.instr for output in nested.outputs])
    values = dict(zip(nested.inputs, (x.instr for x in moved), strict=True))
    values |= {inner: outer for outer, inner in nested.captured.items()}
    flags = {p: axis is not None for p, axis in zip(nested.inputs, axes, strict=True)}
    parameters = b.computation.parameters
    found, made = Batcher(trace.builder.computation, size).run(
        b.computation, [values[p] for p in parameters], [flags.get(p, False) for p in parameters]
    )
    assert isinstance(found, tuple)
    batched: Sequence[Mask] = made if isinstance(made, tuple) else [made] * len(found)
    results = [
        Tracer(trace, array_of(x), is_weak=o.is_weak)
        for x, o in zip(found, nested.outputs, strict=True)
    ]
    places = spread_axes("out_axes", out_axes, nested.tree)
    every = zip(results, batched, places, strict=True)
    return unflatten(nested.tree, [_placed(x, bool(flag), axis, size) for x, flag, axis in every])


def spread_axes(what: str, axes: Axes, tree: TreeDef) -> list[int | None]:
    """An axis for each leaf of a tree; `axes` may have one for a part of it."""
    if axes is None or isinstance(axes, int):
        return [axes] * tree.leaf_count
    found = dict(axes) if isinstance(axes, dict) else axes
    is_alike = isinstance(found, dict) == (tree.kind is dict) and tree != LEAF
    if not is_alike or len(found) != len(tree.children):
        raise CompileError(f"vmap: {what} is {axes!r}, which does not fit the arrays it is for")
    parts = [found[key] for key in tree.keys] if isinstance(found, dict) else list(found)
    pairs = zip(parts, tree.children, strict=True)
    return [axis for part, child in pairs for axis in spread_axes(what, part, child)]


def _normal(what: str, axis: int | None, x: Tracer) -> int | None:
    if axis is None:
        return None
    if not -x.ndim <= axis < x.ndim:
        raise CompileError(f"vmap: {what} has axis {axis} for {x!r}")
    return axis % x.ndim


def _size(xs: Sequence[Tracer], axes: Sequence[int | None], given: int | None) -> int:
    sizes = {x.shape[axis] for x, axis in zip(xs, axes, strict=True) if axis is not None}
    sizes |= set() if given is None else {given}
    if len(sizes) != 1:
        found = f"sizes {sorted(sizes)}" if sizes else "no batched argument"
        raise CompileError(f"vmap: found {found}, want batched arguments of one size")
    return sizes.pop()


def _to_front(x: Tracer, axis: int) -> Tracer:
    return transpose(x, (axis, *(i for i in range(x.ndim) if i != axis)))


def _of_one(x: Tracer, is_batched: bool) -> Leaf:
    array = x.instr.array
    return Leaf(array.with_dims(array.dims[1:]) if is_batched else array, x.is_weak)


def _placed(x: Tracer, is_batched: bool, axis: int | None, size: int) -> Tracer:
    """A result with its batch dimension at an axis."""
    if axis is None:
        if is_batched:
            raise CompileError(f"vmap: out_axes has None for {x!r}, which is batched")
        return x
    if not is_batched:
        e = Emitter(x.instr, x.owner.builder.computation)
        x = Tracer(x.owner, spread(e, x.instr, size), is_weak=x.is_weak)
    place = _normal("out_axes", axis, x)
    order = list(range(1, x.ndim))
    assert place is not None
    order.insert(place, 0)
    return transpose(x, order)
