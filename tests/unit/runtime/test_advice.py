"""What a report says would help: the cause it names is the one, and doing it saves about what it promises."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.advice import Advice
from runtime.api import compile
from runtime.report import Report
from tests.support.command_line import MODEL
from tpu_sim.isa.kernel_facts import KernelFacts, facts_text, kernel_facts


def _estimate(text: str, target: str = "v5e") -> Report:
    return compile(text, target=target).estimate()


def _of(report: Report, rule: str) -> Advice:
    return next(advice for advice in report.advice if advice.rule == rule)


def _mlir(types: list[str], result: str, body: str) -> str:
    """A function of arguments ``%0``.. whose operations stand in lines of net.py."""
    arguments = ", ".join(f"%{n}: tensor<{t}>" for n, t in enumerate(types))
    lines = body.strip().splitlines()
    placed = "\n".join(f'{t} loc("net/op{n}"("net.py":{n}:1))' for n, t in enumerate(lines, 1))
    return f"""module @m {{
  func.func public @main({arguments}) -> tensor<{result}> {{
{placed}
    return %r : tensor<{result}> loc(unknown)
  }} loc(unknown)
}} loc(unknown)"""


def _sums(element: str) -> str:
    t = f"2048x4096x{element}"
    return _mlir([t] * 3, t, f"""
%a = stablehlo.multiply %0, %1 : tensor<{t}>
%r = stablehlo.add %a, %2 : tensor<{t}>""")  # fmt: skip


def _products(depth: int) -> str:
    """A million multiply-adds for each column of `depth`, in as many products as that takes."""
    batch = 512 // depth
    side, out = f"{batch}x512x{depth}xbf16", f"{batch}x512x512xbf16"
    dot = "stablehlo.dot_general %0, %1, batching_dims = [0] x [0], contracting_dims = [2] x [2]"
    total = "stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [0, 1]"
    return _mlir([side, side], "512xbf16", f"""
%a = {dot} : (tensor<{side}>, tensor<{side}>) -> tensor<{out}>
%z = stablehlo.constant dense<0.0> : tensor<bf16>
%r = {total} : (tensor<{out}>, tensor<bf16>) -> tensor<512xbf16>""")  # fmt: skip


def test_bytes_that_must_move_are_halved_by_a_narrower_type() -> None:
    wide = _estimate(_sums("f32"))
    advice = wide.advice[0]
    assert advice.rule == "needed bytes"
    assert "100% of it f32" in advice.why and "bf16 for f32" in advice.remedy
    assert set(advice.places) == {"net.py:1", "net.py:2"}
    narrow = _estimate(_sums("bf16"))
    assert wide.cycles - narrow.cycles == pytest.approx(advice.saved_cycles, rel=0.1)
    assert "8-bit type for bf16" in narrow.advice[0].remedy


def test_a_product_of_few_numbers_says_how_many_it_sums() -> None:
    shallow, deep = _estimate(_products(8)), _estimate(_products(128))
    advice = _of(shallow, "unfilled products")
    assert "64 products of 512x8 with 8x512" in advice.why
    assert "takes 128 numbers, here are 8" in advice.remedy
    assert advice.places == ("net.py:1",)
    assert shallow.cycles - deep.cycles > 0.5 * advice.saved_cycles
    assert not [a for a in deep.advice if "here are 8" in a.remedy]


def _chain(count: int) -> str:
    """Products of small matrices that no kernel takes together, each with a sum over its rows behind it."""
    t, row = "tensor<32x64xf32>", "tensor<64xf32>"
    lines = ["%z = stablehlo.constant dense<0.0> : tensor<f32>"]
    value = "0"
    for n in range(count):
        lines += [
            f"%d{n} = stablehlo.dot_general %{value}, %1, contracting_dims = [1] x [0]"
            f" : ({t}, tensor<64x64xf32>) -> {t}",
            f"%s{n} = stablehlo.reduce(%d{n} init: %z) applies stablehlo.add across dimensions = [0]"
            f" : ({t}, tensor<f32>) -> {row}",
            f"%b{n} = stablehlo.broadcast_in_dim %s{n}, dims = [1] : ({row}) -> {t}",
            f"%{'r' if n == count - 1 else f'c{n}'} = stablehlo.subtract %d{n}, %b{n} : {t}",
        ]
        value = f"c{n}"
    return _mlir(["32x64xf32", "64x64xf32"], "32x64xf32", "\n".join(lines))


def test_many_small_kernels_are_one_piece_of_advice() -> None:
    report = _estimate(_chain(8))
    calls = sum(kernel.calls for kernel in report.kernels)
    assert calls > 8
    advice = report.advice[0]
    assert advice.rule == "launches"
    assert f"{calls} calls" in advice.why and "scan" in advice.remedy
    launches = report.causes["launch"]
    assert advice.saved_cycles == pytest.approx(launches * (1 - 1 / calls))
    assert len(advice.kernels) == len(report.kernels)
    assert [a.rule for a in _estimate(_chain(1)).advice].count("launches") <= 1


def test_large_kernels_are_none_of_many_small_ones() -> None:
    """Their launch stays; what would be put together are the small ones alone."""
    small = "f32[8,128]"
    dots = "\n".join(
        f"  d{n} = {small} dot(s{n}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        f"\n  s{n + 1} = {small} sort(d{n}), dimensions={{1}}, to_apply=lt"
        for n in range(3)
    )
    report = _estimate(f"""HloModule m
