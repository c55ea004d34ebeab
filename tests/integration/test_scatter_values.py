"""Scatters and updates in every type, rank and alignment, with any computation of two numbers."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from tests.support.against_evaluator import binary, check, random_values, tupled

TYPES = (
    "pred", "s4", "s8", "u16", "s32", "s64", "bf16", "f16", "f32", "f8e5m2", "f8e4m3fn", "c64",
)  # fmt: skip
TAKE = "f {{\n  f.a = {0}[] parameter(0)\n  ROOT f.b = {0}[] parameter(1)\n}}\n"
WINDOWS = (
    # operand, updates, index of a window's start (some lie outside)
    ((300,), (129,), ((2,), (171,), (172,), (-1,))),
    ((5000,), (1300,), ((0,), (1,), (3700,))),
    ((1024,), (1024,), ((0,),)),
    ((200,), (1,), ((127,), (128,), (199,))),
    ((40, 300), (17, 140), ((0, 0), (23, 160), (9, 100))),
    ((3, 9, 130), (2, 3, 129), ((1, 6, 1), (0, 0, 0))),
)


@pytest.mark.parametrize("dtype", TYPES)
def test_windows_at_any_place(dtype: str) -> None:
    kind = BY_NAME[dtype]
    lines, args, results = [], [], {}

    def parameter(name: str, shape: str, value: np.ndarray) -> str:
        lines.append(f"{name} = {shape} parameter({len(args)})")
        args.append(value)
        return name

    for n, (dims, size, places) in enumerate(WINDOWS):
        rank = len(dims)
        shape, window = (f"{dtype}[{','.join(map(str, d))}]" for d in (dims, size))
        x = parameter(f"x{n}", shape, random_values(kind, dims, n))
        u = parameter(f"u{n}", window, random_values(kind, size, n + 50))
        maps = ",".join(map(str, range(rank)))
        for k, place in enumerate(places):
            i = parameter(f"i{n}.{k}", f"s32[{rank}]", np.array(place, np.int32))
            name = f"s{n}.{k}"
            results[name] = shape
            lines.append(
                f"{name} = {shape} scatter({x}, {i}, {u}), update_window_dims={{{maps}}}, "
                f"inserted_window_dims={{}}, scatter_dims_to_operand_dims={{{maps}}}, "
                "index_vector_dim=0, to_apply=f"
            )
            starts = [f"c{n}.{k}.{d}" for d in range(rank)]
            for d, start in enumerate(starts):
                lines.append(f"{start}.1 = s32[1] slice({i}), slice={{[{d}:{d + 1}]}}")
                lines.append(f"{start} = s32[] reshape({start}.1)")
            results[f"d{n}.{k}"] = shape
            lines.append(f"d{n}.{k} = {shape} dynamic-update-slice({x}, {u}, {', '.join(starts)})")
    check(tupled(lines, results, TAKE.format(dtype)), args)


COMBINERS = {
    "subtract": "ROOT {f}.r = {t}[] subtract({f}.a, {f}.b)",
    "turned": "ROOT {f}.r = {t}[] subtract({f}.b, {f}.a)",
    "old": "ROOT {f}.r = {t}[] copy({f}.a)",
    "new": "ROOT {f}.r = {t}[] copy({f}.b)",
    "constant": "ROOT {f}.r = {t}[] constant(1)",
    "mixed": "{f}.c = {t}[] constant(2)\n  {f}.m = {t}[] multiply({f}.a, {f}.c)\n"
    "  ROOT {f}.r = {t}[] add({f}.m, {f}.b)",
    "twice": "ROOT {f}.r = {t}[] add({f}.b, {f}.b)",
    "greater": "{f}.c = pred[] compare({f}.a, {f}.b), direction=LT\n"
    "  ROOT {f}.r = {t}[] select({f}.c, {f}.b, {f}.a)",
}


@pytest.mark.parametrize("dtype", ["s8", "u8", "s4", "s32", "u64", "bf16", "f8e4m3fn", "f32"])
def test_any_computation_of_two_numbers(dtype: str) -> None:
    kind = BY_NAME[dtype]
    head = "{f} {{\n  {f}.a = {t}[] parameter(0)\n  {f}.b = {t}[] parameter(1)\n  "
    text = "".join((head + body + "\n}}\n").format(f=f, t=dtype) for f, body in COMBINERS.items())
    shape = f"{dtype}[6,5]"
    lines = [f"x = {shape} parameter(0)", "i = s32[9,1] parameter(1)"]
    lines += [f"u = {dtype}[9,5] parameter(2)", "j = s32[80,1] parameter(3)"]
    lines += [f"v = {dtype}[80] parameter(4)", f"y = {dtype}[7] parameter(5)"]
    results = {}
    for f in COMBINERS:
        results[f"r.{f}"], results[f"e.{f}"] = shape, f"{dtype}[7]"
        lines.append(
            f"r.{f} = {shape} scatter(x, i, u), update_window_dims={{1}}, "
            "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
            f"to_apply={f}"
        )
        lines.append(  # many elements into few places
            f"e.{f} = {dtype}[7] scatter(y, j, v), update_window_dims={{}}, "
            "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
            f"to_apply={f}"
        )
    rng = np.random.default_rng(3)
    dims = ((6, 5), (9, 5), (80,), (7,))
    x, u, v, y = (random_values(kind, d, n, whole=True) for n, d in enumerate(dims))
    i, j = (rng.integers(-1, n + 1, (count, 1)).astype(np.int32) for n, count in ((6, 9), (7, 80)))
    check(tupled(lines, results, text), [x, i, u, j, v, y])


@pytest.mark.parametrize("dtype", [t for t in TYPES if t != "pred"])
def test_operands_that_are_not_arrays_in_memory(dtype: str) -> None:
    """Constants, iotas and broadcasts as operand, indices and updates; one array as two of them."""
    kind = BY_NAME[dtype]
    element = (
        "update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1}, "
        "index_vector_dim=0, to_apply=f"
    )
    rows = (
        "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1, to_apply=f"
    )
    value = f"{dtype}[] constant({'(1, 2)' if kind.is_complex else 1})"
    lines = [
        f"x = {dtype}[4,130] parameter(0)", "i = s32[2] parameter(1)", "k = s32[4,1] parameter(2)",
        f"p = {dtype}[] parameter(3)", f"one = {value}", "c = s32[2] constant({2,129})",
        f"ones = {dtype}[4,130] broadcast(one), dimensions={{}}",
        f"count = {dtype}[4,130] iota(), iota_dimension=1", "zero = s32[] constant(0)",
        "order = s32[4,1] iota(), iota_dimension=0", f"row = {dtype}[4] iota(), iota_dimension=0",
    ]  # fmt: skip
    made = {
        "a": f"scatter(x, i, one), {element}", "b": f"scatter(x, c, one), {element}",
        "c2": f"scatter(ones, i, p), {element}", "d": f"scatter(x, k, count), {rows}",
        "e": f"scatter(count, k, ones), {rows}", "g": f"scatter(x, order, ones), {rows}",
        "h": f"scatter(x, k, x), {rows}", "o": f"scatter(ones, c, one), {element}",
    }  # fmt: skip
    results = dict.fromkeys(made, f"{dtype}[4,130]")
    lines += [f"{name} = {dtype}[4,130] {text}" for name, text in made.items()]
    single = (
        "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=0, to_apply=f"
    )
    lines.append(f"q = {dtype}[4] scatter(row, zero, one), {single}")
    results["q"] = f"{dtype}[4]"
    args = [
        random_values(kind, (4, 130), whole=True), np.array([3, 128], np.int32),
        np.array([[2], [2], [-1], [0]], np.int32), random_values(kind, ()),
    ]  # fmt: skip
    if not dtype.startswith("f8"):  # whose sums round: once or after every update
        check(tupled(lines, results, binary("f", "add", dtype)), args)
    check(tupled(lines, results, TAKE.format(dtype)), args)


MANY_ROWS = (
    # type, operand, number of updates
    ("f32", (20, 128), 37),
    ("f32", (20, 200), 33),
    ("bf16", (40, 130), 21),
    ("s8", (40, 128), 35),
    ("pred", (20, 128), 19),
    ("f32", (9, 8, 32), 40),
    ("bf16", (9, 20, 32), 18),
    ("f32", (6, 3, 1, 5), 24),
    ("f32", (30, 1), 35),
    ("s8", (70, 1), 18),
)


@pytest.mark.parametrize("opcode", ["add", "maximum", ""])
@pytest.mark.parametrize(("dtype", "dims", "count"), MANY_ROWS)
def test_updates_that_go_through_one_body(
    opcode: str, dtype: str, dims: tuple[int, ...], count: int
) -> None:
    """Several a turn of the loop, some to the same place, some outside, and those left over."""
    kind = BY_NAME[dtype]
    opcode = "or" if opcode and dtype == "pred" else opcode
    last = f"ROOT f.c = {dtype}[] {opcode}(f.a, f.b)" if opcode else ""
    body = (
        f"f {{\n  f.a = {dtype}[] parameter(0)\n"
        f"  {'' if opcode else 'ROOT '}f.b = {dtype}[] parameter(1)\n  {last}\n}}\n"
    )
    shape, many = (f"{dtype}[{','.join(map(str, d))}]" for d in (dims, (count, *dims[1:])))
    window = ",".join(map(str, range(1, len(dims))))
    lines = [
        f"x = {shape} parameter(0)",
        f"i = s32[{count},1] parameter(1)",
        f"u = {many} parameter(2)",
        f"s = {shape} scatter(x, i, u), update_window_dims={{{window}}}, inserted_window_dims={{0}}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f",
    ]
    index = np.random.default_rng(count).integers(-2, dims[0] + 2, (count, 1)).astype(np.int32)
    index[-3:] = index[0] = 1
    values = [random_values(kind, d, n) for n, d in enumerate((dims, (count, *dims[1:])))]
    if dtype == "bf16" or (dtype, opcode) == ("f32", "add"):  # sums that need no rounding
        values = [(v != v[:1]).astype(v.dtype) for v in values]
    check(tupled(lines, {"s": shape}, body), [values[0], index, values[1]])
