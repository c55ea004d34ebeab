"""`LlvmMachine`: executes programs as native code.

It gives the same memory and the same `ExecutionResult` as `tpu_sim.interp.NumpyMachine` on every
program that keeps the rules. DMA races and uninitialised reads are found by the NumPy machine only
(`checked` runs, see `tpu_sim.system`); bounds, limits and dynamic counts are checked here, always.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import RLock
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from tpu_sim.isa.cached_property import cached_property
from tpu_sim.isa.checker import check_program
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.collector import no_cyclic_gc
from tpu_sim.isa.geometry import LANES, ROW_BYTES
from tpu_sim.isa.program import Program, core_word
from tpu_sim.isa.source_digest import is_source_as_loaded, source_digest
from tpu_sim.jit.calls import ENDED, PAUSED, WAITS
from tpu_sim.jit.context import CONTEXT_WORDS, ExecutionContext, MachineMemories, Word
from tpu_sim.jit.engine import Engine, NativeModule, detect_host
from tpu_sim.jit.fork_join import WORKER
from tpu_sim.jit.installation import installed_library
from tpu_sim.jit.native_state import read_state, settle_windows, write_state
from tpu_sim.jit.stored_translation import dump_translation, load_translation
from tpu_sim.jit.translated import (
    DEFAULT_TRIPS,
    MAIN_FUNCTION,
    MODULE_HEAD,
    RUN,
    FaultKind,
    ModuleKind,
    TranslatedModule,
    estimate_kind,
)
from tpu_sim.jit.workers import run_interruptibly, worker_pool
from tpu_sim.machine.checkpoint import load_checkpoint
from tpu_sim.machine.disk_cache import cache_key, open_cache
from tpu_sim.machine.fabric import Fabric, LocalFabric
from tpu_sim.machine.far_core import FarCore
from tpu_sim.machine.faults import (
    DeadlockFault,
    DmaCountFault,
    MachineFault,
    OutOfMemoryRangeFault,
    OutOfWindowFault,
)
from tpu_sim.machine.fork_lock import ForkLock
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.node_table import NodeTable, body_name, node_table
from tpu_sim.machine.result import RECORD_WORDS, ExecutionResult, execution_result
from tpu_sim.machine.run import NO_CALL, Run, Stop
from tpu_sim.machine.schema import STATE_WORDS
from tpu_sim.machine.state import CoreState, CoreWords

_FAULTS: dict[FaultKind, type[MachineFault]] = {
    FaultKind.WINDOW: OutOfWindowFault,
    FaultKind.MEMORY: OutOfMemoryRangeFault,
    FaultKind.DMA_COUNT: DmaCountFault,
    FaultKind.FLAG: DmaCountFault,
}


Translate = Callable[..., TranslatedModule]
_TRANSLATOR = "tpu_sim.jit.program_translator"
_STOPS = {ENDED: Stop.DONE, PAUSED: Stop.PAUSED, WAITS: Stop.WAITING}


@dataclass(frozen=True)
class NativeProgram:
    """A program translated, compiled and linked."""

    program: Program
    translated: TranslatedModule
    module: NativeModule
    entry: Callable[[int], int]


class LlvmMachine:
    """A core of `chip` emulated by native code. Runs of one machine exclude each other.

    A run longer than `max_cycles` ends with `CycleLimitFault` (`tpu_sim.machine.run`).
    `cache=False` keeps no object code on disk. With several `threads`, independent work of a block
    (components, runs of different MXUs) is shared between host threads; results and cycles do not
    depend on their number. `fabric` says what transfers cost.
    """

    def __init__(
        self,
        chip: Chip,
        threads: int = 1,
        checked: bool = False,
        max_cycles: int | None = None,
        cache: bool = True,
        codegen_level: int = 0,
        fabric: Fabric | None = None,
    ) -> None:
        if checked:
            raise ValueError("checked runs need the NumPy machine: tpu_sim.system.create_machine")
        if threads < 1:
            raise ValueError(f"{threads} threads: want at least 1")
        self.chip = chip
        self.fabric = fabric or LocalFabric(chip)
        self.threads = threads
        self.max_cycles = max_cycles
        self.library = installed_library(cache)
        self._begun = 0
        self._worker_address = self.library.address(WORKER)
        self._cache = open_cache(wanted=cache)
        self._engine = Engine(detect_host(), self._cache, codegen_level)
        self._memories = MachineMemories(chip)
        self._lock = ForkLock(RLock)
        self._prepared: WeakValueDictionary[tuple[int, ModuleKind], NativeProgram] = (
            WeakValueDictionary()
        )
        self._latest: NativeProgram | None = None  # of a caller that holds none
        self._contexts: WeakKeyDictionary[NativeModule, ExecutionContext] = WeakKeyDictionary()

    def prepare(
        self, program: Program, kind: ModuleKind = RUN, digest: str | None = None
    ) -> NativeProgram:
        """Translate and compile; raises `ProgramError` for a program that breaks a rule.

        `digest` names the program's content, so that a translation found on disk is used without
        looking at the program at all. The native program lives as long as the caller holds it.
        """
        key = (id(program), kind)
        native = self._prepared.get(key)
        if native is None or native.program is not program:
            with no_cyclic_gc():
                translated, code = self._native_code(program, kind, digest)
            module = self._engine.link(code)
            entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(module.address(MAIN_FUNCTION))
            native = self._prepared[key] = NativeProgram(program, translated, module, entry)
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
        # it is loaded only where no translation is found
        translate: Translate = importlib.import_module(_TRANSLATOR).translate_program
        check_program(program, self.chip)
        if cache is None or not key:
            translated = translate(program, self.chip, kind, self.threads)
            code = self._engine.object_code(*translated.texts, head=MODULE_HEAD)
            return translated, code
        with self._engine.compiler(MODULE_HEAD) as compiler:
            translated = translate(program, self.chip, kind, self.threads, compiler.add)
            code = self._engine.keep(translated.text, compiler.objects())
        if is_source_as_loaded("tpu_sim"):
            object_key = self._engine.object_key(translated.text)
            cache.store(key, dump_translation(translated, object_key))
        return translated, code

    def run(self, program: Program | NativeProgram, hbm: HbmMemory) -> ExecutionResult:
        """Execute on `hbm`, whose constants and inputs are in place.

        Raises `MachineFault` when the program breaks a rule at run time.
        """
        with self._lock.here:
            return self.start(program, hbm).finish()

    def quick_row(self, native: NativeProgram, hbm: HbmMemory) -> list[int]:
        """What `tpu_sim.jit.quick_run` needs to run a program of one core on that memory.

        It holds for as long as the caller has both.
        """
        with self._lock.here:
            context = self._core(native, hbm).context
            entry = native.module.address(MAIN_FUNCTION)
            granules = hbm.size_bytes // ROW_BYTES
            smem = context.quick_words(native.program.smem_words)
            return [context.address, entry, hbm.address, granules, *smem]

    def begin_quick_run(self) -> None:
        """Any earlier run of this machine is over. The caller has the machine until he has run."""
        self._begun += 1

    def start(self, program: Program | NativeProgram, hbm: HbmMemory) -> Run:
        """A run that stands at the start of the program; any earlier one of this machine is over."""
        return Run(self._core(program, hbm), self.max_cycles)

    def far_core(self, hbm: HbmMemory) -> FarCore:
        """What stands for a core of another process, with as much HBM, for those of such machines."""
        far = FarCore(hbm.size_bytes, CONTEXT_WORDS)
        far.words[Word.HBM] = far.hbm.address
        far.words[Word.HBM_GRANULES] = hbm.size_bytes // ROW_BYTES
        far.words[Word.POSTS] = far.posts.ctypes.data
        return far

    def restore(self, program: Program | NativeProgram, hbm: HbmMemory, data: bytes) -> Run:
        """A run that stands where a saved one did; the program's part of `hbm` becomes what it was."""
        core = self._core(program, hbm)
        return Run(core, self.max_cycles, core.restore(data))

    def estimate(self, program: Program, trips: int = DEFAULT_TRIPS) -> ExecutionResult:
        """Cycles without computing values: control flow that depends on data takes its defaults.

        A `While` runs its expected trip count where one is stated, else `trips` times; SMEM filled
        by DMA reads 0. Everything else is counted as in `run`.
        """
        with self._lock.here:
            native = self.prepare(program, estimate_kind(trips))
            return Run(self._core(native, None), self.max_cycles).finish()

    def _core(self, program: Program | NativeProgram, hbm: HbmMemory | None) -> NativeCore:
        if not isinstance(program, NativeProgram):
            program = self._latest = self.prepare(program)
        native = program
        with self._lock.here:
            context = self._contexts.get(native.module)
            if context is None:
                context = self._contexts[native.module] = ExecutionContext(
                    self.chip, self._memories, native.translated.sizes
                )
                context.attach_fabric(self.fabric)
            routes, itself = native.program.routes, (context.address, True)
            context.attach_routes(self.fabric, routes, [itself] * len(routes))
            self._begun += 1
            context.reset(native.program.smem_words)
            context.attach_hbm(*((0, 0) if hbm is None else (hbm.address, hbm.size_bytes)))
            return NativeCore(self, native, context, hbm, self._begun)

    def check_current(self, core: NativeCore) -> None:
        """Raise `RuntimeError` if a later run has the core."""
        if core.number != self._begun:
            raise RuntimeError("another run has begun on this machine: save a run before that")

    def advance(self, core: NativeCore, until: int, until_call: int) -> int:
        """Run what a core has to do up to such a border (`Core.advance`); returns the status."""
        with self._lock.here:
            self.check_current(core)
            try:
                with self._helpers(core):
                    return run_interruptibly(core.native.entry, core.context, until, until_call)
            finally:
                core.context.note_smem()

    def _helpers(self, core: NativeCore) -> AbstractContextManager[None]:
        """Other threads that help during a run, if the program has work to share."""
        if self.threads == 1 or not core.native.translated.has_forks:
            return nullcontext()
        return worker_pool(self._worker_address, self.threads - 1).helping(core.context)