lt {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }}
ENTRY e {{
  x = f32[1024,1024] parameter(0)
  s0 = {small} parameter(1)
  w = f32[128,128] parameter(2)
  y = f32[1024,1024] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
{dots}
  ROOT r = (f32[1024,1024], {small}) tuple(y, s3)
}}""")
    advice = _of(report, "launches")
    large = max(report.kernels, key=lambda kernel: kernel.cycles)
    assert large.name not in advice.kernels and len(advice.kernels) >= 2
    launches = report.causes["launch"] / len(report.kernels)
    assert advice.saved_cycles == pytest.approx(launches * (len(advice.kernels) - 1))


def _lookup(table: int, rows: int, width: int) -> str:
    return f"""HloModule m
ENTRY e {{
  t = f32[{table},{width}] parameter(0)
  i = s32[{rows},1] parameter(1)
  ROOT r = f32[{rows},{width}] gather(t, i), offset_dims={{1}}, collapsed_slice_dims={{0}},
    start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{width}}}
}}"""


def test_rows_that_are_looked_up_one_by_one() -> None:
    large = _of(_estimate(_lookup(500_000, 2048, 32)), "rows")
    assert "gather of 2,048 rows of 32 elements" in large.why
    assert "wider rows" in large.remedy
    wide = _of(_estimate(_lookup(500_000, 100_000, 256)), "rows")
    assert "each once" in wide.remedy and "loop" not in wide.remedy
    few = _estimate(_lookup(500_000, 1024, 256))
    assert "rows" not in {a.rule for a in few.advice}, (
        "sorted indices cost more than half of the rows"
    )
    assert not large.places, "the model has neither lines nor names"
    assert large.kernels


def test_elements_looked_up_in_lanes_are_not_called_rows_one_after_the_other() -> None:
    """What is promised is what a gather of whole rows of as many elements saves."""
    rows, width = 1024, 512
    report = _estimate(f"""HloModule m
ENTRY e {{
  t = f32[{rows},{width}] parameter(0)
  i = s32[{rows},{width},1] parameter(1)
  ROOT r = f32[{rows},{width}] gather(t, i), offset_dims={{}}, collapsed_slice_dims={{1}},
    operand_batching_dims={{0}}, start_indices_batching_dims={{0}}, start_index_map={{1}},
    index_vector_dim=2, slice_sizes={{1,1}}
}}""")
    advice = _of(report, "rows")
    assert "524,288 elements by an index each" in advice.why and "one after" not in advice.why
    assert "whole row" in advice.remedy
    (gather,) = (kernel for kernel in report.kernels if kernel.name in advice.kernels)
    whole = _estimate(_lookup(4096, 4096, 128)).cycles
    assert gather.cycles - whole == pytest.approx(advice.saved_cycles, rel=0.2)
    assert not [a for a in report.advice if a.rule == "latency"], "its waits are counted once"


@pytest.mark.slow
def test_layers_that_are_written_out_are_advised_of_once() -> None:
    """Each in lines of its own, but of the same code."""
    t = "tensor<1024x1024xf32>"
    layer = f"""
