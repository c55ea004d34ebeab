"""Whether a text is one JSON object as far as XLA's lexer looks: balanced braces and strings."""

from __future__ import annotations

import re

_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[^"{}]+|[{}]', re.DOTALL)


def is_json_object(text: str) -> bool:
    """Whether `text` begins with ``{`` and ends where that brace closes.

    >>> is_json_object('{"a":{"b":"}"}}'), is_json_object('{"a"'), is_json_object("{}{}")
    (True, False, False)
    """
    return text.startswith("{") and object_end(text, 0) == len(text)


def object_end(text: str, start: int) -> int:
    """The position after the brace that closes the one at `start`; -1 when none does."""
    depth = 0
    position = start
    while position < len(text):
        found = _PIECE.match(text, position)
        if found is None:
            return -1
        position = found.end()
        if found[0] == "{":
            depth += 1
        elif found[0] == "}":
            depth -= 1
            if depth == 0:
                return position
    return -1
