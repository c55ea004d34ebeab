"""Row chains: softmax and its gradient, normalisations, on both machines beside the evaluator.

The NumPy machine runs checked here: memory that is read and was never written is an error.
"""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api import compile as compile_model
from tests.support.run_hlo import check_text, normal

HEAD = """HloModule m
max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b)
}
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
"""
BATCHED = (
    "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}"
)
KINDS = {"f32": "float32", "bf16": "bfloat16"}
SHAPES = [((7,), 129), ((40,), 2), ((2, 197), 197), ((3, 2, 17), 256), ((24,), 1000)]
TYPES = [("f32", "f32"), ("f32", "bf16"), ("bf16", "bf16")]


def _softmax(rows: tuple[int, ...], cols: int, source: str, target: str, *, leaves: bool) -> str:
    """A softmax, and with `leaves` the logarithm of the sum of the exponentials."""
    k, last = ",".join(map(str, rows)), len(rows)
    kept = ",".join(map(str, range(last)))
    more, lse = (f", f32[{k}]", ", z") if leaves else ("", "")
    return f"""{HEAD}ENTRY e {{
  y = {source}[{k},{cols}] parameter(0)
  x = f32[{k},{cols}] convert(y)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[{k}] reduce(x, low), dimensions={{{last}}}, to_apply=max
  mb = f32[{k},{cols}] broadcast(m), dimensions={{{kept}}}
  d = f32[{k},{cols}] subtract(x, mb)
  p = f32[{k},{cols}] exponential(d)
  s = f32[{k}] reduce(p, zero), dimensions={{{last}}}, to_apply=add
  sb = f32[{k},{cols}] broadcast(s), dimensions={{{kept}}}
  q = f32[{k},{cols}] divide(p, sb)
  o = {target}[{k},{cols}] convert(q)
  l = f32[{k}] log(s)
  z = f32[{k}] add(l, m)
  ROOT r = ({target}[{k},{cols}]{more}) tuple(o{lse})
}}
"""


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize(("source", "target"), TYPES)
@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_softmax(
    rows: tuple[int, ...], cols: int, source: str, target: str, *, leaves: bool
) -> None:
    text = _softmax(rows, cols, source, target, leaves=leaves)
    inputs = [normal(1, *rows, cols, dtype=KINDS[source])]
    tolerance = 1e-5 if target == "f32" else 1e-2
    for machine in ("numpy", "llvm"):
        check_text(text, inputs, "default", machine, tolerance=tolerance)


def _gradient(batch: int, queries: int, keys: int) -> str:
    """A softmax's gradient, masked where keys come after queries, out of the product before it."""
    dims = f"[{batch},{queries},{keys}]"
    rows = f"[{batch},{queries}]"
    return f"""{HEAD}ENTRY e {{
  g = f32[{batch},{queries},64] parameter(0)
  v = f32[{batch},{keys},64] parameter(1)
  p = f32{dims} parameter(2)
  dp = f32{dims} dot(g, v), {BATCHED}
  i = s32{dims} iota(), iota_dimension=1
  j = s32{dims} iota(), iota_dimension=2
  seen = pred{dims} compare(i, j), direction=GE
  zero = f32[] constant(0)
  none = f32{dims} broadcast(zero), dimensions={{}}
  dm = f32{dims} select(seen, dp, none)
  t = f32{dims} multiply(dm, p)
  s = f32{rows} reduce(t, zero), dimensions={{2}}, to_apply=add
  sb = f32{dims} broadcast(s), dimensions={{0,1}}
  e = f32{dims} subtract(dm, sb)
  ROOT ds = f32{dims} multiply(e, p)
}}
"""


@pytest.mark.parametrize(("batch", "queries", "keys"), [(2, 24, 129), (3, 128, 256), (1, 40, 7)])
def test_gradient_of_a_softmax(batch: int, queries: int, keys: int) -> None:
    text = _gradient(batch, queries, keys)
    inputs = [normal(n, batch, rows, 64) for n, rows in enumerate((queries, keys))]
    inputs.append(normal(3, batch, queries, keys))
    for machine in ("numpy", "llvm"):
        check_text(text, inputs, "default", machine, tolerance=1e-4)


NORMALISED = f"""{HEAD}ENTRY e {{
  x = f32[4,50,320] parameter(0)
  w = f32[320] parameter(1)
  zero = f32[] constant(0)
  n = f32[] constant(0.003125)
  s = f32[4,50] reduce(x, zero), dimensions={{2}}, to_apply=add
  nb = f32[4,50] broadcast(n), dimensions={{}}
  mean = f32[4,50] multiply(s, nb)
  mb = f32[4,50,320] broadcast(mean), dimensions={{0,1}}
  d = f32[4,50,320] subtract(x, mb)
  dd = f32[4,50,320] multiply(d, d)
  v = f32[4,50] reduce(dd, zero), dimensions={{2}}, to_apply=add
  var = f32[4,50] multiply(v, nb)
  r = f32[4,50] rsqrt(var)
  rb = f32[4,50,320] broadcast(r), dimensions={{0,1}}
  y = f32[4,50,320] multiply(d, rb)
  wb = f32[4,50,320] broadcast(w), dimensions={{2}}
  z = f32[4,50,320] multiply(y, wb)
  a = f32[320] reduce(z, zero), dimensions={{0,1}}, to_apply=add
  ROOT o = (f32[4,50,320], f32[4,50], f32[320]) tuple(z, mean, a)
}}
"""


