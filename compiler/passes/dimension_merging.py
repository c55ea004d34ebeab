"""Dimension merging: what has many dimensions is computed with few.

    s = f32[2,2,2,2,2,2,2,2] parameter(0)          a = f32[8,32] reshape(s)
    t = transpose(s), dimensions={3,4,5,6,7,0,1,2}    t = f32[32,8] transpose(a), dimensions={1,0}

Tiles are of the last two dimensions: of eight dimensions of two elements two lanes are in use. Where
neighbours stay neighbours through an operation they are one dimension of it. Each operation takes a
merging of its own, with reshapes in between, which cancel where two agree. Programs of qubits,
butterflies and tensor networks have such arrays; others keep the dimensions that they came with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise

from compiler.hlo.call_graph import control_computations
from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.context import PassContext
from compiler.rewrite import make
from compiler.rewrite.graph import emit, remove_dead
from compiler.rewrite.pattern import splat_value

Instr = HloInstruction
Dims = tuple[int, ...]
Ends = Dims
"""Where runs of dimensions that are merged end: (2, 3, 8) are two, one and five of eight."""
Merged = tuple[Instr, Ends]
_MOST = 6
"""Dimensions that operations keep."""


def merge_dimensions(module: HloModule, context: PassContext) -> bool:
    """Merge dimensions of all operations on arrays of more than six."""
    for computation in control_computations(module):
        context.counts["merged"] += _Merging().run(computation)
    return bool(context.counts["merged"])


class _Merging:
    """One computation; `made` are instructions with other dimensions in place of its own."""

    def __init__(self) -> None:
        self.made: dict[Instr, Merged] = {}

    def run(self, computation: HloComputation) -> int:
        """Make all instructions of many dimensions anew; the number of those that are."""
        for instr in list(computation):
            form = _FORMS.get(instr.opcode)
            if form is None and OPCODES[instr.opcode].has(Trait.ELEMENTWISE):
                form = _Merging.elementwise
            if form is not None and _is_deep(instr):
                found = form(self, instr)
                if found is not None:
                    self.made[instr] = found
        for instr, (merged, _) in self.made.items():
            instr.replace_all_uses_with(make.reshape(merged, instr.array.dims))
        for instr in reversed(self.made):
            remove_dead(instr)
        if self.made:
            computation.sort()
        return len(self.made)

    def _is_cut_as_it_came(self, cut: Instr) -> bool:
        """Whether what is cut has its own dimensions, and what is made of the part few.

        Nothing is computed with many, then, and where the array lies is still to be chosen: links of a
        lattice, [t, z, y, x, direction, 3, 3], are read a direction at a time.
        """
        return cut.operands[0] not in self.made and all(
            u.opcode == "reshape" and u.array.rank <= _MOST for u in cut.users
        )

    def at(self, instr: Instr, ends: Ends) -> Instr:
        """An instruction's elements with these runs of dimensions merged."""
        dims = _merged(instr.array.dims, ends)
        if splat_value(instr) is not None and instr.opcode == "broadcast":
            return make.broadcast(instr.operands[0], dims, ())
        return make.reshape(self.made[instr][0] if instr in self.made else instr, dims)

    def elementwise(self, instr: Instr) -> Merged:
        """As an operand is that has fewest dimensions already; else all in one."""
        rank = instr.array.rank
        known = [self.made[o][1] for o in instr.operands if o in self.made and o.array.rank == rank]
        ends = min(known, key=len, default=(rank,))
        operands = [self.at(o, ends) if o.array.rank else o for o in instr.operands]
        return make.elementwise(instr, operands, _merged(instr.array.dims, ends)), ends

    def transpose(self, instr: Instr) -> Merged:
        order = instr.dimensions
        ends = _ends(b == a + 1 for a, b in pairwise(order))
        firsts = [order[begin] for begin in (0, *ends[:-1])]
        sizes = [end - begin for begin, end in pairwise((0, *ends))]
        runs = sorted(zip(firsts, sizes, strict=True))
        operand = self.at(instr.operands[0], tuple(first + size for first, size in runs))
        place = {first: number for number, (first, _) in enumerate(runs)}
        return make.transpose(operand, tuple(place[first] for first in firsts)), ends

    def broadcast(self, instr: Instr) -> Merged | None:
        kept = instr.dimensions
        if list(kept) != sorted(kept):
            return None
        ends = _ends((a in kept) == (a + 1 in kept) for a in range(instr.array.rank - 1))
        inside = [end for end in ends if end - 1 in kept]
        operand = instr.operands[0]
        if kept:
            operand = self.at(operand, tuple(kept.index(end - 1) + 1 for end in inside))
        mapping = tuple(ends.index(end) for end in inside)
        return make.broadcast(operand, _merged(instr.array.dims, ends), mapping), ends

    def reshape(self, instr: Instr) -> Merged | None:
        """Merged where dimensions of both sides end together."""
        operand = instr.operands[0]
        merged, _ = self.made.get(operand, (operand, ()))
        if 0 in instr.array.dims:
            return None
        if instr.array.rank <= _MOST:
            own = tuple(range(1, instr.array.rank + 1))
            return (make.reshape(merged, instr.array.dims), own) if operand in self.made else None
        before = {math.prod(merged.array.dims[:n]) for n in range(1, merged.array.rank)}
        dims = instr.array.dims
        ends = _ends(math.prod(dims[:n]) not in before for n in range(1, len(dims)))
        return make.reshape(merged, _merged(dims, ends)), ends

    def reduce(self, instr: Instr) -> Merged | None:
        """A reduction of one array."""
        if not isinstance(instr.shape, ArrayShape):
            return None
        operand, start = instr.operands
        reduced = set(instr.dimensions)
        ends = _ends((a in reduced) == (a + 1 in reduced) for a in range(operand.array.rank - 1))
        value = self.at(operand, ends)
        across = tuple(number for number, end in enumerate(ends) if end - 1 in reduced)
        dims = tuple(n for number, n in enumerate(value.array.dims) if number not in across)
        attrs = {**instr.attrs, "dimensions": across}
        made = emit(instr, "reduce", instr.array.with_dims(dims), (value, start), attrs)
        kept = [end for end in ends if end - 1 not in reduced]
        return made, tuple(end - sum(r < end for r in reduced) for end in kept)

    def slice(self, instr: Instr) -> Merged | None:
        """A dimension that is cut, without strides, is one with whole ones behind it."""
        if self._is_cut_as_it_came(instr):
            return None
        operand, bounds = instr.operands[0], instr.attrs["slice"]
        assert isinstance(bounds, tuple)
        whole = [b == (0, n, 1) for b, n in zip(bounds, operand.array.dims, strict=True)]
        ends = _ends(w and b[2] == 1 for b, w in zip(bounds, whole[1:], strict=False))
        scaled = _scaled(operand.array.dims, ends, bounds)
        return make.slice_(self.at(operand, ends), scaled), ends

    def pad(self, instr: Instr) -> Merged:
        """As a slice."""
        operand, value = instr.operands
        padding = instr.attrs["padding"]
        assert isinstance(padding, tuple)
        whole = [tuple(p) == (0, 0, 0) for p in padding]
        ends = _ends(w and p[2] == 0 for p, w in zip(padding, whole[1:], strict=False))
        shape = instr.array.with_dims(_merged(instr.array.dims, ends))
        attrs = {**instr.attrs, "padding": _scaled(operand.array.dims, ends, padding)}
        return emit(instr, "pad", shape, (self.at(operand, ends), value), attrs), ends

    def dynamic_slice(self, instr: Instr) -> Merged | None:
        """As a slice, where the place of the dimension that is cut is a constant."""
        if self._is_cut_as_it_came(instr):
            return None
        ends, starts = self._box(instr, instr.array.dims, instr.operands[1:])
        operand = self.at(instr.operands[0], ends)
        sizes = _merged(instr.array.dims, ends)
        attrs = {**instr.attrs, "dynamic_slice_sizes": sizes}
        shape = instr.array.with_dims(sizes)
        return emit(instr, "dynamic-slice", shape, (operand, *starts), attrs), ends

    def dynamic_update_slice(self, instr: Instr) -> Merged:
        """The same."""
        array, update, *places = instr.operands
        ends, starts = self._box(instr, update.array.dims, places)
        operands = (self.at(array, ends), self.at(update, ends), *starts)
        return emit(instr, instr.opcode, operands[0].array, operands, dict(instr.attrs)), ends

    def _box(self, instr: Instr, sizes: Dims, starts: list[Instr]) -> tuple[Ends, list[Instr]]:
        """The runs of a box of an instruction's operand, and where it begins in each."""
        dims = instr.operands[0].array.dims
        whole = [size == n for size, n in zip(sizes, dims, strict=True)]
        known = [w or s.opcode == "constant" for w, s in zip(whole, starts, strict=True)]
        ends = _ends(w and k for k, w in zip(known, whole[1:], strict=False))
        found: list[Instr] = []
        for begin, end in pairwise((0, *ends)):
            start = starts[begin]
            if end - begin > 1:
                first = 0 if whole[begin] else int(start.literal)
                first = max(0, min(first, dims[begin] - sizes[begin]))
                rest = math.prod(dims[begin + 1 : end])
                start = make.constant(instr, S32, first * rest)
            found.append(start)
        return ends, found

    def concatenate(self, instr: Instr) -> Merged:
        (dim,) = instr.dimensions
        ends = _ends(a + 1 != dim for a in range(instr.array.rank - 1))
        parts = [self.at(operand, ends) for operand in instr.operands]
        shape = instr.array.with_dims(_merged(instr.array.dims, ends))
        at = sum(end <= dim for end in ends)
        return emit(instr, "concatenate", shape, parts, {**instr.attrs, "dimensions": (at,)}), ends

    def reverse(self, instr: Instr) -> Merged:
        turned = set(instr.dimensions)
        ends = _ends(a not in turned and a + 1 not in turned for a in range(instr.array.rank - 1))
        operand = self.at(instr.operands[0], ends)
        dims = tuple(number for number, end in enumerate(ends) if end - 1 in turned)
        return emit(
            instr, "reverse", operand.array, (operand,), {**instr.attrs, "dimensions": dims}
        ), ends

    def iota(self, instr: Instr) -> Merged:
        dim = instr.iota_dimension
        ends = _ends(dim not in (a, a + 1) for a in range(instr.array.rank - 1))
        shape = instr.array.with_dims(_merged(instr.array.dims, ends))
        attrs = {**instr.attrs, "iota_dimension": sum(end <= dim for end in ends)}
        return emit(instr, "iota", shape, (), attrs), ends

    def constant(self, instr: Instr) -> Merged:
        ends = (instr.array.rank,)
        dims = _merged(instr.array.dims, ends)
        attrs = {**instr.attrs, "literal": instr.literal.reshape(dims)}
        return emit(instr, "constant", instr.array.with_dims(dims), (), attrs), ends

    def dot(self, instr: Instr) -> Merged:
        """Free dimensions that are neighbours, and pairs of others that are on both sides."""
        batch = list(zip(instr.lhs_batch_dims, instr.rhs_batch_dims, strict=True))
        summed = zip(instr.lhs_contracting_dims, instr.rhs_contracting_dims, strict=True)
        contracted = sorted(summed)
        joined = {*_neighbours(batch), *_neighbours(contracted)}
        attrs = dict(instr.attrs)
        operands: list[Instr] = []
        free: list[int] = []
        dims: list[int] = []
        for side, (name, operand) in enumerate(zip(("lhs", "rhs"), instr.operands, strict=True)):
            fixed = {pair[side] for pair in (*batch, *contracted)}
            pairs = {pair[side] for pair in joined}
            rank = operand.array.rank
            ends = _ends(
                a in pairs or (a not in fixed and a + 1 not in fixed) for a in range(rank - 1)
            )
            operands.append(self.at(operand, ends))
            sizes = dict(zip(ends, operands[-1].array.dims, strict=True))
            for kind, places in (("batch", batch), ("contracting", contracted)):
                last = [pair[side] + 1 for pair in places if pair not in joined]
                if last:
                    attrs[f"{name}_{kind}_dims"] = tuple(ends.index(end) for end in last)
                if kind == "batch" and not side:
                    dims = [sizes[end] for end in last]
            for begin, end in pairwise((0, *ends)):
                if end - 1 not in fixed:
                    dims.append(sizes[end])
                    free.append(end - begin)
        lengths = [n + 1 for n, pair in enumerate(batch) if pair not in joined]
        ends = (*lengths, *(len(batch) + sum(free[: n + 1]) for n in range(len(free))))
        return emit(instr, "dot", instr.array.with_dims(tuple(dims)), operands, attrs), ends


