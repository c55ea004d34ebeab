"""Runs passes over a module: times them, checks what they claim, dumps what they leave.

A pass expects valid HLO and leaves valid HLO; inside it, anything goes. It reports whether it
changed anything; hashes of every computation, taken before and after, expose one that lies.
It runs only where the facts hold that it requires (`facts`), which is looked up, not assumed.
The computations that a pass touched are verified after it, the whole module where the level
changes (before the first pass, at layout assignment, at scheduling). All this is for finding bugs of
passes (`tpu_sim.isa.verification`); otherwise the module is verified once, after the last pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from compiler.analysis.window_planner import WindowPlanner
from compiler.analysis.window_request import WindowRequests
from compiler.diagnostics import VerifyError
from compiler.hlo.call_graph import drop_unreachable
from compiler.hlo.ir import HloModule
from compiler.hlo.keys import computation_hash
from compiler.hlo.printer import print_module
from compiler.hlo.verifier import Level, verify, verify_computation
from compiler.pass_pipeline import verified, write_dump
from compiler.passes.context import PassContext
from compiler.passes.facts import Fact, breaking, contract_of, require
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.torus import Slice


class Pass(Protocol):
    """One HLO to HLO transformation; `level` is what the module satisfies afterwards, when the
    pass raises it."""

    @property
    def name(self) -> str:
        """The kebab-case name, as on the command line."""

    @property
    def level(self) -> Level | None:
        """The verifier level this pass establishes, or None when it keeps the present one."""

    def run(self, module: HloModule, context: PassContext) -> bool:
        """Transform the module; return whether anything changed."""


@dataclass(frozen=True)
class FunctionPass:
    """A pass made of a name and a function."""

    name: str
    function: Callable[[HloModule, PassContext], bool]
    level: Level | None = None

    def run(self, module: HloModule, context: PassContext) -> bool:
        """Call the function."""
        return self.function(module, context)


@dataclass(frozen=True)
class PassTiming:
    """What one pass did: seconds, whether it changed the module, counts, remarks and fallbacks."""

    name: str
    seconds: float
    is_changed: bool
    instruction_count: int
    counts: dict[str, int]
    remarks: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()


@dataclass
class PassManager:
    """Runs a sequence of passes. `progress` is told each pass's name before it runs.

    `precision` is that of f32 dots that state none; windows depend on it. `windows` are those asked
    for by name, `cores` is the slice that runs the program.
    """

    passes: Sequence[Pass]
    chip: Chip
    dump_dir: Path | None = None
    progress: Callable[[str], None] | None = None
    is_verifying: bool = True
    level: Level = Level.PARSED
    precision: str = "default"
    windows: WindowRequests = field(default_factory=WindowRequests)
    planner: WindowPlanner | None = None
    cores: Slice | None = None
    passes_before: int = 0
    """How many have run on the module: dumps count on."""

    def run(self, module: HloModule) -> list[PassTiming]:
        """Run all passes in order; raises VerifyError when one leaves invalid HLO."""
        timings: list[PassTiming] = []
        if self.passes:
            drop_unreachable(module)
        hashes = _hashes(module) if self.is_verifying else {}
        self.held: frozenset[Fact] = frozenset()
        if not self.passes_before:
            self._dump(module, 0, "input")
        planner = self.planner or WindowPlanner(self.chip, self.precision)
        for number, item in enumerate(self.passes, start=self.passes_before + 1):
            if self.progress is not None:
                self.progress(item.name)
            require(module, item.name, self.held)
            context = PassContext(
                self.chip, shared_planner=planner, windows=self.windows, cores=self.cores
            )
            start = time.perf_counter()
            computations = len(module.computations)
            is_changed = item.run(module, context)
            if is_changed or len(module.computations) != computations:
                drop_unreachable(module)  # what a rewrite left behind is no later pass's doing
            seconds = time.perf_counter() - start
            contract = contract_of(item.name)
            self.held |= {*contract.requires, *contract.establishes}
            self.held -= {*contract.ends}
            hashes = self._check(module, item, is_changed=is_changed, before=hashes)
            timings.append(
                PassTiming(
                    item.name,
                    seconds,
                    is_changed,
                    module.instruction_count(),
                    dict(context.counts),
                    tuple(context.remarks),
                    tuple(context.fallbacks),
                )
            )
            remarks = [*context.remarks, *context.fallbacks]
            self._dump(module, number, f"after_{item.name}", remarks)
        if not self.is_verifying and self.passes:
            verified(lambda: verify(module, self.level), "the last pass")
        return timings

    def _check(
        self, module: HloModule, item: Pass, *, is_changed: bool, before: dict[str, int]
    ) -> dict[str, int]:
        """Expose a lie about `changed`; verify what was touched. Returns the new hashes."""
        if item.level is not None:
            self.level = item.level
        if not self.is_verifying:
            return before
        after = _hashes(module) if is_changed or item.level is None else before
        touched = [n for n, value in after.items() if before.get(n) != value]
        has_changed = bool(touched) or before.keys() != after.keys()
        assert is_changed or not has_changed, (
            f"pass '{item.name}' says it changed nothing, but changed {sorted(touched)[:4]}"
        )
        assert has_changed or not is_changed, (
            f"pass '{item.name}' says it changed the module, but did not"
        )
        verified(lambda: self._verify(module, item, touched), f"pass '{item.name}'")
        return after

    def _verify(self, module: HloModule, item: Pass, touched: list[str]) -> None:
        self._verify_facts(module, item, touched)
        if item.level is not None:
            verify(module, self.level)
            return
        for name in touched:
            if name:
                verify_computation(module.computations[name], self.level)

    def _verify_facts(self, module: HloModule, item: Pass, touched: list[str]) -> None:
        """What the pass establishes holds everywhere, what held before holds in what it touched."""
        changed = [module.computations[name] for name in touched if name]
        broken = breaking(module, self.held, changed)
        broken = broken or breaking(module, contract_of(item.name).establishes)
        if broken is not None:
            fact, instr = broken
            raise VerifyError(f"{fact.name} does not hold: %{instr.name} is or has {fact.words}")

    def _dump(
        self, module: HloModule, number: int, label: str, remarks: Sequence[str] = ()
    ) -> None:
        """Write the module, and beside it what the pass had to say."""
        if self.dump_dir is None:
            return
        write_dump(self.dump_dir, number, label, "hlo", print_module(module), remarks)


def _hashes(module: HloModule) -> dict[str, int]:
    """The hash of every computation by name, and under the empty name that of the header."""
    found = {name: computation_hash(c) for name, c in module.computations.items()}
    found[""] = hash((tuple(module.attrs.items()), module.entry_name))
    return found