%a{{n}} = stablehlo.dot_general {{x}}, %{{n}}, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}
%r{{n}} = stablehlo.tanh %a{{n}} : {t}"""
    body = "".join(layer.format(n=n, x=f"%r{n - 1}" if n > 1 else "%0") for n in range(1, 9))
    report = _estimate(_mlir(["1024x1024xf32"] * 9, "1024x1024xf32", body.replace("%r8", "%r")))
    assert report.traced is not None
    kernels = {run.site or run.name: run.name for run in report.traced[2].kernels}
    assert len(set(kernels.values())) < len(kernels), "some layers share code"
    busy = [{kernels[site] for site in a.kernels} for a in report.advice if a.rule == "busy units"]
    assert busy and sum(map(len, busy)) == len(set().union(*busy)), "no code is advised of twice"
    assert any(len(a.kernels) > 1 and len(a.places) > 1 for a in report.advice)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "passes"), [("high", 3), ("highest", 6)])
def test_precision_is_named_with_its_passes(precision: str, passes: int) -> None:
    t = "tensor<1024x1024xf32>"
    text = _mlir(["1024x1024xf32"] * 2, "1024x1024xf32", f"""
%r = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}""")  # fmt: skip
    exact = compile(text, precision=precision).estimate()
    advice = exact.advice[0]
    assert advice.rule == "precision" and f"{passes} passes" in advice.why
    saved = exact.cycles - _estimate(text).cycles
    assert saved == pytest.approx(advice.saved_cycles, rel=0.35)


def test_advice_is_in_the_json_largest_first_and_never_above_what_its_kernels_take() -> None:
    for text in (_sums("f32"), _products(8), _chain(8), _lookup(500_000, 2048, 32), MODEL):
        report = _estimate(text)
        taken = {kernel.name: kernel.cycles for kernel in report.kernels}
        found = report.to_json()["advice"]
        assert isinstance(found, list) and len(found) == len(report.advice)
        assert [a["saved_cycles"] for a in found] == sorted(
            (a["saved_cycles"] for a in found), reverse=True
        )
        for advice in report.advice:
            assert 0 < advice.saved_cycles <= sum(taken[name] for name in advice.kernels)


def test_facts_survive_a_saved_program_and_a_text_that_is_none_gives_none() -> None:
    program = compile(_products(8)).program
    facts = kernel_facts(program.metadata)
    assert kernel_facts({"facts": facts_text(facts)}) == facts
    assert set(facts) == set(program.kernels)
    for text in (
        "",
        "[]",
        "{",
        '{"k":[]}',
        '{"k":[[[1]],[]]}',
        "3",
        '{"k":[[],[["a","b","c",["x"],1,1]]]}',
    ):
        assert kernel_facts({"facts": text}) == {}
    report = compile(_products(8))
    del report.program.metadata["facts"]
    assert not [a for a in report.estimate().advice if a.rule == "unfilled products"]
    assert KernelFacts().arrays == ()


SORT = """HloModule s
lt { a = f32[] parameter(0) b = f32[] parameter(1) d = f32[] subtract(a, b) z = f32[] constant(0)
  ROOT c = pred[] compare(d, z), direction=LT }
