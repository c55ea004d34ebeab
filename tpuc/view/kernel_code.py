"""A kernel as the page shows it: grid, windows, LLO, and its bundles with what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.driver import CompiledModule
from compiler.kernels.printer import print_plan
from tpu_sim.isa.assembly import descriptor_text, loop_head, while_head
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import If, Loop, While
from tpu_sim.isa.instruction import Slot
from tpu_sim.isa.program import Block, Bundle, Kernel, Node
from tpu_sim.isa.text import format_operation
from tpu_sim.machine.kernel_profile import BundleUse, CycleSpan, KernelProfile
from tpu_sim.machine.result import KernelRun
from tpuc.view.document import Json, KernelCode, KernelTime, WindowRow

_SLOTS = tuple(slot.value for slot in Slot)
_SLOT_NUMBERS = {slot: number for number, slot in enumerate(Slot)}
_SPILL_ROWS = 8
MOST_BUNDLES = 60_000
"""Of a kernel, that are shown."""
MOST_LLO = 4_000_000
"""Letters of a kernel's LLO that are shown."""
Origins = Callable[[str, str], list[int]]


class KernelCodes:
    """Makes the part of each kernel; `origins` are those of (kernel, source)."""

    def __init__(self, compiled: CompiledModule, chip: Chip, origins: Origins) -> None:
        self._compiled = compiled
        self._chip = chip
        self._origins = origins

    def code(self, kernel: Kernel, profile: KernelProfile) -> KernelCode:
        """The part of a kernel."""
        library = self._compiled.lowered.library
        plan = library.plan(kernel.name)
        listing = _Listing(profile.bundles)
        listing.nodes(kernel.body, 0)
        llo = self._compiled.llo_text(kernel.name)
        return KernelCode(
            name=kernel.name,
            note=kernel.note,
            arguments=kernel.arg_count,
            flags=kernel.flags,
            windows=[WindowRow(w.name, w.base_row, w.rows, w.kept) for w in kernel.windows],
            vmem_rows=self._chip.vmem_rows,
            spill_rows=kernel.spill_slots * _SPILL_ROWS,
            descriptors=[descriptor_text(d) for d in kernel.descriptors],
            plan="" if plan is None else print_plan(plan),
            llo=llo if len(llo) <= MOST_LLO else llo[:MOST_LLO] + "\n... cut here",
            slots=list(_SLOTS),
            texts=list(listing.texts),
            sources=list(listing.sources),
            origins={source: self._origins(kernel.name, source) for source in listing.sources},
            code=listing.rows,
        )


MOST_SPANS = 4_000
"""Of a kind, that are shown of a call."""


def kernel_time(kernel: Kernel, profile: KernelProfile, run: KernelRun | None) -> KernelTime:
    """The part of a kernel's time; `run` is a call of it, if there was one."""
    moved: dict[str, int] = {}
    transfers: list[int | str] = []
    for span in profile.transfers[:MOST_SPANS]:
        window = kernel.descriptors[span.descriptor].window
        name = kernel.windows[window].name if window >= 0 else span.source
        number = moved.setdefault(name, len(moved))
        times = (span.issue, span.start, span.end, span.done, span.size)
        transfers += [*times, span.cause.label, number]
    bursts = [(s.start, unit, s.end) for unit, spans in profile.bursts.items() for s in spans]
    is_same = profile.is_whole and run is not None and run.cycles == profile.cycles
    return KernelTime(
        name=kernel.name,
        cycles=profile.cycles,
        is_whole=profile.is_whole,
        is_same=is_same,
        steps=[t for s in profile.steps[:MOST_SPANS] for t in (s.start, s.end)],
        bursts=[t for start, unit, end in sorted(bursts)[:MOST_SPANS] for t in (unit, start, end)],
        waits=[t for s in profile.waits[:MOST_SPANS] for t in (s.start, s.end)],
        transfers=transfers,
        moved=list(moved),
        wait_causes=[_awaited(profile, wait) for wait in profile.waits[:MOST_SPANS]],
    )


def _awaited(profile: KernelProfile, wait: CycleSpan) -> str:
    """The cause that a wait is for: that of the last transfer it ends with."""
    causes = [profile.transfers[number].cause for number in wait.transfers]
    return (causes[-1] if causes else Cause.DMA_IN).label


class _Listing:
    """The rows of `KernelCode.code`."""

    def __init__(self, uses: Sequence[BundleUse]) -> None:
        self.rows: list[list[Json]] = []
        self._uses = uses
        self.texts: dict[str, int] = {}
        self.sources: dict[str, int] = {}
        self._bundles = 0

    def nodes(self, nodes: list[Node], depth: int) -> None:
        for node in nodes:
            match node:
                case Block():
                    for bundle in node.bundles:
                        self._bundle(bundle, depth)
                case Loop():
                    self._part(loop_head(node), node.body, depth)
                    self._close(depth)
                case If():
                    self._part(f"if s{node.condition}", node.then, depth)
                    if node.orelse:
                        self._part("else", node.orelse, depth)
                    self._close(depth)
                case While():
                    self._part(while_head(node), node.test, depth)
                    self._part(f"do s{node.condition}", node.body, depth)
                    self._close(depth)

    def _part(self, head: str, nodes: list[Node], depth: int) -> None:
        self.rows.append(["open", depth, head])
        self.nodes(nodes, depth + 1)

    def _close(self, depth: int) -> None:
        self.rows.append(["close", depth])

    def _bundle(self, bundle: Bundle, depth: int) -> None:
        self._bundles += 1
        if self._bundles > MOST_BUNDLES:
            if self._bundles == MOST_BUNDLES + 1:
                self.rows.append(["open", depth, f"more than {MOST_BUNDLES:,} bundles: cut here"])
            return
        use = self._uses[self._bundles - 1]
        worst = max(use.stalls, key=lambda cause: use.stalls[cause], default=None)
        label = "" if worst is None else worst.label
        row: list[Json] = ["b", depth, use.runs, sum(use.stalls.values()), label]
        for instr in bundle:
            text = format_operation(instr)
            number = self.texts.setdefault(text, len(self.texts))
            source = self.sources.setdefault(instr.source, len(self.sources))
            row.append([_SLOT_NUMBERS[instr.row.slot], number, source])
        self.rows.append(row)
