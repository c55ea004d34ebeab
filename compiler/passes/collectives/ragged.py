"""ragged-all-to-all: of what every device has, the rows that are for this one, each where it belongs.

Device i sends device j rows ``input_offsets[j] ..`` of its operand, ``send_sizes[j]`` of them, to rows
``output_offsets[j] ..`` of j's output; all else of the output stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction


def expand_ragged(
    e: Emitter, arrays: tuple[Instr, Instr], tables: Sequence[Instr], rank: Instr, size: int
) -> Instr:
    """The output of the device of number `rank` in its group of `size`.

    `arrays` are the operands of all devices, ``[n, rows, ..]``, and this one's output; `tables` the
    offsets and sizes of all, ``[n, n]`` each.
    """
    operands, output = arrays
    first, counts, places = (e.cast(_column(e, table, rank), S32) for table in tables[:3])
    rows, dims = e.positions((output.array.dims[0],), 0), output.array.dims
    for device in range(size):
        start, count, place = (
            e.broadcast(e.reshape(e.part(column, 0, device, device + 1), ()), rows.array.dims)
            for column in (first, counts, places)
        )
        behind = e.subtract(rows, place)
        within = e.instruction(
            "and",
            (e.compare_to(behind, 0, "GE"), e.compare(behind, count, "LT")),
        )
        source = e.reshape(e.part(operands, 0, device, device + 1), operands.array.dims[1:])
        found = e.gather(
            source,
            e.reshape(e.add(behind, start), (dims[0], 1)),
            offset_dims=tuple(range(1, len(dims))),
            collapsed_slice_dims=(0,),
            start_index_map=(0,),
            index_vector_dim=1,
            slice_sizes=(1, *dims[1:]),
        )
        output = e.select(e.broadcast(within, dims, (0,)), found, output)
    return output


def _column(e: Emitter, table: Instr, rank: Instr) -> Instr:
    """``table[:, rank]``."""
    count = table.array.dims[0]
    zero = e.constant(S32, 0)
    return e.reshape(e.dynamic_slice(table, (zero, rank), (count, 1)), (count,))
