"""Rewrites a program so that every array lists its dimensions in the order that was chosen for it.

    add f32[1000,8,3] in order (2,1,0)   ->   add f32[3,8,1000]

After it all arrays lie in descending order again, which is what the backend reads. Where an operation
takes an array in another order than it lies in, a transpose stands between, which fuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from compiler.hlo.attributes import Window
from compiler.hlo.call_graph import drop_unreachable
from compiler.hlo.dtypes import F32, DType
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.passes.dimension_order.arrays import HANDED_ON, array_leaves
from compiler.passes.dimension_order.dots import (
    Form,
    dot_places,
    is_in_lanes,
    is_row_dot,
    row_product,
)
from compiler.passes.dimension_order.forms import plain, result_shape
from compiler.passes.dimension_order.indexed import gather_attributes, scatter_attributes
from compiler.passes.dimension_order.orders import Order, descending, physical
from compiler.passes.dot_canonicalizer import dot_sides
from compiler.rewrite import make
from compiler.rewrite.graph import emit, remove_dead

Instr = HloInstruction


class Orders(Protocol):
    """What is to be rewritten: an order for each array, and a form for each operation."""

    @property
    def module(self) -> HloModule:
        """The program."""

    @property
    def computations(self) -> Sequence[HloComputation]:
        """Its control flow."""

    def order(self, instr: Instr, index: int = 0) -> Order:
        """The order of an instruction's array, or of one in its tuple."""

    def form(self, instr: Instr) -> Form:
        """How an operation takes its operands and gives its result."""


class OrderRewriter:
    """Makes all operations anew first, then gives loops and tuples the new shapes."""

    def __init__(self, plan: Orders) -> None:
        self._plan = plan
        self._made: dict[Instr, Instr] = {}
        self._views: dict[tuple[Instr, Order], Instr] = {}

    def run(self) -> int:
        """Rewrite everything that has or takes an array of another order; return how much."""
        touched = {
            computation: [i for i in computation if self._is_touched(i)]
            for computation in self._plan.computations
        }
        for computation, instructions in touched.items():
            self._remake(computation, instructions)
        for instructions in touched.values():
            for instr in instructions:
                if instr.opcode in HANDED_ON:
                    instr.shape = self._shape(instr)
        for instr, made in self._made.items():
            instr.replace_all_uses_with(made)  # who is left takes it as it was
        for computation, instructions in touched.items():
            for instr in reversed(instructions):
                if instr.computation is not None:
                    remove_dead(instr)
            if instructions:
                computation.sort()
        drop_unreachable(self._plan.module)
        return sum(map(len, touched.values()))

    def _is_touched(self, instr: Instr) -> bool:
        return any(
            self._plan.order(value, index) != descending(shape.rank)
            for value in (instr, *instr.operands)
            for index, shape in array_leaves(value.shape)
        )

    def _shape(self, instr: Instr) -> Shape:
        """An instruction's shape with all dimensions in their orders."""

        def reordered(part: Shape, index: int) -> Shape:
            if not isinstance(part, ArrayShape):
                return part
            return part.with_dims(physical(part.dims, self._plan.order(instr, index)))

        if isinstance(instr.shape, TupleShape):
            return TupleShape(tuple(reordered(p, i) for i, p in enumerate(instr.shape.elements)))
        return reordered(instr.shape, 0)

    def _remake(self, computation: HloComputation, instructions: list[Instr]) -> None:
        for instr in instructions:
            if instr.opcode not in HANDED_ON:
                self._compute(instr)
            elif instr.opcode == "tuple":
                operands = list(instr.operands)
                for index, _ in array_leaves(instr.shape):
                    operands[index] = self._view(operands[index], self._plan.order(instr, index))
                instr.set_operands(operands)
            elif instr.opcode in ("conditional", "opt-barrier"):
                instr.set_operands([self._made.get(o, o) for o in instr.operands])
        root = computation.root_instruction
        if isinstance(root.shape, ArrayShape):
            order = self._plan.order(root)
            is_entry = computation is self._plan.module.entry  # whose result stays as it is
            computation.root = self._view(root, descending(len(order)) if is_entry else order)

    def _compute(self, instr: Instr) -> None:
        """Make an operation anew in its form."""
        taken = self._plan.form(instr)
        operands = [
            self._view(o, order) if isinstance(o.shape, ArrayShape) else o
            for o, order in zip(instr.operands, taken.operands, strict=True)
        ]
        made = self._emit(instr, operands, taken)
        wanted = self._plan.order(instr) if isinstance(instr.shape, ArrayShape) else taken.result
        made = _turned(made, result_shape(instr), taken.result, wanted)
        self._made[instr] = made

    def _view(self, value: Instr, order: Order) -> Instr:
        """An array in an order."""
        source = self._made.get(value, value)
        if not isinstance(value.shape, ArrayShape):
            return source
        key = value, order
        if key not in self._views:
            self._views[key] = _turned(source, value.array, self._plan.order(value), order)
        return self._views[key]

    def _emit(self, instr: Instr, operands: list[Instr], taken: Form) -> Instr:
        if instr.opcode == "dot" and is_in_lanes(instr, taken.result):
            return _products(instr, operands, taken)
        if instr.opcode == "dot" and is_row_dot(instr) and taken != plain(instr):
            return row_product(instr, operands, taken)
        if instr.opcode == "transpose":
            return operands[0]
        attrs = dict(instr.attrs)
        if instr.opcode in _ATTRIBUTES:
            attrs.update(_ATTRIBUTES[instr.opcode](instr, taken))
            operands = _with_indices(instr, operands, taken)
        if isinstance(instr.shape, TupleShape):
            parts = [_reordered(s, taken.result) for _, s in array_leaves(instr.shape)]
            shape: Shape = TupleShape(tuple(parts))
        else:
            shape = _reordered(instr.array, taken.result)
        return emit(instr, instr.opcode, shape, operands, attrs, instr.name)


