"""Pairs through tuples, control flow, data movement, reductions, sorts, dots, the signature."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from compiler.analysis.host_ports import host_ports
from compiler.hlo.attributes import ComputationLayout, InputOutputAlias
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from tests.support.pair_checks import before_and_after, rewritten, same

Array = npt.NDArray[np.generic]
RNG = np.random.default_rng(7)


def integers(*dims: int) -> Array:
    return RNG.integers(-(2**62), 2**62, dims)


def complexes(*dims: int) -> Array:
    return (RNG.standard_normal(dims) + 1j * RNG.standard_normal(dims)).astype(np.complex64)


def check(text: str, *inputs: Array) -> None:
    results = before_and_after(text, inputs)
    assert results
    for want, got in results:
        assert want.shape == got.shape
        if want.dtype.kind in "fc":
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)
        else:
            assert same(want, got)


def test_while_with_nested_state() -> None:
    check(
        """HloModule m
cond {
  s = (s64[], (c64[3], f32[2]), u64[4]) parameter(0)
  i = s64[] get-tuple-element(s), index=0
  n = s64[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  s = (s64[], (c64[3], f32[2]), u64[4]) parameter(0)
  i = s64[] get-tuple-element(s), index=0
  one = s64[] constant(1)
  next = s64[] add(i, one)
  inner = (c64[3], f32[2]) get-tuple-element(s), index=1
  z = c64[3] get-tuple-element(inner), index=0
  f = f32[2] get-tuple-element(inner), index=1
  zz = c64[3] multiply(z, z)
  new = (c64[3], f32[2]) tuple(zz, f)
  u = u64[4] get-tuple-element(s), index=2
  uu = u64[4] multiply(u, u)
  ROOT t = (s64[], (c64[3], f32[2]), u64[4]) tuple(next, new, uu)
}
ENTRY e {
  z = c64[3] parameter(0)
  f = f32[2] parameter(1)
  u = u64[4] parameter(2)
  zero = s64[] constant(0)
  inner = (c64[3], f32[2]) tuple(z, f)
  init = (s64[], (c64[3], f32[2]), u64[4]) tuple(zero, inner, u)
  w = (s64[], (c64[3], f32[2]), u64[4]) while(init), condition=cond, body=body
  i = s64[] get-tuple-element(w), index=0
  n = (c64[3], f32[2]) get-tuple-element(w), index=1
  zr = c64[3] get-tuple-element(n), index=0
  ur = u64[4] get-tuple-element(w), index=2
  ROOT t = (s64[], c64[3], u64[4]) tuple(i, zr, ur)
}
""",
        complexes(3),
        np.ones(2, np.float32),
        integers(4).view(np.uint64),
    )


def test_while_whose_state_is_one_number() -> None:
    check(
        """HloModule m
cond {
  i = s64[] parameter(0)
  n = s64[] constant(5000000000)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  i = s64[] parameter(0)
  ROOT d = s64[] multiply(i, i)
}
ENTRY e {
  x = s64[] parameter(0)
  ROOT w = s64[] while(x), condition=cond, body=body
}
""",
        np.int64(3),
    )


@pytest.mark.parametrize("choice", [0, 1])
def test_conditional_and_call(choice: int) -> None:
    check(
        """HloModule m
double {
  a = c64[3] parameter(0)
  ROOT r = c64[3] add(a, a)
}
turn {
  a = (c64[3], s64[]) parameter(0)
  z = c64[3] get-tuple-element(a), index=0
  ROOT r = c64[3] negate(z)
}
helper {
  n = s64[] parameter(0)
  z = c64[3] parameter(1)
  ROOT t = (c64[3], s64[]) tuple(z, n)
}
ENTRY e {
  p = pred[] parameter(0)
  z = c64[3] parameter(1)
  n = s64[] parameter(2)
  t = (c64[3], s64[]) call(n, z), to_apply=helper
  ROOT r = c64[3] conditional(p, z, t), true_computation=double, false_computation=turn
}
""",
        np.bool_(choice),
        complexes(3),
        np.int64(9),
    )


@pytest.mark.parametrize("dtype", ["s64", "u64", "c64"])
def test_data_movement(dtype: str) -> None:
    x = complexes(4, 6) if dtype == "c64" else integers(4, 6)
    value = "(0.5, -2)" if dtype == "c64" else "6000000000"
    check(
        f"""HloModule m
ENTRY e {{
  x = {dtype}[4,6] parameter(0)
  v = {dtype}[] constant({value})
  p = {dtype}[7,6] pad(x, v), padding=1_2_0x-1_1_0
  q = {dtype}[4,3] slice(x), slice={{[0:4], [0:6:2]}}
  r = {dtype}[6,4] transpose(x), dimensions={{1,0}}
  s = {dtype}[24] reshape(r)
  t = {dtype}[4,12] concatenate(x, x), dimensions={{1}}
  u = {dtype}[4,6] reverse(x), dimensions={{0}}
  i = {dtype}[5] iota(), iota_dimension=0
  b = {dtype}[4,5] broadcast(i), dimensions={{1}}
  o = {dtype}[4,6] opt-barrier(u)
  ROOT z = ({dtype}[7,6], {dtype}[4,3], {dtype}[24], {dtype}[4,12], {dtype}[4,6], {dtype}[4,5])
    tuple(p, q, s, t, o, b)
}}
""",
        x.astype({"s64": np.int64, "u64": np.uint64, "c64": np.complex64}[dtype]),
    )


@pytest.mark.parametrize("start", [-(2**62), -1, 0, 2, 2**31, 2**33])
def test_wide_indices_are_clamped(start: int) -> None:
    check(
        """HloModule m
ENTRY e {
  x = f32[8] parameter(0)
  i = s64[] parameter(1)
  y = f32[3] dynamic-slice(x, i), dynamic_slice_sizes={3}
  w = f32[8] dynamic-update-slice(x, y, i)
  n = s64[1] reshape(i)
  g = f32[2] gather(x, n), offset_dims={0}, collapsed_slice_dims={}, start_index_map={0},
    index_vector_dim=0, slice_sizes={2}
  u = u64[] bitcast-convert(i)
  v = f32[3] dynamic-slice(x, u), dynamic_slice_sizes={3}
  ROOT t = (f32[3], f32[8], f32[2], f32[3]) tuple(y, w, g, v)
}
""",
        np.arange(8, dtype=np.float32),
        np.int64(start),
    )


@pytest.mark.parametrize("init", [0, 1, 7, -(2**40)])
@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum", "minimum", "and", "or", "xor"])
def test_reduce_of_integers(opcode: str, init: int) -> None:
    check(
        f"""HloModule m
f {{
  a = s64[] parameter(0)
  b = s64[] parameter(1)
  ROOT r = s64[] {opcode}(a, b)
}}
ENTRY e {{
  x = s64[5,40] parameter(0)
  z = s64[] constant({init})
  r = s64[5] reduce(x, z), dimensions={{1}}, to_apply=f
  w = s64[5,39] reduce-window(x, z), window={{size=1x2}}, to_apply=f
  ROOT t = (s64[5], s64[5,39]) tuple(r, w)
}}
""",
        integers(5, 40),
    )


def test_sums_of_complex_numbers_are_two_plain_reductions() -> None:
    text = """HloModule m
f {
  a = c64[] parameter(0)
  b = c64[] parameter(1)
  ROOT r = c64[] add(a, b)
}
ENTRY e {
  x = c64[5,40] parameter(0)
  z = c64[] constant((0, 0))
  ROOT r = c64[5] reduce(x, z), dimensions={1}, to_apply=f
}
"""
    check(text, complexes(5, 40))
    reductions = [i for i in rewritten(text).entry if i.opcode == "reduce"]
    assert [len(r.operands) for r in reductions] == [2, 2]


def test_argmax_keeps_value_and_place_together() -> None:
    check(
        """HloModule m
f {
  a = s64[] parameter(0)
  i = s32[] parameter(1)
  b = s64[] parameter(2)
  j = s32[] parameter(3)
  c = pred[] compare(a, b), direction=GE
  v = s64[] select(c, a, b)
  k = s32[] select(c, i, j)
  ROOT t = (s64[], s32[]) tuple(v, k)
}
ENTRY e {
  x = s64[40] parameter(0)
  i = s32[40] iota(), iota_dimension=0
  z = s64[] constant(-9223372036854775808)
  n = s32[] constant(0)
  ROOT r = (s64[], s32[]) reduce(x, i, z, n), dimensions={0}, to_apply=f
}
""",
        integers(40),
    )


def test_sort_by_wide_keys() -> None:
    check(
        """HloModule m
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  k = u64[] parameter(2)
  l = u64[] parameter(3)
  ROOT c = pred[] compare(k, l), direction=GT
}
ENTRY e {
  x = f32[40] parameter(0)
  k = u64[40] parameter(1)
  ROOT r = (f32[40], u64[40]) sort(x, k), dimensions={0}, is_stable=true, to_apply=f
}
""",
        RNG.standard_normal(40).astype(np.float32),
        integers(40).view(np.uint64),
    )


@pytest.mark.parametrize("opcode", ["add", "minimum", "multiply"])
def test_scatter_with_wide_data_and_indices(opcode: str) -> None:
    check(
        f"""HloModule m
