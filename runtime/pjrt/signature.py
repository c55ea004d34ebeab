"""The signature of a program as PJRT tells it: name, results as one device has them, what is donated."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.hlo.shape import ArrayShape
from runtime.executable import Executable


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


def read_signature(executable: Executable, code: bytes, fingerprint: str) -> Signature:
    """The signature of a compiled program; `code` is what it was compiled from."""
    results = tuple(Result(port.shape.with_layout(None)) for port in executable.outputs)
    donated = frozenset(n for n, port in enumerate(executable.inputs) if port.is_donated)
    return Signature(_module_name(code), fingerprint, results, donated)


def _module_name(code: bytes) -> str:
    """The symbol of the module. Bytecode keeps strings as they are, each ended by a 0; JAX names modules
    after the transformation and the function, as in ``jit_f``."""
    for prefix in (b"jit_", b"pmap_"):
        start = code.find(b"\0" + prefix)
        if start >= 0:
            return code[start + 1 : code.index(b"\0", start + 1)].decode(errors="replace")
    return "module"
