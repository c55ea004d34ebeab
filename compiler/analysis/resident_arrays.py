"""Arrays that could stay in VMEM from the kernel that makes them to those that read them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from compiler.analysis import vmem_shares
from compiler.analysis.aliasing import Slot, SlotSets, hands_on, leaf_count, shared_slots
from compiler.analysis.buffer_packing import Request
from compiler.analysis.element_access import is_element_access
from compiler.analysis.fusion_body import is_carried
from compiler.analysis.in_place import stores_last
from compiler.analysis.kernel_vmem import arrangement, held_rows
from compiler.analysis.liveness import Liveness
from compiler.analysis.loop_stacks import stack_leaves
from compiler.analysis.tiled_layout import byte_size, memory_space
from compiler.analysis.trip_count import UNKNOWN_TRIPS, expected_trips
from compiler.analysis.window_planner import PLANNED_KINDS, WindowPlanner
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait, with_any
from compiler.hlo.shape import ArrayShape, leaves
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import HBM, VMEM

_FORWARDS = with_any(Trait.FORWARDS | Trait.CARRIES)
_KERNELS = with_any(Trait.KERNEL | Trait.ASYNC)
_LATENCY_BYTES = 4096
"""What a transfer costs beside its bytes, in bytes."""
_LONG_BODY = 64
"""Kernels in a loop: arrays of one with more are not kept for all of it, as too many would want the
room (assumed)."""


@dataclass(eq=False)
class ResidentArray:
    """An array, the slots that are it, the kernels that make and read it, and what it saves."""

    request: Request
    slots: list[Slot]
    kernels: dict[HloInstruction, None] = field(default_factory=dict)
    saved_bytes: int = 0

    @property
    def worth(self) -> float:
        """Bytes saved by the room and time it takes."""
        request = self.request
        return self.saved_bytes / (request.size_bytes * (request.end - request.start + 1))


@dataclass
class ResidentArrays:
    """What could stay, what does (`held`), when everything is live and how often it runs."""

    arrays: list[ResidentArray]
    held: list[ResidentArray]
    liveness: Liveness
    times: dict[HloInstruction, int]


@dataclass(frozen=True)
class Moves:
    """Bytes that a kernel moves of each of its operands' arrays, then of its results' arrays.

    None: the array must lie in HBM. `updates`: a result may lie on an operand in VMEM.
    """

    arrays: Sequence[int | None]
    updates: bool = False


def resident_arrays(
    module: HloModule,
    own_loops: Collection[HloInstruction],
    moves_of: Callable[[HloInstruction], Moves | None],
    copies: Collection[HloInstruction] = (),
    twins: Collection[HloInstruction] = (),
) -> ResidentArrays:
    """The arrays between kernels that can have them in VMEM, which nothing else touches.

    `moves_of` knows such kernels; `own_loops` are kernels of their own, whose state may stay.
    `copies` may bring an array from HBM. `twins` are results that lie in HBM too.
    """
    uses = _Uses(shared_slots(module))
    sets, refused, saved = uses.sets, uses.refused, uses.saved
    liveness = Liveness(module, sets)
    slots: dict[Slot, list[Slot]] = {}
    times_of = dict(_scheduled(module))
    inside = {instr for loop in own_loops for instr in instructions_inside(loop)}
    for instr, times in times_of.items():
        moves = None if instr in inside else moves_of(instr)
        for leaf in range(leaf_count(instr.shape)):
            root = sets.find((instr, leaf))
            slots.setdefault(root, []).append((instr, leaf))
        if instr in twins:  # what it is a twin of is written all the same
            uses.save(sets.find((instr, 0)), instr, -times * byte_size(instr.array))
        if instr in inside:
            continue  # what lies elsewhere than a loop's state is the loop's own
        if instr in own_loops:
            for root, size in _state_moves(instr, sets):
                uses.save(root, instr, times * size)
        elif instr in copies:
            uses.add_copy(instr)
        elif moves is not None:
            uses.add_kernel(instr, moves, times)
        elif instr.opcode not in _FORWARDS:
            refused.update(sets.find(slot) for slot in _touched(instr))
    for end in (*module.entry.parameters, module.entry.root_instruction):
        refused |= {sets.find((end, n)) for n in range(leaf_count(end.shape))}
    arrays: list[ResidentArray] = []
    held: list[ResidentArray] = []
    for number, (root, members) in enumerate(slots.items()):
        space = memory_space(_shape(members[0]))
        if space == VMEM:
            held.append(_array(number, members, liveness, root, saved.get(root, {})))
        elif root not in refused and root in saved and space == HBM and _may_stay(members):
            arrays.append(_array(number, members, liveness, root, saved[root]))
    arrays = [array for array in arrays if array.saved_bytes > 0]
    return ResidentArrays(arrays, held, liveness, times_of)


class _Uses:
    """What touches arrays, by the slots that stand for them: the bytes that each instruction saves or loses
    where one is in VMEM, and which cannot be there."""

    def __init__(self, sets: SlotSets) -> None:
        self.sets = sets
        self.saved: dict[Slot, dict[HloInstruction, int]] = {}
        self.refused: set[Slot] = set()

    def save(self, root: Slot, instr: HloInstruction, count: int) -> None:
        """So many bytes more that an instruction need not move."""
        of_root = self.saved.setdefault(root, {})
        of_root[instr] = of_root.get(instr, 0) + count

    def add_copy(self, copy: HloInstruction) -> None:
        """A copy may go, and then its operand is in its place."""
        operand, *results = map(self.sets.find, _touched(copy))
        self.refused.add(operand)
        for root in results:
            self.saved.setdefault(root, {})[copy] = -byte_size(copy.array)

    def add_kernel(self, instr: HloInstruction, moves: Moves, times: int) -> None:
        """A kernel that knows what it moves of each array, or that it cannot have one in VMEM."""
        roots = [self.sets.find(slot) for slot in _touched(instr)]
        first_result = len(roots) - leaf_count(instr.shape)
        results = set(roots[first_result:])
        is_free = instr.opcode in _FORWARDS
        for number, root in enumerate(roots):
            moved = moves.arrays[number]
            is_over_operand = number < first_result and root in results
            if is_over_operand and not moves.updates:
                self.refused.add(root)  # stages would read what others have overwritten
            elif moved is not None:
                self.save(root, instr, times * moved)
            elif not is_free:
                self.refused.add(root)


def _shape(slot: Slot) -> ArrayShape:
    return leaves(slot[0].shape)[slot[1]]


def _array(
    number: int, slots: list[Slot], liveness: Liveness, root: Slot, saved: dict[HloInstruction, int]
) -> ResidentArray:
    shape = _shape(slots[0])
    size = held_rows(shape, shape.dims) * GRANULE_BYTES
    live = liveness.ranges[root]
    request = Request(number, size, live.start, live.end, any(is_carried(*s) for s in slots))
    kernels = dict.fromkeys(i for i in saved if i.opcode == "fusion")
    return ResidentArray(request, slots, kernels, sum(saved.values()))


def _may_stay(slots: list[Slot]) -> bool:
    """Whether VMEM arranges all views of an array alike."""
    shapes = [_shape(slot) for slot in slots]
    first = shapes[0]
    return (
        first.rank > 0
        and first.element_count > 0
        and first.dtype.bits <= 32
        and len({arrangement(shape) for shape in shapes}) == 1
    )


def _scheduled(module: HloModule) -> Iterator[tuple[HloInstruction, int]]:
    """The instructions of the control flow, and how often each is expected to run."""
    times: dict[HloComputation, int] = {module.entry: 1}
    for computation in reversed(control_computations(module)):  # callers first
        for instr in computation:
            trips = 1
            if instr.opcode == "while":
                trips = expected_trips(instr) or UNKNOWN_TRIPS
            if OPCODES[instr.opcode].has(Trait.CONTROL_FLOW):
                for callee in instr.called_computations():
                    times[callee] = times[computation] * trips
            yield instr, times[computation]


def _state_moves(loop: HloInstruction, sets: SlotSets) -> Iterator[tuple[Slot, int]]:
    """The arrays of a loop's state, and the bytes that a kernel moves of each that lies in HBM."""
    for leaf, shape in enumerate(leaves(loop.shape)):
        count = 1 if hands_on(loop, leaf) else 2
        yield sets.find((loop, leaf)), count * (byte_size(shape) + _LATENCY_BYTES)


