from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from compiler.diagnostics import UnsupportedError, VerifyError
from compiler.hlo import verifier
from compiler.hlo.dtypes import F32
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.hlo.shape import array
from compiler.hlo.verifier import Level, verify, verify_computation

TEXT = """ENTRY e {
  x = f32[4] parameter(0)
  c = f32[4] constant({1, 2, 3, 4})
  n = f32[4] negate(x)
  ROOT y = f32[4] add(n, c)
}"""

Break = Callable[[HloComputation, dict[str, HloInstruction]], object]


def _unknown_opcode(_: HloComputation, by: dict[str, HloInstruction]) -> None:
    by["n"].opcode = "neg"


def _operand_count(_: HloComputation, by: dict[str, HloInstruction]) -> None:
    by["n"].set_operands([by["x"], by["x"]])


def _same_name(_: HloComputation, by: dict[str, HloInstruction]) -> None:
    by["n"].name = "x"


def _parameter_gap(_: HloComputation, by: dict[str, HloInstruction]) -> None:
    by["x"].attrs["parameter_number"] = 1


def _stray_operand(_: HloComputation, by: dict[str, HloInstruction]) -> None:
    by["n"].set_operand(0, HloInstruction("iota", "stray", array(F32, 4)))


def _lost_user(_: HloComputation, by: dict[str, HloInstruction]) -> None:
    by["n"].operands[0] = by["c"]


def _stray_root(computation: HloComputation, _: dict[str, HloInstruction]) -> None:
    computation.root = HloInstruction("iota", "stray", array(F32, 4))


def _order(computation: HloComputation, by: dict[str, HloInstruction]) -> None:
    del computation.instructions[by["n"]]
    computation.instructions[by["n"]] = None


def _literal(_: HloComputation, by: dict[str, HloInstruction]) -> None:
    by["c"].attrs["literal"] = np.zeros(4, np.float64)


BY_HAND: tuple[tuple[str, Break], ...] = (
    ("V1", _unknown_opcode),
    ("V1", _operand_count),
    ("V2", _same_name),
    ("V3", _parameter_gap),
    ("V4", _stray_operand),
    ("V4", _lost_user),
    ("V4", _stray_root),
    ("V5", _order),
    ("V6", _literal),
)


@pytest.mark.parametrize(("number", "break_it"), BY_HAND)
def test_what_text_cannot_say_is_found(number: str, break_it: Break) -> None:
    module = parse_module(TEXT)
    verify(module)
    break_it(module.entry, {instr.name: instr for instr in module.entry})
    with pytest.raises(VerifyError, match=rf"error\[{number}\]"):
        verify(module)
    with pytest.raises(VerifyError, match=rf"error\[{number}\]"):
        verify_computation(module.entry)


def test_every_invariant_has_a_failing_test() -> None:
    assert verifier.__doc__ is not None
    documented = set(re.findall(r"^(V\d+)\b", verifier.__doc__, re.MULTILINE))
    files = (Path(__file__).parents[2] / "filecheck" / "verify").glob("v*.hlo")
    checked = {f"V{int(path.name[1:3])}" for path in files}
    assert documented == checked | {number for number, _ in BY_HAND}


def test_verifying_reads_only() -> None:
    module = parse_module(TEXT)
    before = print_module(module)
    verify(module)
    assert print_module(module) == before


def test_a_callee_outside_of_the_module_is_found() -> None:
    module = parse_module(
        "f { p = f32[] parameter(0) } ENTRY e { x = f32[] parameter(0)"
        " ROOT c = f32[] call(x), to_apply=f }"
    )
    stranger = parse_module("ENTRY g { p = f32[] parameter(0) }").entry
    module.entry.root_instruction.attrs["to_apply"] = stranger
    with pytest.raises(VerifyError, match=r"error\[V8\]: %c: calls %g, which is not in the module"):
        verify(module)


def test_a_callee_must_stand_before_its_caller() -> None:
    module = parse_module(
        "f { p = f32[] parameter(0) } ENTRY e { x = f32[] parameter(0)"
        " ROOT c = f32[] call(x), to_apply=f }"
    )
    module.computations = dict(reversed(module.computations.items()))
    with pytest.raises(VerifyError, match=r"error\[V8\]: %c: calls %f, which stands after it"):
        verify(module)


def test_levels_are_ordered() -> None:
    assert Level.PARSED < Level.LAYOUT_ASSIGNED < Level.SCHEDULED


def test_fusion_bodies_need_no_layouts() -> None:
    module: HloModule = parse_module(
        "f { p = f32[8,128] parameter(0) ROOT n = f32[8,128] negate(p) }"
        "ENTRY e { x = f32[8,128]{1,0:T(8,128)} parameter(0)"
        " ROOT y = f32[8,128]{1,0:T(8,128)} fusion(x), kind=kLoop, calls=f }"
    )
    verify(module, Level.LAYOUT_ASSIGNED)
    verify_computation(module.computations["f"], Level.LAYOUT_ASSIGNED)


def test_an_alias_may_be_of_another_shape_but_not_of_another_size() -> None:
    head = "HloModule m, input_output_alias={ {}: (0, {}) }\n"
    verify(parse_module(head + "ENTRY e { x = f32[2,3] parameter(0) ROOT y = s32[6] bitcast(x) }"))
    wrong = "ENTRY e { x = f32[2,3] parameter(0) ROOT y = f32[2,2] slice(x), slice={[0:2], [0:2]} }"
    with pytest.raises(VerifyError, match=r"error\[V10\]: input_output_alias"):
        verify(parse_module(head + wrong))


def test_only_slices_may_come_to_one_target_from_several_sources() -> None:
    pairs = "source_target_pairs={{0,1},{2,1}}"
    text = f"ENTRY e {{ x = f32[8] parameter(0) ROOT y = f32[8] collective-permute(x), {pairs} }}"
    with pytest.raises(VerifyError, match=r"error\[V11\]: %y: target 1 appears 2 times"):
        verify(parse_module(text))
    sliced = (
        "ENTRY e { x = f32[8] parameter(0) i = (s32[]) parameter(1) ROOT y = f32[8] "
        f"collective-permute(x, x, i, i), {pairs}, slice_sizes={{{{4}},{{4}}}} }}"
    )
    verify(parse_module(sliced))


def test_a_dimension_of_unknown_size_is_refused_by_name() -> None:
    module = parse_module("ENTRY e { x = f32[?,4] parameter(0) ROOT y = f32[?,4] negate(x) }")
    with pytest.raises(UnsupportedError, match=r"%x is f32\[\?,4\]: a dimension of unknown size"):
        verify(module)
