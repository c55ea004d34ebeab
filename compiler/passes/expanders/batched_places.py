"""Components of index vectors that count, as batching dimensions.

    gather(x, (iota along 0, i)), start_index_map={0,1}
    gather(x, i), operand_batching_dims={0}, start_indices_batching_dims={0}, start_index_map={1}

`x[arange(n)[:, None], i]` says by numbers what a batching dimension says by itself: a row's places lie
in that row. Devices that hold some of the rows then need nothing of the others'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.analysis.index_columns import Column, index_columns
from compiler.hlo.ir import HloInstruction
from compiler.rewrite import make
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.graph import emit

Instr = HloInstruction


@dataclass(frozen=True)
class _Names:
    """What a gather and a scatter call their dimensions."""

    places: str
    single: str
    batching: str
    of_indices: str


_GATHER = _Names(
    "start_index_map",
    "collapsed_slice_dims",
    "operand_batching_dims",
    "start_indices_batching_dims",
)
_SCATTER = _Names(
    "scatter_dims_to_operand_dims",
    "inserted_window_dims",
    "input_batching_dims",
    "scatter_indices_batching_dims",
)


def gather_in_rows(gather: Instr) -> Instr | None:
    """A gather whose components that count a whole dimension are batching dimensions."""
    return _in_rows(gather, 1, _GATHER)


def scatter_in_rows(scatter: Instr) -> Instr | None:
    """The same of a scatter."""
    return _in_rows(scatter, len(scatter.operands) // 2, _SCATTER)


def _in_rows(instr: Instr, number: int, names: _Names) -> Instr | None:
    """The same of either; operand `number` are the indices, which may be another operand, too."""
    targets, single = instr.ints(names.places), instr.ints(names.single)
    dims = instr.operands[0].array.dims
    columns = index_columns(instr.operands[number], instr.index_vector_dim)
    batched = _batched_already(instr, names)
    counted: dict[int, int] = {}
    for target, column in zip(targets, columns, strict=True):
        taken = {*batched.values(), *counted.values()}
        along = column.along
        if along is None or along in taken or target not in single:
            continue
        if column.first == 0 and column.numbers[along] == dims[target]:
            counted[target] = along
    kept = [k for k, target in enumerate(targets) if target not in counted]
    if not counted or not kept:
        return None
    pairs = sorted({**batched, **counted}.items())
    attrs = dict(instr.attrs)
    attrs[names.places] = tuple(targets[k] for k in kept)
    attrs[names.single] = tuple(d for d in single if d not in counted)
    attrs[names.batching] = tuple(dim for dim, _ in pairs)
    attrs[names.of_indices] = tuple(along for _, along in pairs)
    attrs["index_vector_dim"] = len(columns[0].numbers)
    operands = list(instr.operands)
    operands[number] = _joined([columns[k] for k in kept])
    return emit(instr, instr.opcode, instr.shape, operands, attrs)


def _batched_already(instr: Instr, names: _Names) -> dict[int, int]:
    """For each batching dimension of the operand which number of the index vectors goes along."""
    pairs = zip(instr.ints(names.batching), instr.ints(names.of_indices), strict=True)
    return {dim: k - (k > instr.index_vector_dim) for dim, k in pairs}


def _joined(columns: Sequence[Column]) -> Instr:
    """Index vectors of some components, whose own dimension is the last."""
    parts = [make.reshape(column.node(), (*column.numbers, 1)) for column in columns]
    return Emitter.at(parts[0]).join(parts, len(columns[0].numbers))
