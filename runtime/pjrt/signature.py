"""The signature of a program as PJRT tells it: name, results as one device has them, what is donated."""

from __future__ import annotations

import re
from dataclasses import dataclass

from compiler.hlo.shape import ArrayShape
from runtime.executable import Executable

_STRANGE = re.compile(r"[^\w.-]")


@dataclass(frozen=True)
class Result:
    """A result: `local` is its shape on one device, with the type that the host gets."""

    local: ArrayShape


@dataclass(frozen=True)
class Signature:
    """What is known of a program beside its code."""

    name: str
    fingerprint: str
    results: tuple[Result, ...]
    donated: frozenset[int]


def read_signature(executable: Executable, fingerprint: str) -> Signature:
    """The signature of a compiled program."""
    results = tuple(Result(port.shape.with_layout(None)) for port in executable.outputs)
    donated = frozenset(n for n, port in enumerate(executable.inputs) if port.is_donated)
    name = _STRANGE.sub("_", executable.program.metadata.get("module", "program"))
    return Signature(name, fingerprint, results, donated)