def test_normalisation_with_sums_over_rows_beside_it() -> None:
    inputs = [normal(1, 4, 50, 320), normal(2, 320)]
    for machine in ("numpy", "llvm"):
        check_text(NORMALISED, inputs, "default", machine, tolerance=1e-4)


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
def test_every_element_of_a_row(machine: str) -> None:
    """A predicate of rows, which lies in a register as 0 or 1 until it is a mask."""
    text = """HloModule m
all {
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT m = pred[] and(a, b)
}
ENTRY e {
  x = f32[33,140] parameter(0)
  zero = f32[] constant(-2.7)
  z = f32[33,140] broadcast(zero), dimensions={}
  more = pred[33,140] compare(x, z), direction=GT
  yes = pred[] constant(true)
  s = pred[33] reduce(more, yes), dimensions={1}, to_apply=all
  sb = pred[33,140] broadcast(s), dimensions={0}
  ROOT r = f32[33,140] select(sb, x, z)
}
"""
    check_text(text, [normal(1, 33, 140)], "default", machine)


def _scores(queries: int, keys: int) -> str:
    """A softmax of scaled scores, rounded: what attention takes of its first product."""
    dims, rows = f"[3,{queries},{keys}]", f"[3,{queries}]"
    return f"""{HEAD}ENTRY e {{
  q = bf16[3,{queries},64] parameter(0)
  k = bf16[3,{keys},64] parameter(1)
  d = f32{dims} dot(q, k), {BATCHED}
  c = f32[] constant(0.125)
  cb = f32{dims} broadcast(c), dimensions={{}}
  x = f32{dims} multiply(d, cb)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32{rows} reduce(x, low), dimensions={{2}}, to_apply=max
  mb = f32{dims} broadcast(m), dimensions={{0,1}}
  y = f32{dims} subtract(x, mb)
  p = f32{dims} exponential(y)
  s = f32{rows} reduce(p, zero), dimensions={{2}}, to_apply=add
  sb = f32{dims} broadcast(s), dimensions={{0,1}}
  r = f32{dims} divide(p, sb)
  ROOT o = bf16{dims} convert(r)
}}
"""


@pytest.mark.parametrize("queries", [8, 40, 128, 512])
@pytest.mark.parametrize("keys", [100, 256, 384, 512])
def test_rows_out_of_the_mxu(queries: int, keys: int) -> None:
    text = _scores(queries, keys)
    inputs = [normal(n, 3, rows, 64, dtype="bfloat16") for n, rows in enumerate((queries, keys))]
    for machine in ("numpy", "llvm"):
        check_text(text, inputs, "default", machine, tolerance=1e-2)


@pytest.mark.parametrize("keys", [256, 384])
def test_what_rows_leave_for_others_out_of_the_mxu(keys: int) -> None:
    """A running softmax: the maximum of each row and the sum are put together with earlier ones."""
    dims, rows = f"[3,128,{keys}]", "[3,128]"
    text = _scores(128, keys).replace("  ROOT o =", "  o =").rstrip("}\n")
    text = text.replace(
        "reduce(x, low), dimensions={2}, to_apply=max\n",
        f"reduce(x, low), dimensions={{2}}, to_apply=max\n  old = f32{rows} parameter(2)\n"
        f"  new = f32{rows} maximum(m, old)\n",
    ).replace("broadcast(m)", "broadcast(new)")
    text += f"""
  gone = f32{rows} subtract(old, new)
  left = f32{rows} exponential(gone)
  kept = f32{rows} multiply(left, old)
  sum = f32{rows} add(kept, s)
  ROOT t = (bf16{dims}, f32{rows}, f32{rows}) tuple(o, new, sum)
}}
"""
    inputs = [normal(n, 3, count, 64, dtype="bfloat16") for n, count in enumerate((128, keys))]
    inputs.append(normal(2, 3, 128))
    for machine in ("numpy", "llvm"):
        check_text(text, inputs, "default", machine, tolerance=1e-2)


@pytest.mark.parametrize(("keys", "is_stored"), [(256, False), (512, False), (1024, True)])
def test_scores_are_stored_where_rows_come_in_parts(keys: int, *, is_stored: bool) -> None:
    """Four units make 512 columns at a time."""
    text = compile_model(_scores(256, keys)).text("llo")
    window = next(line.split()[1] for line in text.splitlines() if '"scratch.d' in line)
    assert any(f"[{window} " in line and "vst" in line for line in text.splitlines()) == is_stored


