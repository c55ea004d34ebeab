"""What an operation on elements costs: VALU operations for one vreg of its result, about.

The one table that fusion (what to repeat, what to store), window search and reports of work go by.
An operation of the EUP counts as many as there are VALU slots beside the one EUP slot of a bundle.
Constants cost nothing: they are made once, outside of the loop over vregs. The numbers are those of
what `compiler.backend.vector` emits; `tests/unit/backend/test_lane_costs.py` compares the two.
"""

from __future__ import annotations

from compiler.analysis.float_signs import is_only_rounded
from compiler.hlo.dtypes import BF16, F32, PRED, DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from tpu_sim.isa.geometry import LANES

EUP_OPS = 4
"""VALU operations that could be issued in the bundle that one EUP operation needs: chips from v5e on have
four VALU slots and one EUP slot. On v2 to v4, which have two, an operation of the EUP counts for up to twice
what it takes: the table holds EUP operations among others, and what is decided by it (thresholds below) is
decided alike for all chips."""

DEAR = 12
"""From here on an operation on large arrays is done once and stored, not repeated by each reader."""

STAGED = 9
"""From here on a value that several stages of one kernel read is stored in VMEM: a store, a load for
each reader and the address arithmetic between take about as much."""

OWN_COLUMNS = 64
"""Columns of tiles of a row that each have code of their own; more go through one loop, whose places of
lanes are known only when it runs."""

LONG = 40
"""From here on so does a value that a chain of cheap operations makes: they fill the slots of a bundle."""

_FLOAT = {
    "acos": 60, "acosh": 39, "asin": 60, "asinh": 51, "atan": 53, "atan2": 53, "atanh": 41,
    "cbrt": 24, "clamp": 2, "cosh": 19, "cosine": 117, "divide": 11, "erf": 27, "exponential": 11,
    "exponential-minus-one": 23, "is-finite": 2, "log": 5, "log-plus-one": 20, "logistic": 22,
    "power": 110, "remainder": 242, "round-nearest-afz": 10, "rsqrt": 4, "sign": 5, "sine": 118,
    "sinh": 48, "sqrt": 4, "tan": 128, "tanh": 4,
}  # fmt: skip
_INTEGER = {"abs": 2, "clamp": 2, "divide": 4, "mulhi": 4, "remainder": 4, "sign": 2}
_POWER_OPS_PER_BIT = 5
"""Of an integer power, which squares and multiplies once for each bit of the exponent."""
_ROUNDING = 27
"""Rounding f32 lanes to a float type that the vector unit does not have, and back."""
_BF16_ROUNDING = 2
_WRAPPING = {True: 2, False: 1}
"""Wrapping s32 lanes to a narrower integer type: a shift to and fro if signed, else a mask."""

_MOVED = {"concatenate": 3, "dynamic-update-slice": 6, "pad": 2, "dynamic-slice": 1}
"""Selects between parts, and where they begin, for operations that take elements from several places."""
MANY_PARTS = 4
"""Parts of a concatenation: of fewer the selects above are all there is; of more each reader would select
among many, so that it is put together once (assumed)."""
_PART_COST = 9
"""To bring a part to its lanes and to select it there (assumed)."""
_MOST_JOINING_COST = 40
"""However many parts there are, a register is put together of the few that reach into it (assumed)."""


def lane_ops(instr: HloInstruction) -> int:
    """VALU operations for one vreg of an instruction's result; 0 for one that only names elements."""
    if instr.opcode in _MOVED:
        return max(_MOVED[instr.opcode], _joining_ops(instr))
    traits = OPCODES[instr.opcode]
    if instr.opcode == "constant" or traits.has(Trait.INDEX_MAP) or traits.has(Trait.SYMBOLIC):
        return 0
    if not traits.has(Trait.ELEMENTWISE):
        return 1
    source, target = instr.operands[0].array.dtype, instr.array.dtype
    if target.is_complex or source.is_complex:
        return 2 * _FLOAT.get(instr.opcode, 1)  # two parts, before passes take them apart
    if instr.opcode == "convert":
        return _conversion(source, target)
    if instr.opcode == "divide" and target.is_float and is_only_rounded(instr):
        return 1 + EUP_OPS
    return _plain(instr.opcode, source) + _settling(instr.opcode, target)


def is_dear(instr: HloInstruction) -> bool:
    """Whether the operation is better done once than by each who reads the result."""
    return lane_ops(instr) >= DEAR


def _plain(opcode: str, dtype: DType) -> int:
    """The operation itself, on f32 or s32 lanes."""
    if dtype == PRED:
        return 1
    if opcode == "power" and not dtype.is_float:
        return _POWER_OPS_PER_BIT * dtype.bits
    return (_FLOAT if dtype.is_float else _INTEGER).get(opcode, 1)


def _settling(opcode: str, target: DType) -> int:
    """Bringing lanes into the range of the result's type; bf16 is rounded where it is stored."""
    if target == PRED or target.bits == 32 or opcode == "select":
        return 0
    if target.is_float:
        return 0 if target == BF16 or OPCODES[opcode].has(Trait.EXACT) else _ROUNDING
    return _WRAPPING[target.is_signed]


def _conversion(source: DType, target: DType) -> int:
    if PRED in (source, target):
        return 1
    is_new_class = source.is_float != target.is_float
    if target.is_float:
        rounding = _BF16_ROUNDING if target == BF16 else _ROUNDING
        return int(is_new_class) + (0 if target == F32 else rounding)
    if target.bits == 32:
        return int(is_new_class)
    return 3 if source.is_float else _WRAPPING[target.is_signed]


def _joining_ops(instr: HloInstruction) -> int:
    """Operations for a vreg of many parts side by side that are no whole tiles of lanes."""
    if instr.opcode != "concatenate" or len(instr.operands) < MANY_PARTS:
        return 0
    is_in_lanes = instr.dimensions == (instr.array.rank - 1,)
    if not is_in_lanes or all(part.array.dims[-1] % LANES == 0 for part in instr.operands):
        return 0
    return min(_PART_COST * len(instr.operands), _MOST_JOINING_COST)
