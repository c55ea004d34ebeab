"""What has no form for many examples at once runs for one after the other, in a loop of the chip."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.autodiff.refusal import refused
from compiler.autodiff.values import (
    Instr,
    Mask,
    Value,
    arrays_of,
    flags_of,
    value_like,
)
from compiler.batching.step import Scope, everywhere, with_batch
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape, leaves
from compiler.passes.expanders.scan_expander import slice_at, with_slice
from compiler.rewrite.emitter import Emitter


def one_by_one(
    scope: Scope, instr: Instr, operands: Sequence[Value], flags: Sequence[Mask]
) -> tuple[Value, Mask]:
    """A loop over the examples."""
    if OPCODES[instr.opcode].traits & (Trait.SIDE_EFFECT | Trait.ASYNC | Trait.COLLECTIVE):
        raise refused(
            instr,
            f"{instr.opcode} cannot be batched: it is more than a value of its operands; call it "
            "outside of vmap",
        )
    e = scope.emitter(instr)
    given = [array for operand in operands for array in arrays_of(operand)]
    pairs = zip(flags, instr.operands, strict=True)
    batched = [flag for mask, old in pairs for flag in flags_of(mask, old.shape)]
    shapes = [with_batch(shape, scope.size) for shape in leaves(instr.shape)]
    room = [e.full(s.dtype, s.dims, 0) for s in shapes if isinstance(s, ArrayShape)]

    def body(b: Emitter, turn: Instr, state: list[Instr]) -> list[Instr]:
        xs, made = state[: len(given)], state[len(given) :]
        mine = iter([slice_at(b, x, 0, turn) if f else x for x, f in zip(xs, batched, strict=True)])
        inner = scope.at(b)
        results = inner.emit(instr, [value_like(old.shape, mine) for old in instr.operands])
        rows = zip(made, arrays_of(results), strict=True)
        return [*xs, *(with_slice(b, into, row, 0, turn) for into, row in rows)]

    found = e.loop(scope.size, [*given, *room], body)[len(given) :]
    return value_like(instr.shape, iter(found)), everywhere(instr.shape)
