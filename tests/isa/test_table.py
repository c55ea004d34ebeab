"""The instruction table as a whole, and the page printed from it."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

from tpu_sim.interp.mxu import PASSES
from tpu_sim.isa.chips import chip_names, latency_classes, load_chip
from tpu_sim.isa.instruction import ROWS
from tpu_sim.isa.reference import reference_text
from tpu_sim.isa.rows.mxu import PASS_FORMATS
from tpu_sim.jit.host import detect_host
from tpu_sim.jit.pass_forms import pass_forms

ROOT = Path(__file__).resolve().parents[2]


def test_a_copied_row_is_the_row_of_the_table() -> None:
    for row in ROWS.values():
        assert copy.deepcopy(row) is row
        assert pickle.loads(pickle.dumps(row)) is row


def test_both_machines_have_every_format_of_a_pass() -> None:
    assert PASSES.keys() == PASS_FORMATS.keys() == pass_forms(detect_host()).keys()


def test_numbers_are_those_that_files_have() -> None:
    """A number that is in `opcodes.json` stays; new instructions are appended to it."""
    golden = json.loads((Path(__file__).parent / "opcodes.json").read_text(encoding="utf-8"))
    assert golden == {f"{row.slot.value} {row.opcode}": row.name for row in ROWS.values()}, (
        "append new instructions to tests/isa/opcodes.json, with opcodes that it never had"
    )


def test_every_latency_class_is_on_every_chip() -> None:
    for name in chip_names():
        assert set(load_chip(name).latencies) == latency_classes()


def test_a_destination_is_the_first_operand() -> None:
    for row in ROWS.values():
        write = row.write
        assert write is None or write.index == 0, row.name


def test_the_page_is_in_step_with_the_table() -> None:
    page = (ROOT / "docs" / "isa.md").read_text(encoding="utf-8")
    assert page == reference_text(), "run: python -m tpu_sim.isa.reference > docs/isa.md"


def test_the_page_names_every_instruction() -> None:
    text = reference_text()
    for name in ROWS:
        assert f"`{name}" in text
