"""The VMEM that each kernel needs for itself, in few sizes, so that equal kernels get equal ones.

A kernel of windows gets the smallest part of VMEM, an eighth up to all, in which its windows cost
about what they cost in all of it. Kernels that choose their windows themselves get the part that
they say (`compiler.backend.custom_places`), or about what their arrays take.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from compiler.analysis import vmem_shares
from compiler.analysis.async_flags import adds_up
from compiler.analysis.liveness import Liveness
from compiler.analysis.resident_arrays import (
    Moves,
    ResidentArray,
    ResidentArrays,
    by_kernel,
    window_move_bytes,
)
from compiler.analysis.tiled_layout import byte_size
from compiler.analysis.vmem_packing import VmemRows
from compiler.analysis.vmem_scope import (
    SCALAR_KERNEL_BYTES,
    SCOPE,
    scoped_bytes,
    set_scope,
    uses_vmem,
)
from compiler.analysis.vmem_shares import ABOUT_THE_SAME, SCOPE_PARTS
from compiler.analysis.window_config import OWN, WINDOW_CONFIG, read_config, write_config
from compiler.analysis.window_planner import PLANNED_KINDS, WindowPlanner
from compiler.analysis.windows import WindowPlan
from compiler.backend.custom_places import CustomPlaces, custom_places
from compiler.diagnostics import UnsupportedError
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape, leaves
from compiler.passes.array_places import move_arrays
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import HBM, VMEM

_CUSTOM_ROOM = 1.25
"""Times its arrays that a kernel with windows of its own may need, beside a fixed sixteenth."""


@dataclass(frozen=True)
class KernelInHbm:
    """A kernel's cycles with all arrays in HBM, and the bytes that it needs for itself.

    `is_disjoint`: no step computes what another one did, so that a result may lie on an operand.
    """

    cycles: int
    scope_bytes: int
    is_disjoint: bool = False
    smaller: tuple[tuple[int, float], ...] = ()


class KernelScopes:
    """Facts of a module's kernels. While one is in use, planned kernels have no windows written.

    With `keeps`, a kernel that has a scope keeps it.
    """

    def __init__(self, module: HloModule, planner: WindowPlanner, *, keeps: bool = False) -> None:
        self.planner = planner
        self.rows = planner.chip.vmem_rows
        self._vmem = planner.chip.vmem_bytes
        self._facts: dict[HloInstruction, KernelInHbm] = {}
        self._known: dict[object, KernelInHbm] = {}
        self._moves: dict[HloInstruction, Moves | None] = {}
        self._hopes: dict[HloInstruction, KernelInHbm] = {}
        self._wanted: dict[HloInstruction, int] = {}
        self.planned: dict[HloInstruction, None] = {}
        self.custom: dict[HloInstruction, CustomPlaces] = {}
        self._kernels = [
            i
            for c in control_computations(module)
            for i in c
            if OPCODES[i.opcode].has(Trait.KERNEL) or adds_up(i)
        ]
        for kernel in self._kernels:
            scope = scoped_bytes(kernel)
            if _has_windows(kernel) and self._is_ours(kernel):
                self.planned[kernel] = None
            elif kernel.attrs.get("kind") == "kCustom":
                places = custom_places(kernel, planner.chip)
                if places is not None:
                    self.custom[kernel] = places
            if keeps and scope is not None:
                self._keep_scope(kernel, scope)
            elif keeps and kernel in self.planned:
                self._wanted[kernel] = self._vmem

    def _is_ours(self, fusion: HloInstruction) -> bool:
        """Whether nobody asked for the windows that a fusion has; they are taken out then."""
        config = read_config(fusion)
        write_windows(fusion, None)
        found = self.planner.config(fusion)
        set_scope(fusion, None)
        if any(config.get(key) != found[key] for key in (WINDOW_CONFIG, OWN)):
            write_config(fusion, {k: v for k, v in config.items() if k != SCOPE})
            return False
        return True

    def _keep_scope(self, kernel: HloInstruction, scope_bytes: int) -> None:
        """Let a kernel have the scope that it has now."""
        self._facts[kernel] = KernelInHbm(0, scope_bytes)
        if kernel in self.planned:
            with self.scoped(kernel):
                found = self.planner.facts(kernel)
            self._facts[kernel] = KernelInHbm(found.cycles, scope_bytes, found.is_disjoint)

    @contextmanager
    def scoped(self, kernel: HloInstruction) -> Iterator[None]:
        """Give a kernel its scope for a while."""
        set_scope(kernel, self.facts(kernel).scope_bytes)
        try:
            yield
        finally:
            set_scope(kernel, None)

    def facts(self, kernel: HloInstruction) -> KernelInHbm:
        """What a kernel needs."""
        if kernel not in self._facts:
            self._facts[kernel] = self._found(kernel)
        return self._facts[kernel]

    def lower(self, kernel: HloInstruction, scope_bytes: int) -> None:
        """Give a kernel one of its smaller scopes, in which it costs more."""
        facts = self.facts(kernel)
        cycles = facts.cycles + int(dict(facts.smaller)[scope_bytes])
        self._facts[kernel] = replace(facts, cycles=cycles, scope_bytes=scope_bytes, smaller=())
        self._wanted.setdefault(kernel, facts.scope_bytes)

    def hope(self, found: ResidentArrays) -> None:
        """Count on what kernels need where all their arrays are in VMEM, until `despair` of one."""
        for kernel, arrays in by_kernel(found.arrays).items():
            facts = self.facts(kernel)
            if kernel in self.planned and facts.scope_bytes > self._vmem // SCOPE_PARTS[0]:
                for array in arrays:
                    move_arrays(array.slots, VMEM)
                hoped = self._as_it_lies(kernel, facts)
                for array in arrays:
                    move_arrays(array.slots, HBM)
                if hoped.scope_bytes < facts.scope_bytes:
                    self._hopes[kernel] = facts
                    self._wanted.setdefault(kernel, facts.scope_bytes)
                    self._facts[kernel] = replace(facts, scope_bytes=hoped.scope_bytes, smaller=())

    @property
    def hoped(self) -> list[HloInstruction]:
        """The kernels whose needs are hopes."""
        return list(self._hopes)

    def despair(self, kernel: HloInstruction) -> bool:
        """Whether a kernel's need was a hope; it is what it was before then."""
        facts = self._hopes.pop(kernel, None)
        if facts is not None:
            self._facts[kernel] = facts
        return facts is not None

    def despair_of_all(self) -> None:
        """Despair of every kernel."""
        for kernel in self.hoped:
            self.despair(kernel)

    def keep_hopes(self) -> None:
        """What was hoped for is so."""
        self._hopes.clear()

    def widen(self, liveness: Liveness, lowest: Sequence[int]) -> None:
        """Let kernels that gave VMEM up have what nothing lies in: `lowest` are rows taken, by position."""
        for kernel, wanted in self._wanted.items():
            free = lowest[liveness.positions[kernel].start] * GRANULE_BYTES
            facts = self.facts(kernel)
            for scope in (self._vmem // part for part in reversed(SCOPE_PARTS)):
                is_wider = facts.scope_bytes < scope <= min(free, wanted)
                if is_wider and self._cycles(kernel, scope, facts.is_disjoint) < float("inf"):
                    self._facts[kernel] = replace(facts, scope_bytes=scope)
                    break

    def look_again(self, held: Collection[ResidentArray]) -> bool:
        """Whether kernels of arrays that are in VMEM now need less than they have; they have that then."""
        kernels = {kernel for array in held for kernel in array.kernels} & self.planned.keys()
        is_less = False
        for kernel in kernels:
            facts = self.facts(kernel)
            if facts.scope_bytes > self._vmem // SCOPE_PARTS[0]:
                self._facts[kernel] = self._as_it_lies(kernel, facts)
                self._wanted.setdefault(kernel, facts.scope_bytes)
                is_less |= self._facts[kernel].scope_bytes < facts.scope_bytes
        return is_less

    def _as_it_lies(self, kernel: HloInstruction, facts: KernelInHbm) -> KernelInHbm:
        cycles = self._cycles(kernel, facts.scope_bytes, facts.is_disjoint)
        smaller: list[tuple[int, float]] = []
        for scope in (self._vmem // part for part in SCOPE_PARTS):
            if scope >= facts.scope_bytes:
                break
            found = self._cycles(kernel, scope, facts.is_disjoint)
            if found == float("inf"):
                continue
            if found <= ABOUT_THE_SAME * cycles:
                return replace(facts, scope_bytes=scope, smaller=tuple(smaller))
            if cycles < float("inf"):
                smaller.append((scope, found - cycles))
        return replace(facts, smaller=tuple(smaller))

    def _found(self, kernel: HloInstruction) -> KernelInHbm:
        if not uses_vmem(kernel):
            return KernelInHbm(0, min(SCALAR_KERNEL_BYTES, self._vmem))
        if kernel in self.custom:
            return KernelInHbm(0, self.custom[kernel].scope_bytes)
        if kernel not in self.planned:
            return KernelInHbm(0, self._of_custom(kernel))
        key = self.planner.key(kernel)
        if key not in self._known:
            self._known[key] = self._of_windows(kernel)
        return self._known[key]

    def _of_windows(self, fusion: HloInstruction) -> KernelInHbm:
        plan = self.planner.plan(fusion)
        is_disjoint = self.planner.facts(fusion).is_disjoint
        facts = KernelInHbm(plan.estimated_cycles, self._vmem, is_disjoint)
        return self._scoped(fusion, plan, facts)

    def _scoped(self, fusion: HloInstruction, plan: WindowPlan, facts: KernelInHbm) -> KernelInHbm:
        """With the least part of VMEM that will do, and what smaller ones cost more."""
        rows = self.planner.rows(fusion)
        smaller: list[tuple[int, float]] = []
        for part in SCOPE_PARTS:
            scope = self._vmem // part
            if rows <= vmem_shares.WINDOWS * scope // GRANULE_BYTES:
                set_scope(fusion, scope)
                self.planner.adopt(fusion, plan.blocks)
                set_scope(fusion, None)
                return replace(facts, scope_bytes=scope, smaller=tuple(smaller))
            cycles = self._cycles(fusion, scope, facts.is_disjoint)
            if cycles <= ABOUT_THE_SAME * plan.estimated_cycles:
                return replace(facts, scope_bytes=scope, smaller=tuple(smaller))
            if cycles < float("inf"):
                smaller.append((scope, cycles - plan.estimated_cycles))
        return replace(facts, smaller=tuple(smaller))

    def _cycles(self, fusion: HloInstruction, scope: int, is_disjoint: bool) -> float:
        """Of a kernel in so much VMEM; infinite without a plan whose steps are as disjoint as before."""
        set_scope(fusion, scope)
        try:
            found = self.planner.facts(fusion)
        except UnsupportedError:
            return float("inf")
        finally:
            set_scope(fusion, None)
        return found.cycles if found.is_disjoint or not is_disjoint else float("inf")

    def _of_custom(self, kernel: HloInstruction) -> int:
        if adds_up(kernel):
            return self._vmem // SCOPE_PARTS[0]
        if kernel.opcode == "copy":
            return min(SCALAR_KERNEL_BYTES, self._vmem) if _is_plain(kernel) else self._vmem
        if _has_windows(kernel):
            return self._vmem
        arrays = [leaf for o in (*kernel.operands, kernel) for leaf in leaves(o.shape)]
        size = _CUSTOM_ROOM * sum(byte_size(shape) for shape in arrays) + self._vmem // 16
        return next((self._vmem // p for p in SCOPE_PARTS if size <= self._vmem // p), self._vmem)

    def moves(self, kernel: HloInstruction) -> Moves | None:
        """The bytes that a kernel moves of arrays that it could have in VMEM; None: it is not known."""
        if kernel not in self._moves:
            self._moves[kernel] = self._moved(kernel)
        return self._moves[kernel]

    def forget_moves(self, kernels: Iterable[HloInstruction]) -> None:
        """Arrays of these kernels lie somewhere else now."""
        for kernel in kernels:
            self._moves.pop(kernel, None)

    def add_twin(self, kernel: HloInstruction, number: int) -> None:
        """The last result of a kernel is a new one that moves what its result `number` does."""
        moves = self._moves[kernel]
        if moves is not None:
            first = len(moves.arrays) + 1 - len(leaves(kernel.shape))
            arrays = [*moves.arrays, moves.arrays[first + number]]
            self._moves[kernel] = replace(moves, arrays=arrays)

    def allow(self, kernel: HloInstruction, cycles: float) -> None:
        """Let a kernel take so many cycles more than before: others take as many less."""
        facts = self.facts(kernel)
        self._facts[kernel] = replace(facts, cycles=facts.cycles + int(cycles))

    def drop_results(self, kernel: HloInstruction, gone: Collection[int]) -> None:
        """The results of these numbers, twins of others, are no more."""
        moves = self._moves[kernel]
        if moves is not None:
            first = len(moves.arrays) - len(leaves(kernel.shape)) - len(gone)
            arrays = [m for n, m in enumerate(moves.arrays) if n - first not in gone]
            self._moves[kernel] = replace(moves, arrays=arrays)

    def _moved(self, kernel: HloInstruction) -> Moves | None:
        if kernel in self.planned:
            return window_move_bytes(self.planner, kernel)
        if kernel.opcode == "copy" and _is_plain(kernel):
            return Moves([byte_size(kernel.array)] * 2)
        places = self.custom.get(kernel)
        if places is None:
            return None
        results = [kernel.calls.root_instruction] * len(leaves(kernel.shape))
        nodes = (*kernel.calls.parameters, *results)
        return Moves([places.moves.get(node) for node in nodes], places.updates)

    def vmem(self, liveness: Liveness, own_loops: Mapping[HloInstruction, int]) -> VmemRows:
        """What of VMEM is no kernel's own."""
        return VmemRows(self.rows, self.floors(liveness, own_loops))

    def floors(self, liveness: Liveness, own_loops: Mapping[HloInstruction, int]) -> list[int]:
        """Rows that kernels need for themselves, by position; `own_loops` have so many bytes throughout."""
        floors = [0] * (liveness.length + 1)
        for kernel in self._kernels:
            floors[liveness.positions[kernel].start] = (
                self.facts(kernel).scope_bytes // GRANULE_BYTES
            )
        for loop, size in own_loops.items():
            at = liveness.positions[loop]
            for position in range(at.start, at.end + 1):
                floors[position] = max(floors[position], size // GRANULE_BYTES)
        return floors

    def write(self, crowded: set[HloInstruction]) -> None:
        """Write windows, and the scopes of kernels that share VMEM with arrays."""
        for kernel in self._kernels:
            if kernel in crowded and uses_vmem(kernel):
                set_scope(kernel, self.facts(kernel).scope_bytes)
            elif kernel in self.planned:
                set_scope(kernel, None)
            if kernel in self.planned:
                write_windows(kernel, self.planner)


def _is_plain(copy: HloInstruction) -> bool:
    """Whether a copy moves an array as it lies."""
    source = copy.operands[0].shape
    return (
        isinstance(source, ArrayShape)
        and uses_vmem(copy)
        and (source.minor_to_major == copy.array.minor_to_major)
    )


def part_for(rows: int, vmem_bytes: int) -> int:
    """The least part of VMEM, in bytes, that has so many rows."""
    parts = (vmem_bytes // part for part in SCOPE_PARTS)
    return next((size for size in parts if rows <= size // GRANULE_BYTES), vmem_bytes)


def write_windows(fusion: HloInstruction, planner: WindowPlanner | None) -> None:
    """Write a fusion's windows as the planner has them into its config; None: take them out."""
    config = {k: v for k, v in read_config(fusion).items() if k not in (WINDOW_CONFIG, OWN)}
    write_config(fusion, config if planner is None else {**config, **planner.config(fusion)})


def _has_windows(instr: HloInstruction) -> bool:
    return instr.attrs.get("kind") in PLANNED_KINDS and uses_vmem(instr)
