"""Loop unrolling: a loop of few trips over arithmetic becomes that arithmetic, trip after trip.

Rounds of a generator of random bits, steps of a series or of Newton's method: such a loop hands its
arrays on through memory in every trip, and what makes them and what reads them are kernels of
their own. Written out it fuses with both, and what a trip takes from a table or a counter is a
constant. Only operations on elements may touch large arrays: a neighbour's value would be computed
over and over once all trips are one kernel. A loop that looks up places which its elements say stays: written
out, each of them would be a kernel of its own, and a loop has such arrays in SMEM (`scalar_arrays`).
"""

from __future__ import annotations

from compiler.analysis.trip_count import trip_count
from compiler.hlo.call_graph import control_computations, drop_unreachable
from compiler.hlo.cloning import clone
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait, with_any
from compiler.hlo.origins import scoped
from compiler.hlo.shape import ArrayShape
from compiler.passes.context import PassContext
from compiler.rewrite.graph import emit, remove_dead

Instr = HloInstruction

MOST_OPERATIONS = 512
"""Of elements, in all trips together: a kernel of more is slow to compile."""
MOST_TRIPS = 16
FEW_ELEMENTS = 1024
"""What is moved as well as computed: a register's worth."""
_FREE = with_any(Trait.GIVEN | Trait.SYMBOLIC) | {"get-tuple-element"}


def unroll_loops(module: HloModule, context: PassContext) -> bool:
    """Write out all short loops of arithmetic, inner ones first."""
    for computation in control_computations(module):
        loops = [i for i in computation if i.opcode == "while"]
        for loop in loops:
            trips = _trips(loop)
            if trips is not None:
                _unroll(loop, trips)
                context.counts["unrolled"] += 1
        if loops:
            computation.sort()
    if not context.counts["unrolled"]:
        return False
    drop_unreachable(module)
    return True


def _trips(loop: Instr) -> int | None:
    """The trips of a loop to write out; None where it stays."""
    body = loop.body
    is_tuple = loop.operands[0].opcode == body.root_instruction.opcode == "tuple"
    if not is_tuple or _is_ordered(loop) or not _is_arithmetic(body):
        return None
    trips = trip_count(loop)
    if trips is None or trips > MOST_TRIPS:
        return None
    if not _places_are_known(loop):
        return None
    operations = sum(i.opcode not in _FREE for i in body)
    return trips if trips * operations <= MOST_OPERATIONS else None


def _places_are_known(loop: Instr) -> bool:
    """Whether slices start where counters and constants say, which are numbers once trips are written out."""
    first, body = loop.operands[0].operands, loop.body
    numbers = {n for n, value in enumerate(first) if value.opcode == "constant"}
    while True:
        known = _known(body, numbers)
        kept = {n for n in numbers if body.root_instruction.operands[n] in known}
        if kept == numbers:
            break
        numbers = kept
    cuts = (i for i in body if OPCODES[i.opcode].has(Trait.BOX) and i.operands[0].array.dims)
    return all(o in known for i in cuts for o in i.operands[-i.operands[0].array.rank :])


def _known(body: HloComputation, numbers: set[int]) -> set[Instr]:
    """What follows from some elements of the state and constants."""
    known: set[Instr] = set()
    for instr in body:
        is_taken = instr.opcode == "get-tuple-element" and instr.operands[0] is body.parameters[0]
        if is_taken:
            is_known = instr.index in numbers
        else:
            is_known = instr.opcode != "parameter" and all(o in known for o in instr.operands)
        if is_known:
            known.add(instr)
    return known


def _is_arithmetic(body: HloComputation) -> bool:
    """Whether large arrays are only computed, element by element."""
    inner = (i for i in body if i is not body.root)
    return all(i.opcode in _FREE or _is_elementwise(i) or _is_small_move(i) for i in inner)


def _is_ordered(instr: Instr) -> bool:
    """Whether a control edge ends or begins at an instruction."""
    caller = instr.home
    return bool(instr.control_predecessors() or caller.control_successors.get(instr))


def _is_elementwise(instr: Instr) -> bool:
    return OPCODES[instr.opcode].has(Trait.ELEMENTWISE) and not _is_ordered(instr)


def _is_small_move(instr: Instr) -> bool:
    shapes = [instr.shape, *(operand.shape for operand in instr.operands)]
    is_small = all(isinstance(s, ArrayShape) and s.element_count <= FEW_ELEMENTS for s in shapes)
    return is_small and OPCODES[instr.opcode].has(Trait.INDEX_MAP)


def _unroll(loop: Instr, trips: int) -> None:
    """Replace a loop by its trips, one after the other."""
    caller = loop.home
    initial = loop.operands[0]
    state = list(initial.operands)
    for _ in range(trips):
        state = _trip(loop, caller, state)
    for user in list(loop.users):
        if user.opcode == "get-tuple-element":
            user.replace_all_uses_with(state[user.index])
            remove_dead(user)
    if loop.users or caller.root is loop:
        loop.replace_all_uses_with(emit(loop, "tuple", loop.shape, state))
    remove_dead(loop)


def _trip(loop: Instr, caller: HloComputation, state: list[Instr]) -> list[Instr]:
    """The state after a trip that begins with `state`."""
    parameter, root = loop.body.parameters[0], loop.body.root_instruction
    made: dict[Instr, Instr] = {}
    for instr in loop.body:
        if instr.opcode == "get-tuple-element" and instr.operands[0] is parameter:
            made[instr] = state[instr.index]
        elif instr is not parameter and instr is not root:
            made[instr] = clone(instr, caller, [made[o] for o in instr.operands])
            scoped(made[instr], loop)
    return [made[o] for o in root.operands]