f {{
  a = s64[] parameter(0)
  b = s64[] parameter(1)
  ROOT r = s64[] {opcode}(a, b)
}}
ENTRY e {{
  x = s64[8] parameter(0)
  i = s64[5,1] parameter(1)
  u = s64[5] parameter(2)
  ROOT r = s64[8] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f
}}
""",
        integers(8),
        np.array([[1], [7], [-1], [2**40], [1]]),
        integers(5),
    )


@pytest.mark.parametrize(
    ("left", "right", "result"), [("s64", "s64", "s64"), ("c64", "c64", "c64")]
)
def test_dot(left: str, right: str, result: str) -> None:
    make = complexes if result == "c64" else integers
    check(
        f"""HloModule m
ENTRY e {{
  x = {left}[2,3,4,5] parameter(0)
  y = {right}[5,2,6,3] parameter(1)
  ROOT r = {result}[2,4,6] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{1}},
    lhs_contracting_dims={{1,3}}, rhs_contracting_dims={{3,0}}
}}
""",
        make(2, 3, 4, 5),
        make(5, 2, 6, 3),
    )


SIGNATURE = """HloModule m, input_output_alias={ {0}: (1, {}, may-alias), {1}: (0, {1}, may-alias) },
  entry_computation_layout={((f32[2], c64[3]), s64[4], f32[5])->(s64[4], c64[3], f32[5])}
