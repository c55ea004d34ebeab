"""Map, batch normalisation, ragged products, single-device collectives, top-k by sort."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.diagnostics import UnsupportedError
from compiler.hlo.parser import parse_module
from compiler.passes.pipeline import run_pipeline
from tests.support.expansions import Array, assert_close, expanded, on_machine, reference
from tpu_sim.isa.chips import load_chip

BODIES = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
greater {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT
}
double {
  x = f32[4,30] parameter(0)
  ROOT r = f32[4,30] add(x, x)
}
"""
BATCH = """
  x = f32[4,3,8] parameter(0)
  s = f32[8] parameter(1)
  o = f32[8] parameter(2)
"""
CASES = {
    "map": (
        "x = f32[4,30] parameter(0)\n  ROOT r = f32[4,30] map(x, x), dimensions={0,1}, to_apply=add",
        "map",
    ),
    "training": (
        BATCH + "ROOT r = (f32[4,3,8], f32[8], f32[8]) batch-norm-training(x, s, o), "
        "epsilon=0.001, feature_index=2",
        "batch-norm-training",
    ),
    "inference": (
        BATCH + "ROOT r = f32[4,3,8] batch-norm-inference(x, s, o, o, s), "
        "epsilon=0.001, feature_index=2",
        "batch-norm-inference",
    ),
    "gradient": (
        BATCH + "ROOT r = (f32[4,3,8], f32[8], f32[8]) batch-norm-grad(x, o, o, s, x), "
        "epsilon=0.001, feature_index=2",
        "batch-norm-grad",
    ),
    "ragged rows": (
        "x = f32[16,8] parameter(0)\n  y = f32[3,8,5] parameter(1)\n  s = s32[3] parameter(2)\n"
        "  ROOT r = f32[16,5] ragged-dot(x, y, s), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
        "ragged-dot",
    ),
    "ragged contraction": (
        "x = f32[16,8] parameter(0)\n  y = f32[16,5] parameter(1)\n  s = s32[3] parameter(2)\n"
        "  ROOT r = f32[3,8,5] ragged-dot(x, y, s), lhs_contracting_dims={0}, "
        "rhs_contracting_dims={0}, lhs_ragged_dims={0}",
        "ragged-dot",
    ),
    "stochastic": (
        "x = f32[4,30] parameter(0)\n  n = u32[4,30] parameter(1)\n"
        "  ROOT r = s8[4,30] stochastic-convert(x, n)",
        "stochastic-convert",
    ),
    "all-reduce": (
        "x = f32[4,30] parameter(0)\n  a = f32[4,30] all-reduce(x), replica_groups={{0}}, "
        "to_apply=add\n  p = u32[] partition-id()\n  q = f32[] convert(p)\n"
        "  w = f32[4,30] broadcast(q), dimensions={}\n  ROOT r = f32[4,30] add(a, w)",
        "all-reduce",
    ),
    "asynchronous copy": (
        "x = f32[4,30] parameter(0)\n  a = (f32[4,30], f32[4,30], u32[]) copy-start(x)\n"
        "  ROOT r = f32[4,30] copy-done(a)",
        "copy-start",
    ),
    "asynchronous call": (
        "x = f32[4,30] parameter(0)\n"
        "  a = ((f32[4,30]), f32[4,30], s32[]) async-start(x), calls=double\n"
        "  ROOT r = f32[4,30] async-done(a), calls=double",
        "async-start",
    ),
    "sharding": (
        'x = f32[4,30] parameter(0)\n  ROOT r = f32[4,30] custom-call(x), '
        'custom_call_target="Sharding"',
        "custom-call",
    ),
    "top 20": (
        "x = f32[4,30] parameter(0)\n  ROOT r = (f32[4,20], s32[4,20]) topk(x), k=20, largest=true",
        "topk",
    ),
    "bottom 3": (
        "x = f32[4,30] parameter(0)\n  ROOT r = (f32[4,3], s32[4,3]) topk(x), k=3, largest=false",
        "topk",
    ),
    "TopK": (
        "x = f32[4,30] parameter(0)\n  ROOT r = (f32[4,3], s32[4,3]) custom-call(x), "
        'custom_call_target="TopK"',
        "custom-call",
    ),
}  # fmt: skip
PASSES = ["single-device", "call-inliner", "simple-expansions", "custom-call-expander",
          "topk-expander", "sort-expander"]  # fmt: skip


def _inputs(body: str) -> list[Array]:
    rng = np.random.default_rng(0)
    made: list[Array] = []
    for line in body.splitlines():
        if " parameter(" not in line:
            continue
        kind, dims = line.split("= ")[1].split("]")[0].split("[")
        shape = [int(n) for n in dims.split(",")]
        if kind == "f32":
            made.append(np.abs(rng.standard_normal(shape)).astype(np.float32) * 3)
        elif kind == "s32":
            made.append(np.array([5, 0, 7], np.int32))
        else:
            made.append(rng.integers(0, 2**32, shape, dtype=np.uint32))
    return made


