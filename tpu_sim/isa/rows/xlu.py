"""XLU: what crosses lanes or sublanes, through a result queue; transposes; words for the scalar unit.

Each XLU slot has a transpose unit behind it, with a block being filled (shadow) and one to be read
(active); any XLU slot may issue for any of them.
"""

from __future__ import annotations

from tpu_sim.isa.instruction import Crossing, Does, Row, Slot, define
from tpu_sim.isa.resources import TRANSPOSE_INPUT, TRANSPOSE_SHADOW, TRANSPOSED, XLU
from tpu_sim.isa.semantics import calls

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


def _xlu(name: str, opcode: int, spec: str, crossing: Crossing, doc: str, does: Does) -> Row:
    return define(
        name, opcode, Slot.XLU, spec, "xlu", doc, does, crossing=crossing, defines=(XLU,),
    )  # fmt: skip


def _at(primitive: str) -> Does:
    """A primitive at a position: an sreg plus a constant."""
    return lambda m, a, s, k: getattr(m, primitive)(a, m.scalar_add(s, k))


def _fold(op: str, opcode: int, primitive: str, crossing: Crossing) -> Row:
    axis = crossing.value
    fold = f"{axis[:-1]}_fold"
    return _xlu(
        f"v{axis[:-1]}fold.{op}", opcode, "a:vs", crossing,
        f"push the {op} of all {axis}, in every one of them (halving tree)",
        lambda m, a: getattr(m, fold)(a, primitive),
    )  # fmt: skip


def _folds(first: int, crossing: Crossing) -> dict[str, Row]:
    names = enumerate(_FOLDS.items(), first)
    return {op: _fold(op, opcode, primitive, crossing) for opcode, (op, primitive) in names}


LANE_FOLD = _folds(1, Crossing.LANES)
"""``vlanefold.<op>``: reduction over 128 lanes, by op such as "add.f32"."""
SUBLANE_FOLD = _folds(14, Crossing.SUBLANES)
"""``vsublanefold.<op>``: reduction over 8 sublanes."""

VROT_LANE = _xlu("vrot.lane", 27, "a:vs s:ss k:imm", Crossing.LANES,
                 "push y[s,l] = a[s,(l - (sreg s + k)) mod 128]", _at("lane_rotate"))  # fmt: skip
VBCAST_LANE = _xlu("vbcast.lane", 28, "a:vs s:ss k:imm", Crossing.LANES,
                   "push y[s,l] = a[s,(sreg s + k) mod 128]", _at("lane_broadcast"))  # fmt: skip
VPERM_LANE = _xlu("vperm.lane", 29, "a:vs i:vs", Crossing.LANES,
                  "push y[s,l] = a[s, i[s,l] mod 128]", calls("lane_permute"))  # fmt: skip
VROT_SUBLANE = _xlu("vrot.slane", 30, "a:vs s:ss k:imm", Crossing.SUBLANES,
                    "push y[s,l] = a[(s - (sreg s + k)) mod 8, l]", _at("sublane_rotate"))  # fmt: skip
VBCAST_SUBLANE = _xlu("vbcast.slane", 31, "a:vs s:ss k:imm", Crossing.SUBLANES,
                      "push y[s,l] = a[(sreg s + k) mod 8, l]", _at("sublane_broadcast"))  # fmt: skip
VPERM_SUBLANE = _xlu("vperm.slane", 32, "a:vs i:vs", Crossing.SUBLANES,
                     "push y[s,l] = a[i[s,l] mod 8, l]", calls("sublane_permute"))  # fmt: skip


VPOP_XLU = define(
    "vpop.xlu", 2, Slot.POP, "d:vd", "pop", "d = oldest result of the XLU queue",
    lambda core: core.pop(XLU, 0), crossing=Crossing.STATE, uses=(XLU,),
)  # fmt: skip
VTOS = define(
    "vtos", 33, Slot.XLU, "d:sd a:vs", "to_scalar", "d = the word of sublane 0, lane 0 of a",
    calls("first_word"), crossing=Crossing.STATE,
)  # fmt: skip
VXPOSE_PUSH = define(
    "vxpose.push", 100, Slot.XLU, "unit:xpose a:vs row:imm<16", "xpose_push",
    "write a as sublane rows 8*row..8*row+7 (row 0..15) of a transpose unit's shadow block",
    calls("push_block"), crossing=Crossing.STATE, uses=(TRANSPOSE_SHADOW,), defines=(TRANSPOSE_INPUT,),
)  # fmt: skip


def _swap(name: str, opcode: int, doc: str, element_bits: int) -> Row:
    return define(
        name, opcode, Slot.XLU, "unit:xpose", "xpose_swap", doc,
        lambda core, unit: core.transpose(unit, element_bits), crossing=Crossing.STATE,
        uses=(TRANSPOSE_INPUT,), defines=(TRANSPOSED,), frees=(TRANSPOSE_SHADOW,),
    )  # fmt: skip


VXPOSE_SWAP = _swap(
    "vxpose.swap", 101,
    "transpose the 128x128 shadow block (32-bit elements) into the active block", 32,
)  # fmt: skip
VXPOSE_SWAP_B16 = _swap(
    "vxpose.swap.b16", 103,
    "transpose the shadow block as 256x128 halves, h[2*r + b, l] = half b (0 low) of word (r, l): "
    "active word (64*p + q, l) = h[128*p + l, 2*q] low, h[128*p + l, 2*q + 1] high", 16,
)  # fmt: skip
VXPOSE_READ = define(
    "vxpose.read", 102, Slot.XLU, "d:vd unit:xpose row:imm<16", "xpose_read",
    "d = sublane rows 8*row..8*row+7 of the active (transposed) block", calls("read_block"),
    crossing=Crossing.STATE, uses=(TRANSPOSED,),
)  # fmt: skip
