"""A program that talks to the host, in stages (`compiler.passes.host_transfers`)."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.hlo.shape import ArrayShape


@dataclass(frozen=True)
class Stage:
    """A program of its own: `text` is HLO, whose result is a tuple; values have the names of the whole's."""

    text: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class HostTransfer:
    """The value goes to the host (`is_send`) on a channel, or comes from it."""

    channel: int
    value: str
    shape: ArrayShape
    is_send: bool


@dataclass(frozen=True)
class StagedProgram:
    """`arguments` and `results` name the whole program's values and give their shapes; None is a token."""

    name: str
    arguments: tuple[tuple[str, ArrayShape] | None, ...]
    results: tuple[tuple[str, ArrayShape] | None, ...]
    steps: tuple[Stage | HostTransfer, ...]
