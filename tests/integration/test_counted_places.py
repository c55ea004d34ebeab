"""Gathers and scatters whose index vectors count along a dimension, against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from tests.support.against_evaluator import binary, check, random_values

TAKE = "f {{\n  f.a = {0}[] parameter(0)\n  ROOT f.b = {0}[] parameter(1)\n}}\n"

# components of the index vectors: a number that all share, a count from it ("n+1"), data ("i")
CASES = {
    "a row each": ((40, 30), (40,), ("n+0", "i"), ()),
    "a column each": ((30, 40), (40,), ("i", "n+0"), ()),
    "the diagonal": ((40, 40), (40,), ("n+0", "n+0"), ()),
    "above the diagonal": ((40, 41), (40,), ("n+0", "n+1"), ()),
    "some rows": ((50, 30), (40,), ("n+3", "i"), ()),
    "blocks beside a diagonal": ((5, 9, 3, 10, 6), (9,), ("n+0", "n+1", "1"), (0, 2, 4)),
    "windows": ((12, 20, 7), (12,), ("n+0", "i", "2"), (2,)),
    "outside": ((40, 30), (40,), ("n+1", "i"), ()),
    "two of data": ((40, 30, 8), (40,), ("n+0", "i", "i"), ()),
}


def program(name: str, combine: str, dtype: str) -> tuple[str, int]:
    dims, numbers, parts, windows = CASES[name]
    (count,) = numbers
    lines, data = [], 0
    for k, part in enumerate(parts):
        if part == "i":
            lines.append(f"p{k} = s32[{count},1] parameter({2 + data})")
            data += 1
        elif part.startswith("n"):
            lines.append(f"n{k} = s32[{count},1] iota(), iota_dimension=0")
            lines.append(f"k{k} = s32[] constant({part[2:]})")
            lines.append(f"b{k} = s32[{count},1] broadcast(k{k}), dimensions={{}}")
            lines.append(f"p{k} = s32[{count},1] add(n{k}, b{k})")
        else:
            lines.append(f"k{k} = s32[] constant({part})")
            lines.append(f"p{k} = s32[{count},1] broadcast(k{k}), dimensions={{}}")
    inserted = [d for d in range(len(dims)) if d not in windows]
    mapped = inserted if len(inserted) == len(parts) else [*inserted, max(windows)]
    sizes = [dims[d] if d not in mapped else 3 for d in windows]
    shape = f"{dtype}[{','.join(map(str, dims))}]"
    # the numbering dimension comes second where the first window dimension comes first
    place = 1 if windows and windows[0] == 0 else 0
    update = [*sizes[:place], count, *sizes[place:]]
    window_dims = [d for d in range(len(update)) if d != place]
    pieces = ", ".join(f"p{k}" for k in range(len(parts)))
    comma = ",".join
    called = TAKE.format(dtype) if combine == "take" else binary("f", combine, dtype)
    body = "\n  ".join(lines)
    return (
        f"HloModule m\n{called}\nENTRY e {{\n  x = {shape} parameter(0)\n"
        f"  u = {dtype}[{comma(map(str, update))}] parameter(1)\n  {body}\n"
        f"  c = s32[{count},{len(parts)}] concatenate({pieces}), dimensions={{1}}\n"
        f"  ROOT r = {shape} scatter(x, c, u), update_window_dims={{{comma(map(str, window_dims))}}}, "
        f"inserted_window_dims={{{comma(map(str, inserted))}}}, "
        f"scatter_dims_to_operand_dims={{{comma(map(str, mapped))}}}, index_vector_dim=1, to_apply=f\n}}\n"
    ), data


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("combine", "dtype"), [("add", "f32"), ("take", "s32"), ("maximum", "bf16")]
)
def test_scatters_where_a_component_counts(name: str, combine: str, dtype: str) -> None:
    text, data = program(name, combine, dtype)
    dims, (count,), _, _ = CASES[name]
    kind = BY_NAME[dtype]
    start = text.index("u = ")
    update = [int(n) for n in text[text.index("[", start) + 1 : text.index("]", start)].split(",")]
    rng = np.random.default_rng(3)
    places = [rng.integers(-2, max(dims) + 2, (count, 1)).astype(np.int32) for _ in range(data)]
    check(text, [random_values(kind, dims, 1), random_values(kind, update, 2), *places])


@pytest.mark.parametrize("order", ["{0,1}", "{1,0}"])
def test_gathers_of_one_element_a_row(order: str) -> None:
    text = f"""HloModule m
ENTRY e {{
  x = f32[40,30] parameter(0)
  i = s32[{40 if order == "{0,1}" else 30},1] parameter(1)
  n = s32[{40 if order == "{0,1}" else 30},1] iota(), iota_dimension=0
  c = s32[{40 if order == "{0,1}" else 30},2] concatenate(n, i), dimensions={{1}}
  ROOT g = f32[{40 if order == "{0,1}" else 30}] gather(x, c), offset_dims={{}},
    collapsed_slice_dims={{0,1}}, start_index_map={order}, index_vector_dim=1, slice_sizes={{1,1}}
}}
"""
    rng = np.random.default_rng(3)
    size = 40 if order == "{0,1}" else 30
    places = rng.integers(-3, 45, (size, 1)).astype(np.int32)
    check(text, [random_values(BY_NAME["f32"], (40, 30), 1), places])


@pytest.mark.parametrize("several", [2, 5, 16, 17])
@pytest.mark.parametrize(
    ("combine", "dtype"), [("add", "s32"), ("take", "u32"), ("maximum", "bf16")]
)
def test_rows_with_several_updates(several: int, combine: str, dtype: str) -> None:
    """They may meet, and are made in their order; more than sixteen are no selects."""
    called = TAKE.format(dtype) if combine == "take" else binary("f", combine, dtype)
    text = f"""HloModule m
{called}
ENTRY e {{
  x = {dtype}[5,30,11] parameter(0)
  u = {dtype}[5,{several},30] parameter(1)
  i = s32[5,{several},30,1] parameter(2)
  n = s32[5,{several},30,1] iota(), iota_dimension=2
  c = s32[5,{several},30,2] concatenate(i, n), dimensions={{3}}
  ROOT r = {dtype}[5,30,11] scatter(x, c, u), update_window_dims={{}}, inserted_window_dims={{1,2}},
    scatter_dims_to_operand_dims={{2,1}}, input_batching_dims={{0}}, scatter_indices_batching_dims={{0}},
    index_vector_dim=3, to_apply=f
}}
"""
    places = np.random.default_rng(3).integers(-2, 13, (5, several, 30, 1)).astype(np.int32)
    kind = BY_NAME[dtype]
    check(
        text,
        [random_values(kind, (5, 30, 11), 1), random_values(kind, (5, several, 30), 2), places],
    )
