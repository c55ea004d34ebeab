"""What parsers of texts share: balanced parts of grammars, and errors in the words of the language."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from importlib import resources
from typing import NoReturn

from lark import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from compiler.diagnostics import CompileError, SourceText

_MOST_ALTERNATIVES = 5
STRING = r'"(?:[^"\\]++|\\.)*"'
"""A quoted string, as a regular expression."""


def grammar_text(package: str, balanced: Mapping[str, str]) -> str:
    """The ``grammar.lark`` of a package, with STRING and these terminals added.

    Each is one regular expression. What a grammar composes of terminals is put together by Lark
    wherever it is used, alternatives sorted by length, which takes longer than to read a small file.
    """
    text = resources.files(package).joinpath("grammar.lark").read_text()
    added = {"STRING": STRING, **balanced}
    return text + "".join(f"\n{name}: /{regex}/" for name, regex in added.items())


def nested(opening: str, closing: str, plain: str, depth: int) -> str:
    """Text in balanced brackets with `plain` between, as a regular expression.

    Those cannot recurse: nesting is spelled out to a depth.

    >>> nested("<", ">", "[^<>]", 2)
    '<(?:[^<>]|<(?:[^<>])*>)*>'
    """
    inside = f"(?:{plain})*"
    for _ in range(depth - 1):
        inside = f"(?:{plain}|{opening}{inside}{closing})*"
    return f"{opening}{inside}{closing}"


def raise_syntax_error(
    error: UnexpectedInput,
    words: Mapping[str, str],
    source: SourceText,
    base: int,
    end: int,
    ignored: Collection[str] = (),
) -> NoReturn:
    """Say what was expected by `words` for terminal names, of which `ignored` are not worth a word.

    The text that was parsed begins at `base` of `source` and ends at `end`.
    """
    expected: set[str] = set()
    at_end = ""
    offset = base + (error.pos_in_stream or 0)
    if isinstance(error, UnexpectedCharacters):
        expected = set(error.allowed or ())
    elif isinstance(error, UnexpectedToken):
        expected = set(error.accepts or error.expected)
        if error.token.type == "$END":
            offset, at_end = end, "the text ends here, "
        elif error.token.start_pos is not None:
            offset = base + error.token.start_pos
    wanted = _listed({words.get(name, name) for name in expected if name not in ignored})
    want = f": {at_end}expected {wanted}" if wanted else ""
    raise CompileError(f"syntax error{want}", source.span(offset)) from None


def _listed(wanted: Collection[str]) -> str:
    """All alternatives, or those of very many that tell most.

    >>> _listed(["`,`", "a word"]), _listed(["`,`", "`;`", "`x`", "a", "b", "c", "d"])
    ('`,` or a word', 'a, b, c, d, `x`, ..')
    """
    found = sorted(wanted)
    if len(found) > _MOST_ALTERNATIVES + 1:  # dots in place of a single one say less, not more
        found.sort(key=_rank)
        return ", ".join([*found[:_MOST_ALTERNATIVES], ".."])
    return " or ".join([", ".join(found[:-1]), found[-1]] if found[1:] else found)


def _rank(alternative: str) -> int:
    """A bracket that is not closed is the likeliest mistake; what has a name tells more than punctuation."""
    bare = alternative.strip("`")
    if bare[0] in ")]}":
        return 0
    return 1 if alternative[0] != "`" else 2 if bare[0].isalpha() else 3


def split_top_level(text: str) -> list[str]:
    """Split at the commas that no bracket of any kind encloses; nothing gives no parts."""
    parts: list[str] = []
    depth = start = 0
    for found in re.finditer(r"->|[<>()\[\]{},]", text):
        if found[0] in "<([{":
            depth += 1
        elif found[0] in ">)]}":
            depth -= 1
        elif found[0] == "," and depth == 0:
            parts.append(text[start : found.start()])
            start = found.end()
    last = text[start:]
    return [*parts, last] if parts or last.strip() else []
