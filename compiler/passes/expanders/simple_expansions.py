"""Operations that are a few others: map, batch normalisation, stochastic rounding, ragged and
scaled products, padding of empty arrays, indices of other types, casts of bits."""

from __future__ import annotations

import math

from compiler.analysis.reducers import has_identity_init
from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import F32, S32, U32
from compiler.hlo.identities import MONOIDS
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import leaves
from compiler.passes.context import PassContext
from compiler.passes.expanders.bit_casts import change_width
from compiler.passes.expanders.convolution_groups import (
    batch_groups_to_features,
    gradient_without_groups,
)
from compiler.passes.expanders.driver import Expansion, expand
from compiler.passes.expanders.first_positions import first_of_several_nan
from compiler.passes.expanders.float_products import of_floats
from compiler.passes.expanders.index_forms import plain_indices
from compiler.passes.expanders.predicate_reductions import large_as_numbers
from compiler.passes.expanders.ragged_dots import by_blocks, running_sum
from compiler.passes.expanders.start_values import started_once
from compiler.rewrite.emitter import Emitter, result_of

Instr = HloInstruction


def expand_simple(module: HloModule, context: PassContext) -> bool:
    """Expand what needs no algorithm."""
    return expand(module, context, {**COMPOSED, **_OTHER_FORMS})


def _mapped(instr: Instr) -> Instr | None:
    """The computation of a `map`, on whole arrays."""
    computation = instr.to_apply
    e = Emitter.at(instr)
    if not instr.operands:
        raise UnsupportedError(f"%{instr.name}: map without operands", instr.span)
    return result_of(e, instr, e.apply(computation, instr.operands))


class _Normalisation:
    """Batch normalisation in f32, or wider when the operand is."""

    def __init__(self, instr: Instr) -> None:
        self.e = Emitter.at(instr)
        self.instr = instr
        array = instr.operands[0].array
        self.dtype = array.dtype if array.dtype.bits >= 32 else F32
        self.dims = array.dims
        epsilon, feature = instr.epsilon, instr.feature_index
        self.epsilon, self.feature = float(epsilon), feature
        self.axes = tuple(d for d in range(len(self.dims)) if d != feature)
        count = math.prod(self.dims[d] for d in self.axes)
        self.share = 1 / count if count else float("inf")  # a mean of nothing is NaN

    def value(self, number: int) -> Instr:
        """An operand in the working type; per-feature vectors keep their shape."""
        return self.e.cast(self.instr.operands[number], self.dtype)

    def wide(self, vector: Instr) -> Instr:
        """A vector of one number a feature, spread over the array."""
        return self.e.broadcast(vector, self.dims, (self.feature,))

    def mean(self, value: Instr) -> Instr:
        """Over all dimensions but the feature's."""
        total = self.e.total(value, *self.axes)
        return self.e.multiply(total, self.e.like(total, self.share))

    def inverse_deviation(self, variance: Instr) -> Instr:
        """``1 / sqrt(variance + epsilon)``."""
        e = self.e
        root = e.unary("sqrt", e.add(variance, e.like(variance, self.epsilon)))
        return e.divide(e.like(root, 1), root)

    def packed(self, values: list[Instr]) -> Instr:
        """Results in the types the instruction declares."""
        dtype = self.instr.operands[0].array.dtype
        return result_of(self.e, self.instr, [self.e.cast(value, dtype) for value in values])


def _batch_norm_training(instr: Instr) -> Instr | None:
    n = _Normalisation(instr)
    e, x = n.e, n.value(0)
    mean = n.mean(x)
    centred = e.subtract(x, n.wide(mean))
    variance = n.mean(e.multiply(centred, centred))
    scale = e.multiply(n.value(1), n.inverse_deviation(variance))
    result = e.add(e.multiply(centred, n.wide(scale)), n.wide(n.value(2)))
    return n.packed([result, mean, variance])


def _batch_norm_inference(instr: Instr) -> Instr | None:
    n = _Normalisation(instr)
    e = n.e
    centred = e.subtract(n.value(0), n.wide(n.value(3)))
    scale = e.multiply(n.value(1), n.inverse_deviation(n.value(4)))
    return n.packed([e.add(e.multiply(centred, n.wide(scale)), n.wide(n.value(2)))])


def _batch_norm_grad(instr: Instr) -> Instr | None:
    n = _Normalisation(instr)
    e, grad = n.e, n.value(4)
    inverse = n.inverse_deviation(n.value(3))
    normal = e.multiply(e.subtract(n.value(0), n.wide(n.value(2))), n.wide(inverse))
    grad_offset = e.total(grad, *n.axes)
    grad_scale = e.total(e.multiply(grad, normal), *n.axes)
    share = e.like(grad_offset, n.share)
    correction = e.add(
        n.wide(e.multiply(grad_offset, share)),
        e.multiply(normal, n.wide(e.multiply(grad_scale, share))),
    )
    factor = e.multiply(n.value(1), inverse)
    grad_operand = e.multiply(n.wide(factor), e.subtract(grad, correction))
    return n.packed([grad_operand, grad_scale, grad_offset])


