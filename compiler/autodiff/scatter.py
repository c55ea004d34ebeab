"""The derivative of scatter: of each element, what it keeps of its own and what it has of updates.

With y the result, both are weights: ``dy = keeps(dx) + scatter-add(gives(du))``, and in reverse
``keeps(g)`` and ``gives(g read back)``. Updates that do not fit are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.autodiff.reduction import monoid_of
from compiler.autodiff.refusal import refused
from compiler.autodiff.rule import DerivativeStep, LocalRule
from compiler.autodiff.values import Contribution, Instr, Tangent, array_of, tangent_sum
from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import PRED, S32, DType
from compiler.hlo.ir import HloComputation
from compiler.hlo.shape import ArrayShape
from compiler.rewrite.emitter import Emitter

Weight = Callable[[Instr], Instr]
Weights = tuple[Weight, Weight]
"""What an element keeps of a derivative like it, and what an update gives of one like it."""


class ScatterRule(LocalRule):
    """By what becomes of an element and its update: sum, product, extreme, or the update."""

    def tangent(self, step: DerivativeStep, tangents: Sequence[Instr | None]) -> Tangent:
        """What is kept of the operand's tangent, and the updates' tangents added up."""
        keeps, gives = self._weights(step)
        e, (target, indices, _) = step.e, step.operands
        kept = None if tangents[0] is None else keeps(tangents[0])
        given = None
        if tangents[2] is not None:
            given = _added(step, e.like(target, 0), indices, gives(tangents[2]))
        return tangent_sum(e, [kept, given])

    def cotangents(self, step: DerivativeStep, cotangent: Tangent) -> Sequence[Contribution]:
        """What is kept of the cotangent, and what updates have of it where they went."""
        keeps, gives = self._weights(step)
        g = array_of(cotangent)
        kept = keeps(g) if step.wanted[0] else None
        return [kept, None, gives(read_back(step, g)) if step.wanted[2] else None]

    def _weights(self, step: DerivativeStep) -> Weights:
        body = step.instr.to_apply
        if len(step.operands) != 3:
            raise refused(step.instr, "scatter of several arrays has no derivative; scatter each")
        if body.root_instruction is body.parameters[-1]:
            return _written(step)
        kind = monoid_of(body)
        if kind == "add":
            return (lambda g: g), (lambda g: g)
        if kind in ("maximum", "minimum"):
            return _extreme(step)
        if kind == "multiply" and step.instr.attrs.get("unique_indices"):
            return _product(step)
        raise refused(
            step.instr,
            f"scatter with %{body.name} has no derivative; of products indices must be unique",
        )


def _written(step: DerivativeStep) -> Weights:
    """Elements that are written keep nothing; of their updates one stands there in the end."""
    e, (target, indices, update) = step.e, step.operands
    numbers = _numbers(e, update)
    winner = _scattered(
        step, e.full(S32, target.array.dims, 0), indices, numbers, take_update(e, S32)
    )
    is_free = e.compare_to(winner, 0, "EQ")
    won = e.compare(read_back(step, winner), numbers, "EQ")
    return _where(e, is_free), _where(e, won)


def _numbers(e: Emitter, update: Instr) -> Instr:
    """A number for each element of the updates, from 1 on."""
    count = update.array.element_count
    if not count:
        return e.full(S32, update.array.dims, 0)
    numbers = e.shaped(e.iota(S32, (count,), 0), update.array.dims)
    return e.add(numbers, e.like(numbers, 1))


def _extreme(step: DerivativeStep) -> Weights:
    """The operand's element and its updates share alike where they are what came out."""
    e, (target, indices, update) = step.e, step.operands
    own = e.compare(target, step.y, "EQ")
    mine = e.compare(update, read_back(step, step.y), "EQ")
    ones = e.select(mine, e.like(update, 1), e.like(update, 0))
    count = _added(step, e.select(own, e.like(target, 1), e.like(target, 0)), indices, ones)
    count = e.maximum(count, e.like(count, 1))  # a NaN is equal to none
    each = read_back(step, count)
    each = e.maximum(each, e.like(each, 1))

    def keeps(g: Instr) -> Instr:
        return _where(e, own)(e.divide(g, count))

    def gives(g: Instr) -> Instr:
        return _where(e, mine)(e.divide(g, each))

    return keeps, gives


