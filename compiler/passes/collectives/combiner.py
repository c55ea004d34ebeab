"""Small collectives of one kind that do not depend on each other become one: each costs latency, whatever
its size.

As in XLA's combiners of all-reduces, all-gathers and reduce-scatters; gradients of a step are the case in
point, and scales and biases that are stored in pieces. Two may be one if as many collectives follow them on
the longest way to the computation's result: then neither depends on the other, and no two of the combined
ones can wait for each other in a circle. What a loop gathers of its invariants or counters, and so can do
before it or a turn ahead (`loop_exchanges`), is not put together with what a turn computes.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.hlo.call_graph import control_computations, loop_bodies
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.replica_groups import device_counts
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.context import PassContext

Instr = HloInstruction

SMALL_BYTES = 1 << 20
"""Larger ones are not combined: to put them together and take them apart costs what is saved."""
_SMALL_WHOLE_BYTES = 1 << 18
"""The same of an array that is gathered or scattered, as a whole: its products may be made in pieces, too
(`collective_matmul`), and each piece hides the next one."""
_DEPENDENT = 2
"""What depends on values of a loop's turn; 1: on its counters, 0: on what stays as it is."""
_MOST_BYTES = 1 << 24
"""Together at most so many."""


def combine_collectives(module: HloModule, context: PassContext) -> bool:
    """Make one collective of several small ones of a kind."""
    if device_counts(module).devices == 1:
        return False
    count, bodies = 0, loop_bodies(module)
    for computation in control_computations(module):
        for members in _sets(computation, is_body=computation in bodies):
            _combine(computation, members)
            count += len(members)
        computation.sort()
    context.counts["combined"] = count
    return bool(count)


def _sets(computation: HloComputation, *, is_body: bool) -> list[list[Instr]]:
    """Collectives that become one each, in order."""
    following = _following(computation)
    changing = _changing(computation) if is_body else {}
    found: dict[tuple[object, ...], list[list[Instr]]] = {}
    for instr in computation:
        if instr.opcode not in _LARGEST or not isinstance(instr.shape, ArrayShape):
            continue
        if _whole_bytes(instr) > _LARGEST[instr.opcode]:
            continue
        key = (*_key(instr), following[instr], changing.get(instr, _DEPENDENT))
        sets = found.setdefault(key, [[]])
        if sum(map(_whole_bytes, sets[-1])) + _whole_bytes(instr) > _MOST_BYTES:
            sets.append([])
        sets[-1].append(instr)
    return [members for sets in found.values() for members in sets if len(members) > 1]


_LARGEST = {
    "all-reduce": SMALL_BYTES,
    "all-gather": _SMALL_WHOLE_BYTES,
    "reduce-scatter": _SMALL_WHOLE_BYTES,
}
"""The kinds that are combined, and bytes of the largest whole array."""


def _whole_bytes(instr: Instr) -> int:
    return max(instr.array.byte_count, instr.operands[0].array.byte_count)


def _changing(body: HloComputation) -> dict[Instr, int]:
    """Of a loop's body what each value depends on: 0, 1 or `_DEPENDENT`."""
    root = body.root_instruction
    if root.opcode != "tuple":
        return {}
    found: dict[Instr, int] = {body.parameters[0]: _DEPENDENT}
    for instr in body:
        if instr in found:
            continue
        if instr.opcode == "get-tuple-element" and instr.operands[0] is body.parameters[0]:
            found[instr] = _change_of(instr, root.operands[instr.index])
        else:
            found[instr] = max((found[o] for o in instr.operands), default=0)
    return found


def _change_of(element: Instr, following: Instr) -> int:
    """Of an element of the state, by its next value: the same, a count that goes on, or another."""
    if following is element:
        return 0
    shape = element.shape
    is_count = isinstance(shape, ArrayShape) and shape.dtype.is_integer and not shape.dims
    is_next = all(o is element or o.opcode == "constant" for o in following.operands)
    return 1 if is_count and is_next else _DEPENDENT


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
    """What must be equal of collectives that become one."""
    alike = (instr.opcode, instr.attrs.get("replica_groups"), instr.array.dtype)
    if instr.opcode == "all-gather":
        return (*alike, instr.dimensions)
    body = instr.attrs["to_apply"]
    assert isinstance(body, HloComputation)
    root = body.root_instruction
    is_plain = set(root.operands) == set(body.parameters) and len(body.parameters) == 2
    return (*alike, instr.attrs.get("dimensions"), root.opcode if is_plain else body)


def _combine(computation: HloComputation, members: list[Instr]) -> None:
    shape = TupleShape(tuple(member.array for member in members))
    operands = [member.operands[0] for member in members]
    made = Instr(members[0].opcode, "combined", shape, operands, dict(members[0].attrs))
    made.location = members[0].location
    computation.add(made)
    for index, member in enumerate(members):
        element = Instr("get-tuple-element", member.name, member.shape, (made,), {"index": index})
        computation.add(element)
        member.replace_all_uses_with(element)
        computation.remove(member)
