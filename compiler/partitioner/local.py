"""Builds a device's program: what depends on the device's number, masks and collectives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from compiler.hlo.dtypes import S32, U32, DType
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.replica_groups import DeviceCounts
from compiler.hlo.shape import ArrayShape
from compiler.partitioner.grid import Axes, Cut, Devices, Dims, Grid
from compiler.partitioner.moves import Move
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction


class Local(Emitter):
    """An `Emitter` of one computation of the device's program.

    `near` is the instruction of the global program that is being partitioned. Numbers that differ between
    devices are read from tables by partition-id.
    """

    def __init__(
        self,
        computation: HloComputation,
        near: Instr,
        grid: Grid,
        counts: DeviceCounts,
        channels: Iterator[int],
    ) -> None:
        super().__init__(near, computation)
        self.grid = grid
        self.counts = counts
        self.channels = channels
        self._scalars: dict[tuple[object, ...], Instr] = {}
        self._permuted: dict[tuple[Instr, tuple[Dims, ...]], Instr] = {}
        self.order = 0

    # What depends on the device.

    def scalar_of(self, table: Sequence[int] | Devices) -> Instr:
        """An s32 scalar: the table's entry of this device."""
        values = np.asarray(table, np.int32)
        key = tuple(values.tolist())
        if len(set(key)) == 1:
            return self.number(key[0])
        if key not in self._scalars:
            part = self.dynamic_slice(self.literal(values), (self._device(),), (1,))
            self._scalars[key] = self.reshape(part, ())
        return self._scalars[key]

    def flag_of(self, table: Sequence[bool] | Devices) -> Instr:
        """A pred scalar: the table's entry of this device."""
        number = self.scalar_of(np.asarray(table, np.int32))
        return self.compare(number, self.number(0), "NE")

    def number(self, value: int) -> Instr:
        """An s32 constant."""
        key = ("number", value)
        if key not in self._scalars:
            self._scalars[key] = self.constant(S32, value)
        return self._scalars[key]

    def _device(self) -> Instr:
        key = ("partition-id",)
        if key not in self._scalars:
            self._scalars[key] = self.instruction("partition-id", (), None, ArrayShape(U32, ()))
        return self._scalars[key]

    def tile(self, axes: Axes) -> Devices:
        """For every device the number of its tile along the axes."""
        return self.grid.tile_index(axes, self.order)

    def offset(self, size: int, axes: Axes) -> Instr:
        """Where this device's tile begins in a dimension of `size` cut along the axes."""
        return self.scalar_of(self.tile(axes) * -(-size // self.grid.count(axes)))

    # Parts and masks.

    def tail(self, operand: Instr, dim: int, size: int) -> Instr:
        """The operand with zeros added at the end of a dimension, up to `size`."""
        return self.pad_dim(operand, dim, 0, size - operand.array.dims[dim])

    def part_at(self, operand: Instr, dim: int, start: Instr, size: int) -> Instr:
        """`size` elements of a dimension from a place that is known at run time."""
        if operand.array.dims[dim] == size:
            return operand
        zero = self.number(0)
        starts = [start if d == dim else zero for d in range(operand.array.rank)]
        sizes = tuple(size if d == dim else s for d, s in enumerate(operand.array.dims))
        return self.dynamic_slice(operand, starts, sizes)

    def own_part(self, operand: Instr, dim: int, axes: Axes) -> Instr:
        """This device's tile of a dimension that it holds all of."""
        count = self.grid.count(axes)
        size = -(-operand.array.dims[dim] // count)
        padded = self.tail(operand, dim, size * count)
        return self.part_at(padded, dim, self.scalar_of(self.tile(axes) * size), size)

    def positions_of(self, operand: Instr, dim: int, start: Instr) -> Instr:
        """For every element its place in a dimension of which the operand begins at `start`."""
        return self.places(operand.array.dims, dim, start)

    def places(self, dims: Dims, dim: int, start: Instr) -> Instr:
        """``start + i`` for every element i along a dimension."""
        return self.add(self.positions(dims, dim), self.broadcast(start, dims))

    def where(self, condition: Instr, value: Instr, other: Instr) -> Instr:
        """`value` where the condition holds, else the scalar `other`."""
        return self.select(condition, value, self.broadcast(other, value.array.dims))

    def within(self, operand: Instr, dim: int, start: Instr, low: int, high: int) -> Instr:
        """Which elements lie at ``low <= place < high`` of a dimension; see `positions_of`."""
        places = self.positions_of(operand, dim, start)
        below = self.compare(places, self.like(places, high), "LT")
        return self.and_(self.compare(places, self.like(places, low), "GE"), below)

    def masked(self, operand: Instr, dim: int, size: int, axes: Axes, fill: Instr) -> Instr:
        """The operand with `fill` past the end of a dimension of `size` cut along the axes."""
        local = operand.array.dims[dim]
        if local * self.grid.count(axes) == size:
            return operand
        inside = self.within(operand, dim, self.offset(size, axes), 0, size)
        return self.where(inside, operand, fill)

    def broadcast(
        self, operand: Instr, dims: Sequence[int], dimensions: Sequence[int] = ()
    ) -> Instr:
        """As the builder's; a scalar that is wanted as a scalar is itself."""
        if tuple(dims) == operand.array.dims and not dims:
            return operand
        return super().broadcast(operand, dims, dimensions)

    # Collectives.

    def sum_of(self, dtype: DType) -> HloComputation:
        """The sum of two scalars; of preds, whether either holds."""
        return self.scalar("or" if dtype.kind == "pred" else "add", dtype)

    def _channel(self) -> dict[str, object]:
        return {"channel_id": next(self.channels)}

    def _groups(self, axes: Axes) -> tuple[tuple[int, ...], ...]:
        groups = self.grid.groups(axes, self.order)
        n = self.counts.partitions
        return tuple(
            tuple(r * n + d for d in g) for r in range(self.counts.replicas) for g in groups
        )

    def all_gather(self, operand: Instr, dim: int, axes: Axes) -> Instr:
        """The tiles along the axes, one after another."""
        attrs = self._channel() | {
            "replica_groups": self._groups(axes),
            "dimensions": (dim,),
            "use_global_device_ids": True,
        }
        return self.instruction("all-gather", (operand,), attrs)

    def all_reduce(self, operand: Instr, axes: Axes, to_apply: HloComputation) -> Instr:
        """The devices' values along the axes combined."""
        attrs = self._channel() | {
            "replica_groups": self._groups(axes),
            "use_global_device_ids": True,
            "to_apply": to_apply,
        }
        return self.instruction("all-reduce", (operand,), attrs)

    def reduce_scatter(
        self, operand: Instr, dim: int, axes: Axes, to_apply: HloComputation
    ) -> Instr:
        """This device's tile of a dimension of the devices' values combined."""
        attrs = self._channel() | {
            "replica_groups": self._groups(axes),
            "use_global_device_ids": True,
            "dimensions": (dim,),
            "to_apply": to_apply,
        }
        return self.instruction("reduce-scatter", (operand,), attrs)

    def permute(self, operand: Instr, pairs: Sequence[Dims]) -> Instr:
        """What each device's source holds; asked for twice, it is sent once."""
        key = (operand, tuple((a, b) for a, b in pairs))
        if key not in self._permuted:
            attrs = self._channel() | {"source_target_pairs": key[1]}
            self._permuted[key] = self.instruction("collective-permute", (operand,), attrs)
        return self._permuted[key]

    def _exchange(self, operand: Instr, dim: int, axes: Axes) -> Instr:
        attrs = self._channel() | {
            "replica_groups": self.grid.groups(axes, self.order),
            "dimensions": (dim,),
        }
        return self.instruction("all-to-all", (operand,), attrs)

    def move(
        self, operand: Instr, dims: Dims, before: Cut, move: Move, combiner: HloComputation | None
    ) -> Instr:
        """One step of a route, of an array of global `dims`."""
        self.order = move.after.order if move.kind in ("cut", "mask") else before.order
        if move.kind == "reduce":
            assert combiner is not None
            return self.all_reduce(operand, move.axes, combiner)
        if move.kind == "scatter":
            assert combiner is not None
            size = -(-dims[move.dim] // self.grid.count(move.after.dims[move.dim]))
            padded = self.tail(operand, move.dim, size * self.grid.count(move.axes))
            return self.reduce_scatter(padded, move.dim, move.axes, combiner)
        if move.kind == "mask":
            is_first = self.flag_of(self.tile(move.axes) == 0)
            kept = self.broadcast(is_first, operand.array.dims)
            return self.select(kept, operand, self.like(operand, 0))
        if move.kind == "gather":
            found = self.all_gather(operand, move.dim, move.axes)
            return self._ended(found, dims, move.after, move.dim)
        if move.kind == "cut":
            return self.own_part(operand, move.dim, move.axes)
        if move.kind == "exchange":
            return self._exchanged(operand, dims, before, move)
        return self.permute(operand, self.grid.moves(before, move.after))

    def _ended(self, operand: Instr, dims: Dims, cut: Cut, dim: int) -> Instr:
        return self.part(operand, dim, 0, -(-dims[dim] // self.grid.count(cut.dims[dim])))

    def _exchanged(self, operand: Instr, dims: Dims, before: Cut, move: Move) -> Instr:
        """A dimension is cut into pieces, one for each device of the group, another is joined."""
        n = self.grid.count(move.axes)
        size = -(-dims[move.other] // self.grid.count(move.after.dims[move.other]))
        padded = self.tail(operand, move.other, size * n)
        shape = padded.array.dims
        split = self.reshape(padded, (*shape[: move.other], n, size, *shape[move.other + 1 :]))
        sent = self._exchange(split, move.other, move.axes)
        joined = move.dim + (move.dim > move.other)
        rest = [d for d in range(sent.array.rank) if d != move.other]
        rest.insert(rest.index(joined), move.other)
        turned = self.transpose(sent, rest)
        local = [*shape[: move.other], size, *shape[move.other + 1 :]]
        local[move.dim] *= n
        return self._ended(self.reshape(turned, local), dims, move.after, move.dim)
