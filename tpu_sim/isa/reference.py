"""Prints ``docs/isa.md`` from the tables: ``python -m tpu_sim.isa.reference > docs/isa.md``."""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields

from tpu_sim.isa import block_checker, checker, encoding, timing
from tpu_sim.isa.chips import Chip, chip_names, load_chip
from tpu_sim.isa.instruction import KIND_BITS, ROWS, Instr, Kind, Row, Slot
from tpu_sim.isa.rows import eup, memory, misc, mxu, scalar, valu, xlu
from tpu_sim.isa.text import format_instr

_INTRO = """\
# Instruction set

Generated from the instruction table by `python -m tpu_sim.isa.reference`; do not edit.

The encoding is our own, designed from public facts only; latencies and every other parameter come
from the chip files with their provenance (last section).

A core has 8 x 128 x 32-bit vregs, 8 x 128 x 1-bit vmasks, 32-bit sregs (`s0` reads 0), VMEM in rows
of 512 bytes, SMEM in 32-bit words, and HBM addressed in granules of 512 bytes. A *bundle* is a set
of instructions issued together: all read before any writes; queue operations of one bundle act in
the order listed, pops before pushes; DMAs start last. vregs and vmasks live within one block; sregs
and spill slots across the blocks of a kernel; nothing lives across a call. At the start of a kernel
sregs, spill slots, latched weights and the transpose unit are zero and all queues empty; SMEM keeps
what it holds (zeros when a program starts); what the windows hold is not specified, but for *kept*
ones: what kept windows of earlier kernels left in their rows, if no kernel between had another window
or a spill slot there. A mask lies in a spill slot as words of 0 and 1, and a word that is not 0 is
read as 1.

Addresses are sums of a signed sreg and a signed immediate, not taken modulo 2^32: they are in their
window or memory, or the run ends with a fault. A fault is that of the first bundle that has one; in
a bundle that of its waits, loads, scalar instructions, stores and indexed accesses, transfers, in this
order; of a transfer that of its counts, source, target. Its kind and its kernel are the same on both
machines; what memory holds after a fault is not specified. A limit of cycles is looked at after every
block, after the overhead of an iteration and of a call: a run that is past it there ends.

What the checker (last but one section) accepts means the same on both machines: memory, cycles and
faults. Bits that are the host's are those of a NaN that VALU arithmetic gives
([numerics](numerics.md)), and what integer instructions and conversions make of them.
"""

_MODULES = {
    Slot.SCALAR: scalar, Slot.VALU: valu, Slot.EUP: eup, Slot.XLU: xlu, Slot.LOAD: memory,
    Slot.STORE: memory, Slot.MXU: mxu, Slot.MISC: misc,
}  # fmt: skip


def reference_text() -> str:
    """The whole page."""
    sections = [_INTRO, _fields_section()]
    sections += [_slot_section(slot) for slot in Slot]
    sections += [
        _docstring_section("Cost equations", timing.__doc__),
        _docstring_section("Static checks of a program", checker.__doc__),
        _docstring_section("Static checks of a block", block_checker.__doc__),
        _chips_section(),
    ]
    return "\n".join(sections)


def _docstring_section(title: str, text: str | None) -> str:
    return f"## {title}\n\n```text\n{inspect.cleandoc(text or '')}\n```\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _fields_section() -> str:
    rows = [[f"`{kind.value}`", str(bits), _kind_doc(kind)] for kind, bits in KIND_BITS.items()]
    return (
        _docstring_section("Encoding", encoding.__doc__)
        + "\n"
        + _table(["kind", "bits", "range"], rows)
    )


def _kind_doc(kind: Kind) -> str:
    values = encoding.operand_range(kind)
    return f"{values.start} .. {values.stop - 1}"


def _slot_section(slot: Slot) -> str:
    rows = sorted((row for row in ROWS.values() if row.slot is slot), key=lambda row: row.opcode)
    module = _MODULES.get(slot)
    head = f"## Slot `{slot.value}` (number {list(Slot).index(slot)})\n"
    about = f"\n{inspect.cleandoc(module.__doc__ or '')}\n" if module is not None else ""
    table = _table(["opcode", "form", "meaning", "latency class"], [_row_cells(r) for r in rows])
    return f"{head}{about}\n{table}\nFree opcodes: {_free_opcodes(rows)}.\n"


def _free_opcodes(rows: list[Row]) -> str:
    """Numbers that no row of a slot has, in runs; 0 is none, so that cleared bytes are no instruction."""
    taken = {row.opcode for row in rows}
    free = [number for number in range(1, 1 << encoding.OPCODE_BITS) if number not in taken]
    starts = [number for number in free if number - 1 not in free]
    ends = [number for number in free if number + 1 not in free]
    runs = zip(starts, ends, strict=True)
    return ", ".join(f"{a}" if a == b else f"{a} .. {b}" for a, b in runs)


def _row_cells(row: Row) -> list[str]:
    form = format_instr(Instr(row, _example(row)))
    queue = f", pushes {row.pushes}" if row.pushes else ""
    return [str(row.opcode), f"`{form}`", row.doc.replace("|", "\\|") + queue, row.latency]


def _example(row: Row) -> tuple[int, ...]:
    """Operand numbers that tell the operands apart; constants that read well."""
    values = []
    for number, operand in enumerate(row.operands):
        is_float = operand.kind is Kind.F32
        values.append(0x3F800000 if is_float else 1 if operand.name == "stride" else number)
    return tuple(values)


def _chips_section() -> str:
    chips = [load_chip(name) for name in chip_names()]
    keys = [f.name for f in fields(Chip) if f.name not in ("name", "slots", "latencies", "spec")]
    keys += [f"slots.{slot.value}" for slot in Slot]
    keys += [f"latencies.{name}" for name in sorted(chips[0].latencies)]
    rows = [[f"`{key}`", *(_parameter(chip, key) for chip in chips)] for key in keys]
    table = _table(["parameter", *(chip.name for chip in chips)], rows)
    letters = "p = published, f = fitted, a = assumed; the chip files name the sources."
    return f"## Chips\n\nOne TensorCore each. {letters}\n\n{table}"


def _parameter(chip: Chip, key: str) -> str:
    table, _, name = key.rpartition(".")
    value = getattr(chip, table)[name] if table else getattr(chip, name)
    return f"{value:g} {chip.spec[key][0]}" if value < 1e6 else f"{value:.4g} {chip.spec[key][0]}"


if __name__ == "__main__":
    sys.stdout.write(reference_text())
