"""The interpreter: handlers, arguments, control flow, liveness, wide fusions."""

from __future__ import annotations

import weakref
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from compiler.diagnostics import CompileError, UnsupportedError
from compiler.hlo.evaluator import EvaluationOptions, evaluate, evaluate_computation
from compiler.hlo.evaluator.context import Array
from compiler.hlo.evaluator.interpreter import HANDLERS
from compiler.hlo.opcodes import OPCODES
from compiler.hlo.parser import parse_module

BF16 = np.dtype(ml_dtypes.bfloat16)
DATA = Path(__file__).parents[2] / "data"
MODELS = sorted(path.stem for path in DATA.glob("*_tiny.npz"))


def run(text: str, *args: Array, precision: str = "highest", keep: bool = False) -> list[Array]:
    return evaluate(parse_module(text), args, precision, keep_f32_in_fusion=keep)


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def test_every_opcode_has_a_handler() -> None:
    assert set(HANDLERS) == set(OPCODES)


@pytest.mark.parametrize("name", MODELS)
def test_tiny_models_match_their_recorded_results(name: str) -> None:
    stored = np.load(DATA / f"{name}.npz")
    arrays = {k: v.view(BF16) if v.dtype == np.dtype("V2") else v for k, v in stored.items()}
    args = [arrays[f"in{i}"] for i in range(sum(k.startswith("in") for k in arrays))]
    want = [arrays[f"out{i}"] for i in range(sum(k.startswith("out") for k in arrays))]
    got = run((DATA / f"{name}.hlo").read_text(), *args)
    assert len(got) == len(want)
    for mine, theirs in zip(got, want, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        a, b = mine.astype(np.float64), theirs.astype(np.float64)
        assert np.abs(a - b).max(initial=0) <= 2e-3 * (np.abs(b).max(initial=0) + 1e-5)


def test_results_are_flat_leaves_in_order() -> None:
    text = """ENTRY e {
      a = f32[2] parameter(0)  b = s32[] parameter(1)
      inner = (s32[], f32[2]) tuple(b, a)
      ROOT r = ((s32[], f32[2]), f32[2]) tuple(inner, a) }"""
    got = run(text, f32(1, 2), np.int32(7))
    assert [leaf.shape for leaf in got] == [(), (2,), (2,)]
    assert got[0] == 7


def test_tuple_parameters_take_flat_arguments() -> None:
    text = """ENTRY e { p = (f32[2], f32[2]) parameter(0)
      a = f32[2] get-tuple-element(p), index=0  b = f32[2] get-tuple-element(p), index=1
      ROOT r = f32[2] subtract(a, b) }"""
    np.testing.assert_array_equal(run(text, f32(5, 6), f32(1, 2))[0], [4, 4])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "found no argument"),
        ((f32(1, 2), f32(1, 2)), "found 2 arguments, want 1"),
        ((f32(1, 2, 3),), r"found float32\[3\], want f32\[2\]"),
        ((np.array([1, 2], np.int32),), r"found int32\[2\], want f32\[2\]"),
    ],
)
def test_arguments_that_do_not_fit_are_named(args: tuple[Array, ...], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        run("ENTRY e { a = f32[2] parameter(0) ROOT r = f32[2] negate(a) }", *args)


def test_unknown_precision_is_refused() -> None:
    with pytest.raises(CompileError, match="precision: found 'fast'"):
        EvaluationOptions("fast")


@pytest.mark.parametrize(
    "body",
    [
        "t = token[] after-all() ROOT r = (f32[2], u32[], token[]) send(a, t), channel_id=1",
        "ROOT r = f32[4] all-gather(a), replica_groups={{0,1}}, dimensions={0}",
        'ROOT r = f32[2] custom-call(a), custom_call_target="Mystery"',
    ],
)
def test_what_one_device_cannot_run_is_refused_by_name(body: str) -> None:
    opcode = next(w for w in ("send", "all-gather", "custom-call") if f" {w}(" in body)
    with pytest.raises(UnsupportedError, match=f"%r: {opcode} is not evaluated"):
        run(f"ENTRY e {{ a = f32[2] parameter(0) {body} }}", f32(1, 2))


def test_a_collective_of_one_participant_moves_nothing() -> None:
    text = """add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }
    ENTRY e { a = f32[2] parameter(0)
      ROOT r = f32[2] all-reduce(a), replica_groups={{0}}, to_apply=add }"""
    np.testing.assert_array_equal(run(text, f32(1, 2))[0], [1, 2])


def test_while_runs_until_its_condition_fails() -> None:
    text = """
    cond { p = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(p), index=0
      n = s32[] constant(5) ROOT c = pred[] compare(i, n), direction=LT }
    body { p = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(p), index=0
      x = f32[] get-tuple-element(p), index=1 one = s32[] constant(1)
      j = s32[] add(i, one) y = f32[] add(x, x) ROOT t = (s32[], f32[]) tuple(j, y) }
    ENTRY e { z = s32[] constant(0) x = f32[] parameter(0) t = (s32[], f32[]) tuple(z, x)
      ROOT w = (s32[], f32[]) while(t), condition=cond, body=body }"""
    count, value = run(text, np.float32(1.5))
    assert (count, value) == (5, 48.0)


@pytest.mark.parametrize(("index", "want"), [(0, -2.0), (1, 4.0), (2, 4.0), (-1, 4.0)])
def test_a_branch_index_out_of_range_takes_the_last_branch(index: int, want: float) -> None:
    text = """
    neg { a = f32[] parameter(0) ROOT r = f32[] negate(a) }
    twice { a = f32[] parameter(0) ROOT r = f32[] add(a, a) }
    ENTRY e { i = s32[] parameter(0) x = f32[] parameter(1)
      ROOT c = f32[] conditional(i, x, x), branch_computations={neg, twice} }"""
    assert run(text, np.int32(index), np.float32(2))[0] == want


def test_dead_instructions_are_not_run() -> None:
    text = """ENTRY e { a = f32[2] parameter(0)
      dead = f32[2] custom-call(a), custom_call_target="Mystery"
      ROOT r = f32[2] negate(a) }"""
    np.testing.assert_array_equal(run(text, f32(1, 2))[0], [-1, -2])


def test_a_value_is_dropped_after_its_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Array]] = []
    most = 0
    negate = HANDLERS["negate"]

    def counting(*arguments: object) -> Array:
        nonlocal most
        result = np.array(negate(*arguments))  # type: ignore[arg-type]
        alive.append(weakref.ref(result))
        most = max(most, sum(ref() is not None for ref in alive))
        return result

    monkeypatch.setitem(HANDLERS, "negate", counting)
    chain = " ".join(f"v{i + 1} = f32[4] negate(v{i})" for i in range(20))
    run(
        f"ENTRY e {{ v0 = f32[4] parameter(0) {chain} ROOT r = f32[4] copy(v20) }}", f32(1, 2, 3, 4)
    )
    assert most <= 3


