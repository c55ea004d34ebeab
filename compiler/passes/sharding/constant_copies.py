"""A copy of each constant for each of its users, so that they do not tie users together.

What is computed of constants alone, and a scalar spread over an array, costs nothing to make in any
sharding. Before propagation every user gets its own; afterwards copies with equal shardings are
one again.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.hlo.cloning import clone
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait

Instr = HloInstruction

MOST_COPIED = 64
"""Instructions of a constant expression; a larger one stays one for all its users."""

_SOURCES = frozenset({"constant", "iota"})
_MOVES = frozenset({"broadcast", "concatenate", "pad", "reshape", "reverse", "slice", "transpose"})


def split_constants(
    computation: HloComputation, is_kept: Callable[[Instr], bool]
) -> dict[Instr, Instr]:
    """Give each user its own copies; returns copy -> original. `is_kept` ones are not copied."""
    constant: dict[Instr, bool] = {}
    for instr in computation:
        constant[instr] = not is_kept(instr) and _is_constant(instr, constant)
    originals: dict[Instr, Instr] = {}
    for user in list(computation):
        if constant[user] or (user.opcode == "broadcast" and user in originals):
            continue
        made: dict[Instr, Instr] = {}
        for index, operand in enumerate(list(user.operands)):
            if user.opcode == "tuple":
                made = {}
            if _is_shared(operand, constant, is_kept) and _size(operand, constant) <= MOST_COPIED:
                user.set_operand(index, _copied(operand, constant, made, originals))
    if originals:
        computation.sort()
    return originals


def _is_constant(instr: Instr, constant: dict[Instr, bool]) -> bool:
    if instr.opcode in _SOURCES:
        return True
    is_movable = instr.opcode in _MOVES or OPCODES[instr.opcode].has(Trait.ELEMENTWISE)
    return is_movable and all(constant.get(operand, False) for operand in instr.operands)


def _is_shared(instr: Instr, constant: dict[Instr, bool], is_kept: Callable[[Instr], bool]) -> bool:
    """Whether it is a constant, or a spread scalar, with several uses in all."""
    is_spread = instr.opcode == "broadcast" and not instr.operands[0].array.dims
    if is_kept(instr) or not (constant.get(instr, False) or is_spread):
        return False
    if sum(instr.users.values()) > 1:
        return True
    return any(_is_shared(operand, constant, is_kept) for operand in instr.operands)


def _size(instr: Instr, constant: dict[Instr, bool]) -> int:
    """How many instructions a copy has, up to a little more than the limit."""
    seen = {instr}
    waiting = [instr]
    while waiting and len(seen) <= MOST_COPIED:
        fresh = [o for o in waiting.pop().operands if constant.get(o, False) and o not in seen]
        seen.update(fresh)
        waiting += fresh
    return len(seen)


def _copied(
    instr: Instr,
    constant: dict[Instr, bool],
    made: dict[Instr, Instr],
    originals: dict[Instr, Instr],
) -> Instr:
    if instr in made:
        return made[instr]
    operands = [
        _copied(o, constant, made, originals) if constant.get(o, False) else o
        for o in instr.operands
    ]
    copy = made[instr] = clone(instr, instr.home, operands)
    originals[copy] = originals.get(instr, instr)
    return copy


def merge_constants(computation: HloComputation, originals: dict[Instr, Instr]) -> None:
    """Make one of copies whose shardings and operands are equal; drop what nothing uses."""
    first: dict[tuple[object, ...], Instr] = {}
    sources = set(originals.values())
    for instr in list(computation):
        if instr not in originals and instr not in sources:
            continue
        if not instr.users and instr is not computation.root:
            computation.remove(instr)
            continue
        original = originals.get(instr, instr)
        key = (original, instr.attrs.get("sharding"), *instr.operands)
        kept = first.setdefault(key, instr)
        if kept is not instr:
            instr.replace_all_uses_with(kept)
            computation.remove(instr)
    for instr in reversed(list(computation)):
        is_left = instr in originals or instr in sources
        if is_left and not instr.users and instr is not computation.root:
            computation.remove(instr)
