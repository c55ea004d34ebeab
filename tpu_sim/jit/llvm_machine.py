"""`LlvmMachine`: executes programs as native code.

It gives the same memory and the same `ExecutionResult` as `tpu_sim.interp.NumpyMachine` on every
program that keeps the rules. DMA races and uninitialised reads are found by the NumPy machine only
(`checked` runs, see `tpu_sim.system`); bounds, limits and dynamic counts are checked here, always.
"""

from __future__ import annotations

import ctypes
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import current_thread, main_thread
from weakref import WeakKeyDictionary, WeakSet

from tpu_sim.isa.causes import Cause
from tpu_sim.isa.checker import check_program
from tpu_sim.isa.chips import Chip, ChipError
from tpu_sim.isa.program import Program
from tpu_sim.isa.source_digest import is_source_as_loaded, source_digest
from tpu_sim.jit.calls import PAST_LIMIT
from tpu_sim.jit.context import (
    MAX_UNITS,
    READY_RING,
    ExecutionContext,
    Memories,
    Word,
)
from tpu_sim.jit.engine import Engine, NativeModule, detect_host
from tpu_sim.jit.fork_join import WORKER
from tpu_sim.jit.installation import installed_library
from tpu_sim.jit.program_translator import (
    DEFAULT_TRIPS,
    MAIN,
    MODULE_HEAD,
    RUN,
    ModuleKind,
    TranslatedModule,
    estimate_kind,
    translate_program,
)
from tpu_sim.jit.scope import FaultKind
from tpu_sim.jit.stored_translation import dump_translation, load_translation
from tpu_sim.jit.workers import run_interruptibly, worker_pool
from tpu_sim.machine.disk_cache import cache_key, open_cache
from tpu_sim.machine.faults import (
    CycleLimitFault,
    DmaCountFault,
    MachineFault,
    OutOfMemoryRangeFault,
    OutOfWindowFault,
)
from tpu_sim.machine.fork_lock import ForkLock
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.result import ExecutionResult, KernelRun, RunTotals

DEFAULT_MAX_CYCLES = 1 << 40
_KEPT_PROGRAMS = 64
_SHORT_SECONDS = 0.1
_FAULTS: dict[FaultKind, type[MachineFault]] = {
    FaultKind.WINDOW: OutOfWindowFault,
    FaultKind.MEMORY: OutOfMemoryRangeFault,
    FaultKind.DMA_COUNT: DmaCountFault,
    FaultKind.FLAG: DmaCountFault,
    FaultKind.CYCLE_LIMIT: CycleLimitFault,
}


@dataclass(frozen=True)
class NativeProgram:
    """A program translated, compiled and linked."""

    program: Program
    translated: TranslatedModule
    module: NativeModule
    entry: Callable[[int], int]


