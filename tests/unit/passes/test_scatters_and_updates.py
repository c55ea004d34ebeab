"""Scatters in large steps, stencils in one pass, loops that need no copy of their state."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from compiler import driver
from compiler.backend.kernel_options import KernelOptions
from compiler.hlo.dtypes import BY_NAME
from tests.support.run_hlo import ADD, MAX, Run, check_text, expected, normal, run_text

COLUMNS = """HloModule m
{reducer}
ENTRY main {{
  {operand}
  i = s32[40,2] parameter(0)
  u = f32[96,40] parameter(1)
  ROOT s = f32[96,9,9] scatter(x, i, u), update_window_dims={{0}}, inserted_window_dims={{1,2}}, \
scatter_dims_to_operand_dims={{1,2}}, index_vector_dim=1, to_apply={name}
}}
"""
FILLED = "z = f32[] constant({fill})\n  x = f32[96,9,9] broadcast(z), dimensions={{}}"


def opcodes(run: Run) -> str:
    return run.compiled.hlo_text()


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
@pytest.mark.parametrize(("name", "reducer", "fill"), [("add_f32", ADD, 0), ("max_f32", MAX, -1)])
def test_columns_are_scattered_as_rows(name: str, reducer: str, fill: int, machine: str) -> None:
    text = COLUMNS.format(name=name, reducer=reducer, operand=FILLED.format(fill=fill))
    indices = np.random.default_rng(0).integers(-1, 11, (40, 2), np.int32)  # some are outside
    run = check_text(text, [indices, normal(1, 96, 40)], machine=machine)
    assert "f32[9,9,96] scatter" in opcodes(run)
    assert not any("broadcast" in note for note in run.notes)  # the kernel fills its own blocks


def test_a_filled_target_that_others_read_is_no_array_in_memory() -> None:
    text = COLUMNS.format(name="add_f32", reducer=ADD, operand=FILLED.format(fill=3))
    head, _, entry = text.partition("ENTRY")
    entry = entry.replace("ROOT s", "s").replace(
        "\n}\n", "\n  y = f32[96,9,9] negate(s)\n  ROOT m = f32[96,9,9] maximum(y, x)\n}\n"
    )
    indices = np.random.default_rng(0).integers(0, 9, (40, 2), np.int32)
    run = check_text(f"{head}ENTRY{entry}", [indices, normal(1, 96, 40)])
    assert not any("broadcast" in note for note in run.notes)


FEW = """HloModule m
{reducer}
ENTRY main {{
  x = {dtype}[{places}] parameter(0)
  i = {index}[{count},1] parameter(1)
  u = {dtype}[{count}] parameter(2)
  ROOT s = {dtype}[{places}] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{0}}, \
scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply={name}
}}
"""


@pytest.mark.parametrize("index", ["s32", "u8", "s8"])
@pytest.mark.parametrize("dtype", ["f32", "s32"])
@pytest.mark.parametrize(("name", "reducer"), [("add_f32", ADD), ("max_f32", MAX)])
def test_elements_into_few_places(name: str, reducer: str, dtype: str, index: str) -> None:
    reducer = reducer.replace("f32[]", f"{dtype}[]")
    text = FEW.format(reducer=reducer, dtype=dtype, name=name, index=index, places=300, count=700)
    source = np.random.default_rng(3)
    low, high = (0, 255) if index == "u8" else (-3, 127) if index == "s8" else (-5, 310)
    kind = {"s32": np.int32, "u8": np.uint8, "s8": np.int8}[index]
    indices = source.integers(low, high, (700, 1)).astype(kind)
    values = [normal(1, 300), normal(2, 700)]
    if dtype == "s32":
        values = [(v * 100).astype(np.int32) for v in values]
    run = check_text(text, [values[0], indices, values[1]])
    assert "scatter(" not in opcodes(run)


@pytest.mark.parametrize("dtype", ["s8", "u8", "s16", "f16", "bf16"])
@pytest.mark.parametrize(("name", "reducer"), [("add_f32", ADD), ("max_f32", MAX)])
def test_narrow_elements_into_few_places(name: str, reducer: str, dtype: str) -> None:
    reducer = reducer.replace("f32[]", f"{dtype}[]")
    text = FEW.format(reducer=reducer, dtype=dtype, name=name, index="s32", places=300, count=700)
    source, kind = np.random.default_rng(3), BY_NAME[dtype].numpy
    inputs = [
        source.integers(0, 9, 300).astype(kind),
        source.integers(-5, 310, (700, 1)).astype(np.int32),
        source.integers(0, 9, 700).astype(kind),
    ]
    run = run_text(text, inputs)
    assert "scatter(" not in opcodes(run)
    assert np.array_equal(run.outputs[0], expected(text, inputs)[0])


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_negative_zero_that_no_update_meets_stays(dtype: str) -> None:
    reducer = ADD.replace("f32[]", f"{dtype}[]")
    text = FEW.format(
        reducer=reducer, dtype=dtype, name="add_f32", index="s32", places=50, count=100
    )
    kind = BY_NAME[dtype].numpy
    inputs = [np.full(50, -0.0, kind), np.full((100, 1), 3, np.int32), np.ones(100, kind)]
    (got,) = run_text(text, inputs).outputs
    assert np.signbit(got.astype(np.float32)).sum() == 49
    assert got[3] == 100


def test_many_places_stay_a_scatter() -> None:
    text = FEW.format(reducer=ADD, dtype="f32", name="add_f32", index="s32", places=5000, count=100)
    indices = np.random.default_rng(3).integers(0, 5000, (100, 1), np.int32)
    run = check_text(text, [normal(1, 5000), indices, normal(2, 100)])
    assert "scatter(" in opcodes(run)


STENCIL = """
  up = f32[{inner}] slice(x), slice={{[2:{rows}], [1:{right}]}}
  down = f32[{inner}] slice(x), slice={{[0:{top}], [1:{right}]}}
  side = f32[{inner}] slice(x), slice={{[1:{bottom}], [2:{columns}]}}
  mid = f32[{inner}] slice(x), slice={{[1:{bottom}], [1:{right}]}}
  a = f32[{inner}] add(up, down)
  b = f32[{inner}] add(a, side)
  half = f32[] constant(0.5)
  halves = f32[{inner}] broadcast(half), dimensions={{}}
  c = f32[{inner}] multiply(b, halves)
  u = f32[{inner}] subtract(c, mid)
  one = s32[] constant(1)
