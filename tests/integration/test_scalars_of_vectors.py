"""Scalars that vectors make and that steer the program come down by `vtos`, bit for bit, on both machines."""

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np
import pytest

from compiler import driver
from compiler.backend.kernel_options import KernelOptions
from tests.support.against_evaluator import check
from tests.support.run_hlo import compile_text
from tpu_sim.isa.program import HBM, SMEM, VMEM, Program, blocks_of

_FLOATS = [0.0, -0.0, 1.5, -2.25, 1e-40, -1e-42, 3e38, np.inf, -np.inf, np.nan, 1e-38, 7.0]
_SPECIAL: dict[str, np.ndarray] = {
    "f32": np.array(_FLOATS, np.float32),
    "bf16": np.array(_FLOATS, ml_dtypes.bfloat16),
    "f16": np.clip(np.array(_FLOATS, np.float32), -6e4, 6e4).astype(np.float16),
    "s32": np.array([0, 1, -1, 7, -(2**31), 2**31 - 1, 255, 256, -128, 65536], np.int32),
    "u32": np.array([0, 1, 2**31, 2**32 - 1, 7, 255, 256, 65536], np.uint32),
    "s8": np.array([0, 1, -1, 127, -128, 5], np.int8),
    "u16": np.array([0, 1, 65535, 32768, 256, 255], np.uint16),
    "pred": np.array([True, False, False, True, True, False, True], np.bool_),
}
_SCALAR = {"bf16": "f32", "f16": "f32", "s8": "s32", "u16": "u32"}
"""What elements of types that the scalar unit does not hold become."""
_TURNS = 17


def of_elements(dtype: str) -> str:
    """A loop that takes its vector's element number j, keeps it as a scalar, and lists the one before."""
    scalar = _SCALAR.get(dtype, dtype)
    state = f"(s32[], {dtype}[300], {scalar}[], {scalar}[{_TURNS}])"
    kept = f"m = {scalar}[] reshape(d)" if scalar == dtype else f"e = {dtype}[] reshape(d)\n"
    convert = "" if scalar == dtype else f"  m = {scalar}[] convert(e)"
    return f"""HloModule elements
cond {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({_TURNS})
  ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = {dtype}[300] get-tuple-element(p), index=1
  before = {scalar}[] get-tuple-element(p), index=2
  list = {scalar}[{_TURNS}] get-tuple-element(p), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  a = {dtype}[299] slice(x), slice={{[1:300]}}
  b = {dtype}[1] slice(x), slice={{[0:1]}}
  turned = {dtype}[300] concatenate(a, b), dimensions={{0}}
  d = {dtype}[1] dynamic-slice(turned, i), dynamic_slice_sizes={{1}}
  {kept}
{convert}
  u = {scalar}[1] reshape(before)
  listed = {scalar}[{_TURNS}] dynamic-update-slice(list, u, i)
  ROOT t = {state} tuple(j, turned, m, listed)
}}
ENTRY main {{
  x = {dtype}[300] parameter(0)
  first = {scalar}[] parameter(1)
  list = {scalar}[{_TURNS}] parameter(2)
  zero = s32[] constant(0)
  s = {state} tuple(zero, x, first, list)
  w = {state} while(s), condition=cond, body=body
  m = {scalar}[] get-tuple-element(w), index=2
  l = {scalar}[{_TURNS}] get-tuple-element(w), index=3
  ROOT r = ({scalar}[], {scalar}[{_TURNS}]) tuple(m, l)
}}
"""