def _touched(instr: HloInstruction) -> Iterator[Slot]:
    """The arrays of operands, then of the result."""
    for value in (*instr.operands, instr):
        for leaf in range(leaf_count(value.shape)):
            yield value, leaf


def by_kernel(arrays: Iterable[ResidentArray]) -> dict[HloInstruction, list[ResidentArray]]:
    """The arrays that each kernel makes or reads."""
    found: dict[HloInstruction, list[ResidentArray]] = {}
    for array in arrays:
        for kernel in array.kernels:
            found.setdefault(kernel, []).append(array)
    return found


def window_move_bytes(planner: WindowPlanner, fusion: HloInstruction) -> Moves:
    """What a kernel of windows moves."""
    moved = planner.facts(fusion).window_bytes
    moves = [0 if size is None else size + _LATENCY_BYTES for size in moved]
    return Moves(moves, updates=stores_last(fusion))


def state_fits(loop: HloInstruction, vmem_bytes: int, apart: Collection[int] = ()) -> bool:
    """Whether a loop's state, but for the arrays `apart`, is small enough to lie in VMEM throughout."""
    kept = (shape for n, shape in enumerate(leaves(loop.shape)) if n not in apart)
    return sum(map(byte_size, kept)) <= vmem_shares.WINDOWS * vmem_bytes


def may_be_one_kernel(loop: HloInstruction, vmem_bytes: int) -> bool:
    """Whether a loop could run in one kernel, its state but for stacks in VMEM throughout."""
    if not state_fits(loop, vmem_bytes, stack_leaves(loop)):
        return False
    kernels = [i for i in instructions_inside(loop) if i.opcode in _KERNELS]
    return len(kernels) <= _LONG_BODY and all(_has_stages(i) for i in kernels)


def instructions_inside(instr: HloInstruction) -> Iterator[HloInstruction]:
    """What runs in the computations of control flow that an instruction hands its state to."""
    if OPCODES[instr.opcode].has(Trait.HANDS_STATE):
        for callee in instr.called_computations():
            for inner in callee:
                yield inner
                yield from instructions_inside(inner)


def _has_stages(instr: HloInstruction) -> bool:
    """Whether a kernel of a loop can be stages of one."""
    if (
        instr.opcode == "copy"
        or is_element_access(instr)
        or instr.attrs.get("kind") in PLANNED_KINDS
    ):
        return True
    called = instr.attrs.get("calls")
    return (
        isinstance(called, HloComputation)
        and called.root_instruction.opcode == "dynamic-update-slice"
    )
