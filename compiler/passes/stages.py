"""A program that talks to the host, in steps (`compiler.passes.host_transfers`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.hlo.shape import ArrayShape

Named = tuple[str, ArrayShape]
"""A value's name, and its shape."""


@dataclass(frozen=True)
class Stage:
    """A program of its own: `text` is HLO, whose result is a tuple; values have the names of the whole's."""

    text: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class HostTransfer:
    """The value goes to the host (`is_send`) on a channel, or comes from it.

    Of several devices each one makes the transfer for itself, or `device` makes it for all.
    """

    channel: int
    value: str
    shape: ArrayShape
    is_send: bool
    device: int | None = None


@dataclass(frozen=True)
class StageLoop:
    """A loop with transfers: `body` makes the next state of a state while the one result of `condition`
    holds. The state begins as `operands`; `results` names leaves of the last one, by their numbers."""

    condition: StagedProgram
    body: StagedProgram
    operands: tuple[str, ...]
    results: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Branch:
    """A conditional with transfers: one of the programs runs, on operands of its own. `index` is its number,
    out of range the last one's, or a truth value, which is true for the first."""

    index: str
    branches: tuple[StagedProgram, ...]
    operands: tuple[tuple[str, ...], ...]
    results: tuple[tuple[str, int], ...]


Step = Stage | HostTransfer | StageLoop | Branch


@dataclass(frozen=True)
class StagedProgram:
    """`arguments` and `results` name the whole program's values and give their shapes; None is a token."""

    name: str
    arguments: tuple[Named | None, ...]
    results: tuple[Named | None, ...]
    steps: tuple[Step, ...]

    def stages(self) -> Iterator[Stage]:
        """All stages, those of loops and branches included."""
        for step in self.steps:
            if isinstance(step, Stage):
                yield step
            elif isinstance(step, StageLoop):
                yield from step.condition.stages()
                yield from step.body.stages()
            elif isinstance(step, Branch):
                for branch in step.branches:
                    yield from branch.stages()
