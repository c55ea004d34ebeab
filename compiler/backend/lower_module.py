"""From a scheduled HLO module to a program: kernels, the control flow that calls them, constants.

lower_module(module, buffers, chip, options) -> LoweredModule
  ControlLowering  entry, while and conditional bodies as scalar code and calls
  KernelLibrary    one kernel for each distinct fusion
  constants        the bytes of array constants, in device layout
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from compiler.analysis.buffer_assignment import BufferAssignment
from compiler.analysis.host_ports import host_ports
from compiler.analysis.kernel_facts import facts_of
from compiler.analysis.vmem_scope import scoped_chip
from compiler.backend.control import ControlLowering
from compiler.backend.device_bytes import device_bytes
from compiler.backend.exchange.buffers import reductions, with_exchange_buffers
from compiler.backend.exchange.plan import ExchangePlan
from compiler.backend.exchange.ports import permute_ports
from compiler.backend.kept_kernels import KeptKernels, MadeKernel
from compiler.backend.kernel_library import KernelLibrary, KernelRequest
from compiler.backend.kernel_options import KernelOptions, KernelTarget
from compiler.backend.loop_kernels import LoopKernels
from compiler.backend.site_origins import site_origins
from compiler.backend.smem_scratch import SmemScratch
from compiler.diagnostics import KernelLimitError, ResourceExhaustedError
from compiler.hlo.call_graph import control_computations, post_order
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import Trait, with_any
from compiler.hlo.shape import ArrayShape, leaves
from compiler.hlo.shape_text import print_shape
from compiler.kernels.printer import print_plan
from compiler.llo.builder import LloBuilder
from compiler.llo.finalize import finalize_kernel, finalize_main
from compiler.llo.ir import ARGUMENT_WORDS, LloKernel
from compiler.llo.printer import print_llo
from compiler.pass_pipeline import write_dump
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.kernel_facts import FACTS, facts_text
from tpu_sim.isa.origins import ORIGINS
from tpu_sim.isa.program import HBM, HbmBuffer, Kernel, Node, Program, core_word
from tpu_sim.isa.torus import Slice

Progress = Callable[[str], None]
_EXCHANGES = with_any(Trait.COLLECTIVE | Trait.ASYNC)


@dataclass
class LoweredModule:
    """A program, and the library that can lower its kernels again for their LLO.

    `buffers` are those of arrays and of exchanges; `remarks` name kernels that took a plan of last resort.
    """

    program: Program
    buffers: BufferAssignment
    library: KernelLibrary
    lower_main: Callable[[], LloKernel]
    remarks: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)

    def llo_text(self, kernel: str | None = None) -> str:
        """The LLO text of a kernel (or "main"), or of everything."""
        names = [*self.library.requests, "main"] if kernel is None else [kernel]
        made = (self.lower_main() if n == "main" else self.library.lower(n) for n in names)
        return "\n".join(print_llo(llo) for llo in made)


def lower_module(
    module: HloModule,
    buffers: BufferAssignment,
    chip: Chip,
    options: KernelOptions,
    progress: Progress | None = None,
    cores: Slice | None = None,
    dump_dir: Path | None = None,
    kept: KeptKernels | None = None,
    processes: int = 1,
) -> LoweredModule:
    """Lower a module that satisfies the backend's level; `dump_dir` gets each kernel's stages.

    `cores` are those that run a program for several; in one for a single chip, kernels that are `kept`
    from an earlier attempt are not made again. So many `processes` make kernels, forks of this one
    (`compiler.backend.forks`). Raises KernelLimitError for kernels that would have to be smaller.
    """
    smem = _smem_scratch(module, buffers, chip)
    exchange = None if cores is None else _exchange_plan(module, buffers, cores)
    library = KernelLibrary(KernelTarget(chip, options, smem, exchange))
    loops = LoopKernels(buffers, library)

    def lower_main() -> LloKernel:
        builder = LloBuilder("main", chip, calls=True)
        ControlLowering(builder, buffers, library, loops.kernel_for).lower(module.entry)
        return builder.finish()

    main = finalize_main(lower_main(), chip, dump_dir=dump_dir)
    if kept is None or exchange is not None:
        kept = KeptKernels()
    kernels = _Kernels(library, chip, dump_dir, kept)
    finished = kernels.make(processes, progress)
    constants, everything = _constants(module, buffers), buffers
    if exchange is not None:
        _check_room(module, exchange, buffers.peak_bytes, chip)
        constants += exchange.tables
        everything = with_exchange_buffers(buffers, module, exchange)
    program = Program(
        target=chip.name,
        kernels=finished,
        main=main,
        buffers=_hbm_buffers(module, everything),
        constants=constants,
        hbm_bytes=everything.peak_bytes,
        smem_words=smem.base + smem.used,
        metadata=_metadata(module, library, main),
        routes=[] if exchange is None else exchange.routes,
    )
    return LoweredModule(program, everything, library, lower_main, kernels.remarks, kernels.timings)


def _metadata(module: HloModule, library: KernelLibrary, main: list[Node]) -> dict[str, str]:
    """What reports know beside a program's code: its name, where kernels come from, what they compute."""
    calls = {name: request.instr for name, request in library.requests.items()}
    origins = site_origins(module, library.requests, main)
    exchange = library.target.exchange
    return {
        "module": module.name,
        **({ORIGINS: origins.text()} if origins.sites else {}),
        FACTS: facts_text(facts_of(calls, library.target.options.precision)),
        **({} if exchange is None else {"exchanges": exchange.exchange_text()}),
    }


