"""Kernels by structure: identical fusions share one.

A kernel is lowered when the first instruction that needs it is met; `lower` can be asked again for
its LLO text, because finalizing a kernel consumes its LLO.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from compiler.analysis.async_flags import start_of
from compiler.analysis.kernel_work import kernel_work
from compiler.analysis.window_planner import PLANNED_KINDS, WindowPlanner
from compiler.backend.copy import lower_copy
from compiler.backend.exchange_halves import lower_done, lower_phase, lower_start
from compiler.backend.kernel import lower_fusion
from compiler.backend.kernel_calls import Rows
from compiler.backend.kernel_options import KernelTarget
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.keys import Key, computation_key
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.kernels.plan import KernelPlan
from compiler.llo.ir import LloKernel


@dataclass(frozen=True)
class KernelRequest:
    """A kernel to lower: the instruction it runs and which operand shares the result's buffer.

    `in_place` pairs (result leaf, operand leaf) that lie in the same HBM range; `rows` are where
    operands and results in VMEM start. `twin` names an equal kernel but for these rows. `lower` makes
    what is no fusion or copy; of all else, `structure` is equal for equal kernels but for rows and names.
    """

    name: str
    instr: HloInstruction
    in_place: tuple[tuple[int, int], ...] = ()
    rows: Rows = ()
    twin: str | None = None
    lower: Callable[[], LloKernel] | None = None
    structure: Key = ()


_LOWER = {
    "copy": lower_copy,
    "collective-permute-start": lower_start,
    "collective-permute-done": lower_done,
    "async-start": lower_phase,
    "async-update": lower_phase,
    "async-done": lower_phase,
}


class KernelLibrary:
    """The kernels of one program."""

    def __init__(self, target: KernelTarget) -> None:
        self.target = target
        self.requests: dict[str, KernelRequest] = {}
        self._names: dict[Key, str] = {}
        self._twins: dict[Key, str] = {}

    def kernel_for(
        self, instr: HloInstruction, in_place: tuple[tuple[int, int], ...] = (), rows: Rows = ()
    ) -> str:
        """The name of the kernel that runs `instr` (a fusion or copy)."""
        structure = self._key(instr, in_place)
        key = (*structure, rows)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self._free_name(instr.name)
            pattern = tuple(rows.index(row) for row in rows)  # which arrays are one
            twin = self._twins.setdefault((*structure, pattern), name)
            other = twin if twin != name else None
            self.requests[name] = KernelRequest(
                name, instr, in_place, rows, other, structure=structure
            )
        return name

    def loop_kernel(self, loop: HloInstruction, lower: Callable[[], LloKernel]) -> str:
        """The name of a kernel that runs a loop; it is nobody else's."""
        name = self._free_name(loop.name)
        self.requests[name] = KernelRequest(name, loop, lower=lower)
        return name

    def lower(self, name: str) -> LloKernel:
        """The LLO of a kernel, made anew."""
        request = self.requests[name]
        if request.lower is not None:
            return request.lower()
        lower = _LOWER.get(request.instr.opcode, lower_fusion)
        llo = lower(name, request.instr, request.in_place, request.rows, self.target)
        work = kernel_work(request.instr, request.in_place)
        llo.element_ops, llo.least_bytes = work.element_ops, work.least_bytes
        return llo

    def plan(self, name: str) -> KernelPlan | None:
        """The plan of a kernel of windows; None of any other."""
        instr, target = self.requests[name].instr, self.target
        if instr.opcode != "fusion" or instr.kind not in PLANNED_KINDS:
            return None
        return WindowPlanner(target.chip, target.options.precision).kernel(instr)

    def _key(self, instr: HloInstruction, in_place: tuple[tuple[int, int], ...]) -> Key:
        shapes = (tuple(o.shape for o in instr.operands), instr.shape)
        called = instr.attrs.get("calls")
        body = computation_key(called) if isinstance(called, HloComputation) else ()
        config = instr.backend_config  # the windows are in it
        pairs: object = None
        if OPCODES[instr.opcode].has(Trait.ASYNC):
            start = start_of(instr)
            pairs = start.attrs.get("source_target_pairs")
            whole = start.attrs.get("calls")
            body = computation_key(whole) if isinstance(whole, HloComputation) else ()
        return (instr.opcode, instr.kind, shapes, body, in_place, config, pairs)

    def _free_name(self, name: str) -> str:
        """The instruction's name in the letters of an assembly label, unique in the program."""
        base = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        candidate, number = base, 1
        while candidate in self.requests or candidate == "main":
            candidate, number = f"{base}.k{number}", number + 1
        return candidate