def _stochastic_convert(instr: Instr) -> Instr | None:
    """Away from zero with the probability of the fraction."""
    e = Emitter.at(instr)
    target, noise = instr.array.dtype, instr.operands[1]
    if not (target.is_integer and target.is_signed) or noise.array.dtype.bits > 32:
        raise UnsupportedError(
            f"%{instr.name}: stochastic-convert to {target} with {noise.array.dtype} noise; "
            "round to a signed integer with noise of up to 32 bits",
            instr.span,
        )
    value = e.cast(instr.operands[0], F32)
    magnitude = e.unary("abs", value)
    whole = e.unary("floor", magnitude)
    fraction = e.subtract(magnitude, whole)
    scale = e.like(fraction, float(1 << noise.array.dtype.bits))
    threshold = e.multiply(fraction, scale)  # exact, and below 2**32
    words = e.cast(noise, U32)
    goes_up = e.compare(words, e.cast(threshold, U32), "LT")
    rounded = e.add(whole, e.cast(goes_up, F32))
    signed = e.select(e.compare_to(value, 0, "LT"), e.negate(rounded), rounded)
    is_nan = e.compare(value, value, "NE")
    return e.cast(e.select(is_nan, e.like(value, 0), signed), target)


def _ragged_dot(instr: Instr) -> Instr | None:
    """By blocks of rows, or a loop over groups; each masks its own rows of the ragged dimension."""
    plain = of_floats(instr) or by_blocks(instr)
    if plain is not None:
        return plain
    e = Emitter.at(instr)
    lhs, rhs, sizes = instr.operands
    if sizes.array.rank != 1:
        raise UnsupportedError(
            f"%{instr.name}: group sizes of rank above 1; loop over the batch", instr.span
        )
    (ragged,) = instr.lhs_ragged_dims
    groups = sizes.array.dims[0]
    if groups == 0:
        return e.full(instr.array.dtype, instr.array.dims, 0)
    stops = running_sum(e, e.cast(sizes, S32))
    group_dims = instr.rhs_group_dims

    def step(b: Emitter, i: Instr, state: list[Instr]) -> list[Instr]:
        left, right, ends, counts, total = state
        stop = b.reshape(b.dynamic_slice(ends, (i,), (1,)), ())
        start = b.subtract(stop, b.reshape(b.dynamic_slice(counts, (i,), (1,)), ()))
        place = b.positions(left.array.dims, ragged)
        inside = b.and_(
            b.compare(place, b.broadcast(start, left.array.dims), "GE"),
            b.compare(place, b.broadcast(stop, left.array.dims), "LT"),
        )
        masked = b.select(inside, left, b.like(left, 0))
        if group_dims:
            product = _group_product(b, instr, masked, right, i, group_dims[0])
            return [left, right, ends, counts, b.add(total, product)]
        product = b.instruction(
            "dot", (masked, right), _dot_attrs(instr), instr.array.with_dims(())
        )
        if ragged not in instr.lhs_contracting_dims:
            return [left, right, ends, counts, b.add(total, product)]
        zero = b.constant(S32, 0)
        at = (i, *([zero] * product.array.rank))
        update = b.reshape(product, (1, *product.array.dims))
        return [left, right, ends, counts, b.dynamic_update_slice(total, update, at)]

    total = e.full(instr.array.dtype, instr.array.dims, 0)
    counts = e.cast(sizes, S32)
    return e.loop(groups, [lhs, rhs, stops, counts, total], step)[-1]


def _convolution(instr: Instr) -> Instr | None:
    return of_floats(instr) or gradient_without_groups(instr) or batch_groups_to_features(instr)


def _dot_attrs(instr: Instr) -> dict[str, object]:
    names = ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")
    kept = (*names, "operand_precision", "algorithm")
    return {name: instr.attrs[name] for name in kept if name in instr.attrs}


def _group_product(
    b: Emitter, instr: Instr, left: Instr, right: Instr, i: Instr, group: int
) -> Instr:
    """The product with slice i of the right side's group dimension."""
    zero = b.constant(S32, 0)
    dims = right.array.dims
    sizes = tuple(1 if d == group else n for d, n in enumerate(dims))
    starts = [i if d == group else zero for d in range(len(dims))]
    slab = b.dynamic_slice(right, starts, sizes)
    other = b.reshape(slab, (*dims[:group], *dims[group + 1 :]))
    attrs = _dot_attrs(instr)
    for name in ("rhs_contracting_dims", "rhs_batch_dims"):
        if name in attrs:
            attrs[name] = tuple(d - (d > group) for d in instr.ints(name))
    return b.instruction("dot", (left, other), attrs, instr.array.with_dims(()))


def _simpler_reduces(instr: Instr) -> Instr | None:
    """Over nothing: the start values. Over one element: the computation of start and element."""
    count = len(instr.operands) // 2
    if instr.operands[0].array.element_count == 0:
        return result_of(Emitter.at(instr), instr, _starts(instr))
    computation = instr.to_apply
    if all(instr.operands[0].array.dims[d] == 1 for d in instr.dimensions):
        return _combined_once(instr, computation)
    if count == 1:
        return large_as_numbers(instr) or started_once(instr)
    return _each_by_itself(instr) or first_of_several_nan(instr) or started_once(instr)


