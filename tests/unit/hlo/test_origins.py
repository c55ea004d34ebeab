"""Where instructions come from: metadata, what was taken in, frames, scopes of calls."""

from __future__ import annotations

import pytest

from compiler.diagnostics import CompileError, UnsupportedError
from compiler.driver import compile_module
from compiler.frontends.stablehlo.lowering import parse_stablehlo
from compiler.hlo.ir import HloInstruction
from compiler.hlo.origins import absorb, origin_texts, origins_of
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.passes.call_inliner import inline_calls
from compiler.passes.context import PassContext
from compiler.passes.cse import eliminate_common_subexpressions
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.origins import ORIGINS, Origin, OriginTable, origin_table

TWICE = """HloModule m

ENTRY e {
  x = f32[8,128]{1,0} parameter(0)
  a = f32[8,128]{1,0} exponential(x), metadata={op_name="f/first" source_file="m.py" source_line=3}
  b = f32[8,128]{1,0} exponential(x), metadata={op_name="f/sec\\"ond" source_file="m.py" source_line=4}
  c = f32[8,128]{1,0} transpose(x), dimensions={0,1}, metadata={op_name="f/t"}
  ROOT r = f32[8,128]{1,0} add(a, b)
}
"""
FRAMES = """HloModule m

FileNames
1 "model.py"

FunctionNames
1 "main"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY e {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} negate(x), metadata={op_name="f/neg" stack_frame_id=1}
  ROOT z = f32[8]{0} negate(y), metadata={op_name="f/neg2" stack_frame_id=7}
}
"""
CALLS = """HloModule m

g {
  p = f32[8]{0} parameter(0)
  n = f32[8]{0} negate(p), metadata={op_name="neg" source_file="g.py" source_line=9}
  f = f32[8]{0} floor(n), metadata={op_name="f/g/floor"}
  ROOT s = f32[8]{0} sine(f)
}

ENTRY e {
  x = f32[8]{0} parameter(0)
  ROOT y = f32[8]{0} call(x), to_apply=g, metadata={op_name="f/g" source_file="f.py" source_line=1}
}
"""


def _named(text: str) -> dict[str, HloInstruction]:
    return {i.name: i for i in parse_module(text).entry}


def test_equal_instructions_become_one_with_both_origins_and_the_text_keeps_them() -> None:
    module = parse_module(TWICE)
    assert eliminate_common_subexpressions(module, PassContext(load_chip("v5e")))
    both = (Origin("f/first", "m.py", 3), Origin('f/sec"ond', "m.py", 4))
    again = parse_module(print_module(module))
    for read in (module, again):
        (kept,) = (i for i in read.entry if i.opcode == "exponential")
        assert origins_of(kept) == both


def test_data_movement_that_is_gone_is_no_part_of_what_computes() -> None:
    by_name = _named(TWICE)
    absorb(by_name["a"], [by_name["c"]])
    assert len(origin_texts(by_name["a"])) == 1
    absorb(by_name["c"], [by_name["a"]])
    assert origins_of(by_name["c"]) == (Origin("f/t"), Origin("f/first", "m.py", 3))
    absorb(by_name["r"], [by_name["c"]])  # one that says nothing of itself takes what there is
    assert Origin("f/t") in origins_of(by_name["r"])


def test_frames_say_file_and_line_and_missing_ones_nothing() -> None:
    by_name = _named(FRAMES)
    assert origins_of(by_name["y"]) == (Origin("f/neg", "model.py", 3),)
    assert origins_of(by_name["z"]) == (Origin("f/neg2"),)
    assert origins_of(by_name["x"]) == ()


def test_what_is_inlined_is_named_as_part_of_its_call() -> None:
    module = parse_module(CALLS)
    assert inline_calls(module, PassContext(load_chip("v5e")))
    found = {i.opcode: origins_of(i) for i in module.entry}
    assert found["negate"] == (Origin("f/g/neg", "g.py", 9),)
    assert found["floor"] == (Origin("f/g/floor", "f.py", 1),)
    assert found["sine"] == (Origin("f/g", "f.py", 1),)


def test_a_table_reads_back_and_damage_is_an_empty_one() -> None:
    one, two = Origin("f/a", "m.py", 3), Origin("f/b")
    table = OriginTable({"fusion": {"": (one,), "dot.1": (two, one)}, "fusion.1": {"x": (two,)}})
    assert origin_table({ORIGINS: table.text()}) == table
    assert table.of("fusion", "dot.1") == (two, one)
    assert table.of("fusion", "what") == (one,)
    assert table.of("fusion.1") == (two,)
    assert table.of("nowhere") == ()
    for damaged in ("", "[]", '{"sites": {"a": {"b": [7]}}}', '{"origins": 3}', '{"sites": []}'):
        assert origin_table({ORIGINS: damaged}) == OriginTable()


def test_errors_of_passes_name_the_users_line() -> None:
    module = parse_module(
        "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n"
        '  y = f32[4] negate(x), metadata={op_name="f/neg" source_file="m.py" source_line=3}\n'
        '  ROOT r = f32[4] custom-call(y), custom_call_target="mine", '
        'metadata={op_name="f/mine" source_file="m.py" source_line=4}\n}\n'
    )
    with pytest.raises(
        UnsupportedError, match=r"(?s)'mine' is unknown.*\n  from m.py:4 \(f/mine\)$"
    ):
        compile_module(module, load_chip("v5e"))


def test_errors_of_a_frontend_name_the_users_line() -> None:
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.negate %x : tensor<4xf32> loc("m.py":3:1)
  %1 = "stablehlo.strange"(%0) : (tensor<4xf32>) -> tensor<4xf32> loc("f/strange"("m.py":4:1))
  return %1 : tensor<4xf32>
}"""
    with pytest.raises(CompileError, match=r"(?s)strange.*\n  from m.py:4 \(f/strange\)$"):
        parse_stablehlo(text)
