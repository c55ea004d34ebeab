"""The signature of a program as PJRT tells it: name, results as one device has them, what is donated."""

from __future__ import annotations

import re
from dataclasses import dataclass

from compiler.hlo.dtypes import PRED
from compiler.hlo.shape import ArrayShape
from runtime.executable import Executable
from runtime.pjrt.staged import Staged

_TOKEN = ArrayShape(PRED, (0,))
_STRANGE = re.compile(r"[^\w.-]")


@dataclass(frozen=True)
class Signature:
    """What is known of a program beside its code. Shapes are those on one device, with the types that the
    host sees."""

    name: str
    fingerprint: str
    arguments: tuple[ArrayShape, ...]
    results: tuple[ArrayShape, ...]
    donated: frozenset[int] = frozenset()


def read_signature(code: Executable | Staged, fingerprint: str) -> Signature:
    """The signature of a compiled program. A token is an empty array to PJRT."""
    if isinstance(code, Staged):
        name, program = code.program.name, code.program
        given, made = (
            tuple(_TOKEN if value is None else value[1].with_layout(None) for value in values)
            for values in (program.arguments, program.results)
        )
        return Signature(_STRANGE.sub("_", name), fingerprint, given, made)
    given, made = (
        tuple(port.shape.with_layout(None) for port in ports)
        for ports in (code.inputs, code.outputs)
    )
    donated = frozenset(n for n, port in enumerate(code.inputs) if port.is_donated)
    name = _STRANGE.sub("_", code.program.metadata.get("module", "program"))
    return Signature(name, fingerprint, given, made, donated)
