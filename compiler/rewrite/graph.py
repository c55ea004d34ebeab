"""Small edits of HLO that every pass needs: emit, replace, remove dead code, clone.

All keep use lists and names right; none keeps `instructions` in topological order, so a pass
that used them calls `HloComputation.sort` once when it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.origins import IDLE, absorb, inherit
from compiler.hlo.shape import Shape, is_compatible

Attrs = dict[str, object]


def emit(
    near: HloInstruction,
    opcode: str,
    shape: Shape,
    operands: Iterable[HloInstruction] = (),
    attrs: Attrs | None = None,
    name: str | None = None,
) -> HloInstruction:
    """Append an instruction next to `near`; it inherits `near`'s origins and place."""
    assert near.computation is not None, f"%{near.name} is in no computation"
    values: Attrs = dict(attrs or {})
    if opcode != "parameter":
        inherit(values, near)
    instr = HloInstruction(opcode, name or opcode, shape, operands, values)
    instr.location = near.location
    return near.computation.add(instr)


def rename_calls(
    instr: HloInstruction, on_call: Callable[[HloComputation], HloComputation]
) -> None:
    """Replace every computation among the attributes by what `on_call` returns for it."""
    for key, value in instr.attrs.items():
        if isinstance(value, HloComputation):
            instr.attrs[key] = on_call(value)
        elif isinstance(value, tuple) and any(isinstance(v, HloComputation) for v in value):
            instr.attrs[key] = tuple(
                on_call(v) if isinstance(v, HloComputation) else v for v in value
            )


def has_side_effect(instr: HloInstruction) -> bool:
    """Whether removing the instruction could be noticed (looks into what it calls)."""
    if OPCODES[instr.opcode].has(Trait.SIDE_EFFECT):
        return True
    if instr.opcode == "custom-call" and "custom_call_has_side_effect" in instr.attrs:
        return True
    if not OPCODES[instr.opcode].has(Trait.RUNS):
        return False
    return any(has_side_effect(i) for c in instr.called_computations() for i in c)


def is_dead(instr: HloInstruction) -> bool:
    """Whether nothing needs the instruction: no user, not the root, no parameter, no effect."""
    return (
        not instr.users
        and instr.computation is not None
        and instr.computation.root is not instr
        and instr.opcode != "parameter"
        and not has_side_effect(instr)
    )


def remove_dead(instr: HloInstruction) -> int:
    """Remove an instruction if it is dead, then its operands likewise; return how many went."""
    removed = 0
    pending = [instr]
    while pending:
        candidate = pending.pop()
        if candidate.computation is None or not is_dead(candidate):
            continue
        operands = list(dict.fromkeys(candidate.operands))
        candidate.computation.remove(candidate)
        removed += 1
        pending.extend(operands)
    return removed


def remove_unneeded(computation: HloComputation) -> None:
    """Remove what the root does not need, effects or not: what was built beside it."""
    for instr in reversed(list(computation.instructions)):
        if not instr.users and instr is not computation.root and instr.opcode != "parameter":
            computation.remove(instr)


def replace(old: HloInstruction, new: HloInstruction) -> None:
    """Make everyone use `new` instead of `old`, then remove `old` and what only it needed.

    `new` also comes from where `old` did.
    """
    assert is_compatible(old.shape, new.shape), f"%{old.name}: {old.shape} is not {new.shape}"
    if new.opcode not in IDLE:
        absorb(new, (old,))
    old.replace_all_uses_with(new)
    remove_dead(old)
