"""Where a NaN or an infinity comes from: the call that makes one of good operands, and what of it.

A kernel may hold NaN that nobody reads, in padding or behind a select. What counts is in the result of
a call, as arrays say it. Then the call's HLO is evaluated on the operands it had, and whoever makes a
bad value of good ones, on the way to the result, is the origin; the bundle is the first one for that
instruction which writes a bad value into a vector register.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compiler.diagnostics import CompileError
from compiler.hlo.evaluator.context import Value
from compiler.hlo.ir import HloInstruction
from compiler.hlo.origins import origins_of
from compiler.hlo.printer import print_instruction
from tpu_sim.isa.instruction import Instr
from tpu_sim.isa.program import Block
from tpuc.debugger.evaluation import Blame, blame, shaped
from tpuc.debugger.target import Target, count_of
from tpuc.debugger.values import HostArray, is_bad

_MOST_BUNDLES = 4_000
"""So many are executed one by one in search of the one that made a bad value."""


@dataclass(frozen=True)
class Bad:
    """A bad value's origin: the place behind the bundle that wrote it, and a text."""

    cycle: int
    note: str


class BadValues:
    """See above. `first_place` goes to the first bundle of a call, by the cycle at which it began."""

    def __init__(self, target: Target, first_place: Callable[[int, int], int]) -> None:
        self._target = target
        self._first_place = first_place

    def born(self, core: int, site: str, kind: str, call_start: int, end: int) -> Bad | None:
        """The origin of bad values in what a call made, unless it was given some.

        The core stands at or behind the call's end, at the border of cycle `end`, and does so again.
        """
        target, instr = self._target, self._target.map.controlled.get(site)
        if instr is None or target.values is None or not self._has_bad(core, instr, kind):
            return None
        begin = self._first_place(core, call_start)
        operands = [self._arrays(core, operand) for operand in instr.operands]
        found: Bad | None = None
        if not any(bool(is_bad(a, kind).any()) for row in operands for a in row):
            values = [
                shaped(o.shape, list(row)) for o, row in zip(instr.operands, operands, strict=True)
            ]
            found = self._origin(core, site, instr, values, kind, begin, end)
        target.stepper.go_to(end, core)
        return found

    def _has_bad(self, core: int, instr: HloInstruction, kind: str) -> bool:
        return any(bool(is_bad(a, kind).any()) for a in self._arrays(core, instr))

    def _arrays(self, core: int, instr: HloInstruction) -> list[HostArray]:
        target = self._target
        assert target.values is not None
        if instr.opcode == "constant" and not target.values.buffers(instr):
            return [np.asarray(instr.literal)]
        state, hbm = target.stepper.state(core), target.hbms[core]
        return [target.values.read(buffer, state, hbm) for buffer in target.values.buffers(instr)]

    def _origin(
        self,
        core: int,
        site: str,
        instr: HloInstruction,
        operands: list[Value],
        kind: str,
        begin: int,
        end: int,
    ) -> Bad:
        what = "NaN" if kind == "nan" else "infinity"
        try:
            found = blame(instr, operands, kind, self._target.precision)
        except CompileError as error:  # what one chip cannot evaluate
            return Bad(end, f"first {what} in %{instr.name} ({error.message})")
        if found is None:
            note = f"first {what} in %{instr.name}; evaluating its HLO gives none"
            return Bad(end, f"{note}: it is of the kernel's own arithmetic")
        cycle = self._writer(core, site, found, kind, begin, end)
        return Bad(cycle, describe(what, instr, found, is_found=cycle != begin))

    def _writer(self, core: int, site: str, found: Blame, kind: str, begin: int, end: int) -> int:
        """The cycle behind the bundle that wrote the bad value, else that of the call's first bundle."""
        stepper, target = self._target.stepper, self._target
        source = target.map.source_at(site, found.instr.name)
        body = target.map.body_of_site(site)
        nodes = stepper.table.bodies[body].nodes
        stepper.go_to(begin, core)
        room = _MOST_BUNDLES
        while stepper.now(core) < end and room > 0 and not stepper.is_done(core):
            at = stepper.now(core)
            stepper.advance(core, until=at)
            here, node, _ = stepper.place(core)
            block = nodes[node - 1].source if here == body and node else None
            if not isinstance(block, Block) or not _computes(block, source):
                continue
            if found.loop is not None and not self._is_iteration(core, found.iteration):
                continue
            after = stepper.now(core)
            stepper.go_to(at, core)
            while stepper.now(core) < after and not stepper.is_done(core):
                offset = stepper.place(core)[2]
                stepper.step_bundle(core)
                room -= 1
                if any(
                    self._is_bad(core, i, kind) for i in block.bundles[offset] if i.source == source
                ):
                    return stepper.now(core)
        return begin

    def _is_iteration(self, core: int, wanted: int | None) -> bool:
        loops = self._target.loops(core)
        return not loops or count_of(self._target.stepper.words(core), loops[0]) == wanted

    def _is_bad(self, core: int, instr: Instr, kind: str) -> bool:
        row = instr.row
        if row.write is None or row.write.register_class != "v":
            return False
        register = self._target.stepper.state(core).vregs.get(instr.operands[0])
        return register is not None and bool(is_bad(register.view(np.float32), kind).any())


def _computes(block: Block, source: str) -> bool:
    return any(instr.source == source for bundle in block.bundles for instr in bundle)


def describe(what: str, site: HloInstruction, found: Blame, *, is_found: bool) -> str:
    """Who made a bad value: the instruction, where it runs, its source line."""
    instr = found.instr
    where = "" if instr is site else f" in %{site.name}"
    when = ""
    if found.loop is not None:
        when = f", iteration {found.iteration} of %{found.loop.name}"
    lines = [f"first {what} made by %{instr.name}{where}{when}", f"  {print_instruction(instr)}"]
    lines += [f"  from {o.op_name} {o.place}".rstrip() for o in origins_of(instr)]
    if not is_found:
        lines.append("  stopped where the kernel begins: no single bundle was found for it")
    return "\n".join(lines)
