"""Changes to texts, token by token: models, bundle texts, chip files."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[A-Za-z_%@#!][\w.$%@#-]*|-?\d[\w.+]*|\s+|.', re.DOTALL)
_NUMBERS = (
    "0", "1", "-1", "2", "7", "127", "128", "255", "256", "65535", "65536", "2147483647", "2147483648",
    "-2147483648", "4294967295", "4294967296", "9223372036854775807", "-9223372036854775808",
    "18446744073709551616", "1" + "0" * 30, "1e308", "-1e309", "nan", "inf", "0.5", "1e-320",
    "9" * 5000,
)  # fmt: skip
_WORDS = ("", '""', "{", "}", "(", ")", "[", "]", ",", ";", "=", "\n", "\0", "\\", '"', "é", "%", "s0",
          "-", "..", "f64[]", "s4[2]", "pred[0]", "tuple", "()")  # fmt: skip
_DEPTHS = (3, 70, 300, 20_000)

Edit = Callable[[list[str], random.Random], None]


def mutated_text(text: str, source: random.Random, wrappers: tuple[tuple[str, str], ...]) -> str:
    """The text after one to four changes; `wrappers` are what may be nested around a token."""
    tokens = _TOKEN.findall(text)
    for _ in range(source.choice([1, 1, 1, 2, 4])):
        edit = source.choice(_EDITS)
        if tokens:
            edit(tokens, source)
    if wrappers and source.random() < 0.06 and tokens:
        before, after = source.choice(wrappers)
        depth = source.choice(_DEPTHS)
        at = _at(tokens, source)
        tokens[at] = before * depth + tokens[at] + after * depth
    return "".join(tokens)


def _at(tokens: list[str], source: random.Random) -> int:
    """A token that is no white space, if one is found."""
    for _ in range(8):
        at = source.randrange(len(tokens))
        if not tokens[at].isspace():
            break
    return at


def _delete(tokens: list[str], source: random.Random) -> None:
    at = _at(tokens, source)
    del tokens[at : at + source.choice([1, 1, 1, 2, 10])]


def _double(tokens: list[str], source: random.Random) -> None:
    at, length = _at(tokens, source), source.choice([1, 1, 5, 40])
    tokens[at:at] = tokens[at : at + length]


def _swap(tokens: list[str], source: random.Random) -> None:
    a, b = _at(tokens, source), _at(tokens, source)
    tokens[a], tokens[b] = tokens[b], tokens[a]


def _near(tokens: list[str], source: random.Random) -> None:
    """Swap with one of the next few: of one statement, mostly."""
    a = _at(tokens, source)
    b = min(a + source.randrange(1, 8), len(tokens) - 1)
    tokens[a], tokens[b] = tokens[b], tokens[a]


def _copy(tokens: list[str], source: random.Random) -> None:
    tokens[_at(tokens, source)] = tokens[_at(tokens, source)]


def _number(tokens: list[str], source: random.Random) -> None:
    """Another number for one."""
    numbers = [at for at, token in enumerate(tokens) if token.lstrip("-")[:1].isdigit()]
    if numbers:
        tokens[source.choice(numbers)] = source.choice(_NUMBERS)


def _neighbour(tokens: list[str], source: random.Random) -> None:
    """A number one greater or less."""
    numbers = [at for at, token in enumerate(tokens) if token.lstrip("-").isdecimal()]
    if numbers:
        at = source.choice(numbers)
        tokens[at] = str(int(tokens[at][:18]) + source.choice([-1, 1, 2]))


def _word(tokens: list[str], source: random.Random) -> None:
    tokens[_at(tokens, source)] = source.choice(_WORDS)


def _line(tokens: list[str], source: random.Random) -> None:
    """A line less, or one twice."""
    ends = [at for at, token in enumerate(tokens) if "\n" in token]
    if len(ends) > 1:
        number = source.randrange(len(ends) - 1)
        first, end = ends[number], ends[number + 1]
        if source.random() < 0.5:
            del tokens[first:end]
        else:
            tokens[end:end] = tokens[first:end]


_EDITS: tuple[Edit, ...] = (
    _delete, _double, _swap, _near, _near, _copy, _copy, _number, _number, _number, _neighbour,
    _neighbour, _word, _line,
)  # fmt: skip