@pytest.mark.parametrize("in_main", [False, True])
@pytest.mark.parametrize("dtype", _SPECIAL)
def test_elements_keep_their_bits(
    dtype: str, in_main: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_main:
        monkeypatch.setattr(driver, "KernelOptions", partial(KernelOptions, loops_in_vmem=False))
    text = of_elements(dtype)
    values = np.resize(_SPECIAL[dtype], 300)
    kind = _SPECIAL[_SCALAR.get(dtype, dtype)].dtype
    check(text, [values, np.ones((), kind), np.zeros(_TURNS, kind)])
    program = compile_text(text).program
    if not in_main:
        assert not transfers_to_smem(program, VMEM)
        assert "vtos" in rows_of_kernels(program)


def transfers_to_smem(program: Program, space: int) -> int:
    """Descriptors by which words come from a memory to SMEM."""
    kernels = program.kernels.values()
    found = [d for k in kernels for d in k.descriptors if d.dst_space == SMEM]
    return sum(d.src_space == space for d in found)


def rows_of_kernels(program: Program) -> set[str]:
    """The names of all instructions of kernels."""
    blocks = [block for kernel in program.kernels.values() for block in blocks_of(kernel.body)]
    return {i.row.name for block in blocks for bundle in block.bundles for i in bundle}


ANY = """HloModule any
or {
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT c = pred[] or(a, b)
}
cond {
  p = (f32[700], s32[]) parameter(0)
  x = f32[700] get-tuple-element(p), index=0
  one = f32[] constant(1)
  limit = f32[700] broadcast(one), dimensions={}
  above = pred[700] compare(x, limit), direction=GT
  false = pred[] constant(false)
  ROOT c = pred[] reduce(above, false), dimensions={0}, to_apply=or
}
body {
  p = (f32[700], s32[]) parameter(0)
  x = f32[700] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  one = s32[] constant(1)
  m = s32[] add(n, one)
  h = f32[] constant(0.5)
  half = f32[700] broadcast(h), dimensions={}
  y = f32[700] multiply(x, half)
  ROOT t = (f32[700], s32[]) tuple(y, m)
}
ENTRY main {
  x = f32[700] parameter(0)
  zero = s32[] constant(0)
  s = (f32[700], s32[]) tuple(x, zero)
  ROOT w = (f32[700], s32[]) while(s), condition=cond, body=body
}
"""


@pytest.mark.parametrize("greatest", [0.5, 1.0, 100.0, float("nan"), float("-inf")])
def test_a_predicate_of_a_vector_ends_a_loop_in_vmem(greatest: float) -> None:
    values = np.full(700, -1.0, np.float32)
    values[413] = greatest
    (_, turns) = check(ANY, [values])
    assert turns == (7 if greatest == 100 else 0)
    kernels = compile_text(ANY).program.kernels.values()
    assert [k.note for k in kernels if "loop in VMEM" in k.note]


FLAGS = """HloModule flags
cond {
  p = (s32[], f32[40], f32[40]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[40] get-tuple-element(p), index=1
  limit = f32[40] get-tuple-element(p), index=2
  goes_on = pred[40] compare(x, limit), direction=LT
  e = pred[1] dynamic-slice(goes_on, i), dynamic_slice_sizes={1}
  ROOT c = pred[] reshape(e)
}
body {
  p = (s32[], f32[40], f32[40]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[40] get-tuple-element(p), index=1
  limit = f32[40] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[40] add(x, x)
  ROOT t = (s32[], f32[40], f32[40]) tuple(j, y, limit)
}
ENTRY main {
  x = f32[40] parameter(0)
  limit = f32[40] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[40], f32[40]) tuple(zero, x, limit)
  w = (s32[], f32[40], f32[40]) while(s), condition=cond, body=body
  n = s32[] get-tuple-element(w), index=0
  y = f32[40] get-tuple-element(w), index=1
  ROOT r = (s32[], f32[40]) tuple(n, y)
}
"""


@pytest.mark.parametrize("in_main", [False, True])
def test_an_element_is_a_condition(in_main: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_main:
        monkeypatch.setattr(driver, "KernelOptions", partial(KernelOptions, loops_in_vmem=False))
    (turns, _) = check(FLAGS, [np.ones(40, np.float32), np.full(40, 1000.0, np.float32)])
    assert turns == 10
    assert not transfers_to_smem(compile_text(FLAGS).program, HBM)


CHOICE = """HloModule choice
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
double {
  x = f32[256] parameter(0)
  ROOT y = f32[256] add(x, x)
}
square {
  x = f32[256] parameter(0)
  ROOT y = f32[256] multiply(x, x)
}
ENTRY main {
  x = f32[256] parameter(0)
  zero = f32[] constant(0)
  total = f32[] reduce(x, zero), dimensions={0}, to_apply=add
  is_above = pred[] compare(total, zero), direction=GT
  RESULT
}
"""


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("is_returned", [False, True])
def test_a_sum_chooses_a_branch(sign: int, is_returned: bool) -> None:
    """A result that is returned too is in HBM, with a copy for the branch."""
    chosen = "conditional(is_above, x, x), true_computation=double, false_computation=square"
    result = f"ROOT r = f32[256] {chosen}"
    if is_returned:
        result = f"r = f32[256] {chosen}\n  ROOT t = (f32[256], f32[]) tuple(r, total)"
    text = CHOICE.replace("RESULT", result)
    check(text, [np.full(256, sign * 0.5, np.float32)])
    program = compile_text(text).program
    assert bool(transfers_to_smem(program, HBM)) is is_returned


def walks(size: int) -> str:
    """A loop that changes a list by vector code, and in each turn follows it element by element."""
    state = f"(s32[], s32[{size}], s32[])"
    cond = """{name} {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}
"""
    return f"""HloModule walks
{cond.format(name="inner_cond", state=state, trips=11)}
inner {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  next = s32[{size}] get-tuple-element(p), index=1
  at = s32[] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  e = s32[1] dynamic-slice(next, at), dynamic_slice_sizes={{1}}
  to = s32[] reshape(e)
  ROOT t = {state} tuple(j, next, to)
}}
{cond.format(name="outer_cond", state=state, trips=19)}
outer {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  next = s32[{size}] get-tuple-element(p), index=1
  at = s32[] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  s = {state} tuple(zero, next, at)
  w = {state} while(s), condition=inner_cond, body=inner
  to = s32[] get-tuple-element(w), index=2
  k = s32[] constant(5)
  fives = s32[{size}] broadcast(k), dimensions={{}}
  n = s32[] constant({size})
  sizes = s32[{size}] broadcast(n), dimensions={{}}
  moved = s32[{size}] add(next, fives)
  other = s32[{size}] remainder(moved, sizes)
  ROOT t = {state} tuple(j, other, to)
}}
ENTRY main {{
  x = s32[{size}] parameter(0)
  zero = s32[] constant(0)
  s = {state} tuple(zero, x, zero)
  w = {state} while(s), condition=outer_cond, body=outer
  at = s32[] get-tuple-element(w), index=2
  other = s32[{size}] get-tuple-element(w), index=1
  ROOT r = (s32[], s32[{size}]) tuple(at, other)
}}
"""


@pytest.mark.parametrize("size", [12, 40])
def test_few_words_of_an_array_come_one_by_one(size: int) -> None:
    """More come by a transfer, which takes as long for many."""
    text = walks(size)
    check(text, [np.random.default_rng(size).permutation(size).astype(np.int32)])
    program = compile_text(text).program
    assert bool(transfers_to_smem(program, VMEM)) is (size > 16)
    assert {"vtos", "vbcast.lane"} <= rows_of_kernels(program) or size > 16