class LlvmMachine:
    """A core of `chip` emulated by native code. Runs of one machine exclude each other.

    A run longer than `max_cycles` ends with `CycleLimitFault`. `cache=False` keeps no object code
    on disk. With several `threads`, independent work of a block (components, runs of different
    MXUs) is shared between host threads; results and cycles do not depend on their number.
    """

    def __init__(
        self,
        chip: Chip,
        threads: int = 1,
        checked: bool = False,
        max_cycles: int | None = None,
        cache: bool = True,
        codegen_level: int = 0,
    ) -> None:
        if checked:
            raise ValueError("checked runs need the NumPy machine: tpu_sim.system.create_machine")
        if threads < 1:
            raise ValueError(f"{threads} threads: want at least 1")
        if chip.mxu_units > MAX_UNITS or chip.mrf_entries > READY_RING:
            raise ChipError(f"{chip.name}: at most {MAX_UNITS} MXU units of {READY_RING} results")
        self.chip = chip
        self.threads = threads
        self.max_cycles = DEFAULT_MAX_CYCLES if max_cycles is None else max_cycles
        library = installed_library(cache)
        self._worker_address = library.address(WORKER)
        self._cache = open_cache(wanted=cache)
        self._engine = Engine(detect_host(), self._cache, codegen_level)
        self._memories = Memories(chip)
        self._lock = ForkLock()
        self._short: WeakSet[NativeModule] = WeakSet()
        self._prepared: OrderedDict[tuple[int, ModuleKind], NativeProgram] = OrderedDict()
        self._contexts: WeakKeyDictionary[NativeModule, ExecutionContext] = WeakKeyDictionary()

    def prepare(
        self, program: Program, kind: ModuleKind = RUN, digest: str | None = None
    ) -> NativeProgram:
        """Translate and compile; raises `ProgramError` for a program that breaks a rule.

        `digest` names the program's content, so that a translation found on disk is used without
        looking at the program at all.
        """
        key = (id(program), kind)
        native = self._prepared.get(key)
        if native is None or native.program is not program:
            translated, code = self._native_code(program, kind, digest)
            module = self._engine.link(code)
            entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(module.address(MAIN))
            native = self._prepared[key] = NativeProgram(program, translated, module, entry)
            while len(self._prepared) > _KEPT_PROGRAMS:
                self._prepared.popitem(last=False)
        return native

    def _native_code(
        self, program: Program, kind: ModuleKind, digest: str | None
    ) -> tuple[TranslatedModule, bytes]:
        """A program's translation and object code: from the disk cache, or made and kept there."""
        cache, key = self._cache, ""
        if cache is not None and digest is not None:
            key = cache_key(
                "translation", digest, repr(kind), str(self.threads), repr(self.chip),
                source_digest("tpu_sim"), *self._engine.identity(),
            )  # fmt: skip
            stored = cache.load(key)
            if stored is not None:
                object_key, found = load_translation(stored)
                code = cache.load(object_key)
                if code is not None:
                    return found, code
        check_program(program, self.chip)
        if cache is None or not key:
            translated = translate_program(program, self.chip, kind, self.threads)
            code = self._engine.object_code(*translated.texts, head=MODULE_HEAD)
            return translated, code
        with self._engine.compiler(MODULE_HEAD) as compiler:
            translated = translate_program(program, self.chip, kind, self.threads, compiler.add)
            code = self._engine.keep(translated.text, compiler.objects())
        if is_source_as_loaded("tpu_sim"):
            object_key = self._engine.object_key(translated.text)
            cache.store(key, dump_translation(translated, object_key))
        return translated, code

    def run(self, program: Program | NativeProgram, hbm: HbmMemory) -> ExecutionResult:
        """Execute on `hbm`, whose constants and inputs are in place.

        Raises `MachineFault` when the program breaks a rule at run time.
        """
        native = program if isinstance(program, NativeProgram) else self.prepare(program)
        with self._lock:
            return self._execute(native, hbm.address, hbm.size_bytes)

    def estimate(self, program: Program, trips: int = DEFAULT_TRIPS) -> ExecutionResult:
        """Cycles without computing values: control flow that depends on data takes its defaults.

        A `While` runs its expected trip count where one is stated, else `trips` times; SMEM filled
        by DMA reads 0. Everything else is counted as in `run`.
        """
        native = self.prepare(program, estimate_kind(trips))
        with self._lock:
            return self._execute(native, 0, 0)

    def _execute(self, native: NativeProgram, hbm_address: int, hbm_bytes: int) -> ExecutionResult:
        context = self._contexts.get(native.module)
        if context is None:
            sizes = native.translated.sizes
            context = self._contexts[native.module] = ExecutionContext(
                self.chip, self._memories, sizes
            )
        context.reset(self.max_cycles, native.program.smem_words)
        context.attach_hbm(hbm_address, hbm_bytes)
        try:
            with self._helpers(native, context):
                status = self._enter(native, context)
        finally:
            context.note_smem()
        if status:
            raise self._fault(native, status)
        return self._result(native, context)

    def _enter(self, native: NativeProgram, context: ExecutionContext) -> int:
        """Run to the end or a fault. What was not short before runs where Ctrl-C can end it."""
        if native.module in self._short or current_thread() is not main_thread():
            return native.entry(context.address)
        start = time.perf_counter()
        status = run_interruptibly(native.entry, context)
        if time.perf_counter() - start < _SHORT_SECONDS:
            self._short.add(native.module)
        return status

    def _helpers(
        self, native: NativeProgram, context: ExecutionContext
    ) -> AbstractContextManager[None]:
        """Other threads that help during a run, if the program has work to share."""
        if self.threads == 1 or not native.translated.has_forks:
            return nullcontext()
        return worker_pool(self._worker_address, self.threads - 1).helping(context)

    def _fault(self, native: NativeProgram, status: int) -> MachineFault:
        if status == PAST_LIMIT:
            return CycleLimitFault(f"the run passed {self.max_cycles} cycles", "main")
        site = native.translated.sites[status - 1]
        if site.kind is FaultKind.CYCLE_LIMIT:
            return CycleLimitFault(f"the run passed {self.max_cycles} cycles", site.kernel)
        return _FAULTS[site.kind](site.message, site.kernel, site.bundle)

    def _result(self, native: NativeProgram, context: ExecutionContext) -> ExecutionResult:
        runs = [self._run(native, number, 1, row) for number, *row in context.records()]
        totals = RunTotals()
        for number, (count, *row) in enumerate(context.totals()):
            if count:
                totals.add(self._run(native, number, count, row))
        return ExecutionResult(int(context.words[Word.NOW]), (*runs, *totals.runs()))

    def _run(self, native: NativeProgram, number: int, count: int, row: list[int]) -> KernelRun:
        """`count` calls as their record has them."""
        name, site = native.translated.calls[number]
        start, cycles, passes, wait, moved, *causes = row
        busy = passes * self.chip.matmul_cycles
        causes_used = tuple(causes[: len(Cause)])
        return KernelRun(name, site, cycles, busy, wait, moved, start, causes_used, count)