@pytest.mark.parametrize("case", CASES)
def test_meaning_is_kept(case: str) -> None:
    body, opcode = CASES[case]
    text = f"HloModule m\n{BODIES}ENTRY e {{\n  {body}\n}}\n"
    inputs = _inputs(body)
    want = reference(text, inputs)
    assert_close(want, expanded(text, inputs, PASSES, [opcode]), 1e-6)
    assert_close(want, on_machine(text, inputs), 1e-5)


def test_stochastic_rounding_sees_all_bits_of_noise() -> None:
    fractions = np.float32([0, 1e-40, 1e-20, 2.0**-32, 3 * 2.0**-33, 1e-8, 0.5, 1 - 2.0**-24])
    noise = np.uint32([0, 1, 2, 3, 255, 2**31 - 1, 2**31, 2**32 - 257, 2**32 - 256, 2**32 - 1])
    x, n = np.meshgrid(np.concatenate([fractions, -fractions, fractions[5:] * 100]), noise)
    shape = f"[{x.shape[0]},{x.shape[1]}]"
    text = (
        f"HloModule m\nENTRY e {{\n  x = f32{shape} parameter(0)\n  n = u32{shape} parameter(1)\n"
    )
    text += f"  ROOT r = s8{shape} stochastic-convert(x, n)\n}}\n"
    want = reference(text, [x, n])
    assert_close(want, expanded(text, [x, n], PASSES, ["stochastic-convert"]), 0)
    assert_close(want, on_machine(text, [x, n]), 0)


def test_approximate_top_k_is_exact() -> None:
    body = """x = f32[4,30] parameter(0)
  k = s32[4,30] iota(), iota_dimension=1
  low = f32[] constant(-inf)
  none = s32[] constant(-1)
  ROOT r = (f32[4,6], s32[4,6]) custom-call(x, k, low, none), custom_call_target="ApproxTopK",
    called_computations={greater}, backend_config={"reduction_dim": 1}
"""
    (x,) = _inputs(body)
    values, places = expanded(f"HloModule m\n{BODIES}ENTRY e {{\n{body}}}\n", [x], PASSES)
    order = np.argsort(-x, 1, kind="stable")[:, :6]
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


def test_sizes_known_only_at_run_time_are_refused() -> None:
    text = "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  n = s32[] constant(3)\n"
    text += "  ROOT r = f32[<=4] set-dimension-size(x, n), dimensions={0}\n}\n"
    with pytest.raises(UnsupportedError, match="use static shapes"):
        expanded(text, [np.zeros(4, np.float32)], ["single-device"])


@pytest.mark.parametrize("shape", ["f32[<=4]", "f32[2,<=4]", "(f32[4], f32[<=4])"])
def test_inputs_of_sizes_known_only_at_run_time_are_refused(shape: str) -> None:
    module = parse_module(f"HloModule m\nENTRY e {{\n  ROOT x = {shape} parameter(0)\n}}\n")
    with pytest.raises(UnsupportedError, match=r"%x is .*<=4.*use static shapes"):
        run_pipeline(module, load_chip("v5e"), passes=["single-device"])


def test_topk_of_flags_and_starts_in_one_vector() -> None:
    text = """HloModule m
    ENTRY e {
      x = pred[3,9] parameter(0)
      y = f32[5,7] parameter(1)
      i = s32[2] parameter(2)
      s = f32[2,3] dynamic-slice(y, i), dynamic_slice_sizes={2,3}
      u = f32[5,7] dynamic-update-slice(y, s, i)
      t = (pred[3,4], s32[3,4]) topk(x), k=4, largest=true
      v = pred[3,4] get-tuple-element(t), index=0
      n = s32[3,4] get-tuple-element(t), index=1
      ROOT r = (pred[3,4], s32[3,4], f32[2,3], f32[5,7]) tuple(v, n, s, u)
    }
    """
    rng = np.random.default_rng(0)
    inputs = [
        rng.random((3, 9)) > 0.7,
        rng.standard_normal((5, 7)).astype(np.float32),
        np.array([2, 9], np.int32),
    ]
    for want, got in zip(reference(text, inputs), on_machine(text, inputs), strict=True):
        np.testing.assert_array_equal(want, got)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("CustomSPMDPartitioning", "write the cut with jax.shard_map"),
        ("InspectSharding", "look at a result's sharding outside of jit"),
        ("mine", "is unknown; known are AllocateBuffer, ApproxTopK"),
    ],
)
def test_other_targets_are_refused_with_what_to_write(target: str, words: str) -> None:
    module = parse_module(
        "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n"
        f'  ROOT r = f32[4] custom-call(x), custom_call_target="{target}"\n}}\n'
    )
    with pytest.raises(UnsupportedError, match=f"%r: custom call '{target}'.*{words}"):
        run_pipeline(module, load_chip("v5e"), passes=PASSES)
