"""Which reductions a ring of chips makes on the way: those with one vector instruction."""

from __future__ import annotations

from compiler.hlo.dtypes import BF16, DType
from compiler.hlo.ir import HloComputation

_FLOAT = {
    "add": "vadd.f32", "multiply": "vmul.f32", "maximum": "vmax.f32", "minimum": "vmin.f32",
}  # fmt: skip
_BITS = {"and": "vand", "or": "vor", "xor": "vxor"}
_SIGNED = {
    "add": "vadd.s32", "multiply": "vmul.s32", "maximum": "vmax.s32", "minimum": "vmin.s32", **_BITS,
}  # fmt: skip
_UNSIGNED = {**_SIGNED, "maximum": "vmax.u32", "minimum": "vmin.u32"}
_ROWS = {"f32": _FLOAT, "bf16": _FLOAT, "s32": _SIGNED, "u32": _UNSIGNED}


def ring_row(computation: HloComputation, dtype: DType) -> str | None:
    """The vector instruction of a reduction's computation, or None if a ring does not make it.

    Two bf16 lie in a word; each is widened, combined and rounded.
    """
    root = computation.root_instruction
    if set(root.operands) != set(computation.parameters) or len(computation.parameters) != 2:
        return None
    return _ROWS.get(dtype.name, {}).get(root.opcode)


def is_packed(dtype: DType) -> bool:
    """Whether two elements lie in a word."""
    return dtype == BF16
