"""What is refused names the operation and, where it is known, the line of the program it comes from."""

from __future__ import annotations

from compiler.diagnostics import UnsupportedError
from compiler.hlo.attributes import OpMetadata
from compiler.hlo.ir import HloInstruction


def refused(instr: HloInstruction, why: str) -> UnsupportedError:
    """The error for an operation that cannot be transformed."""
    metadata = instr.attrs.get("metadata")
    place = ""
    if isinstance(metadata, OpMetadata) and metadata.field("source_file"):
        place = f" ({metadata.field('source_file')}:{metadata.field('source_line')})"
    return UnsupportedError(f"%{instr.name}: {why}{place}", instr.span)
