"""What the code of one native function may name: context words, memories, faults, borders.

The function of a body takes the context pointer, goes on at the node that stands in the context, and
returns an i32: the number of the `FaultSite` that ended the run, or why else it returns
(`tpu_sim.jit.calls`). Between nodes nothing lies on the native stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import DmaDescriptor, Kernel
from tpu_sim.jit.calls import PAUSED, WAITS
from tpu_sim.jit.commands import Commands
from tpu_sim.jit.constant_table import ConstantTable
from tpu_sim.jit.context import OWN_CARRY, OWN_TRANSPOSE, OWN_TRANSPOSE_INDEX, Word
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.hbm_windows import InPlace, WindowPieces
from tpu_sim.jit.outline import ComponentLibrary
from tpu_sim.jit.task_table import TaskTable
from tpu_sim.jit.translated import FaultKind, FaultSite

_MEMORIES = {
    "vmem": Word.VMEM, "hbm": Word.HBM, "smem": Word.SMEM, "carry": Word.CARRY,
    "results": Word.RESULTS, "weights": Word.WEIGHTS, "transpose": Word.TRANSPOSE,
    "scratch": Word.SCRATCH, "tasks": Word.TASKS,
}  # fmt: skip


@dataclass
class ModuleScope:
    """What the functions of one module share.

    `values` says whether vector data and memories are there, beside the clock. `ring_entries`: per
    body, vregs in the result ring of each MXU, a power of two.
    """

    chip: Chip
    smem_words: int
    values: bool
    ring_entries: dict[str, int]
    transpose_blocks: int
    threads: int
    components: ComponentLibrary
    emit: Callable[[str], None]
    """Adds functions to the module's text; what they call comes before them, but for components."""
    sites: list[FaultSite] = field(default_factory=list)
    dma_names: dict[tuple[DmaDescriptor, WindowPieces | None], str] = field(default_factory=dict)
    carry_slots: int = 0
    task_bytes: int = 0


class FunctionScope:
    """Names and helpers of one native function under construction."""

    def __init__(self, module: ModuleScope, kernel: Kernel, function: str) -> None:
        self.module = module
        self.chip = module.chip
        self.kernel = kernel
        self.function = function
        self.emitter = FunctionEmitter()
        self.place = ""
        """Text of the current block and bundle, for faults."""
        self.in_place: dict[int, InPlace] = {}
        """Windows that are read in place (`tpu_sim.jit.hbm_windows`)."""
        self.carried_slots: frozenset[int] = frozenset()
        """Spill slots that carry values between blocks; they lie in the kernel's last window."""
        self.core = "%ctx"
        """Pointer to the words of the core's state."""
        self.entries: dict[int, str] = {}
        """Labels to go on at, for nodes that stand in another function."""
        self._fault_edges: list[tuple[str, str]] = []
        self._pause_edges: list[tuple[str, int, int]] = []
        self._table = TaskTable(self.emitter)
        self._constants = ConstantTable(f"{function}_table")
        self.commands = Commands(self.emitter, self._constants)
        """What runs components and MXU operations."""

    def constant(self, words: Iterable[int], typecode: str) -> str:
        """Pointer to a constant list of words, of `array`'s `typecode`."""
        offset = self._constants.add(words, typecode)
        return self.emitter.offset(f"@{self._constants.name}", offset)

    # context words

    def word_pointer(self, word: int) -> str:
        """Pointer to a context word."""
        return self.emitter.offset("%ctx", int(word) * 8)

    def load_word(self, word: int) -> str:
        """A context word as i64."""
        return self.emitter.load("i64", self.word_pointer(word), 8)

    def store_word(self, word: int, value: str) -> None:
        """Set a context word."""
        self.emitter.store("i64", value, self.word_pointer(word), 8)

    def clear(self, base: str, offset_bytes: int, size_bytes: int) -> None:
        """Zero a range of memory."""
        pointer = self.emitter.offset(base, offset_bytes)
        self.emitter.do(
            f"call void @llvm.memset.p0.i64(ptr {pointer}, i8 0, i64 {size_bytes}, i1 false)"
        )

    def task_table(self) -> TaskTable:
        """The function's task table."""
        return self._table

    # scalar registers

    def sreg_pointer(self, number: int) -> str:
        """Where an sreg lies."""
        return self.emitter.offset(self.core, int(Word.SREGS) * 8 + number * 4)

    def read_sreg(self, number: int) -> str:
        """The value of an sreg as i32; s0 reads 0."""
        return "0" if number == 0 else self.emitter.load("i32", self.sreg_pointer(number), 4)

    def write_sreg(self, number: int, value: str) -> None:
        """Set an sreg."""
        self.emitter.store("i32", value, self.sreg_pointer(number), 4)

    # borders of nodes

    def pause_if(self, condition: str, node: int) -> None:
        """Return if the ``i1`` holds, to go on at `node` later; else go on there now."""
        self._return_if(condition, node, PAUSED, label_of(node))

    def wait_if(self, condition: str, node: int) -> None:
        """Return if the ``i1`` holds, to come back to `node`, which waits for another core."""
        following = self.emitter.new_label()
        self._return_if(condition, node, WAITS, following)
        self.emitter.place(following)

    def _return_if(self, condition: str, node: int, status: int, following: str) -> None:
        self._pause_edges.append((self.emitter.block, node, status))
        self.emitter.branch(condition, "pause", following)

    # faults

    def fault_if(self, condition: str, kind: FaultKind, message: str) -> None:
        """End the run here if the ``i1`` holds."""
        site = self._site(kind, message)
        self._leave_if(condition, str(site))

    def fault_on_code(self, code: str, kinds: list[FaultKind], message: str) -> None:
        """End the run if an i32 is not 0; code 1 is the first of `kinds`, and so on."""
        sites = [self._site(kind, message) for kind in kinds]
        site = self.emitter.value(f"add i32 {code}, {sites[0] - 1}")
        self._leave_if(self._is_set(code), site)

    def fault_on(self, site: str) -> None:
        """End the run at a callee's fault site unless that is 0."""
        self._leave_if(self._is_set(site), site)

    def _is_set(self, number: str) -> str:
        return self.emitter.value(f"icmp ne i32 {number}, 0")

    def _site(self, kind: FaultKind, message: str) -> int:
        self.module.sites.append(FaultSite(kind, message, self.kernel.name, self.place))
        return len(self.module.sites)

    def _leave_if(self, condition: str, site: str) -> None:
        following = self.emitter.new_label()
        self._fault_edges.append((self.emitter.block, site))
        self.emitter.branch(condition, "fault", following)
        self.emitter.place(following)

    def define(self, resumes: Iterable[int]) -> str:
        """The finished text of a function that may be entered at the nodes `resumes`."""
        tasks = max(self._table.peak_bytes, self.commands.task_bytes)
        self.module.task_bytes = max(self.module.task_bytes, tasks)
        return self._text("ptr %ctx", _memory_pointers(_MEMORIES), resumes)

    def _text(self, parameters: str, head: list[str], resumes: Iterable[int]) -> str:
        """The function, which first finds the node to go on with."""
        e = FunctionEmitter("r")
        node = e.load("i64", e.offset(self.core, int(Word.NODE) * 8), 8)
        labels = {number: self.entries.get(number, label_of(number)) for number in resumes}
        cases = " ".join(
            f"i64 {number}, label %{label}" for number, label in sorted(labels.items())
        )
        e.do(f"switch i64 {node}, label %{labels[min(labels)]} [ {cases} ]")
        head = ["entry:", *head, *self.commands.entry_lines(), *e.lines]
        lines = [*head, *self.emitter.lines, *self._fault_block(), *self._pause_block()]
        first = f"define i32 @{self.function}({parameters}) noinline #0 {{"
        return self._constants.define() + "\n".join([first, *lines, "}", ""])

    def _fault_block(self) -> list[str]:
        if not self._fault_edges:
            return []
        edges = ", ".join(f"[{site}, %{block}]" for block, site in self._fault_edges)
        return ["fault:", f" %fault_site = phi i32 {edges}", " ret i32 %fault_site"]

    def _pause_block(self) -> list[str]:
        if not self._pause_edges:
            return []
        nodes = ", ".join(f"[{node}, %{block}]" for block, node, _ in self._pause_edges)
        statuses = ", ".join(f"[{status}, %{block}]" for block, _, status in self._pause_edges)
        e = FunctionEmitter("p")
        e.place("pause")
        e.do(f"%pause_node = phi i64 {nodes}")
        e.do(f"%pause_status = phi i32 {statuses}")
        e.store("i64", "%pause_node", e.offset(self.core, int(Word.NODE) * 8), 8)
        e.do("ret i32 %pause_status")
        return e.lines


