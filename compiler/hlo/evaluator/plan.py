"""The order in which a computation's instructions run, and when each value is dropped.

Values die after their last use; get-tuple-elements run right after their tuple, so that the other
elements can die. A large elementwise value that waits long for its next use is not kept when it
can be computed again from operands that are alive (or small): training steps hold activations in
both halves, and this about halves the memory they need.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import leaves

_LARGE_BYTES = 16 << 20  # below this a value is not worth computing twice
_LONG_WAIT = 64  # instructions between two uses
_SMALL_SHARE = 16  # an operand of at most 1/16 of the value may be kept longer for it

_VIEWS = frozenset(
    {
        "bitcast",
        "broadcast",
        "copy",
        "get-tuple-element",
        "opt-barrier",
        "reshape",
        "reverse",
        "slice",
        "transpose",
        "tuple",
    }
)


@dataclass(frozen=True)
class EvaluationStep:
    """Run one instruction, then drop the values of `dead`. An instruction may run twice."""

    instr: HloInstruction
    dead: tuple[HloInstruction, ...]


def make_plan(computation: HloComputation) -> list[EvaluationStep]:
    """The instructions that the root or another device needs, in a valid order."""
    ordered = _ordered(computation)
    runs = [[instr] for instr in ordered]
    _compute_again(runs, ordered, computation.root_instruction)
    sequence = [instr for run in runs for instr in run]
    return _with_deaths(sequence, computation.root_instruction)


def _ordered(computation: HloComputation) -> list[HloInstruction]:
    """Needed instructions in text order, each get-tuple-element right behind its tuple."""
    needed = _needed(computation)
    placed: dict[HloInstruction, None] = {}
    stack: list[HloInstruction] = []
    for start in computation:
        stack.append(start)
        while stack:
            instr = stack.pop()
            if instr in placed or (instr not in needed and instr.opcode != "parameter"):
                continue
            placed[instr] = None
            stack.extend(u for u in instr.users if u.opcode == "get-tuple-element")
    return list(placed)


def _needed(computation: HloComputation) -> set[HloInstruction]:
    """What the root needs, and what sends something to another device."""
    needed = {computation.root_instruction, *(i for i in computation if i.opcode == "send")}
    stack = list(needed)
    while stack:
        for operand in stack.pop().operands:
            if operand not in needed:
                needed.add(operand)
                stack.append(operand)
    return needed


def _bytes(instr: HloInstruction) -> int:
    return sum(leaf.byte_count for leaf in leaves(instr.shape))


def _compute_again(
    runs: list[list[HloInstruction]], ordered: list[HloInstruction], root: HloInstruction
) -> None:
    """Put further runs of large elementwise values in front of uses after a long wait."""
    position = {instr: number for number, instr in enumerate(ordered)}
    uses = {i: sorted(position[u] for u in i.users if u in position) for i in ordered}
    last_use = {i: uses[i][-1] if uses[i] else position[i] for i in ordered}
    last_use[root] = len(ordered)
    for instr in ordered:
        last_use[instr] = max(last_use[instr], position[instr])
    for instr in ordered:
        if instr.opcode in _VIEWS:
            _keep_sources(instr, last_use[instr], last_use)
    again: set[HloInstruction] = set()
    for instr in ordered:
        if instr is root or not _is_candidate(instr):
            continue
        events = [position[instr], *uses[instr]]
        waits = [i for i in range(len(events) - 1) if events[i + 1] - events[i] > _LONG_WAIT]
        if waits and _operands_last(instr, events[waits[-1] + 1], last_use, again):
            again.add(instr)
            for wait in waits:
                runs[events[wait + 1]].insert(0, instr)
            if waits[0] == 0:
                runs[position[instr]].remove(instr)


def _is_candidate(instr: HloInstruction) -> bool:
    is_elementwise = OPCODES[instr.opcode].has(Trait.ELEMENTWISE)
    has_views = any(user.opcode in _VIEWS for user in instr.users)
    return is_elementwise and not has_views and _bytes(instr) >= _LARGE_BYTES


def _keep_sources(view: HloInstruction, until: int, last_use: dict[HloInstruction, int]) -> None:
    """A view holds the memory of what it looks at."""
    for operand in view.operands:
        if last_use[operand] < until:
            last_use[operand] = until
            if operand.opcode in _VIEWS:
                _keep_sources(operand, until, last_use)


def _operands_last(
    instr: HloInstruction,
    until: int,
    last_use: dict[HloInstruction, int],
    again: set[HloInstruction],
) -> bool:
    """Whether the operands are alive at `until`, or nearly so, or small enough to be kept."""
    extended = []
    for operand in instr.operands:
        if operand in again:
            return False
        if last_use[operand] >= until:
            continue
        is_small = _held_bytes(operand) * _SMALL_SHARE <= _bytes(instr)
        if not is_small and until - last_use[operand] > _LONG_WAIT:
            return False
        extended.append(operand)
    for operand in extended:
        last_use[operand] = until
        if operand.opcode in _VIEWS:
            _keep_sources(operand, until, last_use)
    return True


def _held_bytes(instr: HloInstruction) -> int:
    """The memory a value holds: that of what a view looks at."""
    if instr.opcode in ("parameter", "constant", "iota"):
        return 0
    if instr.opcode in _VIEWS:
        return max((_held_bytes(operand) for operand in instr.operands), default=0)
    return _bytes(instr)


def _with_deaths(sequence: list[HloInstruction], root: HloInstruction) -> list[EvaluationStep]:
    """Drop each value after the last use before it is computed again, or for good."""
    places: dict[HloInstruction, list[int]] = {}
    for place, instr in enumerate(sequence):
        places.setdefault(instr, []).append(place)
    dead: list[list[HloInstruction]] = [[] for _ in sequence]
    for instr, uses in _uses_in(sequence).items():
        if instr is root:
            continue
        starts = places[instr]
        last: dict[int, int] = {start: start for start in starts}
        for use in uses:
            start = starts[bisect_right(starts, use) - 1]
            last[start] = use
        for place in last.values():
            dead[place].append(instr)
    return [EvaluationStep(instr, tuple(gone)) for instr, gone in zip(sequence, dead, strict=True)]


def _uses_in(sequence: Iterable[HloInstruction]) -> dict[HloInstruction, list[int]]:
    uses: dict[HloInstruction, list[int]] = {}
    for place, instr in enumerate(sequence):
        uses.setdefault(instr, [])
        for operand in dict.fromkeys(instr.operands):
            uses[operand].append(place)
    return uses
