"""Small all-reduces that do not depend on each other become one: each costs latency, whatever its size.

As in XLA's all-reduce combiner, gradients of a step are the case in point. Two may be one if as many
collectives follow them on the longest way to the computation's result: then neither depends on the
other, and no two of the combined ones can wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.replica_groups import device_counts
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.context import PassContext

Instr = HloInstruction

SMALL_BYTES = 1 << 20
"""Larger ones are not combined: to put them together and take them apart costs what is saved."""
_MOST_BYTES = 1 << 24
"""Together at most so many."""


def combine_collectives(module: HloModule, context: PassContext) -> bool:
    """Make one all-reduce of several small ones."""
    if device_counts(module).devices == 1:
        return False
    count = 0
    for computation in control_computations(module):
        for members in _sets(computation):
            _combine(computation, members)
            count += len(members)
        computation.sort()
    context.counts["combined"] = count
    return bool(count)


def _sets(computation: HloComputation) -> list[list[Instr]]:
    """All-reduces that become one each, in order."""
    following = _following(computation)
    found: dict[tuple[object, ...], list[list[Instr]]] = {}
    for instr in computation:
        if instr.opcode != "all-reduce" or not isinstance(instr.shape, ArrayShape):
            continue
        if instr.array.byte_count > SMALL_BYTES:
            continue
        sets = found.setdefault((*_key(instr), following[instr]), [[]])
        if sum(i.array.byte_count for i in sets[-1]) + instr.array.byte_count > _MOST_BYTES:
            sets.append([])
        sets[-1].append(instr)
    return [members for sets in found.values() for members in sets if len(members) > 1]


def _following(computation: HloComputation) -> dict[Instr, int]:
    """How many collectives there are on the longest way from each instruction's result to the end."""
    found: dict[Instr, int] = {}
    for instr in reversed(list(computation)):
        ways = (found[user] + _exchanges(user) for user in instr.users)
        found[instr] = max(ways, default=0)
    return found


def _exchanges(instr: Instr) -> bool:
    """Whether it is a collective, or runs some."""
    return any(
        OPCODES[one.opcode].has(Trait.GROUPED) or one.opcode == "collective-permute"
        for one in _run_by(instr)
    )


def _run_by(instr: Instr) -> Iterator[Instr]:
    yield instr
    for called in instr.called_computations():
        for inner in called:
            yield from _run_by(inner)


def _key(instr: Instr) -> tuple[object, ...]:
    """What must be equal of all-reduces that become one."""
    body = instr.attrs["to_apply"]
    assert isinstance(body, HloComputation)
    root = body.root_instruction
    is_plain = set(root.operands) == set(body.parameters) and len(body.parameters) == 2
    return (instr.attrs.get("replica_groups"), instr.array.dtype, root.opcode if is_plain else body)


def _combine(computation: HloComputation, members: list[Instr]) -> None:
    shape = TupleShape(tuple(member.array for member in members))
    operands = [member.operands[0] for member in members]
    made = Instr("all-reduce", "combined", shape, operands, dict(members[0].attrs))
    made.location = members[0].location
    computation.add(made)
    for index, member in enumerate(members):
        element = Instr("get-tuple-element", member.name, member.shape, (made,), {"index": index})
        computation.add(element)
        member.replace_all_uses_with(element)
        computation.remove(member)