ENTRY e { x = f32[64,512] parameter(0) ROOT s = f32[64,512] sort(x), dimensions={1}, to_apply=lt }
"""


@pytest.mark.slow
def test_of_a_loop_in_a_kernel_nothing_is_said_of_what_it_computes() -> None:
    """Its operations are not counted by turns: a sort was said to move elements, computing for 0 %."""
    report = _estimate(SORT)
    advice = _of(report, "loop")
    assert "top_k" in advice.remedy and 0 < advice.saved_cycles <= report.causes["vector"]
    assert all(other.rule != "moved elements" for other in report.advice)


def _scan(turns: int) -> str:
    """A running sum with decay of f32[turns,256], a row a turn."""
    return f"""HloModule scan
body {{ p = (s32[], f32[1,256], f32[{turns},256], f32[{turns},256]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  c = f32[1,256] get-tuple-element(p), index=1
  x = f32[{turns},256] get-tuple-element(p), index=2
  y = f32[{turns},256] get-tuple-element(p), index=3
  zero = s32[] constant(0) one = s32[] constant(1) d = f32[] constant(0.9)
  row = f32[1,256] dynamic-slice(x, i, zero), dynamic_slice_sizes={{1,256}}
  ds = f32[1,256] broadcast(d), dimensions={{}}
  m = f32[1,256] multiply(c, ds)
  n = f32[1,256] add(m, row)
  w = f32[{turns},256] dynamic-update-slice(y, n, i, zero)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[1,256], f32[{turns},256], f32[{turns},256]) tuple(j, n, x, w) }}
