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

from tpu_sim.isa.instruction import Crossing, Row, Slot, define, operands

CANONICAL_NAN = 0x7FC00000
"""The bits of the one NaN that bf16 passes give: quiet, positive, no payload. Assumed; hosts differ."""

VMATPUSH = define(
    Row(
        "vmatpush.bf16",
        1,
        Slot.MXU,
        operands("u:unit a:vs row:imm"),
        "matpush",
        "shadow weights: w[16*row + 2*s + h, l] = half h (0 low, 1 high) of a[s, l]; row 0..7",
        crossing=Crossing.STATE,
        effect="matpush",
    )
)
VMATPUSH_T = define(
    Row(
        "vmatpush.t.bf16",
        2,
        Slot.MXU,
        operands("u:unit a:vs row:imm"),
        "matpush",
        "shadow weights, transposed: w[l, 16*row + 2*s + h] = half h of a[s, l]; row 0..7",
        crossing=Crossing.STATE,
        effect="matpush_t",
    )
)
VMATSWAP = define(
    Row(
        "vmatswap",
        3,
        Slot.MXU,
        operands("u:unit"),
        "matswap",
        "make the shadow weights of MXU u the active ones and clear the shadow to zero",
        crossing=Crossing.STATE,
        effect="matswap",
    )
)
VMATMUL = define(
    Row(
        "vmatmul.bf16",
        4,
        Slot.MXU,
        operands("u:unit a:vs"),
        "matmul",
        "multiply 8 low and 8 high rows of a (lanes are k) by the active weights; push two results",
        crossing=Crossing.STATE,
        pushes="mrf",
        effect="matmul",
    )
)


def _integer_pass(kind: str, opcode: int, words: str) -> Row:
    return define(
        Row(
            f"vmatmul.{kind}",
            opcode,
            Slot.MXU,
            operands("u:unit a:vs"),
            "matmul",
            f"vmatmul of {words} bytes, two k in each half of a and of the weights; push two s32 results",
            crossing=Crossing.STATE,
            pushes="mrf",
            effect="matmul",
        )
    )


VMATMUL_S8 = _integer_pass("s8", 5, "signed")
VMATMUL_U8 = _integer_pass("u8", 6, "unsigned")
INTEGER_PASSES = {VMATMUL_S8.name: True, VMATMUL_U8.name: False}
"""Whether the bytes of each integer pass are signed. Chips with `Chip.int8_rate` 0 have none."""

VPOP_MRF = define(
    Row(
        "vpop.mrf",
        3,
        Slot.POP,
        operands("d:vd u:unit"),
        "pop",
        "d = oldest result of MXU u (8 low rows first, then 8 high rows)",
        crossing=Crossing.STATE,
        pops="mrf",
        effect="pop_mrf",
    )
)
