"""The instruction table as a whole, and the page printed from it."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from tpu_sim.interp.mxu import PASSES
from tpu_sim.interp.numpy_lanes import NumpyLanes
from tpu_sim.isa.chips import chip_names, latency_classes, load_chip
from tpu_sim.isa.encoding import OPCODE_BITS
from tpu_sim.isa.instruction import ROWS, Slot, define
from tpu_sim.isa.reference import reference_text
from tpu_sim.isa.rows.mxu import PASS_FORMATS
from tpu_sim.isa.semantics import Lanes
from tpu_sim.jit.crossing import ColumnLanes, RowLanes
from tpu_sim.jit.host import detect_host
from tpu_sim.jit.lanes import LlvmLanes
from tpu_sim.jit.pass_forms import pass_forms

OPCODES = Path(__file__).parent / "opcodes.json"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "isa.md"


def test_a_copied_row_is_the_row_of_the_table() -> None:
    for row in ROWS.values():
        assert copy.deepcopy(row) is row
        assert pickle.loads(pickle.dumps(row)) is row


def test_both_machines_have_every_format_of_a_pass() -> None:
    assert PASSES.keys() == PASS_FORMATS.keys() == pass_forms(detect_host()).keys()


def test_numbers_are_those_that_files_have(is_updating: bool) -> None:
    """A number that is in `opcodes.json` stays with its name; ``--update`` adds new instructions."""
    golden = json.loads(OPCODES.read_text(encoding="utf-8"))
    table = {f"{row.slot.value} {row.opcode}": row.name for row in ROWS.values()}
    if is_updating and golden.items() <= table.items():
        OPCODES.write_text(json.dumps(golden | table, indent=0) + "\n", encoding="utf-8")
        golden = table
    assert golden == table, "new opcodes? run: pytest tests/isa --update"


def test_a_number_that_is_taken_is_refused_with_where_to_look() -> None:
    with pytest.raises(AssertionError, match=r"share opcode 1 of slot valu; docs/isa\.md"):
        define("vnew", 1, Slot.VALU, "d:vd a:vs", "valu", "d = a", lambda m, a: a)
    free = reference_text().split("## Slot `valu`")[1].split("Free opcodes: ")[1].split(".\n")[0]
    assert free == f"{1 + max(r.opcode for r in ROWS.values() if r.slot is Slot.VALU)} .. 255"


def test_numbers_fit_their_field() -> None:
    for row in ROWS.values():
        assert 0 < row.opcode < 1 << OPCODE_BITS, row.name


def test_meanings_use_primitives_that_are_declared() -> None:
    """`Lanes` is what the machines have in common; each may have helpers of its own."""
    declared = {name for name in vars(Lanes) if not name.startswith("_")}
    assert declared <= {*dir(NumpyLanes)}
    assert declared <= {*dir(LlvmLanes), *dir(RowLanes), *dir(ColumnLanes)}
    for row in ROWS.values():
        if not row.is_state:
            asked = _Asked()
            row.does(asked, *(asked for _ in row.sources))
            assert asked.names <= declared, f"{row.name}: declare it in tpu_sim/isa/semantics.py"


class _Asked:
    """Stands for the primitives and for every value: keeps the names that a meaning asks for."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getattr__(self, name: str) -> Callable[..., _Asked]:
        self.names.add(name)
        return lambda *_: self


def test_every_latency_class_is_on_every_chip() -> None:
    for name in chip_names():
        assert set(load_chip(name).latencies) == latency_classes()


def test_a_destination_is_the_first_operand() -> None:
    for row in ROWS.values():
        write = row.write
        assert write is None or write.index == 0, row.name


def test_the_page_is_in_step_with_the_table(is_updating: bool) -> None:
    if is_updating:
        PAGE.write_text(reference_text(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == reference_text(), "run: pytest tests/isa --update"


def test_the_page_names_every_instruction() -> None:
    text = reference_text()
    for name in ROWS:
        assert f"`{name}" in text