"""


def stencil(rows: int, columns: int) -> str:
    return STENCIL.format(
        inner=f"{rows - 2},{columns - 2}", rows=rows, columns=columns, top=rows - 2,
        bottom=rows - 1, right=columns - 1,
    )  # fmt: skip


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
@pytest.mark.parametrize(("rows", "columns"), [(8, 128), (40, 300), (65, 129)])
def test_a_stencil_is_one_kernel(rows: int, columns: int, machine: str) -> None:
    shape = f"f32[{rows},{columns}]"
    text = (
        f"HloModule m\nENTRY main {{\n  x = {shape} parameter(0){stencil(rows, columns)}"
        f"  ROOT r = {shape} dynamic-update-slice(x, u, one, one)\n}}\n"
    )
    run = check_text(text, [normal(0, rows, columns)], machine=machine)
    assert len(run.notes) == 1
    assert "dynamic-update-slice" not in opcodes(run)


LOOP = """HloModule m

cond {{
  s = (s32[], f32[{dims}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}

body {{
  s = (s32[], f32[{dims}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[{dims}] get-tuple-element(s), index=1{stencil}
  j = s32[] add(i, one)
  r = f32[{dims}] dynamic-update-slice(x, u, one, one)
  ROOT t = (s32[], f32[{dims}]) tuple(j, r)
}}

ENTRY main {{
  x = f32[{dims}] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[{dims}]) tuple(z, x)
  w = (s32[], f32[{dims}]) while(t), condition=cond, body=body
  ROOT r = f32[{dims}] get-tuple-element(w), index=1
}}
"""


@pytest.fixture
def loops_in_main(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops whose arrays fit VMEM are run by main too, from HBM."""
    in_main = partial(KernelOptions, loops_in_vmem=False)
    monkeypatch.setattr(driver, "KernelOptions", in_main)


@pytest.mark.usefixtures("loops_in_main")
@pytest.mark.parametrize(("trips", "kernels"), [(4, 2), (5, 1)])
def test_an_even_loop_of_a_stencil_copies_nothing(trips: int, kernels: int) -> None:
    text = LOOP.format(dims="512,512", trips=trips, stencil=stencil(512, 512))
    run = check_text(text, [normal(0, 512, 512)], machine="llvm")
    body = opcodes(run).partition("\n%body")[2].partition("\n}\n")[0]
    assert body.count("kind=kLoop") - body.count("s32[]{:T(128)S(6)} fusion") == kernels
    copies = sum(call.name.startswith("copy") for call in run.result.kernels)
    assert copies == (1 if trips % 2 == 0 else 1 + trips)


@pytest.mark.usefixtures("loops_in_main")
def test_a_small_state_is_copied() -> None:
    text = LOOP.format(dims="64,128", trips=4, stencil=stencil(64, 128))
    run = check_text(text, [normal(0, 64, 128)], machine="llvm")
    assert sum(call.name.startswith("copy") for call in run.result.kernels) == 5


def test_a_state_made_in_place_stays_one_body() -> None:
    text = LOOP.format(dims="512,512", trips=24, stencil="\n  one = s32[] constant(1)\n")
    text = text.replace("dynamic-update-slice(x, u, one, one)", "add(x, x)")
    run = check_text(text, [normal(0, 512, 512)], machine="llvm")
    assert '"n":"24"' in opcodes(run)


def test_an_update_may_be_sliced_at_a_place_known_at_run_time() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[9] parameter(0)
  y = f32[14,6] parameter(1)
  k = s32[] parameter(2)
  zero = s32[] constant(0)
  one = s32[] constant(1)
  j = s32[] add(k, one)
  d = f32[1,1] dynamic-slice(y, zero, j), dynamic_slice_sizes={1,1}
  r = f32[1] reshape(d)
  ROOT u = f32[9] dynamic-update-slice(x, r, one)
}
"""
    check_text(text, [normal(0, 9), normal(1, 14, 6), np.int32(3)], machine="llvm")


ONE = """HloModule m
{reducer}
ENTRY main {{
  x = f32[5,9] parameter(0)
  i = {index}[2] parameter(1)
  u = f32[2] parameter(2)
  ROOT s = f32[5,9] scatter(x, i, u), update_window_dims={{0}}, inserted_window_dims={{0}}, \
scatter_dims_to_operand_dims={{0,1}}, index_vector_dim=0, to_apply={name}
}}
"""
SET = "set { a = f32[] parameter(0)\n ROOT b = f32[] parameter(1) }"


@pytest.mark.parametrize("place", [(0, 0), (4, 7), (4, 8), (-1, 3), (5, 0), (2, -1)])
@pytest.mark.parametrize(("name", "reducer"), [("add_f32", ADD), ("set", SET)])
@pytest.mark.parametrize("index", ["s32", "u32", "s8"])
def test_one_window_is_an_update(
    place: tuple[int, int], name: str, reducer: str, index: str
) -> None:
    text = ONE.format(name=name, reducer=reducer, index=index)
    starts = np.array(place, np.int64).astype(BY_NAME[index].numpy)  # u32 of -1 is outside, too
    run = check_text(text, [normal(0, 5, 9), starts, normal(1, 2)])
    assert "scatter" not in opcodes(run)


NARROW = """HloModule m
{name} {{
  a = {dtype}[] parameter(0)
  b = {dtype}[] parameter(1)
  ROOT s = {dtype}[] {name}(a, b)
}}
ENTRY main {{
  x = {dtype}[3000] parameter(0)
  i = s32[700] parameter(1)
  u = {dtype}[700] parameter(2)
  ROOT s = {dtype}[3000] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{0}}, \
scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply={name}
}}
"""


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("or", "pred"),
        ("and", "pred"),
        ("add", "s8"),
        ("multiply", "u16"),
        ("minimum", "u8"),
        ("maximum", "bf16"),
    ],
)
def test_narrow_elements_are_scattered_as_words(name: str, dtype: str) -> None:
    """Elements meet, some lie outside, and sums leave the range of their type."""
    rng = np.random.default_rng(0)
    numpy = BY_NAME[dtype].numpy
    values = [rng.integers(-60000, 60000, n).astype(np.int64) for n in (3000, 700)]
    x, u = ((v % 2 == 0 if dtype == "pred" else v.astype(numpy)) for v in values)
    run = check_text(
        NARROW.format(name=name, dtype=dtype), [x, rng.integers(-9, 900, 700, np.int32), u]
    )
    assert any("together" in note for note in run.notes)


def test_a_stack_of_images_times_a_vector_keeps_its_dimensions() -> None:
    """Whichever side is summed: products with a vector do not copy the images into rows."""
    for out, lhs, rhs, left in (("6", "1,2", "0,1", "160,200"), ("160,200", "0", "0", "6")):
        text = f"""HloModule m
ENTRY main {{
  v = f32[6,160,200] parameter(0)
  w = f32[{left}] parameter(1)
  ROOT d = f32[{out}] dot(v, w), lhs_contracting_dims={{{lhs}}}, rhs_contracting_dims={{{rhs}}}
}}
"""
        vector = normal(1, *map(int, left.split(",")))
        run = check_text(text, [normal(0, 6, 160, 200), vector])
        assert "dot(" not in opcodes(run) and "32000" not in opcodes(run)


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
def test_updates_of_zeros_are_added_in_place(machine: str) -> None:
    """The gradient of two slices a turn, at places that meet and that reach outside."""
    text = """HloModule m
body {
  p = (s32[], f32[40,8,128], s32[5,2], f32[5,8,128]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  x = f32[40,8,128] get-tuple-element(p), index=1
  at = s32[5,2] get-tuple-element(p), index=2
  u = f32[5,8,128] get-tuple-element(p), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  none = f32[] constant(0)
  zeros = f32[40,8,128] broadcast(none), dimensions={}
  now = f32[1,8,128] dynamic-slice(u, n, zero, zero), dynamic_slice_sizes={1,8,128}
  a = s32[1,1] dynamic-slice(at, n, zero), dynamic_slice_sizes={1,1}
  b = s32[1,1] dynamic-slice(at, n, one), dynamic_slice_sizes={1,1}
  i = s32[] reshape(a)
  j = s32[] reshape(b)
  first = f32[40,8,128] dynamic-update-slice(zeros, now, i, zero, zero)
  second = f32[40,8,128] dynamic-update-slice(zeros, now, j, zero, zero)
  both = f32[40,8,128] add(first, second)
  sum = f32[40,8,128] add(both, x)
  next = s32[] add(n, one)
  ROOT t = (s32[], f32[40,8,128], s32[5,2], f32[5,8,128]) tuple(next, sum, at, u)
}
condition {
  p = (s32[], f32[40,8,128], s32[5,2], f32[5,8,128]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  five = s32[] constant(5)
  ROOT c = pred[] compare(n, five), direction=LT
}
ENTRY main {
  x = f32[40,8,128] parameter(0)
  at = s32[5,2] parameter(1)
  u = f32[5,8,128] parameter(2)
  zero = s32[] constant(0)
  t = (s32[], f32[40,8,128], s32[5,2], f32[5,8,128]) tuple(zero, x, at, u)
  w = (s32[], f32[40,8,128], s32[5,2], f32[5,8,128]) while(t), condition=condition, body=body
  ROOT r = f32[40,8,128] get-tuple-element(w), index=1
}
"""
    places = np.array([[3, 3], [0, 39], [-5, 50], [3, 7], [8, 3]], np.int32)
    run = check_text(text, [normal(0, 40, 8, 128), places, normal(2, 5, 8, 128)], machine=machine)
    assert "f32[40,8,128]{2,1,0} broadcast" not in opcodes(run)