def _product(step: DerivativeStep) -> Weights:
    """Each times the other; indices are unique."""
    e, (target, indices, update) = step.e, step.operands
    body = e.scalar("multiply", target.array.dtype)
    factor = _scattered(step, e.like(target, 1), indices, update, body)
    other = read_back(step, target)
    return (lambda g: e.multiply(g, factor)), (lambda g: e.multiply(g, other))


def _where(e: Emitter, flag: Instr) -> Weight:
    return lambda g: e.select(flag, g, e.like(g, 0))


def _scattered(
    step: DerivativeStep, target: Instr, indices: Instr, update: Instr, body: HloComputation
) -> Instr:
    """Updates of other arrays in the same places."""
    attrs = {k: v for k, v in step.instr.attrs.items() if k not in ("metadata", "to_apply")}
    return step.e.scatter((target,), indices, (update,), body, **attrs)


def _added(step: DerivativeStep, target: Instr, indices: Instr, update: Instr) -> Instr:
    body = step.e.scalar("add", target.array.dtype)
    return _scattered(step, target, indices, update, body)


def take_update(b: HloBuilder, dtype: DType) -> HloComputation:
    """The update, whatever was there."""
    inner = HloBuilder(f"take_update_{dtype}", b.module)
    inner.parameter(ArrayShape(dtype, ()))
    return inner.build(inner.parameter(ArrayShape(dtype, ())))


def _window_sizes(instr: Instr, update: Instr) -> tuple[int, ...]:
    """The box of operand 0 that one index writes, dimension by dimension."""
    windows = iter([update.array.dims[d] for d in instr.update_window_dims])
    gone = (*instr.inserted_window_dims, *instr.input_batching_dims)
    rank = instr.operands[0].array.rank
    return tuple(1 if d in gone else next(windows) for d in range(rank))


def read_back(step: DerivativeStep, g: Instr) -> Instr:
    """What an array has in the places that a scatter's updates go to; zero for those left out."""
    e, instr = step.e, step.instr
    count = len(step.operands) // 2
    indices, update = step.operands[count], step.operands[count + 1]
    sizes = _window_sizes(instr, update)
    attrs: dict[str, object] = {
        "offset_dims": instr.update_window_dims,
        "collapsed_slice_dims": instr.inserted_window_dims,
        "start_index_map": instr.scatter_dims_to_operand_dims,
        "index_vector_dim": instr.index_vector_dim,
        "slice_sizes": sizes,
    }
    if instr.input_batching_dims:
        attrs["operand_batching_dims"] = instr.input_batching_dims
        attrs["start_indices_batching_dims"] = instr.scatter_indices_batching_dims
    read = e.instruction("gather", (g, indices), attrs)
    return e.select(_fits(step, indices, sizes, read), read, e.like(read, 0))


def _fits(step: DerivativeStep, indices: Instr, sizes: Sequence[int], like: Instr) -> Instr:
    """Whether the box of each update lies inside, in the shape of the updates."""
    e, instr = step.e, step.instr
    dims = step.operands[0].array.dims
    bounds = [dims[d] - sizes[d] for d in instr.scatter_dims_to_operand_dims]
    if not bounds:
        return e.full(PRED, like.array.dims, 1)
    low = e.compare_to(indices, 0, "GE")
    high = e.compare(indices, largest_indices(e, indices, instr, bounds), "LE")
    inside = e.and_(low, high)
    if instr.index_vector_dim < indices.array.rank:
        inside = e.total(inside, instr.index_vector_dim, kind="and")
    mapping = [d for d in range(like.array.rank) if d not in instr.update_window_dims]
    return e.broadcast(inside, like.array.dims, mapping)


def largest_indices(e: Emitter, indices: Instr, instr: Instr, limits: Sequence[int]) -> Instr:
    """The largest allowed value of each index component, in the shape of the indices."""
    dims, place = indices.array.dims, instr.index_vector_dim
    line = e.table(indices.array.dtype, limits)
    if place == len(dims):
        return e.broadcast(e.shaped(line, ()), dims) if dims else e.shaped(line, ())
    return e.broadcast(line, dims, (place,))