FUSION = """
fused { a = bf16[1] parameter(0) b = bf16[1] parameter(1)
  s = bf16[1] add(a, b) ROOT d = bf16[1] subtract(s, a) }
ENTRY e { a = bf16[1] parameter(0) b = bf16[1] parameter(1)
  ROOT f = bf16[1] fusion(a, b), kind=kLoop, calls=fused }"""


def test_bf16_rounds_after_every_operation() -> None:
    big, small = np.array([256], BF16), np.array([0.5], BF16)
    assert run(FUSION, big, small)[0] == 0


def test_keep_f32_in_fusion_rounds_only_at_the_root() -> None:
    big, small = np.array([256], BF16), np.array([0.5], BF16)
    (result,) = run(FUSION, big, small, keep=True)
    assert result.dtype == BF16
    assert result == 0.5


def test_keep_f32_in_fusion_still_rounds_for_opcodes_that_need_the_bits() -> None:
    text = """
    fused { a = bf16[1] parameter(0) b = bf16[1] parameter(1) s = bf16[1] add(a, b)
      ROOT u = u16[1] bitcast-convert(s) }
    ENTRY e { a = bf16[1] parameter(0) b = bf16[1] parameter(1)
      ROOT f = u16[1] fusion(a, b), kind=kLoop, calls=fused }"""
    (bits,) = run(text, np.array([256], BF16), np.array([0.5], BF16), keep=True)
    assert bits[0] == np.array(256, BF16).view(np.uint16)


def test_evaluate_computation_runs_any_computation() -> None:
    module = parse_module("""
    twice { a = f32[] parameter(0) ROOT r = f32[] add(a, a) }
    ENTRY e { a = f32[] parameter(0) ROOT c = f32[] call(a), to_apply=twice }""")
    (result,) = evaluate_computation(module.computations["twice"], [np.float32(4)])
    assert result == 8


def test_results_do_not_alias_arguments() -> None:
    text = "ENTRY e { a = f32[2] parameter(0) ROOT r = f32[2] copy(a) }"
    argument = f32(1, 2)
    (result,) = run(text, argument)
    result[0] = 9
    assert argument[0] == 1


def test_integers_beside_floats_of_a_product_become_floats_first() -> None:
    """2^24 + 1 is no f32."""
    text = """HloModule m
ENTRY e {
  a = s32[1] parameter(0)
  b = f32[1] parameter(1)
  ROOT r = f32[] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}
"""
    inputs = [np.array([2**24 + 1], np.int32), np.array([3], np.float32)]
    (found,) = evaluate(parse_module(text), inputs)
    assert found == np.float32(3 * 2.0**24)