test {{ p = (s32[], f32[1,256], f32[{turns},256], f32[{turns},256]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({turns})
  ROOT c = pred[] compare(i, n), direction=LT }}
ENTRY e {{ x = f32[{turns},256] parameter(0)
  zero = s32[] constant(0) z = f32[] constant(0)
  c = f32[1,256] broadcast(z), dimensions={{}}
  y = f32[{turns},256] broadcast(z), dimensions={{}}
  s = (s32[], f32[1,256], f32[{turns},256], f32[{turns},256]) tuple(zero, c, x, y)
  l = (s32[], f32[1,256], f32[{turns},256], f32[{turns},256]) while(s), condition=test, body=body,
    metadata={{op_name="f/while"}}
  ROOT r = f32[{turns},256] get-tuple-element(l), index=3 }}
"""


def test_of_a_scan_its_trips_and_the_ways_out_are_named() -> None:
    report = _estimate(_scan(96))
    advice = _of(report, "turns")
    assert "a loop of 96 turns" in advice.why
    assert "unroll=8) takes 12;" in advice.remedy and "associative_scan, 7 rounds" in advice.remedy
    beside = sum(report.causes[cause] for cause in ("latency", "scalar", "loop"))
    assert 0 < advice.saved_cycles <= beside
    said = {other.rule for other in report.advice if advice.kernels[0] in other.kernels}
    assert not said & {"latency", "small steps"}, "of a loop, `turns` says what its waits are for"


def test_what_waits_for_no_turn_before_belongs_outside_of_a_loop() -> None:
    """A function of the row that a turn reads could be made of all rows at once; one of the state not."""
    free = (
        _scan(96)
        .replace("add(m, row)", "add(m, f)")
        .replace("  ds =", "  f = f32[1,256] tanh(row)\n  ds =")
    )
    bound = (
        _scan(96)
        .replace("add(m, row)", "add(f, row)")
        .replace("  n = f32[1", "  f = f32[1,256] tanh(m)\n  n = f32[1")
    )
    facts = [_loop_facts(text) for text in (free, bound)]
    assert [loop[1] for loop in facts] == [facts[0][1]] * 2
    assert facts[0][2] > 0.6 * facts[0][1] and facts[1][2] < 0.01 * facts[1][1]


def _loop_facts(text: str) -> tuple[int, ...]:
    facts = kernel_facts(compile(text).program.metadata).values()
    (loop,) = (o for kernel in facts for o in kernel.operations if o.opcode == "while")
    return loop.dims


def _until_it_stays(steps: int) -> str:
    """Steps of a recurrence in each turn, until its state is small; each needs the size of the one before."""
    x, state = "f32[8,128]", "(f32[8,128], f32[128,128], f32[])"
    step = "\n".join(
        f"  p{n} = {x} dot(x{n}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        f"\n  b{n} = {x} broadcast(r{n}), dimensions={{}}\n  q{n} = {x} multiply(p{n}, b{n})"
        f"\n  x{n + 1} = {x} tanh(q{n})\n  a{n} = {x} multiply(x{n + 1}, x{n + 1})"
        f"\n  r{n + 1} = f32[] reduce(a{n}, z), dimensions={{0,1}}, to_apply=add"
        for n in range(steps)
    )
    return f"""HloModule m
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
body {{ s = {state} parameter(0)
  x0 = {x} get-tuple-element(s), index=0
  w = f32[128,128] get-tuple-element(s), index=1
  r0 = f32[] get-tuple-element(s), index=2
  z = f32[] constant(0)
{step}
  ROOT t = {state} tuple(x{steps}, w, r{steps}) }}
test {{ s = {state} parameter(0)
  r = f32[] get-tuple-element(s), index=2
  q = f32[] sqrt(r)
  e = f32[] constant(0.001)
  ROOT c = pred[] compare(q, e), direction=GT }}
ENTRY e {{ x = {x} parameter(0)
  w = f32[128,128] parameter(1)
  o = f32[] constant(1)
  i = {state} tuple(x, w, o)
  l = {state} while(i), condition=test, body=body,
    metadata={{op_name="f/while"}}
  ROOT y = {x} get-tuple-element(l), index=0 }}
"""


def test_several_steps_in_a_turn_save_tests_alone() -> None:
    """What steps wait for among themselves stays."""
    one = compile(_until_it_stays(1)).estimate(trips=60)
    four = compile(_until_it_stays(4)).estimate(trips=15)
    advice = _of(one, "turns")
    assert "say 4" in advice.remedy and "depend on data" in advice.why
    assert advice.saved_cycles == pytest.approx(one.cycles - four.cycles, rel=0.3)


_BRANCHES_WITHOUT_OPERANDS = """HloModule m
two { p = () parameter(0)
  ROOT c = f32[] constant(2) }
three { p = () parameter(0)
  ROOT c = f32[] constant(3) }
body { s = (s32[], f32[8,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8,128] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  f = f32[1,1] slice(x), slice={[0:1], [0:1]}
  g = f32[] reshape(f)
  h = f32[] constant(0.5)
  p = pred[] compare(g, h), direction=GT
  e = () tuple()
  k = f32[] conditional(p, e, e), true_computation=two, false_computation=three
  b = f32[8,128] broadcast(k), dimensions={}
  m = f32[8,128] multiply(x, b)
  y = f32[8,128] sine(m)
  ROOT t = (s32[], f32[8,128]) tuple(j, y) }
test { s = (s32[], f32[8,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY main { x = f32[8,128] parameter(0)
  z = s32[] constant(0)
  s = (s32[], f32[8,128]) tuple(z, x)
  w = (s32[], f32[8,128]) while(s), condition=test, body=body
  ROOT r = f32[8,128] get-tuple-element(w), index=1 }
"""


def test_a_loop_with_branches_without_operands_is_looked_at() -> None:
    """What they get is an empty tuple, which forwards nothing."""
    (found,) = compile(_BRANCHES_WITHOUT_OPERANDS)(np.ones((8, 128), np.float32))
    want = np.float32(1)
    for _ in range(5):
        want = np.sin(want * np.float32(2 if want > 0.5 else 3))
    np.testing.assert_allclose(found, np.full((8, 128), want), rtol=1e-5)


def test_operations_of_one_name_are_said_once() -> None:
    t = "512x1024xf32"
    report = _estimate(
        _mlir(
            [t],
            t,
            f"""
%a = stablehlo.exponential %0 : tensor<{t}>
%b = stablehlo.sine %a : tensor<{t}>
%c = stablehlo.sine %b : tensor<{t}>
%r = stablehlo.sine %c : tensor<{t}>""",
        )
    )
    names = _of(report, "elements").why.rpartition(": ")[2]
    assert [name.split()[0] for name in names.split(", ")] == ["sine", "exponential"]
