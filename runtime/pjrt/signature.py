"""The signature of a program as PJRT tells it: name, results as one device has them, what is donated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from compiler.hlo.dtypes import PRED
from compiler.hlo.result_memories import DEVICE_MEMORY
from compiler.hlo.shape import ArrayShape
from runtime.executable import Executable
from runtime.pjrt.staged import Staged
from runtime.slice_executable import SliceExecutable

TOKEN = ArrayShape(PRED, (0,))
"""What PJRT has as a token."""
_NO_TOKENS: tuple[list[int], list[int]] = ([], [])
_STRANGE = re.compile(r"[^\w.-]")


Item = TypeVar("Item")


@dataclass(frozen=True)
class ProgramSignature:
    """What is known of a program beside its code. Shapes are those on one device, with the types that the
    host sees; each result has the kind of its memory."""

    name: str
    fingerprint: str
    arguments: tuple[ArrayShape, ...]
    results: tuple[ArrayShape, ...]
    memories: tuple[str, ...]
    donated: frozenset[int] = frozenset()


def read_signature(code: Executable | Staged, fingerprint: str) -> ProgramSignature:
    """The signature of a compiled program. A token is an empty array to PJRT."""
    if isinstance(code, Staged):
        name, program = code.program.name, code.program
        given, made = (
            tuple(TOKEN if value is None else value[1].with_layout(None) for value in values)
            for values in (program.arguments, program.results)
        )
        kinds = _memories(code, len(made))
        return ProgramSignature(_STRANGE.sub("_", name), fingerprint, given, made, kinds)
    given, made = (
        tuple(port.shape.with_layout(None) for port in ports)
        for ports in (code.inputs, code.outputs)
    )
    tokens_given, tokens_made = token_places(code)
    given, made = with_tokens(given, tokens_given, TOKEN), with_tokens(made, tokens_made, TOKEN)
    places = [n for n in range(len(given)) if n not in tokens_given]
    ports = zip(places, code.inputs, strict=True)
    donated = frozenset(n for n, port in ports if port.is_donated)
    name = _STRANGE.sub("_", code.program.metadata.get("module", "program"))
    return ProgramSignature(name, fingerprint, given, made, _memories(code, len(made)), donated)


def stated_memories(code: Executable | Staged) -> dict[int, str]:
    """The kinds of memory of the results that are not to lie in HBM, by their numbers."""
    if isinstance(code, Staged):
        return code.memories
    stated = json.loads(code.program.metadata.get("result_memories", "{}"))
    return {int(number): kind for number, kind in stated.items()}


def _memories(code: Executable | Staged, count: int) -> tuple[str, ...]:
    """The kind of each result's memory."""
    stated = stated_memories(code)
    return tuple(stated.get(number, DEVICE_MEMORY) for number in range(count))


def token_places(code: Executable | Staged) -> tuple[list[int], list[int]]:
    """Which arguments and which results JAX has as tokens: the compiled program has none of them."""
    if isinstance(code, Staged):
        return _unnamed(code.program.arguments), _unnamed(code.program.results)
    text = code.program.metadata.get("tokens")
    if text is None or isinstance(code, SliceExecutable):
        return _NO_TOKENS
    given, made = json.loads(text)
    return given, made


def _unnamed(values: Sequence[object | None]) -> list[int]:
    return [number for number, value in enumerate(values) if value is None]


def with_tokens(items: Iterable[Item], places: Sequence[int], token: Item) -> tuple[Item, ...]:
    """What a program takes or makes, with tokens at their places."""
    found = list(items)
    for place in places:
        found.insert(place, token)
    return tuple(found)
