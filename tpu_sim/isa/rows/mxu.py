"""MXU: latch a 128x128 block of weights, stream rows of the left side, pop f32 results.

A vreg of packed bf16 holds in word (s, l) the values of "low" and "high" rows. The MXU does not
care which rows of the matrix those are: ``vmatmul`` multiplies 8 low rows and 8 high rows, and its
two results are popped in that order. In T(16,128)(2,1) data low rows are even, high rows odd.

Arithmetic: each output is acc = +0; for each block of 32 k, ascending: two chains over its k,
ascending, each from +0, even = fma(a[k], w[k], even) over even k and odd over odd k; then acc =
acc + (even + odd). All in f32, round to nearest even; denormal inputs and results are flushed to
zeros of their sign, here only. A result is denormal if it would be so with an unbounded exponent.
A result that is NaN is 0x7FC00000 (`CANONICAL_NAN`), whatever NaN went in.

Passes of 8-bit integers read a half as two k, the low byte first: a block of weights is then 256
deep. Their results are s32, exact.
"""

from __future__ import annotations

from typing import Any

from tpu_sim.isa.instruction import Crossing, Row, Slot, define
from tpu_sim.isa.resources import ACTIVE, MRF, SHADOW, WEIGHTS
from tpu_sim.isa.semantics import calls

CANONICAL_NAN = 0x7FC00000
"""The bits of the one NaN that bf16 passes give: quiet, positive, no payload. Assumed; hosts differ."""


def canonical(m: Any, x: Any) -> Any:
    """The bits of f32 `x`, those of every NaN `CANONICAL_NAN`."""
    return m.select(m.fcmp("ne", x, x), m.const_i(CANONICAL_NAN), m.as_i(x))


def _push(name: str, opcode: int, doc: str, *, is_transposed: bool) -> Row:
    return define(
        name, opcode, Slot.MXU, "u:unit a:vs row:imm<8", "matpush", doc,
        lambda core, u, a, row: core.push_weights(u, a, row, is_transposed=is_transposed),
        crossing=Crossing.STATE, uses=(SHADOW,), defines=(WEIGHTS,),
    )  # fmt: skip


VMATPUSH = _push(
    "vmatpush.bf16", 1,
    "shadow weights: w[16*row + 2*s + h, l] = half h (0 low, 1 high) of a[s, l]; row 0..7",
    is_transposed=False,
)  # fmt: skip
VMATPUSH_T = _push(
    "vmatpush.t.bf16", 2,
    "shadow weights, transposed: w[l, 16*row + 2*s + h] = half h of a[s, l]; row 0..7",
    is_transposed=True,
)  # fmt: skip
VMATSWAP = define(
    "vmatswap", 3, Slot.MXU, "u:unit", "matswap",
    "make the shadow weights of MXU u the active ones and clear the shadow to zero", calls("swap_weights"),
    crossing=Crossing.STATE, uses=(WEIGHTS,), defines=(ACTIVE,), frees=(SHADOW,),
)  # fmt: skip


PASS_FORMATS: dict[str, Row] = {}
"""By what a pass computes in, its row; each machine has a kernel for each of these."""


def matrix_pass(pass_format: str, opcode: int, doc: str, required: str = "") -> Row:
    """The row of a pass that computes in a format; it pushes two results."""
    row = PASS_FORMATS[pass_format] = define(
        f"vmatmul.{pass_format}", opcode, Slot.MXU, "u:unit a:vs", "matmul", doc,
        lambda core, u, a: core.multiply(u, a, pass_format),
        crossing=Crossing.STATE, uses=(ACTIVE,), defines=(MRF,), required=required,
    )  # fmt: skip
    return row


VMATMUL = matrix_pass(
    "bf16", 4,
    "multiply 8 low and 8 high rows of a (lanes are k) by the active weights; push two results",
)  # fmt: skip
_BYTES = "vmatmul of {} bytes, two k in each half of a and of the weights; push two s32 results"
VMATMUL_S8 = matrix_pass("s8", 5, _BYTES.format("signed"), "int8_rate")
VMATMUL_U8 = matrix_pass("u8", 6, _BYTES.format("unsigned"), "int8_rate")
VPOP_MRF = define(
    "vpop.mrf", 3, Slot.POP, "d:vd u:unit", "pop",
    "d = oldest result of MXU u (8 low rows first, then 8 high rows)",
    lambda core, u: core.pop(MRF, u), crossing=Crossing.STATE, uses=(MRF,),
)  # fmt: skip
