"""What another operation does better is said with what it takes: doing it saves about what is promised."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.advice import Advice
from runtime.advice_loops import fetches
from runtime.advice_site import SiteFacts
from runtime.api import compile
from runtime.report import Report
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.kernel_facts import kernel_facts

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }"


def _estimate(text: str) -> Report:
    return compile(text).estimate()


def _rules(report: Report) -> dict[str, Advice]:
    """Advice by rule, the first of each."""
    return {advice.rule: advice for advice in reversed(report.advice)}


def _entry(body: str, computations: str = "") -> str:
    return f"HloModule m\n{computations}\nENTRY e {{\n{body}\n}}"


def _columns(rows: int, columns: int, taken: int) -> str:
    return _entry(f"""t = f32[{rows},{columns}] parameter(0)
  i = s32[{taken},1] parameter(1)
  ROOT r = f32[{rows},{taken}] gather(t, i), offset_dims={{0}}, collapsed_slice_dims={{1}},
    start_index_map={{1}}, index_vector_dim=1, slice_sizes={{{rows},1}}""")


def _rows(rows: int, columns: int, taken: int) -> str:
    return _entry(f"""t = f32[{rows},{columns}] parameter(0)
  i = s32[{taken},1] parameter(1)
  ROOT r = f32[{taken},{columns}] gather(t, i), offset_dims={{1}}, collapsed_slice_dims={{0}},
    start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{columns}}}""")


def _one_hot(count: int, table: int, each: int, side: int) -> str:
    """Rows of a table by a product whose left (0) or right (1) operand is a one-hot matrix."""
    counted = f"s32[{count},{table}]"
    operands, contracted = ("h, t", (1, 0)) if side == 0 else ("t, h", (0, 1))
    result = f"f32[{count},{each}]" if side == 0 else f"f32[{each},{count}]"
    return _entry(f"""i = s32[{count}] parameter(0)
  t = f32[{table},{each}] parameter(1)
  n = {counted} broadcast(i), dimensions={{0}}
  p = {counted} iota(), iota_dimension=1
  c = pred[{count},{table}] compare(n, p), direction=EQ
  h = f32[{count},{table}] convert(c)
  ROOT r = {result} dot({operands}), lhs_contracting_dims={{{contracted[0]}}},
    rhs_contracting_dims={{{contracted[1]}}}""")


def _distances(left: int, right: int, width: int) -> str:
    cube = f"f32[{left},{right},{width}]"
    return _entry(
        f"""x = f32[{left},{width}] parameter(0)
  y = f32[{right},{width}] parameter(1)
  a = {cube} broadcast(x), dimensions={{0,2}}
  b = {cube} broadcast(y), dimensions={{1,2}}
  d = {cube} subtract(a, b)
  q = {cube} multiply(d, d)
  z = f32[] constant(0)
  ROOT r = f32[{left},{right}] reduce(q, z), dimensions={{2}}, to_apply=add""",
        ADD,
    )


def _distances_by_product(left: int, right: int, width: int) -> str:
    square = f"f32[{left},{right}]"
    return _entry(
        f"""x = f32[{left},{width}] parameter(0)
  y = f32[{right},{width}] parameter(1)
  z = f32[] constant(0)
  xx = f32[{left},{width}] multiply(x, x)
  yy = f32[{right},{width}] multiply(y, y)
  sx = f32[{left}] reduce(xx, z), dimensions={{1}}, to_apply=add
  sy = f32[{right}] reduce(yy, z), dimensions={{1}}, to_apply=add
  p = {square} dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  a = {square} broadcast(sx), dimensions={{0}}
  b = {square} broadcast(sy), dimensions={{1}}
  s = {square} add(a, b)
  t = {square} add(p, p)
  ROOT r = {square} subtract(s, t)""",
        ADD,
    )


def _transposed(size: int, *, is_added: bool) -> str:
    """An array transposed, or one that is added to itself."""
    t = f"f32[{size},{size}]"
    moved = f"ROOT r = {t} transpose(x), dimensions={{1,0}}"
    return _entry(f"x = {t} parameter(0)\n  {moved if not is_added else f'ROOT r = {t} add(x, x)'}")


@pytest.mark.parametrize(
    ("rule", "slow", "better"),
    [
        ("columns", _columns(2048, 4096, 256), _rows(4096, 2048, 256)),
        ("lookup", _one_hot(512, 20_000, 128, 0), _rows(20_000, 128, 512)),
        ("lookup", _one_hot(512, 20_000, 128, 1), _rows(20_000, 128, 512)),
        ("sums of pairs", _distances(512, 512, 128), _distances_by_product(512, 512, 128)),
    ],
)
def test_another_way_saves_about_what_is_promised(rule: str, slow: str, better: str) -> None:
    report = _estimate(slow)
    advice = report.advice[0]
    assert advice.rule == rule
    assert report.cycles - _estimate(better).cycles == pytest.approx(advice.saved_cycles, rel=0.2)
    of_causes = {"busy units", "latency", "moved elements", "small steps", "elements"}
    assert not of_causes & _rules(report).keys(), "the causes of what would go are not advised of"


def test_sums_of_pairs_name_the_product_that_makes_them() -> None:
    text = _distances(512, 512, 128)
    assert "sum (x-y)^2" in _rules(_estimate(text))["sums of pairs"].remedy
    other = _rules(
        _estimate(
            text.replace("subtract(a, b)", "multiply(a, b)").replace("multiply(d, d)", "negate(d)")
        )
    )
    assert "sum x*y = x @ y.T" in other["sums of pairs"].remedy
    assert "(x-y)" not in other["sums of pairs"].remedy


def test_what_looks_like_another_way_and_is_none() -> None:
    """A comparison with a number that does not count along the sum, or of another order; an exponential."""
    text = _one_hot(512, 4096, 128, 0)
    along = text.replace("iota_dimension=1", "iota_dimension=0")
    less = text.replace("direction=EQ", "direction=LT")
    for other in (along, less):
        assert "lookup" not in _rules(_estimate(other))
    cube = _distances(256, 256, 128).replace("multiply(d, d)", "exponential(d)")
    assert "sums of pairs" not in _rules(_estimate(cube))


def _dot(rows: int, *, precision: str = "") -> str:
    stated = f", operand_precision={{{precision}}}" if precision else ""
    return _entry(f"""x = f32[{rows},2048] parameter(0)
  w = f32[2048,2048] parameter(1)
  ROOT r = f32[{rows},2048] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{stated}""")


@pytest.mark.slow
def test_precision_that_the_model_states_is_changed_in_the_model() -> None:
    stated = _rules(_estimate(_dot(1024, precision="highest,highest")))["precision"]
    assert "precision=DEFAULT there" in stated.remedy and "--precision" not in stated.remedy
    asked = _rules(compile(_dot(1024), precision="highest").estimate())["precision"]
    assert "--precision default" in asked.remedy


def test_a_product_of_few_rows_is_told_of_a_larger_batch() -> None:
    one, many = _estimate(_dot(1)), _estimate(_dot(64))
    assert "larger batch" in one.advice[0].remedy and "serves one row" in one.advice[0].remedy
    assert many.cycles < 1.1 * one.cycles, "it costs little more"
    assert "larger batch" not in _estimate(_dot(1024)).advice[0].remedy


def test_a_product_of_few_columns_is_told_of_products_that_share_an_operand() -> None:
    gate = _entry("""x = f32[65536,512] parameter(0)
  w = f32[512,4] parameter(1)
  ROOT r = f32[65536,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""")
    remedy = _rules(_estimate(gate))["needed bytes"].remedy
    assert "serves 4 rows of the other operand" in remedy and "share this operand" in remedy


LOOKUPS = """HloModule m
body {
  state = (s32[], f32[1024], f32[1024,256], f32[256]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  ids = f32[1024] get-tuple-element(state), index=1
  rows = f32[1024,256] get-tuple-element(state), index=2
  sum = f32[256] get-tuple-element(state), index=3
  found = f32[1] dynamic-slice(ids, i), dynamic_slice_sizes={1}
  whole = s32[1] convert(found)
  place = s32[] reshape(whole)
  zero = s32[] constant(0)
  row = f32[1,256] dynamic-slice(rows, place, zero), dynamic_slice_sizes={1,256}
  flat = f32[256] reshape(row)
  more = f32[256] add(sum, flat)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT out = (s32[], f32[1024], f32[1024,256], f32[256]) tuple(next, ids, rows, more)
}
test {
  state = (s32[], f32[1024], f32[1024,256], f32[256]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  end = s32[] constant(1024)
  ROOT r = pred[] compare(i, end), direction=LT
}
ENTRY e {
  ids = f32[1024] parameter(0)
  rows = f32[1024,256] parameter(1)
  zero = f32[] constant(0)
  sum = f32[256] broadcast(zero), dimensions={}
  i = s32[] constant(0)
  start = (s32[], f32[1024], f32[1024,256], f32[256]) tuple(i, ids, rows, sum)
  loop = (s32[], f32[1024], f32[1024,256], f32[256])
    while(start), condition=test, body=body, metadata={op_name="f/while"}
  ROOT r = f32[256] get-tuple-element(loop), index=3
}
"""


def test_lookups_turn_by_turn_are_told_of_one_before_the_loop() -> None:
    """Were a turn's row a transfer of its own; places that vectors make come to the scalar unit without."""
    executable = compile(LOOKUPS)
    report = executable.estimate()
    assert "fetches of turns" not in _rules(report)
    loop = next(kernel for kernel in report.kernels if kernel.name == "loop")
    facts = kernel_facts(executable.program.metadata)["loop"]
    waits = 700 * 1024
    waiting = replace(loop, causes={**loop.causes, Cause.DMA_IN.label: waits})
    found = fetches(SiteFacts(waiting, facts, load_chip("v5e"), 0))
    assert found is not None and "x[ids]" in found.remedy and "1,024 turns" in found.why
    assert 0.9 * waits < found.saved < 1.01 * waits


def test_a_table_that_comes_whole_for_a_few_of_its_rows_is_named() -> None:
    text = LOOKUPS.replace("f32[1024]", "s32[1024]").replace("f32[1024,256]", "f32[50000,256]")
    text = text.replace("found = f32[1]", "found = s32[1]").replace("convert(found)", "copy(found)")
    advice = _rules(_estimate(text))
    table = advice["looked-up tables"]
    assert "all of f32[50000,256]" in table.why and "1,024 parts" in table.why
    assert "x[ids]" in table.remedy and "needed bytes" not in advice
    by_turn = text.replace("reshape(whole)", "copy(i)")
    assert "looked-up tables" not in _rules(_estimate(by_turn))


def test_all_parts_that_an_unrolled_turn_looks_up_are_counted() -> None:
    text = LOOKUPS.replace("f32[1024,256]", "f32[50000,256]")
    more = """second = s32[] add(place, place)
  row2 = f32[1,256] dynamic-slice(rows, second, zero), dynamic_slice_sizes={1,256}
  flat2 = f32[256] reshape(row2)
  both = f32[256] multiply(flat, flat2)
  more = f32[256] add(sum, both)"""
    report = _estimate(text.replace("more = f32[256] add(sum, flat)", more))
    table = _rules(report)["looked-up tables"]
    assert "2,048 parts" in table.why and "2.1 MB" in table.why


def _rows_by_turn(turns: int) -> str:
    """64 rows of a table in HBM are looked up in each turn."""
    state = f"(s32[], s32[{turns},64], f32[500000,256], f32[{turns},64,256])"
    names = ("i", "ids", "x", "y")
    shapes = state[1:-1].split(", ")
    parts = "\n".join(
        f"  {name} = {shape} get-tuple-element(s), index={at}"
        for at, (name, shape) in enumerate(zip(names, shapes, strict=True))
    )
    rows = "f32[1,64,256]"
    return f"""HloModule m
body {{ s = {state} parameter(0)
{parts}
  zero = s32[] constant(0)
  one = s32[] constant(1)
  cut = s32[1,64] dynamic-slice(ids, i, zero), dynamic_slice_sizes={{1,64}}
  at = s32[64,1] reshape(cut)
  g = f32[64,256] gather(x, at), offset_dims={{1}}, collapsed_slice_dims={{0}},
    start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,256}}
  f = {rows} reshape(g)
  z = {shapes[3]} dynamic-update-slice(y, f, i, zero, zero)
  j = s32[] add(i, one)
  ROOT t = {state} tuple(j, ids, x, z) }}
test {{ s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({turns})
  ROOT c = pred[] compare(i, n), direction=LT }}
ENTRY e {{ ids = {shapes[1]} parameter(0)
  x = {shapes[2]} parameter(1)
  y = {shapes[3]} parameter(2)
  zero = s32[] constant(0)
  s = {state} tuple(zero, ids, x, y)
  w = {state} while(s), condition=test, body=body
  ROOT r = {shapes[3]} get-tuple-element(w), index=3 }}"""


def test_only_what_is_in_a_loop_is_told_of_one_outside() -> None:
    alone = _rules(
        _estimate(
            _entry("""x = f32[64,4096] parameter(0)
  i = s32[64,4096,1] parameter(1)
  ROOT r = f32[64,4096] gather(x, i), offset_dims={}, collapsed_slice_dims={1},
    operand_batching_dims={0}, start_indices_batching_dims={0}, start_index_map={1},
    index_vector_dim=2, slice_sizes={1,1}""")
        )
    )["rows"].remedy
    assert "an index for a whole row" in alone and "loop" not in alone
    by_turn = _rules(_estimate(_rows_by_turn(40)))["rows"]
    assert by_turn.remedy.endswith("one gather of all that steps need, outside of the loop")


def test_a_linked_list_is_a_table_that_turns_look_up() -> None:
    """Where the next element lies, the turn before says."""
    state = "(s32[], s32[], s32[1048576])"
    report = _estimate(f"""HloModule m
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  at = s32[] get-tuple-element(s), index=1
  next = s32[1048576] get-tuple-element(s), index=2
  cut = s32[1] dynamic-slice(next, at), dynamic_slice_sizes={{1}}
  to = s32[] reshape(cut)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = {state} tuple(j, to, next)
}}
test {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  end = s32[] constant(64)
  ROOT r = pred[] compare(i, end), direction=LT
}}
ENTRY e {{
  next = s32[1048576] parameter(0)
  zero = s32[] constant(0)
  first = {state} tuple(zero, zero, next)
  loop = {state} while(first), condition=test, body=body, metadata={{op_name="f/while"}}
  ROOT r = s32[] get-tuple-element(loop), index=1
}}
""")
    assert "64 parts of it" in _rules(report)["looked-up tables"].why


@pytest.mark.slow
def test_a_sort_is_named_with_its_stages() -> None:
    report = _estimate(
        _entry(
            "x = f32[128,2048] parameter(0)\n  ROOT s = f32[128,2048] sort(x), dimensions={1}, to_apply=lt",
            ADD.replace("add {", "lt {").replace(
                "f32[] add(a, b)", "pred[] compare(a, b), direction=LT"
            ),
        )
    )
    advice = report.advice[0]
    assert advice.rule == "sort" and "top_k" in advice.remedy
    assert "128 lines of 2,048 elements: 66 stages" in advice.why


def test_a_kernel_that_only_moves_would_go_as_a_whole() -> None:
    report = _estimate(_transposed(1024, is_added=False))
    (kernel,) = report.kernels
    advice = report.advice[0]
    assert advice.rule == "moves" and "transpose to f32[1024,1024]" in advice.why
    assert advice.saved_cycles == kernel.cycles
    assert set(_rules(report)) <= {"moves", "launches"}
    assert "moves" not in _rules(_estimate(_transposed(1024, is_added=True)))


def _added(table: int, rows: int, width: int) -> str:
    return _entry(
        f"""t = f32[{table},{width}] parameter(0)
  i = s32[{rows},1] parameter(1)
  u = f32[{rows},{width}] parameter(2)
  ROOT r = f32[{table},{width}] scatter(t, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add""",
        ADD,
    )


def _added_by_product(table: int, rows: int, width: int) -> str:
    counted = f"s32[{table},{rows}]"
    return _entry(f"""t = f32[{table},{width}] parameter(0)
  i = s32[{rows}] parameter(1)
  u = f32[{rows},{width}] parameter(2)
  n = {counted} broadcast(i), dimensions={{1}}
  p = {counted} iota(), iota_dimension=0
  c = pred[{table},{rows}] compare(n, p), direction=EQ
  h = f32[{table},{rows}] convert(c)
  d = f32[{table},{width}] dot(h, u), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = f32[{table},{width}] add(t, d)""")


def test_a_one_hot_product_is_a_remedy_only_where_it_takes_less() -> None:
    """65,536 rows of 8 elements fill a sixteenth of a pass: the product takes twice as long."""
    shape = (1000, 65536, 8)
    report = _estimate(_added(*shape))
    assert report.cycles < _estimate(_added_by_product(*shape)).cycles
    assert "one-hot" not in _rules(report)["rows"].remedy
    shape = (128, 4096, 128)
    report = _estimate(_added(*shape))
    advice = _rules(report)["rows"]
    assert "one-hot matrix of 4,096x128" in advice.remedy and "rounds" in advice.remedy
    saved = report.cycles - _estimate(_added_by_product(*shape)).cycles
    assert saved == pytest.approx(advice.saved_cycles, rel=0.3)


def _chain(order: str, middle: str = "") -> str:
    """Two products of f32[2048,256], f32[256,2048] and f32[2048,128], ``(a b) c`` or ``a (b c)``."""
    shapes = {"a": "f32[2048,256]", "b": "f32[256,2048]", "c": "f32[2048,128]"}
    head = (
        "\n".join(f"{n} = {s} parameter({at})" for at, (n, s) in enumerate(shapes.items())) + "\n"
    )
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    if order == "(ab)c":
        return _entry(f"""{head} p = f32[2048,2048] dot(a, b), {dims}
  {middle or "q = f32[2048,2048] copy(p)"}
  ROOT r = f32[2048,128] dot(q, c), {dims}""")
    return _entry(f"""{head} p = f32[256,128] dot(b, c), {dims}
  ROOT r = f32[2048,128] dot(a, p), {dims}""")


def test_products_in_a_cheaper_order_save_about_what_is_said() -> None:
    stated, other = _estimate(_chain("(ab)c")), _estimate(_chain("a(bc)"))
    advice = _rules(stated)["order of products"]
    assert "2,147,483,648" not in advice.why and "134,217,728 in the other" in advice.why
    assert advice.saved_cycles == pytest.approx(stated.cycles - other.cycles, rel=0.25)
    assert "order of products" not in _rules(other)


def test_a_function_between_products_keeps_their_order() -> None:
    text = _chain("(ab)c", "q = f32[2048,2048] exponential(p)")
    assert "order of products" not in _rules(_estimate(text))


def test_a_product_that_others_read_stays() -> None:
    text = _chain("(ab)c").replace("ROOT r =", "r =")
    text = text.removesuffix("\n}") + "\n  ROOT o = (f32[2048,128], f32[2048,2048]) tuple(r, p)\n}"
    assert "order of products" not in _rules(_estimate(text))


def test_batched_products_and_scales_between_them() -> None:
    text = _entry("""q = bf16[8,1024,64] parameter(0)
  k = bf16[8,1024,64] parameter(1)
  v = bf16[8,1024,64] parameter(2)
  s = bf16[8,1024,1024] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={2}
  h = bf16[] constant(0.125)
  n = bf16[8,1024,1024] broadcast(h), dimensions={}
  w = bf16[8,1024,1024] multiply(s, n)
  ROOT r = bf16[8,1024,64] dot(w, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={1}""")
    advice = _rules(_estimate(text))["order of products"]
    assert "1,073,741,824 multiply-adds, or 67,108,864" in advice.why