def _check_room(module: HloModule, exchange: ExchangePlan, array_bytes: int, chip: Chip) -> None:
    """Raise ResourceExhaustedError where arrays and what exchanges hold behind them do not fit.

    What that is counts only once the kernels are made.
    """
    if exchange.end_bytes <= chip.hbm_bytes:
        return
    summary = (
        f"{module.name} needs {exchange.end_bytes:,} bytes of HBM, "
        f"the chip has {chip.hbm_bytes:,} (arrays {array_bytes:,}, partial sums and tables "
        f"of exchanges {exchange.end_bytes - array_bytes:,})"
    )
    raise ResourceExhaustedError(
        f"RESOURCE_EXHAUSTED: {summary}. Use a smaller batch, a narrower type or more chips.",
        summary=summary,
        needed_bytes=exchange.end_bytes,
    )


def _exchange_plan(module: HloModule, buffers: BufferAssignment, cores: Slice) -> ExchangePlan:
    """Behind the program's arrays: the partial sums of the largest reduction, then tables."""
    scratch = -(-buffers.peak_bytes // GRANULE_BYTES)
    sums = max((granules for _, granules in reductions(module)), default=0)
    return ExchangePlan(cores, scratch, scratch + sums, permute_ports(module, cores))


def _smem_scratch(module: HloModule, buffers: BufferAssignment, chip: Chip) -> SmemScratch:
    """The SMEM behind arguments and scalars; ResourceExhaustedError where these do not fit."""
    scalar_words = ARGUMENT_WORDS + -(-buffers.smem_bytes // 4)
    if scalar_words > chip.smem_words:
        raise ResourceExhaustedError(
            f"{module.name}: {scalar_words} words of SMEM for scalars, {chip.name} has "
            f"{chip.smem_words}"
        )
    return SmemScratch(scalar_words, core_word(chip.smem_words))


class _Kernels:
    """The kernels of a program as they are made; `timings` are seconds by stage."""

    def __init__(
        self, library: KernelLibrary, chip: Chip, dump_dir: Path | None, kept: KeptKernels
    ) -> None:
        self.remarks: list[str] = []
        self.timings = {"llo": 0.0, "schedule": 0.0}
        self._library = library
        self._chip = chip
        self._dump_dir = dump_dir
        self._kept = kept
        self._kernels: dict[str, Kernel] = {}
        self._refused: dict[HloInstruction, KernelLimitError] = {}

    def make(self, processes: int, progress: Progress | None) -> dict[str, Kernel]:
        """All kernels of the library by name, made in so many processes."""
        names = list(self._library.requests)
        if processes > 1:
            self._make_ahead(processes, progress)
        for number, name in enumerate(names, 1):
            if progress is not None:
                progress(f"kernel {number} of {len(names)}: {name}")
            self._add(name)
        return self._finished()

    def _make_ahead(self, processes: int, progress: Progress | None) -> None:
        """Make what several processes can make, of their own kernels each."""
        requests = [r for r in self._library.requests.values() if self._is_by_itself(r)]

        def tell(count: int) -> None:
            if progress is not None:
                progress(f"kernel {count} of {len(self._library.requests)}")

        self._kept.make_ahead(requests, self._library.target.smem, self._made, processes, tell)

    def _is_by_itself(self, request: KernelRequest) -> bool:
        """Whether lowering a kernel tells no other one anything: it is nobody's twin, and no exchange,
        which plans for those that follow."""
        if request.twin is not None:
            return False
        if self._library.target.exchange is None:
            return True
        called = request.instr.attrs.get("calls")
        computations = post_order([called]) if isinstance(called, HloComputation) else ()
        opcodes = {request.instr.opcode, *(i.opcode for c in computations for i in c)}
        return request.lower is None and not opcodes & _EXCHANGES

    def _add(self, name: str) -> None:
        """Lower and schedule a kernel; one that breaks a limit is noted for `_finished`."""
        request = self._library.requests[name]
        twin = request.twin
        if twin is not None and twin in self._kernels:
            self._kernels[name] = self._moved(twin, name)
            plan = self._library.target.exchange
            if plan is not None and twin in plan.exchanges:
                plan.exchanges[name] = plan.exchanges[twin]
            return
        try:
            made = self._kept.kernel(request, self._library.target.smem, lambda: self._made(name))
        except KernelLimitError as error:
            self._refused[request.instr] = error
            return
        self.remarks += made.remarks
        self.timings["llo"] += made.llo_seconds
        self.timings["schedule"] += made.schedule_seconds
        self._kernels[name] = made.kernel

    def _made(self, name: str) -> MadeKernel:
        start = time.perf_counter()
        self._dump_plan(name)
        llo = self._library.lower(name)
        lowered = time.perf_counter()
        kernel = finalize_kernel(
            llo, self._chip, dump_dir=self._dump_dir, vmem_rows=self._rows_of(name)
        )
        end = time.perf_counter()
        return MadeKernel(kernel, tuple(llo.remarks), lowered - start, end - lowered)

    def _moved(self, twin: str, name: str) -> Kernel:
        """A kernel like another one, whose arrays in VMEM lie in other rows."""
        requests = self._library.requests
        rows = dict(zip(requests[twin].rows, requests[name].rows, strict=True))
        kernel = self._kernels[twin]
        windows = [
            replace(window, base_row=rows[window.base_row]) if window.kept else window
            for window in kernel.windows
        ]
        return replace(kernel, name=name, windows=windows)

    def _rows_of(self, name: str) -> int:
        """VMEM that a kernel may use for itself."""
        return scoped_chip(self._chip, self._library.requests[name].instr).vmem_rows

    def _dump_plan(self, name: str) -> None:
        plan = self._library.plan(name) if self._dump_dir is not None else None
        if self._dump_dir is not None and plan is not None:
            write_dump(self._dump_dir / name, 0, "plan", "txt", print_plan(plan))

    def _finished(self) -> dict[str, Kernel]:
        """All kernels; raises the first one's error, with all that broke a limit."""
        if self._refused:
            first = next(iter(self._refused.values()))
            first.instructions = tuple(self._refused)
            raise first
        return self._kernels


def _constants(module: HloModule, buffers: BufferAssignment) -> list[tuple[int, bytes]]:
    """Bytes of the constants that lie in HBM (main stores those in SMEM)."""
    found: list[tuple[int, bytes]] = []
    for computation in control_computations(module):
        for instr in computation:
            if instr.opcode != "constant" or not _is_in_hbm(instr, buffers):
                continue
            data = device_bytes(instr.literal, instr.array)
            found.append((buffers.allocation(instr).offset, data))
    return found


def _is_in_hbm(instr: HloInstruction, buffers: BufferAssignment) -> bool:
    shape = instr.shape
    has_elements = isinstance(shape, ArrayShape) and shape.element_count > 0
    return has_elements and buffers.allocation(instr).space == HBM


def _hbm_buffers(module: HloModule, buffers: BufferAssignment) -> list[HbmBuffer]:
    """Inputs, outputs (by leaf number), constants and temporaries."""
    found: list[HbmBuffer] = []
    entry, host = module.entry, host_ports(module)
    inputs = [(p, leaf, s) for p in entry.parameters for leaf, s in enumerate(leaves(p.shape))]
    for index, (parameter, leaf, shape) in enumerate(inputs):
        buffer = _buffer("input", parameter, leaf, shape, buffers, index)
        found.append(replace(buffer, host_shape=host.parameters[index]))
    root = entry.root_instruction
    for leaf, shape in enumerate(leaves(root.shape)):
        buffer = _buffer("output", root, leaf, shape, buffers, leaf)
        found.append(replace(buffer, host_shape=host.results[leaf]))
    for number, place in enumerate(buffers.allocations):
        if place.space == HBM and place.parameter is None and not place.outputs:
            kind = "constant" if place.is_constant else "temp"
            name = buffers.names.get(number, "")
            found.append(HbmBuffer(name, kind, place.offset, place.size_bytes))
    return found


def _buffer(
    kind: str,
    instr: HloInstruction,
    leaf: int,
    shape: ArrayShape,
    buffers: BufferAssignment,
    index: int,
) -> HbmBuffer:
    place = buffers.allocation(instr, leaf)
    return HbmBuffer(instr.name, kind, place.offset, place.size_bytes, print_shape(shape), index)
