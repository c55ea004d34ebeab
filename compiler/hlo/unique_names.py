"""Names that are unique in a module, chosen as XLA chooses them when it reads a text.

In a text a name needs to be unique within its computation only. XLA keeps the first holder's name
and gives later ones the next free number: ``p``, ``p.1``, ``p.2``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from compiler.hlo.ir import HloComputation

_NUMBERED = re.compile(r"(.+)\.(\d+)", re.DOTALL)
_ODD = re.compile(r"\.0|^__|^[^A-Za-z_]", re.MULTILINE)
_NOT_ALLOWED = re.compile(r"[^\w.\-]")


class UniqueNames:
    """Hands out each name once."""

    def __init__(self) -> None:
        self._used: dict[str, set[int]] = {}
        self._next: dict[str, int] = {}

    def take(self, name: str) -> str:
        """Return `name`, or its base with the first number that is free."""
        name = _sanitized(name)
        found = _NUMBERED.fullmatch(name)
        base, number = (found[1], int(found[2])) if found else (name, 0)
        number = self._register(base, number)
        if number == 0:
            return f"{base}.0" if found else base
        return f"{base}.{number}"

    def _register(self, base: str, number: int) -> int:
        used = self._used.setdefault(base, set())
        if number in used:
            number = self._next.get(base, 0)
            while number in used:
                number += 1
            self._next[base] = number
        used.add(number)
        return number


def _sanitized(name: str) -> str:
    name = _NOT_ALLOWED.sub("_", name)
    if not (name[0].isalpha() or name[0] == "_"):
        name = "_" + name[1:]
    if name.startswith("__") and not name.startswith("__xla_"):
        name = "a" + name[1:]
    return name


def make_names_unique(computations: Iterable[HloComputation]) -> None:
    """Rename instructions and computations, in order, whose name an earlier one has."""
    ordered = list(computations)
    instructions = [instr for computation in ordered for instr in computation]
    for holders in (ordered, instructions):
        names = [holder.name for holder in holders]
        if len(set(names)) == len(names) and not _ODD.search("\n".join(names)):
            continue
        unique = UniqueNames()
        for holder in holders:
            holder.name = unique.take(holder.name)
