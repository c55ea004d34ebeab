"""Random modules: the chip, the evaluator and the frontends agree on a fixed number of seeds.

Any number is run by ``python -m benchmarks.fuzz``, which also asks XLA and makes failures small; what
was mended belongs in ``tests/data/regressions``.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from benchmarks.fuzz import check as fuzz
from benchmarks.fuzz.compare import difference
from benchmarks.fuzz.exactness import is_tainted
from benchmarks.fuzz.generator import generate, generate_real
from benchmarks.fuzz.inputs import inputs_for
from benchmarks.fuzz.makers.registry import EXCLUDED, made_opcodes
from benchmarks.fuzz.minimise import reduced
from benchmarks.fuzz.noise import evaluate_noisily
from benchmarks.fuzz.run import evaluated
from benchmarks.fuzz.scale import judge
from compiler.hlo.opcodes import OPCODES
from compiler.hlo.parser import parse_module
from compiler.hlo.verifier import verify

BATCH = 10
BATCHES = 3
VALID = 150


def test_every_opcode_has_a_maker_or_a_reason() -> None:
    assert set(OPCODES) - made_opcodes() - set(EXCLUDED) == set()
    assert made_opcodes() & set(EXCLUDED) == set()
    assert set(EXCLUDED) <= set(OPCODES)


def test_generated_modules_are_valid_and_of_most_opcodes() -> None:
    seen = set()
    for seed in range(VALID):
        module = parse_module(generate(seed))
        verify(module)
        seen |= {instr.opcode for c in module.computations.values() for instr in c}
    assert seen <= made_opcodes()
    assert len(made_opcodes() - seen) < 40


def test_a_seed_gives_one_module() -> None:
    assert generate(5) == generate(5) != generate(6)


def test_literals_of_no_elements_are_short() -> None:
    """Six dimensions, the last of size 0: the braces of the others are written out all the same."""
    assert len(generate(92001495)) < 10_000


@pytest.mark.parametrize("batch", range(BATCHES))
def test_chip_and_evaluator_agree(batch: int) -> None:
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        ways = fuzz.Ways(numpy_cycles=4000 if seed % 4 == 0 else 0)
        outcome = fuzz.check(generate(seed), ways, seed)
        assert outcome.kind == fuzz.OK, f"seed {seed}: {outcome.kind}: {outcome.detail}"


@pytest.mark.parametrize("seed", range(4))
def test_real_sizes_compile(seed: int) -> None:
    outcome = judge(generate_real(seed))
    assert outcome.kind in ("ok", "too large"), outcome.detail


SINES = """HloModule m
ENTRY e {
  p_tame = f32[40] parameter(0)
  q_whole = f32[40] parameter(1)
  a = f32[40] sine(p_tame)
  b = f32[40] add(q_whole, q_whole)
  c = f32[40] floor(p_tame)
  d = pred[40] compare(a, p_tame), direction=LT
  ROOT r = (f32[40], f32[40], f32[40], pred[40]) tuple(a, b, c, d)
}
"""


def _difference(output: int, change: float) -> bool:
    """Whether it is seen when an element of an output is changed."""
    module = parse_module(SINES)
    inputs = inputs_for(module)
    want = evaluated(SINES, inputs)
    got = [np.array(w) for w in want]
    if got[output].dtype == bool:
        got[output][3] ^= True
    else:
        got[output][np.argmax(abs(got[output]))] *= np.float32(1 + change)

    def again(seed: int, scale: float) -> list[np.ndarray]:
        return evaluate_noisily(parse_module(SINES), inputs, seed, scale)

    return difference(got, want, again, is_tainted(module)) is not None


def test_rounding_is_no_difference_and_all_else_is() -> None:
    assert not _difference(0, 2.0**-22)  # a sine may be off by some units in the last place
    assert _difference(0, 2.0**-16)
    assert _difference(1, 2.0**-15)  # sums of whole numbers are exact
    assert _difference(2, 0.01)
    assert _difference(3, 0)


SORTED = """HloModule m
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER
}
ENTRY e {
  i = f32[9] iota(), iota_dimension=0
  two = f32[] constant(0.25)
  q = f32[9] broadcast(two), dimensions={}
  m = f32[9] multiply(i, q)
  a = f32[9] asin(m)
  ROOT s = f32[9] sort(a), dimensions={0}, to_apply=less
}
"""


def test_what_a_machine_may_choose_is_no_difference() -> None:
    (want,) = evaluated(SORTED, [])
    numbers = want[np.isfinite(want)]
    assert len(numbers) == 5
    nans = np.full(4, np.nan, np.float32)

    def found(got: np.ndarray) -> bool:
        def again(seed: int, scale: float) -> list[np.ndarray]:
            return evaluate_noisily(parse_module(SORTED), [], seed, scale)

        tainted = is_tainted(parse_module(SORTED))
        return difference([got], [want], again, tainted) is not None

    assert not found(np.concatenate([nans, numbers]))  # NaN of either sign, all alike
    assert not found(np.concatenate([numbers, nans]))
    assert found(np.concatenate([numbers[:4], nans, numbers[:1]]))


PRODUCTS = """HloModule m
times {
  a = f8e4m3[] parameter(0)
  b = f8e4m3[] parameter(1)
  ROOT r = f8e4m3[] multiply(a, b)
}
plus {
  a = f8e3m4[] parameter(0)
  b = f8e3m4[] parameter(1)
  ROOT r = f8e3m4[] add(a, b)
}
ENTRY e {
  x = f8e4m3[8] constant({0, 16, 32, 1, nan, 1, 0, 1})
  one = f8e4m3[] constant(1)
  w = f8e4m3[2] reduce-window(x, one), window={size=4 stride=4}, to_apply=times
  b = s32[3] constant({3, 7, -2147483643})
  t = f32[3] bitcast-convert(b)
  m = f32[3] exponential-minus-one(t)
  y = f8e3m4[6] constant({8, 8, -8, 1, 2, 3})
  z = f8e3m4[] constant(0)
  s = f8e3m4[2] reduce-window(y, z), window={size=3 stride=3}, to_apply=plus
  ROOT r = (f8e4m3[2], f32[3], f8e3m4[2]) tuple(w, m, s)
}
"""


def test_overflow_in_another_order_and_steps_of_denormals_are_no_difference() -> None:
    want = evaluated(PRODUCTS, [])

    def found(output: int, *numbers: float) -> bool:
        def again(seed: int, scale: float) -> list[np.ndarray]:
            return evaluate_noisily(parse_module(PRODUCTS), [], seed, scale)

        got = [np.array(w) for w in want]
        got[output] = np.array(numbers).astype(want[output].dtype)
        return difference(got, want, again, True) is not None

    assert not found(0, np.nan, np.nan)  # 16 * 32 first: infinity, and times 0 NaN
    assert not found(2, np.inf, 6)
    assert found(2, 8, np.inf)
    step = float(np.finfo(np.float32).smallest_subnormal)
    assert not found(1, 2 * step, 9 * step, -4 * step)
    assert found(1, 3 * step, 7 * step, -1e-37)


STORED = """HloModule m
max { a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT r = bf16[] maximum(a, b) }
ENTRY e {
  a = bf16[4,8] parameter(0)
  b = bf16[8,64] parameter(1)
  d = bf16[4,64] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = bf16[] constant(-inf)
  m = bf16[4] reduce(d, z), dimensions={1}, to_apply=max
  w = bf16[4,64] broadcast(m), dimensions={0}
  ROOT r = bf16[4,64] subtract(d, w)
}"""


FALLING = """HloModule m
mul { a = f8e3m4[] parameter(0)  b = f8e3m4[] parameter(1)  ROOT r = f8e3m4[] multiply(a, b) }
ENTRY e {
  p = f8e3m4[2,12] parameter(0)
  one = f8e3m4[] constant(1)
  ROOT v = f8e3m4[2,3] reduce-window(p, one), window={size=1x10}, to_apply=mul
}
"""


def test_products_below_the_normal_numbers_may_stay_at_the_least_one() -> None:
    """0.75 of the least number is rounded to that; in a wider float such a product goes to zero."""
    narrow = parse_module(FALLING).entry.parameters[0].array.dtype.numpy
    inputs = [np.repeat(np.array([[0.40625], [0.96875]]), 12, axis=1).astype(narrow)]

    def again(seed: int, scale: float) -> list[np.ndarray]:
        return evaluate_noisily(parse_module(FALLING), inputs, seed, scale)

    want = evaluated(FALLING, inputs)
    least = float(ml_dtypes.finfo(narrow).smallest_subnormal)
    assert not want[0][0].any()
    stuck = np.array([[least] * 3, want[0][1]]).astype(narrow)
    off = np.array([[0.0] * 3, 4 * want[0][1].astype(np.float64)]).astype(narrow)
    assert difference([stuck], want, again, True) is None
    assert difference([off], want, again, True) is not None


def test_a_product_may_stay_wide_where_its_maximum_is_stored() -> None:
    """The largest less itself is then what was rounded away, not 0."""
    rng = np.random.default_rng(0)
    inputs = [(rng.integers(-99, 99, dims) / 16).astype("bfloat16") for dims in ((4, 8), (8, 64))]
    wide = [a.astype(np.float32) for a in inputs]
    product = wide[0] @ wide[1]
    greatest = product.max(1, keepdims=True).astype("bfloat16").astype(np.float32)
    got = (product - greatest).astype("bfloat16")
    (want,) = evaluated(STORED, inputs)
    assert not np.array_equal(got, want)

    def again(seed: int, scale: float) -> list[np.ndarray]:
        return evaluate_noisily(parse_module(STORED), inputs, seed, scale)

    assert difference([got], [want], again, is_tainted=True) is None
    assert difference([got + got.dtype.type(1)], [want], again, is_tainted=True) is not None


def test_the_minimiser_keeps_what_fails() -> None:
    text = generate(3)
    opcode = "get-tuple-element" if "get-tuple-element" in text else "parameter"

    def fails(candidate: str) -> bool:
        try:
            verify(parse_module(candidate))
        except Exception:
            return False
        return f" {opcode}(" in candidate

    small = reduced(text, fails, 5.0)
    assert fails(small) and len(small) < len(text)
