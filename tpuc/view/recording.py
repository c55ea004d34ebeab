"""A compilation that is watched: the module's text after each pass that changed it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler.hlo.ir import HloModule
from compiler.hlo.keys import computation_hash
from compiler.hlo.printer import PrintOptions, print_module
from compiler.passes.pass_manager import PassTiming
from compiler.passes.pipeline import PASSES
from tpu_sim.isa.origins import Origin
from tpuc.pass_tables import pass_rows
from tpuc.view.document import Graph, Json, Passes, PassStep
from tpuc.view.graphs import graph_of

TEXT = PrintOptions(metadata=False, large_constant_elements=64)
"""How passes are shown. Origins are in the graphs; what a large constant holds is in the model."""


@dataclass
class Recorder:
    """Keeps what a compilation says of itself; `watch` and `progress` are given to it."""

    module: HloModule | None = None
    graph: Graph | None = None
    origins: dict[Origin, int] = field(default_factory=dict)
    _texts: list[list[str]] = field(default_factory=list)
    _hash: int = 0

    def watch(self, module: HloModule) -> None:
        """The module as it was parsed."""
        self.module = module
        self.graph = graph_of(module, self.number)

    def progress(self, what: str) -> None:
        """Called before each pass (and before other stages, which change no HLO)."""
        if what in PASSES:
            self._texts.append(self._text())

    def number(self, origin: Origin) -> int:
        """The number of an origin in this document."""
        return self.origins.setdefault(origin, len(self.origins))

    def passes(self, timings: Sequence[PassTiming]) -> Passes:
        """What each pass made of the module. Where kernels broke a limit of the machine, some ran again
        unseen: the last of these shows what all of them did."""
        assert self.module is not None
        texts = [*self._texts[1:], self._text()]
        texts = texts[: len(timings)]
        start = self._texts[0] if self._texts else self._text()
        missing = len(timings) - len(texts)
        last = texts.pop() if missing > 0 and texts else None
        texts += [texts[-1] if texts else start] * (missing if last is not None else 0)
        texts += [last] if last is not None else []
        what = {row.name: row.what for row in pass_rows()}
        steps, before = [], start
        for timing, text in zip(timings, texts, strict=True):
            edits = [] if text is before else _edits(before, text)
            steps.append(_step(timing, what.get(timing.name, ""), edits))
            before = text
        return Passes(start, steps)

    def _text(self) -> list[str]:
        """The lines of the module now; the same list as before if it is as it was."""
        assert self.module is not None
        names = tuple((n, computation_hash(c)) for n, c in self.module.computations.items())
        now = hash((names, tuple(map(str, self.module.attrs.items()))))
        if self._texts and now == self._hash:
            return self._texts[-1]
        self._hash = now
        return print_module(self.module, TEXT).splitlines()


def _step(timing: PassTiming, what: str, edits: list[list[Json]]) -> PassStep:
    return PassStep(
        name=timing.name,
        what=what,
        milliseconds=round(1000 * timing.seconds, 3),
        changed=timing.is_changed,
        instructions=timing.instruction_count,
        counts={name: count for name, count in timing.counts.items() if count},
        remarks=[*timing.remarks, *timing.fallbacks],
        edits=edits,
    )


def _edits(before: list[str], after: list[str]) -> list[list[Json]]:
    """Lines that go and come: (first line, how many go, those that come)."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return [
        [i1, i2 - i1, list(after[j1:j2])]
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    ]