_FORMS: dict[str, Callable[[_Merging, Instr], Merged | None]] = {
    "broadcast": _Merging.broadcast,
    "concatenate": _Merging.concatenate,
    "constant": _Merging.constant,
    "dot": _Merging.dot,
    "dynamic-slice": _Merging.dynamic_slice,
    "dynamic-update-slice": _Merging.dynamic_update_slice,
    "iota": _Merging.iota,
    "pad": _Merging.pad,
    "reduce": _Merging.reduce,
    "reshape": _Merging.reshape,
    "reverse": _Merging.reverse,
    "slice": _Merging.slice,
    "transpose": _Merging.transpose,
}


def _is_deep(instr: Instr) -> bool:
    """Whether an instruction makes or reads an array of many dimensions."""
    shapes = (instr.shape, *(o.shape for o in instr.operands))
    return all(isinstance(s, ArrayShape) for s in shapes) and any(
        isinstance(s, ArrayShape) and s.rank > _MOST for s in shapes
    )


def _ends(joined: Iterable[bool]) -> Ends:
    """The ends of runs, from whether each dimension but the last is one with the next."""
    flags = list(joined)
    return (*(n + 1 for n, is_joined in enumerate(flags) if not is_joined), len(flags) + 1)


def _merged(dims: Dims, ends: Ends) -> Dims:
    return tuple(math.prod(dims[begin:end]) for begin, end in pairwise((0, *ends)))


def _scaled(
    dims: Dims, ends: Ends, places: tuple[tuple[int, int, int], ...]
) -> tuple[tuple[int, int, int], ...]:
    """What a slice or a pad says of each run: of its first dimension, in elements of the whole run.

    The third number, a stride or what lies between elements, is of a dimension by itself or neutral.
    """
    found: list[tuple[int, int, int]] = []
    for begin, end in pairwise((0, *ends)):
        first, second, third = places[begin]
        rest = math.prod(dims[begin + 1 : end])
        found.append((first * rest, second * rest, third))
    return tuple(found)


def _neighbours(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs of dimensions of two sides behind which the next pair follows on both."""
    return [a for a, b in pairwise(pairs) if b == (a[0] + 1, a[1] + 1)]
