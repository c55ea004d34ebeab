"""``origin_recovery_table={...}`` in XLA's form: which value stands for which, and how to compute it.

Each entry names two values of the program before it was optimised and may hold, in quotes, a whole
module that computes the first from the second.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from compiler.hlo.escapes import unquote

_VALUE = r'\{\s*("(?:[^"\\]|\\.)*")\s*(\{[\d,\s]*\})?\s*\}'
_ENTRY = re.compile(rf'\s*{_VALUE}\s*:\s*{_VALUE}\s*(?:,\s*("(?:[^"\\]|\\.)*"))?', re.DOTALL)


def canonical_recovery_table(text: str, reprint: Callable[[str], str]) -> str:
    """XLA's text of the table, one entry to a line; `reprint` is XLA's text of a module.

    Raises ValueError when the table is malformed.
    """
    entries: dict[tuple[str, tuple[int, ...]], str] = {}
    position, end = 1, len(text) - 1
    while text[position:end].strip():
        found = _ENTRY.match(text, position, end)
        if found is None:
            raise ValueError(
                f"want {{value}} : {{value}}, found {text[position:end].strip()[:40]!r}"
            )
        old, new = _value(found[1], found[2]), _value(found[3], found[4])
        module = "" if found[5] is None else _module(reprint(unquote(found[5])))
        index = tuple(int(n) for n in re.findall(r"\d+", found[2] or ""))
        entries[unquote(found[1]), index] = f"  {{{old}}} : {{{new}}}{module}\n"
        position = found.end()
    return "{\n" + "".join(entries[key] for key in sorted(entries)) + "}\n"


def _value(name: str, index: str | None) -> str:
    numbers = re.findall(r"\d+", index or "")
    return f"{name} {{{','.join(numbers)}}}" if numbers else name


def _module(text: str) -> str:
    lines = [f"    {line}" if line else "" for line in text.split("\n")]
    return ',\n  "\n' + "\n".join(lines) + '\n  "'
