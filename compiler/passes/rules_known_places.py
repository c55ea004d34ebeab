"""Scatters of which only one coordinate, or none, is data: the others count or stay the same.

`x.at[arange(n), labels].add(u)` changes one element of each row; `x.at[i, i + 1, :3].set(u)` blocks
beside a diagonal. As index accesses these take tens of cycles an element, and every update waits for
the one before. No two updates meet where a coordinate counts them: they are a select of a slice. Where
a row has a few updates, as for the experts that each token is sent to, they are as many selects.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from compiler.analysis.index_columns import Column, index_columns
from compiler.hlo.dtypes import PRED, S32
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.passes.rules_indexing import combine, combines, wide_index
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op, splat_value
from compiler.rewrite.rewriter import rule
from tpu_sim.isa.geometry import LANES

Dims = tuple[int, ...]
_WORTH = 2048
"""Elements that a select may go through for a row of an update."""
_MOST_SELECTS = 16
"""Updates of one row, each a select in the code of one fusion: assumed, experts of a token are 2 to 8."""


@dataclass(frozen=True)
class _Places:
    """Where the updates lie: a box of the operand, (first, size) per dimension.

    `numbered` maps an operand dimension to the one of the index vectors that counts along it; nothing
    counts along those of `uncounted`: updates that they number may meet, and are made in their order.
    `chosen` is the dimension of which `index` says the place, if there is one.
    """

    box: tuple[tuple[int, int], ...]
    numbered: dict[int, int]
    uncounted: dict[int, int]
    chosen: int | None
    index: Column | None

    def turns(self) -> Iterator[dict[int, int]]:
        """The updates of a row in their order: a place along each dimension that nothing counts."""
        for places in itertools.product(*map(range, self.uncounted.values())):
            yield dict(zip(self.uncounted, places, strict=True))


# scatter-f(x, (n, i[n]), u) == position == i ? f(x, u) : x, in the box that the updates lie in
@rule("scatter-at-counted-places", Op("scatter"))
def scatter_at_counted_places(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """A select, as no two updates meet; or one for each of the few that may."""
    if len(instr.operands) != 3 or not combines(instr):
        return None
    operand, indices, update = instr.operands
    components = len(instr.scatter_dims_to_operand_dims) + len(instr.input_batching_dims)
    if not update.array.element_count or components < 2:
        return None
    places = _places(instr, index_columns(indices, instr.index_vector_dim))
    if places is None or not _pays(instr, places):
        return None
    lows = tuple(first for first, _ in places.box)
    bounds = tuple((first, first + size, 1) for first, size in places.box)
    is_all = all(size == n for (_, size), n in zip(places.box, operand.array.dims, strict=True))
    box = operand if is_all else make.slice_(operand, bounds)
    for turn in places.turns():
        box = _after_one(instr, places, turn, box)
    if is_all:
        return box
    starts = [make.constant(instr, S32, low) for low in lows]
    return emit(instr, "dynamic-update-slice", instr.array, (operand, box, *starts))


def _after_one(
    instr: HloInstruction, places: _Places, turn: dict[int, int], box: HloInstruction
) -> HloInstruction:
    """The box after the update of each row whose turn it is."""
    combined = combine(instr, box, _spread(instr, places, turn))
    assert combined is not None
    if places.chosen is None:
        return combined
    return emit(instr, "select", box.array, (_is_chosen(instr, places, turn), combined, box))


def _window_sizes(instr: HloInstruction) -> Dims:
    """Extent of an update along each dimension of the operand."""
    update = instr.operands[2].array.dims
    window = iter(instr.update_window_dims)
    rank = instr.operands[0].array.rank
    single = {*instr.inserted_window_dims, *instr.input_batching_dims}
    return tuple(1 if d in single else update[next(window)] for d in range(rank))


def _places(instr: HloInstruction, columns: list[Column]) -> _Places | None:
    dims, sizes = instr.array.dims, _window_sizes(instr)
    update = instr.operands[2].array
    numbers = [update.dims[d] for d in range(update.rank) if d not in instr.update_window_dims]
    numbered = _batches(instr)
    box = [(0, dims[d] if d in numbered else n) for d, n in enumerate(sizes)]
    chosen: int | None = None
    index: Column | None = None
    for dim, column in zip(instr.scatter_dims_to_operand_dims, columns, strict=True):
        first = column.first
        if first is not None and column.along is None:
            box[dim] = (first, sizes[dim])
        elif sizes[dim] != 1:
            return None
        elif (
            first is not None and column.along is not None and column.along not in numbered.values()
        ):
            box[dim] = (first, numbers[column.along])
            numbered[dim] = column.along
        elif chosen is None:
            chosen, index = dim, column
            box[dim] = (0, dims[dim])
        else:
            return None
    counted = numbered.values()
    uncounted = {k: n for k, n in enumerate(numbers) if n > 1 and k not in counted}
    if math.prod(uncounted.values()) > _MOST_SELECTS:
        return None
    if any(low < 0 or low + n > size for (low, n), size in zip(box, dims, strict=True)):
        return None
    return _Places(tuple(box), numbered, uncounted, chosen, index)


def _batches(instr: HloInstruction) -> dict[int, int]:
    """Which dimension of the index vectors goes along with each batching one of the operand."""
    pairs = zip(instr.input_batching_dims, instr.scatter_indices_batching_dims, strict=True)
    return {dim: k - (k > instr.index_vector_dim) for dim, k in pairs}


def _pays(instr: HloInstruction, places: _Places) -> bool:
    """Whether going through the box takes less than going through the updates."""
    selects = math.prod(places.uncounted.values())
    if selects == 1 and splat_value(instr.operands[0]) is not None:
        return True  # a select makes it as fast as anything else would
    elements = selects * math.prod(size for _, size in places.box)
    window = math.prod(_window_sizes(instr))
    vectors = instr.operands[2].array.element_count // window
    return elements <= _WORTH * vectors * -(-window // LANES)


def _one(array: HloInstruction, places: dict[int, int]) -> HloInstruction:
    """One place along each of some dimensions, which are of one element then."""
    if not places:
        return array
    dims = enumerate(array.array.dims)
    bounds = [(places[d], places[d] + 1, 1) if d in places else (0, n, 1) for d, n in dims]
    return make.slice_(array, tuple(bounds))


def _spread(instr: HloInstruction, places: _Places, turn: dict[int, int]) -> HloInstruction:
    """Updates whose turn it is over the box: the same along the chosen dimension."""
    update = instr.operands[2]
    numbering = [d for d in range(update.array.rank) if d not in instr.update_window_dims]
    update = _one(update, {numbering[k]: place for k, place in turn.items()})
    window = iter(instr.update_window_dims)
    single = {*instr.inserted_window_dims, *instr.input_batching_dims}
    source: list[int | None] = []  # per dimension of the operand, which of the update lies there
    for dim in range(instr.array.rank):
        own = None if dim in single else next(window)
        source.append(numbering[places.numbered[dim]] if dim in places.numbered else own)
    kept = [d for d in source if d is not None]
    gone = [d for d in range(update.array.rank) if d not in kept]  # of one element
    turned = make.transpose(update, (*kept, *gone))
    sizes = tuple(update.array.dims[d] for d in kept)
    mapping = tuple(d for d, s in enumerate(source) if s is not None and d != places.chosen)
    flat = tuple(
        n
        for d, n in zip([d for d, s in enumerate(source) if s is not None], sizes, strict=True)
        if d != places.chosen
    )
    box = tuple(size for _, size in places.box)
    return make.broadcast(make.reshape(turned, flat), box, mapping)


def _is_chosen(instr: HloInstruction, places: _Places, turn: dict[int, int]) -> HloInstruction:
    """``position along the chosen dimension == index``, with the dimensions of the box."""
    assert places.index is not None and places.chosen is not None
    box = tuple(size for _, size in places.box)
    index = wide_index(_one(places.index.node(), turn), box[places.chosen])
    order = sorted(places.numbered)
    turned = make.transpose(
        index,
        (
            *(places.numbered[dim] for dim in order),
            *(k for k in range(index.array.rank) if k not in places.numbered.values()),
        ),
    )
    wanted = make.broadcast(make.reshape(turned, tuple(box[d] for d in order)), box, tuple(order))
    shape = ArrayShape(index.array.dtype, box)
    position = emit(instr, "iota", shape, (), {"iota_dimension": places.chosen})
    return emit(instr, "compare", ArrayShape(PRED, box), (position, wanted), {"direction": "EQ"})
