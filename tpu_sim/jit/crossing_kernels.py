"""Crossing operations as functions of the kernel library, on one row or column of eight chunks.

``void name(out, out_stride, a, a_stride, ...)``: chunk k of an operand lies k strides (bytes) behind
its pointer, a stride of 0 stands for eight equal chunks. Operations by an amount take it last.
Moves that are read from where their operand lies (`tpu_sim.jit.moves`) have no function.
"""

from __future__ import annotations

from typing import cast

from tpu_sim.isa.geometry import LANES
from tpu_sim.isa.instruction import ROWS, Crossing, Kind, Row
from tpu_sim.jit.crossing import CHUNKS, Chunks, ColumnLanes, RowLanes
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.lanes import CHUNK_BYTES, LlvmLanes
from tpu_sim.jit.moves import ALWAYS_MOVES

_CHUNK = "<16 x i32>"
_BUFFER_BYTES = 2 * 4 * LANES
_ROWS = tuple(
    row
    for row in ROWS.values()
    if row.crossing in (Crossing.LANES, Crossing.SUBLANES) and row.name not in ALWAYS_MOVES
)


def crossing_kernel(row_name: str) -> str:
    """The name of the function of a crossing row."""
    return f"tpuc_kernel_v1_cross_{row_name.replace('.', '_')}"


def _vectors(row: Row) -> int:
    return sum(operand.kind is Kind.VS for operand in row.operands)


def _has_amount(row: Row) -> bool:
    return any(operand.kind is Kind.SS for operand in row.operands)


def _types(row: Row) -> list[str]:
    return ["ptr", "i64"] * (1 + _vectors(row)) + ["i32"] * _has_amount(row)


CROSSING_FUNCTIONS = tuple(crossing_kernel(row.name) for row in _ROWS)
CROSSING_DECLARATIONS = "".join(
    f"declare void @{crossing_kernel(row.name)}({', '.join(_types(row))})\n" for row in _ROWS
)


def crossing_text() -> str:
    """The functions of this module."""
    return "\n".join(_function(row) for row in _ROWS)


def _function(row: Row) -> str:
    e = FunctionEmitter("x")
    names = ["out", *(f"in{n}" for n in range(_vectors(row)))]
    parameters = [p for name in names for p in (f"ptr %{name}", f"i64 %{name}_stride")]
    lanes = LlvmLanes(e)
    if row.crossing is Crossing.LANES:
        e.do(f"%buffer = alloca [{_BUFFER_BYTES} x i8], align {CHUNK_BYTES}")
    arguments: list[object] = [
        [e.load(_CHUNK, place, CHUNK_BYTES) for place in _places(e, name)] for name in names[1:]
    ]
    if _has_amount(row):
        parameters.append("i32 %amount")
        arguments += ["%amount", 0]
    is_row = row.crossing is Crossing.LANES
    crossing = RowLanes(lanes, "%buffer") if is_row else ColumnLanes(lanes)
    result = cast(Chunks, row.does(crossing, *arguments))
    for chunk, place in zip(result, _places(e, "out"), strict=True):
        e.store(_CHUNK, chunk, place, CHUNK_BYTES)
    header = f"void @{crossing_kernel(row.name)}({', '.join(parameters)})"
    return f"define {header} #0 {{\nentry:\n{e.text()}\n ret void\n}}\n"


def _places(e: FunctionEmitter, name: str) -> list[str]:
    """Pointers to the eight chunks of an operand."""
    strides = ["0", f"%{name}_stride"]
    strides += [e.value(f"mul i64 %{name}_stride, {k}") for k in range(2, CHUNKS)]
    return [e.offset(f"%{name}", stride) for stride in strides]
