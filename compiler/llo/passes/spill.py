"""`spill`: after it, source order never needs more vregs or vmasks than the chip has.

Belady's rule in source order: when a register is needed, the value whose next use is furthest goes.
A value that is cheap to make again (constants, lane numbers, splats, loads of memory that the block
does not write) is made again; others go to spill slots, which nothing else can address.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

from compiler.diagnostics import KernelLimitError
from compiler.llo.ir import LloKernel
from compiler.llo.op_table import Code, OpInfo, op_table
from compiler.llo.passes.dead_code import live_ops
from compiler.llo.passes.register_names import RegisterNames
from compiler.llo.walk import blocks
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import ROWS, Instr

_REMATERIALIZED = frozenset({"vmovi", "vlane", "vsublane", "vsplat", "mmovi"})
_NEVER = 1 << 60
MAX_SPILL_SLOTS = 4096
"""What the encoding's spill slot field can name."""


def spill_vregs(kernel: LloKernel, chip: Chip) -> bool:
    """Insert spills and reloads into every block, in place; whether there were any to insert."""
    table = op_table(chip)
    names: RegisterNames | None = None
    first = kernel.spill_slots
    for block in blocks(kernel.body):
        slots = first
        for letter, limit in (("v", chip.vregs), ("m", chip.vmasks)):
            if not exceeds(block.ops, table, letter, limit):
                continue
            names = names or RegisterNames(kernel, table)
            limit = max(4, limit - 4)
            spiller = _Spiller(block.ops, table, letter, limit, kernel.variables, names, slots)
            block.ops = spiller.run()
            slots = spiller.slots
        kernel.spill_slots = max(kernel.spill_slots, slots)
    if kernel.spill_slots > MAX_SPILL_SLOTS:
        raise KernelLimitError(
            f"kernel {kernel.name}: a block needs {kernel.spill_slots} spill slots, "
            f"the encoding has {MAX_SPILL_SLOTS}"
        )
    return names is not None


def exceeds(ops: list[Instr], table: dict[str, OpInfo], letter: str, limit: int) -> bool:
    """Whether more than `limit` values of a register file live at once in source order."""
    made = [None for instr in ops if table[instr.row.name].defines == letter]
    return len(made) > limit and max_live(ops, table, letter) > limit


def max_live(ops: list[Instr], table: dict[str, OpInfo], letter: str) -> int:
    """The most values of a register file that live at once in source order."""
    live: set[int] = set()
    most = 0
    is_vector = letter == "v"
    for instr in reversed(ops):
        info = table[instr.row.name]
        operands = instr.operands
        if info.defines == letter:
            live.add(operands[0])
            if len(live) > most:
                most = len(live)
            live.discard(operands[0])
        for i in info.vregs if is_vector else info.masks:
            live.add(operands[i])
        if len(live) > most:
            most = len(live)
    return most


@dataclass
class _Spiller:
    """One register file's walk over one block."""

    ops: list[Instr]
    table: dict[str, OpInfo]
    letter: str
    limit: int
    variables: set[int]
    names: RegisterNames
    slots: int
    out: list[Instr] = field(default_factory=list)
    uses: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    held: dict[int, int] = field(default_factory=dict)  # value -> its current register name
    recipe: dict[int, Instr] = field(default_factory=dict)
    slot_of: dict[int, int] = field(default_factory=dict)

    def run(self) -> list[Instr]:
        """The block with spill code."""
        self._collect()
        spill_name, fill_name = (
            ("vst.spill", "vld.fill") if self.letter == "v" else ("mst.spill", "mld.fill")
        )
        self.spill_row, self.fill_row = ROWS[spill_name], ROWS[fill_name]
        for index, instr in enumerate(self.ops):
            info = self.table[instr.row.name]
            positions = info.vregs if self.letter == "v" else info.masks
            operands = list(instr.operands)
            wanted = {operands[i] for i in positions}
            for i in positions:
                operands[i] = self._in_register(operands[i], wanted, index, instr.source)
            for value in wanted:
                if self.uses[value][-1] <= index:
                    del self.held[value]
            if info.defines == self.letter:
                value = operands[0]
                self._make_room(frozenset(), index)
                if value in self.uses:
                    self.held[value] = value
                    if self._can_remake(instr, info):
                        self.recipe[value] = instr
            self.out.append(Instr(instr.row, tuple(operands), instr.source))
        written = {instr.operands[0] for instr in self.out if self._defines_sreg(instr)}
        return live_ops(self.out, self.table, written)  # remade values may never be read

    def _defines_sreg(self, instr: Instr) -> bool:
        return self.table[instr.row.name].defines == "s"

    def _collect(self) -> None:
        stored: set[int] = set()
        self.any_wait = False
        for index, instr in enumerate(self.ops):
            info = self.table[instr.row.name]
            for i in info.vregs if self.letter == "v" else info.masks:
                self.uses[instr.operands[i]].append(index)
            if info.code is Code.STORE:
                stored.add(instr.operands[info.window])
            self.any_wait |= info.code in (Code.DMA_WAIT, Code.DMA_START)
        self.stored = stored

    def _can_remake(self, instr: Instr, info: OpInfo) -> bool:
        if any(instr.operands[i] in self.variables for i in info.sregs):
            return False
        if instr.row.name in _REMATERIALIZED:
            return True
        if info.code is not Code.LOAD or info.row.is_indexed or self.any_wait:
            return False
        return instr.operands[info.window] not in self.stored

    def _in_register(self, value: int, wanted: set[int], index: int, source: str) -> int:
        register = self.held.get(value)
        if register is not None:
            return register
        self._make_room(wanted, index)
        register = self.held[value] = self.names.fresh(self.letter)
        recipe = self.recipe.get(value)
        if recipe is not None:
            self.out.append(Instr(recipe.row, (register, *recipe.operands[1:]), recipe.source))
        else:
            self.out.append(Instr(self.fill_row, (register, self.slot_of[value]), source))
        return register

    def _make_room(self, wanted: set[int] | frozenset[int], index: int) -> None:
        while len(self.held) >= self.limit:
            candidates = [value for value in self.held if value not in wanted]
            victim = max(candidates, key=lambda value: self._next_use(value, index))
            register = self.held.pop(victim)
            if victim not in self.recipe and victim not in self.slot_of:
                self.slot_of[victim] = self.slots
                self.out.append(Instr(self.spill_row, (self.slots, register)))
                self.slots += 1

    def _next_use(self, value: int, index: int) -> int:
        uses = self.uses[value]
        position = bisect_right(uses, index)
        return uses[position] if position < len(uses) else _NEVER