FLAGS = """HloModule m
max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b)
}
any {
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT o = pred[] or(a, b)
}
first {
  va = f32[] parameter(0)
  ia = s32[] parameter(1)
  vb = f32[] parameter(2)
  ib = s32[] parameter(3)
  le = pred[] compare(va, vb), direction=LE
  v = f32[] select(le, va, vb)
  i = s32[] select(le, ia, ib)
  ROOT t = (f32[], s32[]) tuple(v, i)
}
ENTRY e {
  x = f32[2,10,24] parameter(0)
  c = f32[] constant(-0.9)
  cb = f32[2,10,24] broadcast(c), dimensions={}
  below = pred[2,10,24] compare(x, cb), direction=LT
  no = pred[] constant(false)
  some = pred[2,10] reduce(below, no), dimensions={2}, to_apply=any
  place = s32[2,10,24] iota(), iota_dimension=2
  zero = s32[] constant(0)
  inf = f32[] constant(inf)
  low = f32[] constant(-inf)
  least = (f32[2,10], s32[2,10]) reduce(x, place, inf, zero), dimensions={2}, to_apply=first
  at = s32[2,10] get-tuple-element(least), index=1
  one = s32[] constant(1)
  ones = s32[2,10] broadcast(one), dimensions={}
  chosen = s32[2,10] select(some, at, ones)
  wide = s32[2,10,24] broadcast(chosen), dimensions={0,1}
  here = pred[2,10,24] compare(place, wide), direction=EQ
  lows = f32[2,10,24] broadcast(low), dimensions={}
  kept = f32[2,10,24] select(here, x, lows)
  found = f32[2,10] reduce(kept, low), dimensions={2}, to_apply=max
  waved = f32[2,10] sine(found)
  ROOT r = f32[2,10] select(some, found, waved)
}
"""


def test_flags_of_rows_are_left_packed() -> None:
    """Whether some element of a row is small, which another stage reads: four rows to a word."""
    check_text(FLAGS, [normal(0, 2, 10, 24)])


@pytest.mark.parametrize("rows", [(1024,), (40,), (3, 24)])
@pytest.mark.parametrize("left", ["pred", "s8", "u16", "bf16", "s32"])
def test_rows_left_for_others_in_a_narrower_type(left: str, rows: tuple[int, ...]) -> None:
    k, last = ",".join(map(str, rows)), len(rows)
    combine = "or" if left == "pred" else "maximum"
    made = "compare(x, y), direction=EQ" if left == "pred" else "convert(x)"
    text = f"""{HEAD}most {{
  a = {left}[] parameter(0)
  b = {left}[] parameter(1)
  ROOT m = {left}[] {combine}(a, b)
}}
ENTRY e {{
  x = f32[{k},64] parameter(0)
  y = f32[{k},64] parameter(1)
  n = {left}[{k},64] {made}
  first = {left}[] constant({"false" if left == "pred" else 0})
  r = {left}[{k}] reduce(n, first), dimensions={{{last}}}, to_apply=most
  zero = f32[] constant(0)
  s = f32[{k}] reduce(x, zero), dimensions={{{last}}}, to_apply=add
  c = {left}[{k}] broadcast(first), dimensions={{}}
  is = pred[{k}] compare(r, c), direction=NE
  t = f32[{k}] negate(s)
  ROOT o = f32[{k}] select(is, s, t)
}}
"""
    x = np.round(normal(1, *rows, 64) * 20)
    y = np.round(normal(2, *rows, 64) * 20)
    for machine in ("numpy", "llvm"):
        check_text(text, [np.abs(x), y], "default", machine, tolerance=1e-5)


@pytest.mark.parametrize("rows", [33, 8, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_merged_and_split_again(rows: int, kind: str) -> None:
    """Behind 33 rows of a tile of 40 a merged dimension goes on with the next 33."""
    n = 3 * rows
    text = f"""{HEAD}ENTRY e {{
  y = {kind}[3,{rows},40] parameter(0)
  w = f32[{n}] parameter(1)
  x = f32[3,{rows},40] convert(y)
  low = f32[3,1,40] slice(x), slice={{[0:3], [0:1], [0:40]}}
  rest = f32[3,{rows - 1},40] slice(x), slice={{[0:3], [0:{rows - 1}], [0:40]}}
  v = f32[3,{rows},40] concatenate(low, rest), dimensions={{1}}
  zero = f32[] constant(0)
  s = f32[3,{rows}] reduce(v, zero), dimensions={{2}}, to_apply=add
  ws = f32[3,{rows}] reshape(w)
  d = f32[3,{rows}] add(s, ws)
  m = f32[{n}] reshape(d)
  mb = f32[{n},40] broadcast(m), dimensions={{0}}
  q = f32[3,{rows},40] reshape(mb)
  o = f32[3,{rows},40] subtract(v, q)
  ROOT r = {kind}[3,{rows},40] convert(o)
}}
"""
    inputs = [normal(1, 3, rows, 40, dtype=KINDS[kind]), normal(2, n)]
    check_text(text, inputs, tolerance=1e-2)
