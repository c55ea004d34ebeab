"""Laws that merge the window dimensions of gathers and scatters.

    gather of f32[1024,1,8] -> f32[n,1,8]     ==   gather of f32[1024,8] -> f32[n,8], reshaped

A row of a kernel is the minor dimension of an array: what is split into several small ones lies in
registers that are mostly empty. So arrays are split after a gather, and before a scatter not yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.analysis.gather_dims import gather_dims
from compiler.analysis.kernel_vmem import box_vreg_tiles
from compiler.analysis.scatter_dims import is_canonical, scatter_dims
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.passes.rules_motion import can_regroup, regroup
from compiler.rewrite import make
from compiler.rewrite.dims import Dims, Group, is_refinement, reshape_groups
from compiler.rewrite.graph import emit, remove_dead
from compiler.rewrite.pattern import Match, Op, X, Y, Z
from compiler.rewrite.rewriter import rule


@dataclass(frozen=True)
class Merge:
    """Which dimensions become one: groups of the merged array's and of the split array's."""

    groups: tuple[Group, ...]

    def place(self, dim: int) -> int:
        """Where a dimension goes; -1 if it has size 1 and is dropped."""
        return next((old[0] if old else -1) for old, new in self.groups if dim in new)

    def is_plain(self, dim: int) -> bool:
        """Whether a dimension stays one by itself."""
        return any(new == (dim,) and len(old) == 1 for old, new in self.groups)

    def places(self, dims: Dims) -> Dims:
        """Where dimensions go that stay."""
        return tuple(self.place(d) for d in dims)


def _merge(source: Dims, target: Dims, windows: Dims) -> Merge | None:
    """The merge that undoes a split of whole windows only."""
    if not is_refinement(source, target):
        return None
    merge = Merge(tuple(reshape_groups(source, target)))
    is_of_windows = all(d in windows or merge.is_plain(d) for d in range(len(target)))
    return merge if is_of_windows else None


def _is_denser(shape: ArrayShape, dims: Dims) -> bool:
    return box_vreg_tiles(shape.with_dims(dims), dims) < box_vreg_tiles(shape, shape.dims)


# gather(reshape(x), i) == reshape(gather(x, i)) where whole window dimensions are split
@rule("merge-gathered-windows", Op("gather", Op("reshape", X), Y), examples=())
def merge_gathered_windows(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Gather rows before they are split."""
    d = gather_dims(instr)
    source = d.operand.operands[0]
    dims = d.operand.array.dims
    whole = tuple(w for w in d.window_dims if d.slice_sizes[w] == dims[w] and w not in d.start_map)
    merge = _merge(source.array.dims, dims, whole)
    if merge is None:
        return None
    found: list[int] = []  # what each dimension of the merged result is: -1 numbers slices
    sizes: list[int] = []
    for dim, size in enumerate(instr.array.dims):
        if dim not in d.offset_dims:
            found.append(-1)
            sizes.append(size)
            continue
        window = d.window_dims[d.offset_dims.index(dim)]
        place = merge.place(window)
        if place < 0 or place in found:
            if place >= 0 and found[-1] != place:
                return None
            continue
        found.append(place)
        sizes.append(size if merge.is_plain(window) else source.array.dims[place])
    if not _is_denser(instr.array, tuple(sizes)):
        return None
    slices = [0] * source.array.rank
    for old, new in merge.groups:
        for place in old:
            slices[place] = d.slice_sizes[new[0]] if len(new) == 1 else source.array.dims[place]
    attrs = dict(instr.attrs)
    attrs["offset_dims"] = tuple(i for i, place in enumerate(found) if place >= 0)
    attrs["collapsed_slice_dims"] = merge.places(d.collapsed)
    attrs["start_index_map"] = merge.places(d.start_map)
    attrs["operand_batching_dims"] = merge.places(d.operand_batch)
    attrs["slice_sizes"] = tuple(slices)
    made = emit(instr, "gather", instr.array.with_dims(tuple(sizes)), (source, d.indices), attrs)
    return make.reshape(made, instr.array.dims)


# scatter(x, i, reshape(u)) == reshape(scatter(reshape(x), i, u)) where whole window dimensions are split
@rule("merge-scattered-windows", Op("scatter", X, Y, Op("reshape", Z)), examples=())
def merge_scattered_windows(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Scatter rows before they are split."""
    d = scatter_dims(instr)
    dims, split = d.operand.array.dims, d.updates.array.dims
    pairs = dict(zip(d.window_dims, d.operand_window_dims, strict=True))
    whole = tuple(w for w, o in pairs.items() if split[w] == dims[o] and o not in d.index_map)
    source = d.updates.operands[0]
    merge = _merge(source.array.dims, split, whole)
    if merge is None or not _is_denser(d.updates.array, source.array.dims):
        return None
    places: list[int] = []  # of each operand dimension in the merged operand
    sizes: list[int] = []
    last = -1
    for dim, size in enumerate(dims):
        update = next((w for w, o in pairs.items() if o == dim), -1)
        place = merge.place(update) if update >= 0 else -1
        if update >= 0 and (place < 0 or place == last):
            places.append(-1)
            continue
        if update >= 0 and place in (merge.place(w) for w, o in pairs.items() if o < dim):
            return None
        last = place
        places.append(len(sizes))
        is_plain = update < 0 or merge.is_plain(update)
        sizes.append(size if is_plain else source.array.dims[place])
    merged = tuple(sizes)
    if not can_regroup(d.operand, dims, merged):
        return None
    attrs = dict(instr.attrs)
    attrs["update_window_dims"] = tuple(
        dict.fromkeys(p for p in merge.places(d.window_dims) if p >= 0)
    )
    attrs["inserted_window_dims"] = tuple(places[i] for i in d.inserted)
    attrs["scatter_dims_to_operand_dims"] = tuple(places[i] for i in d.index_map)
    attrs["input_batching_dims"] = tuple(places[i] for i in d.operand_batch)
    operand = regroup(d.operand, dims, merged)
    made = emit(instr, "scatter", operand.array, (operand, d.indices, source), attrs)
    if is_canonical(d) and not is_canonical(scatter_dims(made)):
        remove_dead(made)  # a batch that no kernel takes without its window
        return None
    return make.reshape(made, dims)
