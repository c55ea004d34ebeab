"""A program to one LLVM module: a function per kernel, and `main` that calls them.

Structured control flow becomes native branches. The module comes in two kinds: values and clock
together (the normal run), and the clock alone (estimates).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from tpu_sim.isa.causes import Cause, IssueCauses
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.collector import no_cyclic_gc
from tpu_sim.isa.errors import ProgramError
from tpu_sim.isa.facts import row_facts
from tpu_sim.isa.instruction import Instr
from tpu_sim.isa.program import (
    Block,
    Call,
    If,
    Kernel,
    Loop,
    Node,
    Program,
    While,
    Window,
    blocks_of,
    spill_rows,
)
from tpu_sim.jit.block_translator import BlockTranslator
from tpu_sim.jit.calls import RUN_CALL
from tpu_sim.jit.clock import finish
from tpu_sim.jit.command_kernels import FORK_LISTS
from tpu_sim.jit.context import (
    ROW_BYTES,
    TRANSPOSE_BYTES,
    VREG_BYTES,
    WEIGHT_BYTES,
    ContextSizes,
    Word,
)
from tpu_sim.jit.dma_copies import NON_TEMPORAL
from tpu_sim.jit.dma_functions import DmaFunctions
from tpu_sim.jit.emitter import Emitter
from tpu_sim.jit.fork_join import FORK
from tpu_sim.jit.hbm_windows import (
    ENTRY_BYTES,
    GAP_OFFSET,
    PIECE_ROWS_OFFSET,
    POINTER_OFFSET,
    entry_offset,
    windows_in_place,
)
from tpu_sim.jit.host_state import ENTER, LEAVE, STATE_BYTES
from tpu_sim.jit.kernel_facts import carried_slots, most_swaps, unswapped_units
from tpu_sim.jit.library import LIBRARY_DECLARATIONS
from tpu_sim.jit.outline import ComponentLibrary
from tpu_sim.jit.parallel_loops import RangePlan, fills_transpose, plan_ranges
from tpu_sim.jit.results_ring import ring_entries
from tpu_sim.jit.scope import FaultSite, FunctionScope, ModuleScope, RangeScope

MAIN = "tpuc_main"
MODULE_HEAD = LIBRARY_DECLARATIONS + NON_TEMPORAL
"""What functions of a module may use without defining it."""
_MXU_EFFECTS = ("matpush", "matpush_t", "matswap", "matmul", "pop_mrf")
_RESET_EFFECTS = frozenset({*_MXU_EFFECTS, "xpose_push", "xpose_read", "dma_wait", "dma_start"})
_MXU_WORDS = (
    Word.HEAD, Word.CLOCK_TAIL, Word.CLOCK_HEAD, Word.UNIT_FREE, Word.PUSHES,
)  # fmt: skip


_RANGES_PER_THREAD = 4
_RANGE_WORK = 300
"""Vreg operations a range should have, so that taking it costs little beside them."""

DEFAULT_TRIPS = 10
"""Iterations an estimate assumes of a loop whose trip count nobody knows."""


@dataclass(frozen=True)
class ModuleKind:
    """Which half of the machine a module holds.

    `trips` is how often a `While` without an expected trip count runs where values are off.
    """

    values: bool
    clock: bool
    trips: int = DEFAULT_TRIPS


RUN = ModuleKind(values=True, clock=True)
ESTIMATE = ModuleKind(values=False, clock=True)


def estimate_kind(trips: int) -> ModuleKind:
    """The clock alone, with loops that depend on data running `trips` times."""
    return ModuleKind(values=False, clock=True, trips=trips)


@dataclass(frozen=True)
class TranslatedModule:
    """IR text, and what its context needs; `calls` are kernel and site by call number.

    Behind `MODULE_HEAD`, `texts` are the functions in the order in which they were made.
    """

    texts: tuple[str, ...]
    sites: Sequence[FaultSite]
    calls: tuple[tuple[str, str], ...]
    sizes: ContextSizes
    has_forks: bool

    @property
    def text(self) -> str:
        """The whole module."""
        return "\n".join((MODULE_HEAD, *self.texts))


def translate_program(
    program: Program,
    chip: Chip,
    kind: ModuleKind,
    threads: int = 1,
    emit: Callable[[str], None] | None = None,
) -> TranslatedModule:
    """Translate `program` for `threads` host threads; raises `ProgramError` if it is wrong.

    Each of the texts is given to `emit` as soon as it is there.
    """
    with no_cyclic_gc():
        return _ProgramTranslator(program, chip, kind, threads, emit).translate()


def _unit_of(instr: Instr) -> int:
    """The MXU an instruction names, 0 for others."""
    index = row_facts(instr.row).unit_index
    return instr.operands[index] if index >= 0 else 0


class _ProgramTranslator:
    def __init__(
        self,
        program: Program,
        chip: Chip,
        kind: ModuleKind,
        threads: int,
        emit: Callable[[str], None] | None,
    ) -> None:
        self._program = program
        self._texts: list[str] = []
        self._emit_to = emit
        self._trips = kind.trips
        swaps = max((most_swaps(kernel.body) for kernel in program.kernels.values()), default=0)
        self._module = ModuleScope(
            chip=chip,
            smem_words=program.smem_words,
            values=kind.values,
            clock=kind.clock,
            ring_entries={
                k.name: ring_entries(k.body)
                for k in (Kernel("main", 0, [], [], program.main), *program.kernels.values())
            },
            transpose_blocks=1 + swaps,
            threads=threads,
            components=ComponentLibrary(self._emit),
            emit=self._emit,
        )
        self._functions: dict[str, str] = {}
        self._calls: list[tuple[str, str]] = []

    def translate(self) -> TranslatedModule:
        for number, kernel in enumerate(self._program.kernels.values()):
            self._functions[kernel.name] = f"kernel{number}"
            self._emit(self._kernel(kernel, f"kernel{number}"))
        main = Kernel("main", 0, [], [], self._program.main)
        scope = FunctionScope(self._module, main, "main_body")
        _NodeTranslator(self, scope, None).nodes(main.body)
        names = self._module.components.names
        self._emit(scope.define())
        self._emit(_entry_text(names))
        module = self._module
        return TranslatedModule(
            tuple(self._texts),
            tuple(module.sites),
            tuple(self._calls),
            ContextSizes(
                carry_bytes=module.carry_slots * VREG_BYTES,
                scratch_bytes=module.components.scratch_bytes,
                task_bytes=module.task_bytes,
                ring_entries=max(module.ring_entries.values(), default=0),
                transpose_blocks=module.transpose_blocks,
                threads=module.threads,
                calls=len(self._calls),
            ),
            any(f"@{fork}(" in text for text in self._texts for fork in (FORK, FORK_LISTS)),
        )

    def _emit(self, text: str) -> None:
        self._texts.append(text)
        if self._emit_to is not None:
            self._emit_to(text)

    def _kernel(self, kernel: Kernel, function: str) -> str:
        carried = carried_slots(kernel.body)
        if carried:  # they lie in a window of their own
            rows = spill_rows(kernel)
            spills = Window("(spill slots)", rows.start, rows.stop - rows.start)
            kernel = replace(kernel, windows=[*kernel.windows, spills])
        scope = FunctionScope(self._module, kernel, function)
        scope.carried_slots = carried
        self._reset_units(scope, kernel)
        if carried and self._module.values:
            scope.clear("%vmem", spills.base_row * ROW_BYTES, spills.rows * ROW_BYTES)
        if self._module.values:
            self._reset_windows(scope, kernel)
        dma = DmaFunctions(self._module, kernel, scope.in_place)
        _NodeTranslator(self, scope, dma).nodes(kernel.body)
        return scope.define()

    def _reset_units(self, scope: FunctionScope, kernel: Kernel) -> None:
        """A kernel starts with empty queues, zero weights and no transfer in flight."""
        effects: dict[str, set[int]] = {}
        for block in blocks_of(kernel.body):
            for bundle in block.bundles:
                for instr in bundle:
                    if instr.row.effect in _RESET_EFFECTS:
                        effects.setdefault(instr.row.effect, set()).add(_unit_of(instr))
        for unit in sorted(set().union(*(effects.get(name, set()) for name in _MXU_EFFECTS))):
            for word in _MXU_WORDS:
                scope.store_word(word + unit, "0")
        if self._module.values:
            for unit in sorted(
                unswapped_units(kernel.body)
            ):  # it may multiply by weights nobody pushed
                scope.clear("%weights", unit * 2 * WEIGHT_BYTES, 2 * WEIGHT_BYTES)
            if "xpose_push" in effects or "xpose_read" in effects:
                self._reset_transposes(scope, kernel)
        if "dma_wait" in effects or "dma_start" in effects:
            scope.clear("%ctx", int(Word.FLAG_DONE) * 8, 8 * kernel.flags)
            for flag in range(kernel.flags):  # a wait for a flag that nothing started costs, too
                scope.store_word(Word.FLAG_CAUSE + flag, str(int(Cause.DMA_IN)))

    def _reset_transposes(self, scope: FunctionScope, kernel: Kernel) -> None:
        """Clear the blocks, unless the kernel fills whatever it reads."""
        scope.store_word(Word.TRANSPOSE_INDEX, "0")
        if fills_transpose(kernel.body):
            return
        unit_bytes = (1 + self._module.transpose_blocks) * TRANSPOSE_BYTES
        for unit in range(self._module.chip.transpose_units):
            scope.clear("%transpose", unit * unit_bytes, 2 * TRANSPOSE_BYTES)

    def _reset_windows(self, scope: FunctionScope, kernel: Kernel) -> None:
        """A kernel starts with no window that refers to HBM."""
        scope.in_place = windows_in_place(kernel)
        scope.store_word(Word.WINDOW_COUNT, str(len(scope.in_place)))
        scope.clear("%ctx", entry_offset(0), ENTRY_BYTES * len(scope.in_place))
        e = scope.emitter
        for window, in_place in scope.in_place.items():
            pointer = e.offset("%vmem", kernel.windows[window].base_row * ROW_BYTES)
            at = e.offset("%ctx", entry_offset(in_place.entry))
            e.store("ptr", pointer, e.offset(at, POINTER_OFFSET), 8)
            e.store("i64", str(in_place.pieces.rows), e.offset(at, PIECE_ROWS_OFFSET), 8)
            e.store("i64", str(in_place.pieces.gap_bytes), e.offset(at, GAP_OFFSET), 8)

    def call_number(self, call: Call) -> int:
        """The number under which runs of this call are recorded."""
        if call.kernel not in self._functions:
            raise ProgramError(f"call of unknown kernel {call.kernel}", "main")
        self._calls.append((call.kernel, call.site))
        return len(self._calls) - 1

    def assumed_trips(self, loop: While) -> int:
        """Iterations of a loop whose condition is not computed."""
        return loop.expected_trips if loop.expected_trips >= 0 else self._trips

    def function(self, kernel: str) -> str:
        """The native function of a kernel."""
        return self._functions[kernel]


def _entry_text(components: list[str]) -> str:
    """The entry: runs main with the CPU state that the meanings assume."""
    table = f"[{len(components)} x ptr] [{', '.join(f'ptr @{name}' for name in components)}]"
    e = Emitter("e")
    e.store("ptr", "@component_table", e.offset("%ctx", int(Word.COMPONENTS) * 8), 8)
    e.do(f"%state = alloca [{STATE_BYTES} x i8], align 64")
    e.do(f"call void @{ENTER}(ptr %state)")
    status = e.value("call i32 @main_body(ptr %ctx)")
    e.do(f"call void @{LEAVE}(ptr %state)")
    e.do(f"ret i32 {status}")
    return (
        f"@component_table = internal constant {table}\n\n"
        f"define i32 @{MAIN}(ptr %ctx) noinline #0 {{\nentry:\n{e.text()}\n}}\n"
    )


class _NodeTranslator:
    """Emits the control flow of one function; `dma` is None in main."""

    def __init__(
        self,
        program: _ProgramTranslator,
        scope: FunctionScope,
        dma: DmaFunctions | None,
        causes: IssueCauses | None = None,
    ) -> None:
        self._program = program
        self._scope = scope
        self._emitter = scope.emitter
        self._dma = dma
        self._occupancy: dict[int, int] = {}
        self._causes = causes or IssueCauses(scope.kernel.body, scope.chip)
        self._range_count = 0
        self._may_transpose = cache(lambda: fills_transpose(scope.kernel.body))

    def nodes(self, nodes: list[Node]) -> None:
        """Append the code of a list of nodes."""
        for node in nodes:
            match node:
                case Block():
                    issued = self._causes.of_block(node)
                    now = BlockTranslator(
                        self._scope, node, issued, self._occupancy, self._dma_function
                    ).translate()
                    if now:
                        self._check_limit(now)
                case Loop():
                    self._loop(node)
                case If():
                    self._if(node)
                case While():
                    self._while(node)
                case Call():
                    self._call(node)

    def _dma_function(self, number: int) -> str:
        if self._dma is None:
            raise ProgramError("a transfer outside a kernel", "main")
        return self._dma.function(number)

    def _body(self, nodes: list[Node], what: str) -> None:
        """A body that may run any number of times must leave the result queues as they were."""
        before = dict(self._occupancy)
        self.nodes(nodes)
        self._expect_occupancy(before, what)

    def _expect_occupancy(self, before: dict[int, int], what: str) -> None:
        if any(count != before.get(unit, 0) for unit, count in self._occupancy.items()):
            raise ProgramError(
                f"the body of {what} changes the number of waiting MXU results",
                self._scope.kernel.name,
            )

    def _end_iteration(self, loop: Loop | While) -> None:
        """Charge an iteration and stop a run that is past its limit."""
        scope = self._scope
        e = self._emitter
        if isinstance(scope, RangeScope):
            return  # the caller counts the cycles of all ranges
        if scope.module.clock:
            now = e.value(f"add i64 {scope.load_word(Word.NOW)}, {scope.chip.loop_overhead_cycles}")
            finish(scope, now, self._causes.of_iteration(loop))
            self._check_limit(now)
        else:
            left = e.value(f"sub i64 {scope.load_word(Word.FUEL)}, 1")
            scope.store_word(Word.FUEL, left)
            self._stop_if(e.value(f"icmp slt i64 {left}, 0"))

    def _check_limit(self, now: str) -> None:
        limit = self._scope.load_word(Word.CYCLE_LIMIT)
        self._stop_if(self._emitter.value(f"icmp sgt i64 {now}, {limit}"))

    def _stop_if(self, condition: str) -> None:
        self._scope.stop_at_limit(condition)

    def _loop(self, loop: Loop) -> None:
        module = self._scope.module
        if module.threads > 1 and module.values and module.clock:
            plan = plan_ranges(loop, self._may_transpose, self._scope.carried_slots)
            if plan is not None:
                self._ranges(loop, plan)
                self._scope.module = replace(module, values=False)
                self._counted_loop(loop)
                self._scope.module = module
                return
        self._counted_loop(loop)

    def _ranges(self, loop: Loop, plan: RangePlan) -> None:
        """Compute the loop's values: ranges of its iterations are the tasks of a fork."""
        scope, e = self._scope, self._emitter
        function = f"{scope.function}_range{self._range_count}"
        self._range_count += 1
        inner = RangeScope(scope, function, plan.live_in)
        _NodeTranslator(self._program, inner, None, self._causes).iterations(loop)
        scope.module.emit(inner.define())
        most = scope.module.threads * _RANGES_PER_THREAD
        count = min(loop.trip, max(scope.module.threads, min(most, plan.work // _RANGE_WORK)))
        sregs = [f"i32 {scope.read_sreg(sreg)}" for sreg in plan.live_in]
        table = scope.task_table()
        tasks = []
        for number in range(count):
            bounds = [f"i64 {loop.trip * n // count}" for n in (number, number + 1)]
            tasks.append(table.add_range(function, ["ptr %ctx", *bounds, "i64 0", *sregs]))
        table.run()
        for task in tasks:
            scope.fault_on(e.load("i32", e.offset(task, 8 * RangeScope.FAULT_WORD), 8))

    def iterations(self, loop: Loop) -> None:
        """Append the code of a range function: iterations ``%first`` to ``%end``."""
        e = self._emitter
        body, done = e.new_label(), e.new_label()
        index = e.fresh()
        e.jump(body)
        e.place(body)
        phi = len(e.lines)
        e.lines.append("")
        self._scope.write_sreg(loop.index, index)
        self._body(loop.body, f"loop {loop.name}")
        following = e.value(f"add i32 {index}, 1")
        e.lines[phi] = f" {index} = phi i32 [%first, %entry], [{following}, %{e.block}]"
        e.branch(e.value(f"icmp slt i32 {following}, %end"), body, done)
        e.place(done)

    def _counted_loop(self, loop: Loop) -> None:
        e = self._emitter
        trip = str(loop.trip) if loop.trip >= 0 else self._scope.read_sreg(loop.trip_sreg)
        head, body, done = e.new_label(), e.new_label(), e.new_label()
        before = e.block
        index = e.fresh()
        e.jump(head)
        e.place(head)
        phi = len(e.lines)
        e.lines.append("")
        e.branch(e.value(f"icmp slt i32 {index}, {trip}"), body, done)
        e.place(body)
        self._scope.write_sreg(loop.index, index)
        self._body(loop.body, f"loop {loop.name}")
        self._end_iteration(loop)
        following = e.value(f"add i32 {index}, 1")
        e.lines[phi] = f" {index} = phi i32 [0, %{before}], [{following}, %{e.block}]"
        e.jump(head)
        e.place(done)

    def _if(self, node: If) -> None:
        e = self._emitter
        taken = e.value(f"icmp ne i32 {self._scope.read_sreg(node.condition)}, 0")
        then, orelse, done = e.new_label(), e.new_label(), e.new_label()
        e.branch(taken, then, orelse)
        before = dict(self._occupancy)
        ends: list[dict[int, int]] = []
        for label, nodes in ((then, node.then), (orelse, node.orelse)):
            e.place(label)
            self._occupancy = dict(before)
            self.nodes(nodes)
            ends.append({unit: n for unit, n in self._occupancy.items() if n})
            e.jump(done)
        if ends[0] != ends[1]:
            raise ProgramError(
                "the branches of an if leave different numbers of MXU results",
                self._scope.kernel.name,
            )
        e.place(done)

    def _while(self, node: While) -> None:
        e = self._emitter
        head, body, done = e.new_label(), e.new_label(), e.new_label()
        bounded = not self._scope.module.values
        before, index = e.block, e.fresh()
        e.jump(head)
        e.place(head)
        phi = len(e.lines)
        e.lines.append("")
        waiting = dict(self._occupancy)
        self.nodes(node.test)
        if bounded:  # values are off: a trip count stands for the condition
            again = e.value(f"icmp slt i64 {index}, {self._program.assumed_trips(node)}")
        else:
            again = e.value(f"icmp ne i32 {self._scope.read_sreg(node.condition)}, 0")
        e.branch(again, body, done)
        e.place(body)
        tested = dict(self._occupancy)
        self.nodes(node.body)
        self._expect_occupancy(waiting, f"while {node.name}")
        self._occupancy = tested
        self._end_iteration(node)
        following = e.value(f"add i64 {index}, 1")
        e.lines[phi] = f" {index} = phi i64 [0, %{before}], [{following}, %{e.block}]"
        e.jump(head)
        e.place(done)

    def _call(self, call: Call) -> None:
        """Call a kernel through the helper that charges and records it."""
        number = self._program.call_number(call)
        function = self._program.function(call.kernel)
        arguments = f"ptr %ctx, i64 {number}, ptr @{function}"
        self._scope.fault_on(self._emitter.value(f"call i32 @{RUN_CALL}({arguments})"))
