"""XLU: what crosses lanes or sublanes, through a result queue; and the transpose units.

Each XLU slot has a transpose unit behind it, with a block being filled (shadow) and one to be read
(active); any XLU slot may issue for any of them.
"""

from __future__ import annotations

from typing import Any

from tpu_sim.isa.instruction import Crossing, Row, Slot, define, meaning, operands
from tpu_sim.isa.rows.opcodes import opcode_of

_FOLDS = {
    "add.f32": "fadd",
    "mul.f32": "fmul",
    "max.f32": "fmaximum",
    "min.f32": "fminimum",
    "add.s32": "iadd",
    "mul.s32": "imul",
    "max.s32": "imax_s",
    "min.s32": "imin_s",
    "max.u32": "imax_u",
    "min.u32": "imin_u",
    "and": "iand",
    "or": "ior",
    "xor": "ixor",
}


def _xlu(name: str, spec: str, crossing: Crossing, doc: str) -> Row:
    return define(
        Row(
            name,
            opcode_of(Slot.XLU, name),
            Slot.XLU,
            operands(spec),
            "xlu",
            doc,
            crossing,
            pushes="xlu",
        )
    )


def _fold(op: str, primitive: str, crossing: Crossing) -> Row:
    axis = crossing.value
    row = _xlu(
        f"v{axis[:-1]}fold.{op}", "a:vs", crossing,
        f"push the {op} of all {axis}, in every one of them (halving tree)",
    )  # fmt: skip

    @meaning(row)
    def _(m: Any, a: Any) -> Any:
        fold = m.lane_fold if crossing is Crossing.LANES else m.sublane_fold
        return fold(a, primitive)

    return row


LANE_FOLD: dict[str, Row] = {op: _fold(op, p, Crossing.LANES) for op, p in _FOLDS.items()}
"""``vlanefold.<op>``: reduction over 128 lanes, by op such as "add.f32"."""
SUBLANE_FOLD: dict[str, Row] = {op: _fold(op, p, Crossing.SUBLANES) for op, p in _FOLDS.items()}
"""``vsublanefold.<op>``: reduction over 8 sublanes."""

VROT_LANE = _xlu("vrot.lane", "a:vs s:ss k:imm", Crossing.LANES,
                 "push y[s,l] = a[s,(l - (sreg s + k)) mod 128]")  # fmt: skip
VBCAST_LANE = _xlu("vbcast.lane", "a:vs s:ss k:imm", Crossing.LANES,
                   "push y[s,l] = a[s,(sreg s + k) mod 128]")  # fmt: skip
VPERM_LANE = _xlu("vperm.lane", "a:vs i:vs", Crossing.LANES, "push y[s,l] = a[s, i[s,l] mod 128]")
VROT_SUBLANE = _xlu("vrot.slane", "a:vs s:ss k:imm", Crossing.SUBLANES,
                    "push y[s,l] = a[(s - (sreg s + k)) mod 8, l]")  # fmt: skip
VBCAST_SUBLANE = _xlu("vbcast.slane", "a:vs s:ss k:imm", Crossing.SUBLANES,
                      "push y[s,l] = a[(sreg s + k) mod 8, l]")  # fmt: skip
VPERM_SUBLANE = _xlu("vperm.slane", "a:vs i:vs", Crossing.SUBLANES,
                     "push y[s,l] = a[i[s,l] mod 8, l]")  # fmt: skip


def _positional(row: Row, primitive: str) -> None:
    @meaning(row)
    def _(m: Any, a: Any, s: Any, k: int) -> Any:
        return getattr(m, primitive)(a, m.scalar_add(s, k))


_positional(VROT_LANE, "lane_rotate")
_positional(VBCAST_LANE, "lane_broadcast")
_positional(VROT_SUBLANE, "sublane_rotate")
_positional(VBCAST_SUBLANE, "sublane_broadcast")


@meaning(VPERM_LANE)
def _(m: Any, a: Any, i: Any) -> Any:
    return m.lane_permute(a, i)


@meaning(VPERM_SUBLANE)
def _(m: Any, a: Any, i: Any) -> Any:
    return m.sublane_permute(a, i)


VPOP_XLU = define(
    Row(
        "vpop.xlu",
        2,
        Slot.POP,
        operands("d:vd"),
        "pop",
        "d = oldest result of the XLU queue",
        crossing=Crossing.STATE,
        pops="xlu",
        effect="pop_xlu",
    )
)

VXPOSE_PUSH = define(
    Row(
        "vxpose.push",
        100,
        Slot.XLU,
        operands("unit:imm a:vs row:imm"),
        "xpose_push",
        "write a as sublane rows 8*row..8*row+7 (row 0..15) of a transpose unit's shadow block",
        crossing=Crossing.STATE,
        effect="xpose_push",
    )
)
VXPOSE_SWAP = define(
    Row(
        "vxpose.swap",
        101,
        Slot.XLU,
        operands("unit:imm"),
        "xpose_swap",
        "transpose the 128x128 shadow block (32-bit elements) into the active block",
        crossing=Crossing.STATE,
        effect="xpose_swap",
    )
)
VXPOSE_SWAP_B16 = define(
    Row(
        "vxpose.swap.b16",
        103,
        Slot.XLU,
        operands("unit:imm"),
        "xpose_swap",
        "transpose the shadow block as 256x128 halves, h[2*r + b, l] = half b (0 low) of word (r, l): "
        "active word (64*p + q, l) = h[128*p + l, 2*q] low, h[128*p + l, 2*q + 1] high",
        crossing=Crossing.STATE,
        effect="xpose_swap16",
    )
)
VXPOSE_READ = define(
    Row(
        "vxpose.read",
        102,
        Slot.XLU,
        operands("d:vd unit:imm row:imm"),
        "xpose_read",
        "d = sublane rows 8*row..8*row+7 of the active (transposed) block",
        crossing=Crossing.STATE,
        effect="xpose_read",
    )
)
