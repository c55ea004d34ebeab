"""Texts that XLA's parser refuses although every part of them is well formed."""

from __future__ import annotations

import pytest

from compiler.diagnostics import CompileError
from compiler.hlo.parser import parse_module

CALLEES = "g { p = f32[4] parameter(0) ROOT r = f32[4] negate(p) }\n"
START = "s = ((f32[4]), f32[4], u32[]) async-start(x), calls=g "
SHORT = "s = ((f32[4]), f32[4], u32[]) negate-start(x) "
BAD = {
    'c = f32[] custom-call(x), custom_call_target="t", operand_layout_constraints={}': "want 1",
    'c = f32[] custom-call(x), custom_call_target="t", operand_layout_constraints={f32[5]}': (
        r"f32\[5\] for operand 0, which is f32\[4\]"
    ),
    'c = f32[] custom-call(x), custom_call_target="t", api_version=API_VERSION_NEW': "api_version",
    "c = f32[4] conditional(x, x, x), branch_computations={g, g}": r"want pred\[\] or s32\[\]",
    "c = f32[4] conditional(i, x, x), true_computation=g, false_computation=g": "does not choose",
    "c = f32[4] conditional(b, x, x), branch_computations={g, g}": "does not choose",
    "t = token[] after-all() c = f32[4] infeed(t)": "want a tuple",
    "c = f32[8] all-gather(x), replica_groups={{0,1}}, dimensions={}": "exactly one dimension",
    "s = (f32[4], f32[4], u32[]) async-start(x), calls=g": r"want \(\(operands\), result, state\)",
    "c = f32[4] async-done(x)": "must be an async-start",
    START + "u = ((f32[4]), f32[5], u32[]) async-update(s)": r"the result is .*f32\[5\]",
    START + 'c = f32[4] async-done(s), async_execution_thread="aside"': "is not that of %s",
    START + "c = f32[4] async-done(s), calls=h": "calls another computation than %s",
    START + START.replace("s =", "z ="): "%s calls %g too",
    SHORT + "c = f32[4] abs-done(s)": "%s starts no abs",
    "c = f32[4] add(x, x), direction=LT": "add has no attribute direction",
    "c = f32[4] negate(x), result_accuracy={mode=highest}": "no attribute result_accuracy",
    "c = f32[4] tanh(x), result_accuracy={mode=fair}": "attribute result_accuracy: want",
    "c = f32[4]{0:D(X)} negate(x)": "no property",
    "c = f32[4]{0:P(f32[2])} negate(x)": "only a sparse array",
    "c = f16[] constant(65520)": "65520 is out of range for f16",
    "c = f64[] constant(1e400)": "1e400 is out of range for f64",
    "c = c64[] constant((0, -1e39))": "out of range for f32",
    "c = f8e4m3fn[1] constant({nan(0x1)})": "single NaN",
    "c = f32[4] reduce-window(x, k), window={size=2 pad=1_1_0}, to_apply=g": "want pad=low_high",
}


@pytest.mark.parametrize("line", BAD)
def test_refusal(line: str) -> None:
    inputs = "x = f32[4] parameter(0) b = pred[] parameter(1) i = s32[] parameter(2)"
    callees = CALLEES + CALLEES.replace("g {", "h {")
    text = f"{callees}ENTRY e {{ {inputs} k = f32[] constant(0) {line} }}"
    with pytest.raises(CompileError, match=BAD[line]):
        parse_module(text)


def test_a_computation_in_an_attributes_place_makes_no_parameters() -> None:
    text = "r = f32[] reduce(f32[10], f32[]), dimensions={0}, to_apply={ s = f32[] add(f32[] a, f32[] b) }"
    with pytest.raises(CompileError, match="%a is not defined"):
        parse_module(text)


def test_any_number_is_a_truth_value_and_names_unknown_to_xla_are_kept() -> None:
    root = parse_module("ENTRY e { x = pred[] constant(2), my_note={1,2} }").entry.root_instruction
    assert root.attrs["literal"]
    assert "my_note" in root.attrs