def _address_of(core: NativeCore | FarCore) -> int:
    """Of the words that native code raises flags in."""
    return core.words.ctypes.data if isinstance(core, FarCore) else core.context.address


class NativeCore:
    """The core of a machine during one run."""

    def __init__(
        self,
        machine: LlvmMachine,
        native: NativeProgram,
        context: ExecutionContext,
        hbm: HbmMemory | None,
        number: int,
    ) -> None:
        """`number` is that of the run, counted by the machine."""
        self.number = number
        self.native = native
        self.context = context
        self.program = native.program
        self._hbm = hbm
        self._machine = machine
        self.is_connected = not native.program.routes or hbm is None
        """Whether its transfers lead somewhere; those of an estimate lead back to itself."""

    def connect(self, number: int, cores: Mapping[int, NativeCore | FarCore]) -> None:
        """See `tpu_sim.machine.run.Core`."""
        routes = self.program.routes
        targets = [route.targets[number] for route in routes]
        ends = [
            (_address_of(cores[target]) if target >= 0 else 0, route.source(number) >= 0)
            for target, route in zip(targets, routes, strict=True)
        ]
        self.context.attach_routes(self._machine.fabric, routes, ends)
        smem_words = self._machine.chip.smem_words
        self.context.memory(Word.SMEM, np.uint32)[core_word(smem_words)] = number
        self.is_connected = True

    @cached_property
    def table(self) -> NodeTable:
        """The program's nodes."""
        return node_table(self.program, self._machine.chip)

    @property
    def hbm(self) -> HbmMemory:
        """Its HBM; an estimate has none."""
        assert self._hbm is not None
        return self._hbm

    @property
    def now(self) -> int:
        """The cycle at which the next bundle would issue."""
        return int(self.context.words[Word.NOW])

    @cached_property
    def words(self) -> CoreWords:
        """See `tpu_sim.machine.run.Core`."""
        return CoreWords(self.context.words[:STATE_WORDS])

    @property
    def node(self) -> int:
        """The node it goes on with."""
        return int(self.context.words[Word.NODE])

    @property
    def body_name(self) -> str:
        """Where it stands: "main" or a kernel."""
        return body_name(self.program, int(self.context.words[Word.BODY]))

    def advance(self, until: int, until_call: int = NO_CALL) -> Stop:
        """See `tpu_sim.machine.run.Core`."""
        if not self.is_connected:
            raise DeadlockFault("a program of several cores, and this one runs alone", "main")
        status = self._machine.advance(self, until, until_call)
        if status > ENDED:
            site = self.native.translated.sites[status - 1]
            raise _FAULTS[site.kind](site.message, site.kernel, site.bundle)
        return _STOPS[status]

    def result(self) -> ExecutionResult:
        """What it all took so far."""
        context, chip = self.context, self._machine.chip
        calls = self.native.translated.calls
        return execution_result(
            self.now, calls, context.records(), context.totals(), chip, context.route_bytes()
        )

    def state(self) -> CoreState:
        """See `tpu_sim.machine.run.Core`."""
        self._machine.check_current(self)
        settle_windows(self.context, self._machine.library)
        state = self._state()
        read_state(self.context, state, self.native.translated.rings[state.body])
        return state

    def _state(self) -> CoreState:
        context = self.context
        return CoreState(
            self._machine.chip,
            words=context.words[:STATE_WORDS],
            vmem=context.memory(Word.VMEM, np.uint32).reshape(-1, LANES),
            smem=context.memory(Word.SMEM, np.uint32)[: self._machine.chip.smem_words],
            records=context.memory(Word.RECORDS, np.int64).reshape(-1, RECORD_WORDS),
            totals=context.all_totals(),
        )

    def restore(self, data: bytes) -> bool:
        """Take over a saved run; returns whether it was over."""
        state = self._state()
        is_done = load_checkpoint(data, self.program, self.table, state, self.hbm)
        self.adopt(state)
        return is_done

    def adopt(self, state: CoreState) -> None:
        """See `tpu_sim.machine.run.Core`."""
        self._machine.check_current(self)
        body = state.body
        ring, kernel = self.native.translated.rings[body], self.table.bodies[body].kernel
        write_state(self.context, state, ring, kernel)
        self.context.words[Word.SMEM_END] = self._machine.chip.smem_words