def _each_by_itself(instr: Instr) -> Instr | None:
    """A reduce per operand, where the computation combines each without the others."""
    count = len(instr.operands) // 2
    computation = instr.to_apply
    root = computation.root_instruction
    if root.opcode != "tuple":
        return None
    for number, part in enumerate(root.operands):
        pair = {computation.parameters[number], computation.parameters[count + number]}
        if part.opcode not in MONOIDS or set(part.operands) != pair:
            return None
    e = Emitter.at(instr)
    dims = instr.dimensions
    found = [
        e.reduce(value, init, dims, e.scalar(part.opcode, value.array.dtype))
        for value, init, part in zip(
            instr.operands[:count], instr.operands[count:], root.operands, strict=True
        )
    ]
    return result_of(e, instr, found)


def _starts(reduce: Instr) -> list[Instr]:
    """The start values, everywhere in the results."""
    e = Emitter.at(reduce)
    starts = reduce.operands[len(reduce.operands) // 2 :]
    shapes = leaves(reduce.shape)
    return [e.broadcast(start, s.dims) for start, s in zip(starts, shapes, strict=True)]


def _combined_once(reduce: Instr, computation: HloComputation) -> Instr:
    """A reduce that leaves no element out: its start values and the operand, element by element."""
    e = Emitter.at(reduce)
    results = leaves(reduce.shape)
    values = [e.reshape(value, results[0].dims) for value in reduce.operands[: len(results)]]
    if has_identity_init(reduce) and len(values) == 1:
        return e.cast(values[0], results[0].dtype)
    arguments = [
        e.cast(value, parameter.array.dtype)  # may be wider than the operands
        for value, parameter in zip(
            [*_starts(reduce), *values], computation.parameters, strict=True
        )
    ]
    found = e.apply(computation, arguments)
    return result_of(e, reduce, [e.cast(f, r.dtype) for f, r in zip(found, results, strict=True)])


def _real(instr: Instr) -> Instr | None:
    """Of a real number, itself."""
    operand = instr.operands[0]
    return None if operand.array.dtype.is_complex else operand


def _imag(instr: Instr) -> Instr | None:
    """Of a real number, zero."""
    operand = instr.operands[0]
    return None if operand.array.dtype.is_complex else Emitter.at(instr).like(operand, 0)


def _scaled_dot(instr: Instr) -> Instr | None:
    """Both sides times their block scales, then a plain product."""
    e = Emitter.at(instr)
    lhs, rhs, lhs_scale, rhs_scale = instr.operands
    sides = (_scaled(e, lhs, lhs_scale), _scaled(e, rhs, rhs_scale))
    attrs = {**_dot_attrs(instr), "operand_precision": ("highest", "highest")}
    return e.instruction("dot", sides, attrs, instr.array.with_dims(()))


def _scaled(e: Emitter, value: Instr, scale: Instr) -> Instr:
    dims = value.array.dims
    factor = e.cast(scale, F32)
    if not scale.array.dims:
        spread = e.broadcast(factor, dims)
    else:
        split: list[int] = []
        places: list[int] = []
        for extent, blocks in zip(dims, scale.array.dims, strict=True):
            places.append(len(split))
            split += [blocks, extent // max(1, blocks)]
        spread = e.reshape(e.broadcast(factor, tuple(split), tuple(places)), dims)
    return e.multiply(e.cast(value, F32), spread)


def _widened_window(instr: Instr) -> Instr | None:
    """Operands and start values in the types that the computation takes, as in a wider sum."""
    count = len(instr.operands) // 2
    parameters = instr.to_apply.parameters
    wanted = [p.array.dtype for p in (*parameters[count:], *parameters[:count])]
    if all(o.array.dtype is dtype for o, dtype in zip(instr.operands, wanted, strict=True)):
        return None
    e = Emitter.at(instr)
    operands = [e.cast(o, dtype) for o, dtype in zip(instr.operands, wanted, strict=True)]
    return e.instruction(instr.opcode, operands, dict(instr.attrs), instr.shape)


COMPOSED: dict[str, Expansion] = {
    "batch-norm-grad": _batch_norm_grad,
    "batch-norm-inference": _batch_norm_inference,
    "batch-norm-training": _batch_norm_training,
    "map": _mapped,
    "ragged-dot": _ragged_dot,
    "scaled-dot": _scaled_dot,
    "stochastic-convert": _stochastic_convert,
}
"""Opcodes that are always a few others: none is left, and no later pass knows them."""

_OTHER_FORMS: dict[str, Expansion] = {
    "bitcast-convert": change_width,
    "convolution": _convolution,
    "dot": of_floats,
    "dynamic-slice": plain_indices,
    "dynamic-update-slice": plain_indices,
    "gather": plain_indices,
    "imag": _imag,
    "real": _real,
    "reduce": _simpler_reduces,
    "reduce-window": _widened_window,
    "scatter": plain_indices,
}
"""Opcodes that later passes take in fewer forms."""
