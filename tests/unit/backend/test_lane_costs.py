"""The table of elementwise costs against what the vector code of each opcode and type takes."""

from __future__ import annotations

import pytest

from compiler.analysis.lane_costs import EUP_OPS, lane_ops
from compiler.backend.vector import elementwise
from compiler.backend.vector.ops import Ops
from compiler.diagnostics import UnsupportedError
from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import BF16, BY_NAME, F16, F32, PRED, S8, S32, U16, U32, DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES
from compiler.hlo.shape import ArrayShape
from compiler.llo.builder import LloBuilder
from compiler.llo.walk import blocks
from tpu_sim.isa.chips import load_chip

_UNCOUNTED = ("vmovi", "mmovi")  # constants are made once, outside of the loop over vregs
_THREE = ("clamp", "multiply-add")
_TWO = (
    "add", "and", "atan2", "divide", "maximum", "minimum", "mulhi", "multiply", "or", "power",
    "remainder", "shift-left", "shift-right-arithmetic", "shift-right-logical", "subtract", "xor",
)  # fmt: skip
_FLOATS = (F32, BF16, F16, BY_NAME["f8e4m3fn"])
_INTEGERS = (S32, U32, S8, U16, BY_NAME["s4"])


def instruction(opcode: str, operands: list[DType], result: DType) -> HloInstruction:
    b = HloBuilder("m")
    given = [b.parameter(ArrayShape(dtype, (8, 128))) for dtype in operands]
    attrs: dict[str, object] = {}
    return HloInstruction(opcode, opcode, ArrayShape(result, (8, 128)), given, attrs)


def emitted(instr: HloInstruction) -> int:
    """VALU operations that the emitter makes, those of the EUP weighted."""
    builder = LloBuilder("k", load_chip("v5e"))
    registers = [builder.emit("vlane"), builder.emit("vsublane")]
    registers.append(builder.emit("vadd.s32", *registers))
    for number, operand in enumerate(instr.operands):
        if operand.array.dtype == PRED:
            registers[number] = builder.emit("mmovi", 1 - number % 2)
    nodes = builder._scopes[0].nodes
    before = sum(len(block.ops) for block in blocks(nodes))
    elementwise.emit_elementwise(Ops(builder), instr, registers[: len(instr.operands)])
    made = [op.row for block in blocks(nodes) for op in block.ops][before:]
    counted = [row for row in made if row.name not in _UNCOUNTED]
    units = [row.slot.name for row in counted]
    return units.count("VALU") + EUP_OPS * units.count("EUP")


def cases() -> list[tuple[str, DType]]:
    tables = ((elementwise._FLOAT, _FLOATS), (elementwise._INTEGER, _INTEGERS))
    found = [(opcode, dtype) for table, dtypes in tables for opcode in table for dtype in dtypes]
    return [*found, *((opcode, PRED) for opcode in elementwise._MASK)]


@pytest.mark.parametrize(("opcode", "dtype"), cases(), ids=lambda value: str(value))
def test_the_table_is_near_what_is_emitted(opcode: str, dtype: DType) -> None:
    count = 3 if opcode in _THREE else 2 if opcode in _TWO else 1
    instr = instruction(opcode, [dtype] * count, PRED if opcode == "is-finite" else dtype)
    expect_near(instr)


@pytest.mark.parametrize("source", ["f32", "bf16", "s32", "u32", "s8", "u16", "pred", "f16"])
def test_conversions_are_near_what_is_emitted(source: str) -> None:
    for target in (F32, BF16, F16, S32, U32, S8, U16, PRED, BY_NAME["f8e5m2"]):
        if target != BY_NAME[source]:
            expect_near(instruction("convert", [BY_NAME[source]], target))


def expect_near(instr: HloInstruction) -> None:
    try:
        found = emitted(instr)
    except UnsupportedError:
        pytest.skip(f"{instr.opcode} of {instr.array.dtype} is not emitted")
    assert abs(lane_ops(instr) - found) <= max(3, found // 5), (
        f"{instr.opcode} of {instr.array.dtype}: {found} operations are emitted, "
        f"compiler/analysis/lane_costs.py says {lane_ops(instr)}"
    )


def test_opcodes_in_the_table_exist() -> None:
    from compiler.analysis import lane_costs

    for table in (lane_costs._FLOAT, lane_costs._INTEGER, lane_costs._MOVED):
        assert set(table) <= set(OPCODES)
