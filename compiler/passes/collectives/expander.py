"""Collectives become exchanges of whole slots, which have kernels, and arithmetic, which fuses.

    all-gather         [1, a, b] -> [n, a, b], then the slots are put where they belong
    all-to-all         [n, a, b] -> [n, a, b], slot j for the device of rank j
    reduce-scatter     an all-to-all of the parts, whose slots are then combined
    all-reduce         of few bytes: all slots are gathered and combined; else a reduce-scatter and an
                       all-gather
    broadcast          permutes, by which twice as many devices have it each time
    send, recv         a permute

Several small arrays of one collective go end to end as one. Groups of more devices than a kernel can serve
are gone through in two levels: exchanged or reduced among members that lie apart, then among neighbours.

Combining goes in the order of the group, so that all devices get the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy

from compiler.analysis.ring_reduction import ring_row
from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import PRED, S32, DType
from compiler.hlo.identities import MONOIDS, identity
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.replica_groups import Groups, device_counts
from compiler.hlo.shape import ArrayShape, leaves
from compiler.passes.collectives.combiner import SMALL_BYTES
from compiler.passes.collectives.packing import packed, plane_of, unpacked
from compiler.passes.collectives.ragged import expand_ragged
from compiler.passes.context import PassContext
from compiler.passes.expanders.driver import expand
from compiler.rewrite.emitter import Emitter, result_of
from tpu_sim.isa.geometry import LANES

Instr = HloInstruction
Dims = tuple[int, ...]

_GATHERED_BYTES = 1 << 14
"""An all-reduce of at most so many bytes, times the devices, costs latency alone."""
_TILE = 8 * LANES
_MOST_RING = 256
"""Larger groups have too many steps for a core's sync flags."""


def expand_collectives(module: HloModule, context: PassContext) -> bool:
    """Leave collectives alone that have kernels: one array in slots, between listed devices."""
    if device_counts(module).devices == 1:
        return False
    return expand(module, context, _TABLE)


