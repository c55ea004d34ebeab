"""A program to one LLVM module: a function per body, main's and the kernels', and the sequencer.

The module comes in two kinds: values and clock together (the normal run), and the clock alone
(estimates).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tpu_sim.isa.chip_limits import MOST_SREGS, MOST_UNITS
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import While
from tpu_sim.isa.geometry import ROW_BYTES, VREG_BYTES
from tpu_sim.isa.program import Block, Kernel, Program, Window, blocks_of, spill_rows
from tpu_sim.jit.calls import sequencer_text
from tpu_sim.jit.command_kernels import FORK_LISTS
from tpu_sim.jit.context import TRANSPOSE_BYTES, WEIGHT_BYTES, ContextSizes, Word
from tpu_sim.jit.dma_functions import DmaFunctions
from tpu_sim.jit.fork_join import FORK
from tpu_sim.jit.hbm_windows import windows_in_place
from tpu_sim.jit.kernel_facts import carried_slots, most_swaps, unswapped_units
from tpu_sim.jit.node_translator import NodeTranslator
from tpu_sim.jit.outline import ComponentLibrary
from tpu_sim.jit.parallel_loops import fills_transpose, uses_transpose
from tpu_sim.jit.repeated_calls import flags_of_calls
from tpu_sim.jit.results_ring import ring_entries
from tpu_sim.jit.scope import FunctionScope, ModuleScope
from tpu_sim.jit.translated import MAIN_FUNCTION, ModuleKind, TranslatedModule
from tpu_sim.jit.window_kernels import (
    ENTRY_BYTES,
    GAP_OFFSET,
    PIECE_ROWS_OFFSET,
    POINTER_OFFSET,
    entry_offset,
)
from tpu_sim.machine.node_table import MAIN, FlatBody, node_table

_CLEARED_BYTES = 8 * 3 * MOST_UNITS + 4 * MOST_SREGS
"""MXU queues and sregs, which stand side by side, are as new when a kernel starts."""
assert Word.SREGS - Word.UNIT_FREE == 3 * MOST_UNITS
assert Word.PUSHES - Word.HEAD == MOST_UNITS


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
    return _ProgramTranslator(program, chip, kind, threads, emit).translate()


class _ProgramTranslator:
    def __init__(
        self,
        program: Program,
        chip: Chip,
        kind: ModuleKind,
        threads: int,
        emit: Callable[[str], None] | None,
    ) -> None:
        self._texts: list[str] = []
        self._emit_to = emit
        self._trips = kind.trips
        table = self._table = node_table(program, chip)
        swaps = max((most_swaps(kernel.body) for kernel in program.kernels.values()), default=0)
        self._module = ModuleScope(
            chip=chip,
            smem_words=program.smem_words,
            values=kind.values,
            ring_entries={
                body.kernel.name: ring_entries(body.kernel.body) for body in table.bodies
            },
            transpose_blocks=1 + swaps,
            threads=threads,
            components=ComponentLibrary(self._emit),
            emit=self._emit,
        )

    def translate(self) -> TranslatedModule:
        table = self._table
        names = [f"kernel{number}" for number in range(1, len(table.bodies))]
        for body, name in zip(table.bodies[MAIN + 1 :], names, strict=True):
            self._emit(self._kernel(body, name))
        main = table.bodies[MAIN]
        scope = FunctionScope(self._module, main.kernel, "main_body")
        self._nodes(scope, main, None, lambda: None)
        components = self._module.components.names
        self._emit(scope.define(main.pauses))
        self._emit(sequencer_text(MAIN_FUNCTION, ["main_body", *names], components))
        module = self._module
        return TranslatedModule(
            tuple(self._texts),
            tuple(module.sites),
            table.calls,
            ContextSizes(
                carry_bytes=module.carry_slots * VREG_BYTES,
                scratch_bytes=module.components.scratch_bytes,
                task_bytes=module.task_bytes,
                ring_entries=max(module.ring_entries.values(), default=0),
                transpose_blocks=module.transpose_blocks,
                threads=module.threads,
                calls=len(table.calls),
                repeats=() if module.values else flags_of_calls(table),
            ),
            any(f"@{fork}(" in text for text in self._texts for fork in (FORK, FORK_LISTS)),
            tuple(module.ring_entries[body.kernel.name] for body in table.bodies),
        )

    def _nodes(
        self,
        scope: FunctionScope,
        body: FlatBody,
        dma: DmaFunctions | None,
        start: Callable[[], None],
    ) -> None:
        NodeTranslator(
            scope, body, dma, start, self._table.body_of_call.__getitem__, self._assumed_trips
        ).emit_all()

    def _emit(self, text: str) -> None:
        self._texts.append(text)
        if self._emit_to is not None:
            self._emit_to(text)

    def _kernel(self, body: FlatBody, function: str) -> str:
        kernel = body.kernel
        carried = carried_slots(kernel.body)
        if carried:  # they lie in a window of their own
            rows = spill_rows(kernel)
            spills = Window("(spill slots)", rows.start, rows.stop - rows.start)
            kernel = replace(kernel, windows=[*kernel.windows, spills])
        scope = FunctionScope(self._module, kernel, function)
        scope.carried_slots = carried
        if self._module.values:
            scope.in_place = windows_in_place(kernel)

        def start() -> None:
            scope.store_word(Word.CORES, str(kernel.cores))
            scope.store_word(Word.CORE_FLAGS, str(kernel.core_flags))
            scope.clear("%ctx", int(Word.UNIT_FREE) * 8, _CLEARED_BYTES)
            scope.clear("%ctx", int(Word.HEAD) * 8, 2 * 8 * MOST_UNITS)
            if self._module.values:
                self._reset_units(scope, kernel)
                self._reset_windows(scope, kernel)
                if carried:
                    scope.clear("%vmem", spills.base_row * ROW_BYTES, spills.rows * ROW_BYTES)

        self._nodes(scope, body, DmaFunctions(self._module, kernel, scope.in_place), start)
        return scope.define(body.pauses)

    def _reset_units(self, scope: FunctionScope, kernel: Kernel) -> None:
        """A kernel starts with zero weights and blocks, as far as it can tell."""
        for unit in sorted(unswapped_units(kernel.body)):  # weights that nobody pushed
            scope.clear("%weights", unit * 2 * WEIGHT_BYTES, 2 * WEIGHT_BYTES)
        if any(uses_transpose(block) for block in blocks_of(kernel.body)):
            self._reset_transposes(scope, kernel)

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
        scope.store_word(Word.WINDOW_COUNT, str(len(scope.in_place)))
        scope.clear("%ctx", entry_offset(0), ENTRY_BYTES * len(scope.in_place))
        e = scope.emitter
        for window, in_place in scope.in_place.items():
            pointer = e.offset("%vmem", kernel.windows[window].base_row * ROW_BYTES)
            at = e.offset("%ctx", entry_offset(in_place.entry))
            e.store("ptr", pointer, e.offset(at, POINTER_OFFSET), 8)
            e.store("i64", str(in_place.pieces.rows), e.offset(at, PIECE_ROWS_OFFSET), 8)
            e.store("i64", str(in_place.pieces.gap_bytes), e.offset(at, GAP_OFFSET), 8)

    def _assumed_trips(self, loop: While[Block]) -> int:
        """Iterations of a loop whose condition is not computed."""
        return loop.expected_trips if loop.expected_trips >= 0 else self._trips
