"""Runs LLO passes over a kernel: checks what they claim, dumps what they leave.

The form is that of `compiler.passes.pass_manager`: a pass expects valid LLO and leaves valid LLO, runs
only where the facts hold that it requires, and says whether it changed anything. Where everything is
verified (`tpu_sim.isa.verification`, as in the tests), a copy from before exposes one that lies, and
the LLO and the facts are verified after every pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler.diagnostics import CompileError, VerifyError
from compiler.llo.ir import LloBlock, LloKernel, LloNode
from compiler.llo.passes.facts import LloFact
from compiler.llo.passes.pipeline import (
    LLO_MUST_PRECEDE,
    LLO_PASSES,
    LloPass,
)
from compiler.llo.printer import print_llo
from compiler.llo.verifier import verify_llo
from compiler.llo.walk import control_reads
from compiler.pass_pipeline import check_order, find_passes, verified, write_dump
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import Loop, bodies, walk

Form = tuple[object, ...]


def llo_passes(names: Sequence[str]) -> list[LloPass]:
    """The passes of those names in an order that is allowed; else CompileError says why not."""
    found = find_passes(names, LLO_PASSES)
    check_order(names, LLO_MUST_PRECEDE)
    return found


@dataclass(frozen=True)
class LloPassManager:
    """Runs passes over kernels. `dump_dir` gets a folder for each kernel.

    What passes leave is verified if `is_verifying`, what comes in too.
    """

    chip: Chip
    passes: Sequence[LloPass]
    is_verifying: bool = True
    dump_dir: Path | None = None

    def run(self, kernel: LloKernel) -> frozenset[LloFact]:
        """Run all passes in order; returns the facts that hold then.

        Raises VerifyError when a pass leaves invalid LLO.
        """
        held: frozenset[LloFact] = frozenset()
        self._verify(kernel, held, "lowering")
        self._dump(kernel, 0, "lowered")
        for number, item in enumerate(self.passes, start=1):
            require(kernel, self.chip, item.name, item.requires, held)
            before = _form(kernel) if self.is_verifying else ()
            is_changed = item.run(kernel, self.chip)
            held = (held | {*item.requires, *item.establishes}) - {*item.ends}
            if self.is_verifying:
                has_changed = before != _form(kernel)
                says, did = ("", "did not") if is_changed else ("not ", "did")
                assert is_changed == has_changed, (
                    f"pass '{item.name}' says it changed kernel {kernel.name} {says}, but {did}"
                )
                self._verify(kernel, held, f"pass '{item.name}'")
            if is_changed:
                self._dump(kernel, number, f"after_{item.name}")
        return held

    def _verify(self, kernel: LloKernel, held: Iterable[LloFact], after: str) -> None:
        if self.is_verifying:
            verified(lambda: _check(kernel, self.chip, held), after)

    def _dump(self, kernel: LloKernel, number: int, label: str) -> None:
        if self.dump_dir is not None:
            write_dump(self.dump_dir / kernel.name, number, label, "llo", print_llo(kernel))


def require(
    kernel: LloKernel, chip: Chip, name: str, facts: Iterable[LloFact], held: Iterable[LloFact]
) -> None:
    """Raise CompileError unless all facts hold that `name` requires; `held` are not looked up."""
    for fact in facts:
        why = "" if fact in held else fact.broken(kernel, chip)
        if why:
            source = next(p.name for p in LLO_PASSES.values() if fact in p.establishes)
            raise CompileError(
                f"kernel {kernel.name}: '{name}' requires {fact.name}, but {why}; "
                f"run '{source}' before it"
            )


def _check(kernel: LloKernel, chip: Chip, held: Iterable[LloFact]) -> None:
    verify_llo(kernel)
    for fact in held:
        why = fact.broken(kernel, chip)
        if why:
            raise VerifyError(f"kernel {kernel.name}: {fact.name} does not hold: {why}")


def _form(kernel: LloKernel) -> Form:
    """Equal for equal kernels, and of its own: what passes change in place is copied."""
    nodes: list[object] = []
    for node in walk(kernel.body):
        if isinstance(node, LloBlock):
            nodes.append((node.name, tuple(node.ops)))
        elif isinstance(node, Loop):
            nodes.append((node.index, node.trip, node.trip_sreg, len(node.body)))
        else:
            held: tuple[list[LloNode], ...] = bodies(node)
            nodes.append((type(node), control_reads(node), *(len(b) for b in held)))
    return (tuple(nodes), kernel.spill_slots, dict(kernel.registers), set(kernel.variables))