ENTRY e {
  a = (f32[2], c64[3]) parameter(0)
  b = s64[4] parameter(1)
  c = f32[5] parameter(2)
  z = c64[3] get-tuple-element(a), index=1
  n = s64[4] negate(b)
  w = c64[3] negate(z)
  ROOT t = (s64[4], c64[3], f32[5]) tuple(n, w, c)
}
"""


def test_signature_follows() -> None:
    module = rewritten(SIGNATURE)
    aliases = module.attrs["input_output_alias"]
    assert aliases == (
        InputOutputAlias((0,), 1, ()),
        InputOutputAlias((1,), 2, ()),
        InputOutputAlias((2,), 0, (1,)),
        InputOutputAlias((3,), 0, (2,)),
    )
    layout = module.attrs["entry_computation_layout"]
    assert isinstance(layout, ComputationLayout)
    assert len(layout.parameters) == len(module.entry.parameters) == 4
    assert host_ports(module).parameters == ("", "c64[3]", "c64[3]", "s64[4]", "s64[4]", "")
    assert host_ports(module).results == ("s64[4]", "s64[4]", "c64[3]", "c64[3]", "")


def test_host_types_survive_the_text() -> None:
    module = rewritten(SIGNATURE)
    again = parse_module(print_module(module), "again.hlo")
    assert host_ports(again) == host_ports(module)


def test_trip_count_stays() -> None:
    module = rewritten(
        """HloModule m
cond {
  s = (s64[], f32[]) parameter(0)
  i = s64[] get-tuple-element(s), index=0
  n = s64[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  s = (s64[], f32[]) parameter(0)
  i = s64[] get-tuple-element(s), index=0
  x = f32[] get-tuple-element(s), index=1
  one = s64[] constant(1)
  j = s64[] add(i, one)
  ROOT t = (s64[], f32[]) tuple(j, x)
}
ENTRY e {
  s = (s64[], f32[]) parameter(0)
  ROOT w = (s64[], f32[]) while(s), condition=cond, body=body, backend_config={"known_trip_count":{"n":"5"}}
}
"""
    )
    (loop,) = [i for i in module.entry if i.opcode == "while"]
    assert '"5"' in str(loop.attrs["backend_config"])