def _reordered(shape: ArrayShape, order: Order) -> ArrayShape:
    return shape.with_dims(physical(shape.dims, order))


def _turned(source: Instr, shape: ArrayShape, lies: Order, order: Order) -> Instr:
    """`source`, an array of `shape` that lies in one order, in another."""
    if lies == order:
        return source
    permutation = tuple(lies.index(d) for d in order)
    attrs: dict[str, object] = {"dimensions": permutation}
    return emit(source, "transpose", _reordered(shape, order), (source,), attrs)


Attrs = dict[str, object]


def _places(instr: Instr, taken: Form) -> Attrs:
    order = taken.operands[0]
    return {"dimensions": tuple(sorted(order.index(d) for d in instr.dimensions))}


def _broadcast(instr: Instr, taken: Form) -> Attrs:
    mapping = instr.dimensions
    return {"dimensions": tuple(taken.result.index(mapping[d]) for d in taken.operands[0])}


def _iota(instr: Instr, taken: Form) -> Attrs:
    return {"iota_dimension": taken.result.index(instr.iota_dimension)}


def _constant(instr: Instr, taken: Form) -> Attrs:
    return {"literal": np.ascontiguousarray(np.transpose(np.asarray(instr.literal), taken.result))}


def _concatenate(instr: Instr, taken: Form) -> Attrs:
    return {"dimensions": (taken.result.index(instr.dimensions[0]),)}


def _listed(name: str) -> Callable[[Instr, Form], Attrs]:
    """An attribute with one entry a dimension."""

    def reordered(instr: Instr, taken: Form) -> Attrs:
        values = instr.ints(name)
        return {name: tuple(values[d] for d in taken.operands[0])}

    return reordered


def _gather(instr: Instr, taken: Form) -> Attrs:
    return gather_attributes(instr, taken.operands, taken.result)


def _scatter(instr: Instr, taken: Form) -> Attrs:
    return scatter_attributes(instr, taken.operands)


def _window(instr: Instr, taken: Form) -> Attrs:
    dims = instr.window.dims
    return {"window": Window(tuple(dims[d] for d in taken.operands[0]))}


def _labels(instr: Instr, taken: Form) -> Attrs:
    """The roles of a convolution's dimensions where they are now."""
    image, kernel, result = (*taken.operands, taken.result)
    old = instr.dim_labels
    labels = replace(
        old,
        input_batch=image.index(old.input_batch),
        input_feature=image.index(old.input_feature),
        input_spatial=tuple(map(image.index, old.input_spatial)),
        kernel_input_feature=kernel.index(old.kernel_input_feature),
        kernel_output_feature=kernel.index(old.kernel_output_feature),
        kernel_spatial=tuple(map(kernel.index, old.kernel_spatial)),
        output_batch=result.index(old.output_batch),
        output_feature=result.index(old.output_feature),
        output_spatial=tuple(map(result.index, old.output_spatial)),
    )
    return {"dim_labels": labels}


def _nothing(instr: Instr, taken: Form) -> Attrs:
    return {}


_ATTRIBUTES: dict[str, Callable[[Instr, Form], Attrs]] = {
    "broadcast": _broadcast,
    "iota": _iota,
    "constant": _constant,
    "reduce": _places,
    "reverse": _places,
    "slice": _listed("slice"),
    "pad": _listed("padding"),
    "dynamic-slice": _listed("dynamic_slice_sizes"),
    "dynamic-update-slice": _nothing,
    "concatenate": _concatenate,
    "gather": _gather,
    "scatter": _scatter,
    "convolution": _labels,
    "reduce-window": _window,
    "running-total": _places,
    "select-and-scatter": _window,
}


def _with_indices(instr: Instr, operands: list[Instr], taken: Form) -> list[Instr]:
    """Start indices go with their dimensions."""
    first = {"dynamic-slice": 1, "dynamic-update-slice": 2}.get(instr.opcode)
    if first is None:
        return operands
    starts = operands[first:]
    return [*operands[:first], *(starts[d] for d in taken.operands[0])]


def _products(dot: Instr, operands: list[Instr], taken: Form) -> Instr:
    """A dot as products ``[contracted.., result..]`` summed over the first dimensions, in f32."""
    left, right = dot_sides(dot)
    sizes = tuple(left.operand.array.dims[d] for d in left.contracting)
    count = len(sizes)
    shape = ArrayShape(F32, (*sizes, *physical(dot.array.dims, taken.result)))
    wide = []
    sides = zip((left, right), operands, taken.operands, dot_places(dot), strict=True)
    for side, operand, order, places in sides:
        mapping = tuple(
            side.contracting.index(d)
            if d in side.contracting
            else count + taken.result.index(places[d])
            for d in order
        )
        value = _converted(operand, _reordered(side.operand.array, order), F32)
        wide.append(emit(dot, "broadcast", shape, (value,), {"dimensions": mapping}))
    products = emit(dot, "multiply", shape, wide)
    attrs: Attrs = {"dimensions": tuple(range(count)), "to_apply": make.reducer(dot, "add", F32)}
    total_shape = shape.with_dims(shape.dims[count:])
    zero = make.constant(dot, F32, 0)
    total = emit(dot, "reduce", total_shape, (products, zero), attrs, dot.name)
    return _converted(total, total_shape, dot.array.dtype)


def _converted(value: Instr, shape: ArrayShape, dtype: DType) -> Instr:
    if shape.dtype == dtype:
        return value
    return emit(value, "convert", ArrayShape(dtype, shape.dims), (value,))
