"""Loops of one array, tuples within tuples through loops, branches and the entry."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.parser import parse_module
from compiler.hlo.shape_text import print_shape
from compiler.hlo.verifier import verify
from compiler.passes.context import PassContext
from compiler.passes.tuple_flattener import flatten_tuples
from tests.support.against_evaluator import check
from tests.support.run_hlo import ADD, check_text, normal
from tpu_sim.isa.chips import load_chip

ONE_ARRAY = f"""HloModule m
{ADD}
cond {{
  p = f32[7] parameter(0)
  z = f32[] constant(0)
  s = f32[] reduce(p, z), dimensions={{0}}, to_apply=add_f32
  c = f32[] constant(50)
  a = f32[] abs(s)
  ROOT r = pred[] compare(a, c), direction=LT
}}
body {{
  p = f32[7] parameter(0)
  ROOT r = f32[7] add(p, p)
}}
ENTRY e {{
  x = f32[7] parameter(0)
  ROOT w = f32[7] while(x), condition=cond, body=body
}}
"""
NESTED = """HloModule m
cond {
  p = (s32[], (f32[7], (f32[3]))) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  c = s32[] constant(5)
  ROOT r = pred[] compare(i, c), direction=LT
}
body {
  p = (s32[], (f32[7], (f32[3]))) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  q = (f32[7], (f32[3])) get-tuple-element(p), index=1
  x = f32[7] get-tuple-element(q), index=0
  t = (f32[3]) get-tuple-element(q), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[7] add(x, x)
  q2 = (f32[7], (f32[3])) tuple(y, t)
  ROOT r = (s32[], (f32[7], (f32[3]))) tuple(j, q2)
}
ENTRY e {
  x = f32[7] parameter(0)
  s = f32[3] constant({1, 2, 3})
  z = s32[] constant(0)
  t = (f32[3]) tuple(s)
  q = (f32[7], (f32[3])) tuple(x, t)
  init = (s32[], (f32[7], (f32[3]))) tuple(z, q)
  ROOT w = (s32[], (f32[7], (f32[3]))) while(init), condition=cond, body=body
}
"""
BRANCHES = """HloModule m
a {
  p = (f32[7], (f32[7])) parameter(0)
  x = f32[7] get-tuple-element(p), index=0
  q = (f32[7]) get-tuple-element(p), index=1
  ROOT r = ((f32[7]), f32[7]) tuple(q, x)
}
b {
  p = f32[7] parameter(0)
  n = f32[7] negate(p)
  t = (f32[7]) tuple(n)
  ROOT r = ((f32[7]), f32[7]) tuple(t, p)
}
ENTRY e {
  x = f32[7] parameter(0)
  t = (f32[7]) tuple(x)
  y = (f32[7], (f32[7])) tuple(x, t)
  i = s32[] constant(1)
  ROOT w = ((f32[7]), f32[7]) conditional(i, y, x), branch_computations={a,b}
}
"""
ARGMAX = """HloModule m
argmax {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  less = pred[] compare(b, a), direction=GT
  x = f32[] select(less, b, a)
  k = s32[] select(less, j, i)
  ROOT out = (f32[], s32[]) tuple(x, k)
}
cond {
  p = (f32[7], s32[7]) parameter(0)
  i = s32[7] get-tuple-element(p), index=1
  e = s32[1] slice(i), slice={[0:1]}
  s = s32[] reshape(e)
  c = s32[] constant(3)
  ROOT r = pred[] compare(s, c), direction=LT
}
body {
  p = (f32[7], s32[7]) parameter(0)
  x = f32[7] get-tuple-element(p), index=0
  i = s32[7] get-tuple-element(p), index=1
  one = s32[] constant(1)
  ones = s32[7] broadcast(one), dimensions={}
  j = s32[7] add(i, ones)
  y = f32[7,5] broadcast(x), dimensions={0}
  k = s32[7,5] broadcast(j), dimensions={0}
  low = f32[] constant(-9)
  zero = s32[] constant(0)
  ROOT r = (f32[7], s32[7]) reduce(y, k, low, zero), dimensions={1}, to_apply=argmax
}
"""
REDUCED = f"""{ARGMAX}
ENTRY e {{
  x = f32[7,9] parameter(0)
  i = s32[7,9] iota(), iota_dimension=1
  low = f32[] constant(-9)
  zero = s32[] constant(0)
  ROOT r = (f32[7], s32[7]) reduce(x, i, low, zero), dimensions={{1}}, to_apply=argmax
}}
"""
HEAD, _, LAST = REDUCED.rpartition("ROOT r")
CARRIED = (
    f"{HEAD}r{LAST}".removesuffix("}\n")
    + """  c = (f32[7], s32[7]) copy(r)
  ROOT w = (f32[7], s32[7]) while(c), condition=cond, body=body
}
"""
)
TOKENS = """HloModule m
body {
  p = (s32[], token[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  t = token[] get-tuple-element(p), index=1
  u = token[] after-all(t)
  ROOT r = (s32[], token[]) tuple(j, u)
}
cond {
  p = (s32[], token[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(42)
  ROOT r = pred[] compare(i, n), direction=LT
}
yes {
  t = token[] parameter(0)
  n = s32[] constant(7)
  ROOT r = (s32[], token[]) tuple(n, t)
}
no {
  n = s32[] parameter(0)
  t = token[] after-all()
  ROOT r = (s32[], token[]) tuple(n, t)
}
ENTRY e {
  i = s32[] parameter(0)
  t = token[] after-all()
  s = (s32[], token[]) tuple(i, t)
  w = (s32[], token[]) while(s), condition=cond, body=body
  j = s32[] get-tuple-element(w), index=0
  zero = s32[] constant(0)
  p = pred[] compare(i, zero), direction=GT
  c = (s32[], token[]) conditional(p, t, j), true_computation=yes, false_computation=no
  ROOT r = s32[] get-tuple-element(c), index=0
}
"""
ENTRY = """HloModule m
ENTRY e {
  x = (f32[7], (f32[7])) parameter(0)
  q = (f32[7]) get-tuple-element(x), index=1
  ROOT w = ((f32[7]), (f32[7], (f32[7]))) tuple(q, x)
}
"""


@pytest.mark.parametrize("text", [ONE_ARRAY, NESTED, BRANCHES])
def test_values(text: str) -> None:
    check_text(text, [normal(0, 7)], machine="llvm")


@pytest.mark.parametrize("text", [REDUCED, CARRIED])
def test_the_result_of_a_kernel_handed_on_whole(text: str) -> None:
    run = check_text(text, [normal(0, 7, 9)], machine="llvm")
    assert len(run.outputs) == 2


@pytest.mark.parametrize(("start", "end"), [(3, 7), (-3, 42)])
def test_tokens_are_left_out(start: int, end: int) -> None:
    run = check_text(TOKENS, [np.int32(start)], machine="llvm")
    assert run.outputs[0] == end


def test_nested_results_of_parameters_are_copied() -> None:
    run = check_text(ENTRY, [normal(0, 7), normal(1, 7)], machine="llvm")
    assert len(run.outputs) == 3


@pytest.mark.parametrize("text", [ONE_ARRAY, NESTED, BRANCHES, REDUCED, CARRIED])
def test_a_second_time_changes_nothing(text: str) -> None:
    module = parse_module(text)
    assert flatten_tuples(module, PassContext(load_chip("v5e")))
    assert not flatten_tuples(module, PassContext(load_chip("v5e")))


LOOP_AS_RESULT = """HloModule m
cond {
  p = (s32[], f32[7]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  c = s32[] constant(5)
  ROOT r = pred[] compare(i, c), direction=LT
}
inner {
  p = (s32[], f32[7]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[7] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[7] add(x, x)
  ROOT r = (s32[], f32[7]) tuple(j, y)
}
outer {
  p = (s32[], f32[7]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[7] get-tuple-element(p), index=1
  s = (s32[], f32[7]) tuple(i, x)
  ROOT w = (s32[], f32[7]) while(s), condition=cond, body=inner
}
ENTRY e {
  x = f32[7] parameter(0)
  z = s32[] constant(0)
  s = (s32[], f32[7]) tuple(z, x)
  ROOT w = (s32[], f32[7]) while(s), condition=cond, body=outer
}
"""


def test_the_body_of_a_loop_may_be_a_loop() -> None:
    check_text(LOOP_AS_RESULT, [normal(0, 7)], machine="llvm")


ENTRY_TOKENS = """HloModule m, input_output_alias={ {1,1}: (2, {}, may-alias), {2}: (3, {1}, must-alias) }
cond {
  p = token[] parameter(0)
  ROOT r = pred[] constant(false)
}
body {
  p = token[] parameter(0)
  ROOT r = token[] after-all(p)
}
ENTRY e {
  t = token[] parameter(0)
  p = (token[], f32[8]) parameter(1)
  x = f32[8] parameter(2)
  q = (f32[3], s64[4], token[]) parameter(3)
  t1 = token[] get-tuple-element(p), index=0
  y = f32[8] get-tuple-element(p), index=1
  n = s64[4] get-tuple-element(q), index=1
  t2 = token[] after-all(t, t1)
  w = token[] while(t2), condition=cond, body=body
  b = (f32[8], token[]) tuple(y, w)
  o = (f32[8], token[]) opt-barrier(b)
  o0 = f32[8] get-tuple-element(o), index=0
  o1 = token[] get-tuple-element(o), index=1
  z = f32[8] add(x, o0)
  m = s64[4] add(n, n)
  in = (token[], f32[8]) tuple(o1, z)
  ROOT r = (token[], (token[], f32[8]), s64[4]) tuple(t2, in, m)
}
"""


def test_tokens_of_the_entry_hold_nothing() -> None:
    module = parse_module(ENTRY_TOKENS, "test.hlo")
    verify(module)
    assert flatten_tuples(module, PassContext(load_chip("v5e")))
    verify(module)
    shapes = [print_shape(p.shape) for p in module.entry.parameters]
    assert shapes == ["(f32[8])", "f32[8]", "(f32[3], s64[4])"]
    assert print_shape(module.entry.root_instruction.shape) == "((f32[8]), s64[4])"
    aliases = module.attrs["input_output_alias"]
    assert isinstance(aliases, tuple)
    found = [(a.output_index, a.parameter_number, a.parameter_index) for a in aliases]
    assert found == [((0, 0), 1, ()), ((1,), 2, (1,))]


def test_the_host_gives_and_gets_no_token() -> None:
    args = [np.arange(8, dtype=np.float32), np.ones(8, np.float32), np.zeros(3, np.float32)]
    check(ENTRY_TOKENS, [*args, np.arange(4, dtype=np.int64) << 33])


@pytest.mark.parametrize("result", ["t", "()"])
def test_a_result_without_arrays(result: str) -> None:
    root = "u = token[] after-all(t)" if result == "t" else "u = () tuple()"
    check(f"HloModule m\nENTRY e {{\n  t = token[] parameter(0)\n  ROOT {root}\n}}\n", [])