def label_of(node: int) -> str:
    """The label of a node in the function of its body."""
    return f"N{node}"


def _memory_pointers(memories: dict[str, Word]) -> list[str]:
    lines = []
    for name, word in memories.items():
        lines.append(f" %{name}_at = getelementptr i64, ptr %ctx, i64 {int(word)}")
        lines.append(f" %{name} = load ptr, ptr %{name}_at")
    return lines


class LoopScope(FunctionScope):
    """A loop that threads may share, as a function ``(ctx, core, scratch)`` of its own.

    `core` has the words of the state up to `Word.FLAG_DONE`: the context itself, or what a range of
    iterations has for itself (`tpu_sim.jit.loop_ranges`). It starts no tasks.
    """

    def __init__(self, outer: FunctionScope, function: str) -> None:
        super().__init__(replace(outer.module, threads=1), outer.kernel, function)
        self.in_place = outer.in_place
        self.carried_slots = outer.carried_slots
        self.core = "%core"
        self._outer = outer.module

    def word_pointer(self, word: int) -> str:
        """Pointer to a word of the context, of `core`, or of the thread's own."""
        if word == Word.TRANSPOSE_INDEX:
            return self.emitter.offset("%scratch", OWN_TRANSPOSE_INDEX)
        base = "%core" if word < Word.FLAG_DONE else "%ctx"
        return self.emitter.offset(base, int(word) * 8)

    def define(self, resumes: Iterable[int]) -> str:
        """The finished text; see `FunctionScope.define`."""
        self._outer.carry_slots = max(self._outer.carry_slots, self.module.carry_slots)
        e = FunctionEmitter("h")
        for name, offset in (("carry", OWN_CARRY), ("transpose", OWN_TRANSPOSE)):
            e.do(f"%{name} = load ptr, ptr {e.offset('%scratch', offset)}")
        memories = {name: _MEMORIES[name] for name in ("vmem", "hbm", "smem")}
        head = [*_memory_pointers(memories), *e.lines]
        return self._text("ptr %ctx, ptr %core, ptr %scratch", head, resumes)