class Collective:
    """One collective, and helpers that build at its place."""

    def __init__(self, instr: Instr) -> None:
        self.instr = instr
        self.e = Emitter.at(instr)
        groups = instr.attrs.get("replica_groups", ())
        assert isinstance(groups, tuple)
        self.groups: Groups = groups
        self.size = len(groups[0]) if groups else 0
        self.devices = device_counts(instr.home.owner).devices
        rest = set(range(self.devices)) - {d for group in groups for d in group}
        if groups and rest:
            raise UnsupportedError(
                f"%{instr.name}: no replica group has device {min(rest)}; list all", instr.span
            )

    def exchange(self, opcode: str, operand: Instr) -> Instr:
        """An all-gather, all-to-all or reduce-scatter of slots."""
        attrs: dict[str, object] = {
            "replica_groups": self.groups, "dimensions": (0,), "channel_id": 1,
        }  # fmt: skip
        if opcode != "all-to-all":
            attrs["use_global_device_ids"] = True
        if opcode == "reduce-scatter":
            attrs["to_apply"] = self.instr.attrs["to_apply"]
        return self.e.instruction(opcode, (operand,), attrs)

    def gathered(self, operand: Instr) -> Instr:
        """``[n, *dims]``: the operand of every device of the group."""
        shape = operand.array
        plane = packed(self.e, operand, 0, plane_of(shape, self.size - 1))
        slots = self.exchange("all-gather", self.e.shaped(plane, (1, *plane.array.dims)))
        return unpacked(self.e, slots, 1, shape.dims)

    def levels(self) -> tuple[Collective, Collective] | None:
        """Of groups too large for one kernel: the same among every q-th member, and among q in a row.

        q is the largest divisor that leaves as many or more of the former: each takes few steps so.
        """
        rows = range(math.isqrt(self.size), 1, -1)
        q = next((q for q in rows if self.size % q == 0), 1)
        if self.size <= _MOST_RING or q == 1:
            return None
        far = tuple(group[j::q] for group in self.groups for j in range(q))
        near = tuple(g[i : i + q] for g in self.groups for i in range(0, self.size, q))
        return self._among(far), self._among(near)

    def _among(self, groups: Groups) -> Collective:
        found = copy(self)
        found.groups, found.size = groups, len(groups[0])
        return found

    def exchanged(self, slots: Instr) -> Instr:
        """``[n, *dims]``: slot j is what the device of rank j had for this one."""
        dims = slots.array.dims
        if (levels := self.levels()) is not None:
            far, near = levels
            turned = (1, 0, *range(2, len(dims) + 1))
            brought = far.exchanged(self.e.shaped(slots, (far.size, near.size, *dims[1:])))
            dealt = near.exchanged(self.e.transpose(brought, turned))
            return self.e.shaped(self.e.transpose(dealt, turned), dims)
        return unpacked(self.e, self.exchange("all-to-all", self.planes(slots)), 1, dims[1:])

    def scattered(self, slots: Instr) -> Instr:
        """``[n, *dims] -> dims``: this device's slot, combined over all devices."""
        computation = self.instr.attrs["to_apply"]
        assert isinstance(computation, HloComputation)
        dims = slots.array.dims
        if (levels := self.levels()) is not None:
            far, near = levels
            parts = self.e.shaped(slots, (far.size, near.size, *dims[1:]))
            return near.scattered(far.scattered(parts))
        is_ring = ring_row(computation, slots.array.dtype) is not None and self.size <= _MOST_RING
        if not is_ring or self.size == 1:
            return self.combined(self.exchanged(slots))
        return unpacked(self.e, self.exchange("reduce-scatter", self.planes(slots)), 0, dims[1:])

    def planes(self, slots: Instr) -> Instr:
        """``[n, a, b]``: each slot in the plane in which it is sent."""
        shape = slots.array
        return packed(self.e, slots, 1, plane_of(shape.with_dims(shape.dims[1:]), self.size - 1))

    def split(self, operand: Instr, dim: int) -> Instr:
        """``[n, .., d / n, ..]``: the n parts of dimension `dim`."""
        dims = operand.array.dims
        parts = self.e.reshape(
            operand, (*dims[:dim], self.size, dims[dim] // self.size, *dims[dim + 1 :])
        )
        order = (dim, *(k for k in range(len(dims) + 1) if k != dim))
        return self.e.transpose(parts, order) if dim else parts

    def joined(self, slots: Instr, dim: int) -> Instr:
        """The parts of `split` one after another again."""
        dims = slots.array.dims[1:]
        order = (*range(1, dim + 1), 0, *range(dim + 1, len(dims) + 1))
        parts = self.e.transpose(slots, order) if dim else slots
        return self.e.reshape(parts, (*dims[:dim], self.size * dims[dim], *dims[dim + 1 :]))

    def combined(self, slots: Instr) -> Instr:
        """All slots combined by the collective's computation, in order."""
        computation = self.instr.attrs["to_apply"]
        assert isinstance(computation, HloComputation)
        kind, dtype = computation.root_instruction.opcode, slots.array.dtype
        is_plain = len(list(computation)) == 3 and kind in MONOIDS and self.size > 2
        if is_plain and identity(kind, dtype) is not None:
            return self.e.total(slots, 0, kind=kind)
        dims = slots.array.dims[1:]
        parts = [self.e.shaped(self.e.part(slots, 0, k, k + 1), dims) for k in range(self.size)]
        total = parts[0]
        for part in parts[1:]:
            (total,) = self.e.apply(computation, (total, part))
        return total

    def is_member(self, members: Sequence[int], operand: Instr) -> Instr:
        """Whether this device is one of `members`, as a mask of the operand's dimensions."""
        found = self.looked_up(PRED, [device in members for device in range(self.devices)])
        return self.e.broadcast(found, operand.array.dims)

    def combined_unevenly(self, operand: Instr) -> Instr:
        """The operand combined over groups that differ in size: all devices' slots are gathered."""
        e, uneven, dims = self.e, self.groups, operand.array.dims
        own = {device: group for group in uneven for device in group}
        self.groups, self.size = (tuple(range(self.devices)),), self.devices
        slots = self.gathered(operand)
        self.groups, self.size = uneven, len(uneven[0])
        computation = self.instr.attrs["to_apply"]
        assert isinstance(computation, HloComputation)
        zeros = [e.constant(S32, 0)] * len(dims)
        total = operand
        for k in range(max(map(len, uneven))):
            have = [device for device in range(self.devices) if k < len(own[device])]
            number = self.looked_up(
                S32, [own[d][min(k, len(own[d]) - 1)] for d in range(self.devices)]
            )
            other = e.dynamic_slice(slots, (number, *zeros), (1, *dims))
            other = e.shaped(other, dims)
            if k:
                (more,) = e.apply(computation, (total, other))
                other = e.select(self.is_member(have, operand), more, total)
            total = other
        return total

    def looked_up(self, dtype: DType, values: Sequence[int]) -> Instr:
        """This device's one of a table's values."""
        number = self.e.convert(self.e.instruction("partition-id"), S32)
        found = self.e.dynamic_slice(self.e.table(dtype, values), (number,), (1,))
        return self.e.reshape(found, ())

    def permuted(self, operand: Instr, pairs: Sequence[tuple[int, int]]) -> Instr:
        """What the device that sends to this one has; zeros if none does."""
        attrs: dict[str, object] = {"source_target_pairs": tuple(pairs), "channel_id": 1}
        dims = operand.array.dims
        sent = _sent_dims(operand)
        moved = self.e.shaped(operand, sent) if len(sent) != 2 else packed(self.e, operand, 0, sent)
        moved = self.e.instruction("collective-permute", (moved,), attrs)
        return unpacked(self.e, moved, 0, dims) if len(sent) == 2 else self.e.shaped(moved, dims)


def _sent_dims(operand: Instr) -> Dims:
    """The dimensions in which an array is sent whole: its own, if they are full enough."""
    dims = operand.array.dims
    plane = plane_of(operand.array, 1)
    return dims if dims and plane[1] == dims[-1] else plane if dims else (1,)


def _is_sent_so(slots: Instr, count: int, size: int) -> bool:
    """Whether an array is so many slots for a group of a size, each in the plane in which it is sent."""
    shape = slots.array
    if shape.rank != 3 or shape.dims[0] != count:
        return False
    return plane_of(shape.with_dims(shape.dims[1:]), size - 1) == shape.dims[1:]


def _all_gather(instr: Instr) -> Instr | None:
    (dim,) = instr.dimensions
    c = Collective(instr)
    if len(instr.operands) == 1 and dim == 0 and _is_sent_so(instr.operands[0], 1, c.size):
        return None

    def gathered(operands: Sequence[Instr]) -> list[Instr]:
        if len(operands) == 1:
            return [c.joined(c.gathered(operands[0]), dim)]
        rows, ends = _end_to_end(c.e, operands, 0)
        slots = c.gathered(c.e.reshape(rows, (ends[-1] // LANES, LANES)))
        parts = _taken_apart(c.e, slots, ends, [o.array.dims for o in operands])
        return [c.joined(part, dim) for part in parts]

    return result_of(c.e, instr, _in_sets(instr.operands, gathered))


def _end_to_end(e: Emitter, arrays: Sequence[Instr], leading: int) -> tuple[Instr, list[int]]:
    """Arrays in a row behind their `leading` dimensions, each at the start of a tile, and where those
    starts are."""
    ends, rows = [0], []
    for array in arrays:
        dims = array.array.dims
        count = math.prod(dims[leading:])
        flat = e.shaped(array, (*dims[:leading], count))
        rows.append(e.pad_dim(flat, leading, 0, -count % _TILE))
        ends.append(ends[-1] + count + -count % _TILE)
    return e.join(rows, leading), ends


def _taken_apart(
    e: Emitter, slots: Instr, ends: Sequence[int], dims: Sequence[Dims]
) -> list[Instr]:
    """``[n, rows, 128]`` -> the arrays of `_end_to_end` in each slot."""
    n, parts = slots.array.dims[0], []
    for start, own in zip(ends, dims, strict=False):
        count = math.prod(own)
        plane = e.part(slots, 1, start // LANES, -(-(start + count) // LANES))
        flat = e.shaped(plane, (n, plane.array.element_count // n))
        parts.append(e.shaped(e.part(flat, 1, 0, count), (n, *own)))
    return parts


def _in_sets(
    operands: Sequence[Instr], exchanged: Callable[[Sequence[Instr]], list[Instr]]
) -> list[Instr]:
    """What is made of operands, the small ones of a type together."""
    together: dict[object, list[Instr]] = {}
    for operand in operands:
        is_small = operand.array.byte_count <= SMALL_BYTES
        key = operand.array.dtype if is_small else operand
        together.setdefault(key, []).append(operand)
    made: dict[Instr, Instr] = {}
    for members in together.values():
        distinct = list(dict.fromkeys(members))
        made.update(zip(distinct, exchanged(distinct), strict=True))
    return [made[operand] for operand in operands]


def _all_to_all(instr: Instr) -> Instr | None:
    c = Collective(instr)
    if "dimensions" not in instr.attrs:
        dims = instr.operands[0].array.dims
        slots = c.e.join([c.e.shaped(o, (1, *dims)) for o in instr.operands], 0)
        made = c.exchanged(slots)
        parts = [c.e.part(made, 0, k, k + 1) for k in range(c.size)]
        return c.e.tuple([c.e.shaped(part, dims) for part in parts])
    (dim,) = instr.dimensions
    is_plain = (
        dim == 0 and len(instr.operands) == 1 and _is_sent_so(instr.operands[0], c.size, c.size)
    )
    if is_plain and c.levels() is None:
        return None
    made_all = [c.joined(c.exchanged(c.split(o, dim)), dim) for o in instr.operands]
    return result_of(c.e, instr, made_all)


def _reduce_scatter(instr: Instr) -> Instr | None:
    (dim,) = instr.dimensions
    c = Collective(instr)
    is_one = len(instr.operands) == 1 and dim == 0 and c.size > 1
    if is_one and _is_sent_so(instr.operands[0], c.size, c.size):
        computation = instr.attrs["to_apply"]
        assert isinstance(computation, HloComputation)
        if ring_row(computation, instr.operands[0].array.dtype) and c.size <= _MOST_RING:
            return None

    def scattered(operands: Sequence[Instr]) -> list[Instr]:
        slots = [c.split(operand, dim) for operand in operands]
        if len(slots) == 1:
            return [c.scattered(slots[0])]
        rows, ends = _end_to_end(c.e, slots, 1)
        whole = c.scattered(c.e.reshape(rows, (c.size, ends[-1] // LANES, LANES)))
        one = c.e.reshape(whole, (1, *whole.array.dims))
        dims = [slot.array.dims[1:] for slot in slots]
        return [c.e.shaped(p, p.array.dims[1:]) for p in _taken_apart(c.e, one, ends, dims)]

    shapes = [shape for shape in leaves(instr.shape) if isinstance(shape, ArrayShape)]
    made = [
        c.e.shaped(part, shape.dims)
        for part, shape in zip(_in_sets(instr.operands, scattered), shapes, strict=True)
    ]
    return result_of(c.e, instr, made)


def _all_reduce(instr: Instr) -> Instr | None:
    """Small arrays of one type are reduced end to end as one, each at the start of a tile."""
    c = Collective(instr)

    def reduced(operands: Sequence[Instr]) -> list[Instr]:
        if len(operands) == 1:
            return [_reduced(c, operands[0])]
        rows, ends = _end_to_end(c.e, operands, 0)
        whole = _reduced(c, rows)
        return [
            c.e.shaped(c.e.part(whole, 0, start, start + o.array.element_count), o.array.dims)
            for start, o in zip(ends, operands, strict=False)
        ]

    return result_of(c.e, instr, _in_sets(instr.operands, reduced))


def _reduced(c: Collective, operand: Instr) -> Instr:
    shape = operand.array
    if len(set(map(len, c.groups))) > 1:
        return c.combined_unevenly(operand)
    if shape.element_count * c.size * shape.dtype.bits <= 8 * _GATHERED_BYTES:
        return c.combined(c.gathered(operand))
    e = c.e
    rows, columns = math.prod(shape.dims[:-1]), shape.dims[-1] if shape.dims else 1
    tile = 8 * max(1, 32 // shape.dtype.bits)
    if rows % (tile * c.size) == 0 and columns % LANES == 0:  # parts that lie in one piece
        mine = c.scattered(e.shaped(operand, (c.size, rows // c.size, columns)))
        return e.shaped(c.gathered(mine), shape.dims)
    flat = e.shaped(operand, (shape.element_count,))
    unit = c.size * LANES
    rows = -(-shape.element_count // unit)
    rows += -rows % 16 if rows > 16 else 0
    padded = e.pad_dim(flat, 0, 0, rows * unit - shape.element_count)
    mine = c.scattered(e.reshape(padded, (c.size, rows, LANES)))
    whole = e.reshape(c.gathered(mine), (rows * unit,))
    return e.shaped(e.part(whole, 0, 0, shape.element_count), shape.dims)


def _permute(instr: Instr) -> Instr | None:
    operand = instr.operands[0]
    if len(instr.operands) == 1 and operand.array.dims == _sent_dims(operand):
        return None
    if len(instr.operands) == 4 and "slice_sizes" in instr.attrs:
        raise UnsupportedError(
            f"%{instr.name}: a permute into a given buffer; let it make its result", instr.span
        )
    c = Collective(instr)
    pairs = instr.attrs["source_target_pairs"]
    assert isinstance(pairs, tuple)
    return result_of(c.e, instr, [c.permuted(operand, pairs) for operand in instr.operands])


def _broadcast(instr: Instr) -> Instr | None:
    groups = instr.attrs["replica_groups"]
    assert isinstance(groups, tuple)
    bare = {k: v for k, v in instr.attrs.items() if k != "replica_groups"}
    instr.attrs = bare
    c = Collective(instr)
    made = []
    for operand in instr.operands:
        value, have = operand, 1
        while have < max(map(len, groups)):
            pairs = [
                (group[k], group[k + have])
                for group in groups
                for k in range(min(have, len(group) - have))
            ]
            moved = c.permuted(value, pairs)
            value = c.e.select(c.is_member([b for _, b in pairs], value), moved, value)
            have *= 2
        members = [device for group in groups for device in group]
        if len(members) < c.devices:
            value = c.e.select(c.is_member(members, value), value, c.e.like(value, 0))
        made.append(value)
    return result_of(c.e, instr, made)


def _ragged(instr: Instr) -> Instr | None:
    c = Collective(instr)
    operand, output, *vectors = instr.operands
    operands = c.gathered(operand)
    tables = [c.gathered(vector) for vector in vectors]
    rank = _rank(c)
    return expand_ragged(c.e, (operands, output), tables, rank, c.size)


def _rank(c: Collective) -> Instr:
    """This device's number in its group."""
    ranks = {device: k for group in c.groups for k, device in enumerate(group)}
    return c.looked_up(S32, [ranks[device] for device in range(c.devices)])


_TABLE = {
    "all-gather": _all_gather,
    "all-reduce": _all_reduce,
    "all-to-all": _all_to_all,
    "collective-broadcast": _broadcast,
    "collective-permute": _permute,
    "ragged-all-to-all": _ragged,
    "reduce-scatter": _reduce_scatter,
}
