"""What pipelines of passes share, those of HLO and those of LLO: names, order, dumps, errors."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from compiler.diagnostics import CompileError

PassType = TypeVar("PassType")
Edge = tuple[str, str, str]
"""A pass, a pass that must come after it, and the reason."""


def check_order(names: Sequence[str], edges: Iterable[Edge]) -> None:
    """Raise CompileError when a sequence of passes breaks an edge.

    A pass that must come before another must not come for the first time after it.
    """
    first = {name: names.index(name) for name in names}
    for before, after, reason in edges:
        if before in first and after in first and first[before] > first[after]:
            raise CompileError(f"pass '{before}' must run before '{after}': {reason}")


def find_passes(names: Sequence[str], passes: Mapping[str, PassType]) -> list[PassType]:
    """The passes of those names; raises CompileError for an unknown one."""
    for name in names:
        if name not in passes:
            near = difflib.get_close_matches(name, passes, 3)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise CompileError(f"there is no pass '{name}'; {hint}`tpuc passes` lists them")
    return [passes[name] for name in names]


def verified(check: Callable[[], None], after: str) -> None:
    """Run a check; its errors say after what the IR was invalid."""
    try:
        check()
    except CompileError as error:
        message = f"{error.message}\n  while verifying after {after}"
        raise type(error)(message, error.span) from error


def write_dump(
    folder: Path, number: int, label: str, suffix: str, text: str, remarks: Sequence[str] = ()
) -> None:
    """Write ``NN.label.suffix`` to a folder, and beside it what the pass had to say."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number:02d}.{label}.{suffix}").write_text(text)
    if remarks:
        (folder / f"{number:02d}.{label}.remarks.txt").write_text("\n".join(remarks) + "\n")
