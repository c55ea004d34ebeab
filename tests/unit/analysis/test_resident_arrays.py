"""What it takes to ask which arrays could stay in VMEM."""

from __future__ import annotations

import pytest

from compiler.analysis.aliasing import Slot, SlotSets
from compiler.analysis.resident_arrays import resident_arrays
from compiler.hlo.parser import parse_module


def _questions(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often it is asked where an array lies in a program with so many parameters in a tuple."""
    kind = "f32[8]{0:T(1024)}"
    state = f"({', '.join([kind] * count)})"
    parts = "\n".join(
        f"  x{i} = {kind} get-tuple-element(p), index={i}\n  n{i} = {kind} copy(x{i})"
        for i in range(count)
    )
    results = ", ".join(f"n{i}" for i in range(count))
    text = (
        f"HloModule m\n\nENTRY e {{\n  p = {state} parameter(0)\n{parts}\n"
        f"  ROOT t = {state} tuple({results})\n}}\n"
    )
    module = parse_module(text)
    asked: list[Slot] = []
    find = SlotSets.find

    def counted(sets: SlotSets, slot: Slot) -> Slot:
        asked.append(slot)
        return find(sets, slot)

    with monkeypatch.context() as patch:
        patch.setattr(SlotSets, "find", counted)
        resident_arrays(module, (), lambda _: None)
    return len(asked)


def test_work_grows_with_the_elements_of_a_tuple_not_with_their_square(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _questions(400, monkeypatch) < 4.2 * _questions(100, monkeypatch)
