"""Gathers and scatters of single elements, without the dimensions of one element that their slices have.

    g = f32[4096,1] gather(t, i), slice_sizes={1,1}      of  t = f32[100000000,1]
    v = f32[4096] gather(reshape(t), i), slice_sizes={1}

A column of a hundred million rows is padded to as many tiles; the vector that it is takes its bytes.
"""

from __future__ import annotations

import math

from compiler.analysis.gather_dims import gather_dims
from compiler.analysis.scatter_dims import scatter_dims
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.rewrite import make
from compiler.rewrite.graph import emit, replace

Dims = tuple[int, ...]


def without_unit_windows(computation: HloComputation, opcode: str) -> int:
    """Rewrite the gathers, or the scatters, of a computation; how many had such dimensions."""
    count = 0
    for instr in [i for i in computation if i.opcode == opcode]:
        vector = _gather_of_vector(instr) if opcode == "gather" else _scatter_into_vector(instr)
        if vector is not None:
            replace(instr, vector)
            count += 1
    return count


def _gather_of_vector(gather: HloInstruction) -> HloInstruction | None:
    """The same gather, its operand and result without such dimensions; None if there are none."""
    d = gather_dims(gather)
    units = _units(d.operand, d.window_dims, d.start_map, d.slice_sizes)
    if not units:
        return None
    lost = {d.offset_dims[d.window_dims.index(w)] for w in units}
    kept = tuple(w for w in range(d.operand.array.rank) if w not in units)
    attrs = dict(gather.attrs)
    attrs["offset_dims"] = _renumbered(tuple(o for o in d.offset_dims if o not in lost), lost)
    attrs["collapsed_slice_dims"] = _renumbered(d.collapsed, units)
    attrs["start_index_map"] = _renumbered(d.start_map, units)
    attrs["operand_batching_dims"] = _renumbered(d.operand_batch, units)
    attrs["slice_sizes"] = tuple(d.slice_sizes[w] for w in kept)
    dims = gather.array.dims
    shape = gather.array.with_dims(tuple(n for i, n in enumerate(dims) if i not in lost))
    made = emit(gather, "gather", shape, (_without(d.operand, units), d.indices), attrs)
    return make.reshape(made, dims)


def _scatter_into_vector(scatter: HloInstruction) -> HloInstruction | None:
    """The same scatter, its operand and updates without such dimensions; None if there are none."""
    d = scatter_dims(scatter)
    if len(d.operands) != 1:
        return None
    windows = d.operand_window_dims
    sizes = tuple(d.window_size(w) for w in range(d.operand.array.rank))
    units = _units(d.operand, windows, d.index_map, sizes)
    if not units:
        return None
    lost = {d.window_dims[windows.index(w)] for w in units}
    attrs = dict(scatter.attrs)
    kept = tuple(w for w in d.window_dims if w not in lost)
    attrs["update_window_dims"] = _renumbered(kept, lost)
    attrs["inserted_window_dims"] = _renumbered(d.inserted, units)
    attrs["scatter_dims_to_operand_dims"] = _renumbered(d.index_map, units)
    attrs["input_batching_dims"] = _renumbered(d.operand_batch, units)
    operand = _without(d.operand, units)
    operands = (operand, d.indices, _without(d.updates, lost))
    made = emit(scatter, "scatter", operand.array, operands, attrs)
    return make.reshape(made, scatter.array.dims)


def _units(operand: HloInstruction, windows: Dims, indexed: Dims, sizes: Dims) -> set[int]:
    """Dimensions of one element in slices of one, in an operand of more, that no index moves along."""
    if math.prod(sizes) != 1 or operand.array.element_count == 1:
        return set()
    return {w for w in windows if operand.array.dims[w] == 1 and w not in indexed}


def _renumbered(dims: Dims, lost: set[int]) -> Dims:
    return tuple(d - sum(other < d for other in lost) for d in dims)


def _without(array: HloInstruction, lost: set[int]) -> HloInstruction:
    kept = (n for d, n in enumerate(array.array.dims) if d not in lost)
    return make.reshape(array, tuple(kept))
