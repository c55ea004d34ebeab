"""Expansions as subjects: one for every opcode that some pass expands."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.rule_fuzz import texts
from benchmarks.rule_fuzz.generator import Generator, Wanted
from benchmarks.rule_fuzz.harness import Subject
from benchmarks.rule_fuzz.planners import PLANNERS
from benchmarks.rule_fuzz.values import ALL, FLOATS, INTEGERS
from compiler.hlo.ir import HloModule
from compiler.passes.context import PassContext
from compiler.passes.expanders.simple_expansions import COMPOSED
from compiler.passes.pipeline import PASSES
from compiler.rewrite.rewriter import ANY_ORDER, Freedom
from tpu_sim.isa.chips import load_chip

Maker = Callable[[Generator], HloModule]
_HIGHEST = ", operand_precision={highest,highest}"


def _planned(opcode: str, *names: str) -> Maker:
    """The opcode on leaves, its result of one of these types."""

    def make(g: Generator) -> HloModule:
        return g.finish(g.by_opcode(opcode, Wanted(g.dtype(names), g.dims())))

    return make


def _turned_dot(g: Generator) -> HloModule:
    """A dot, perhaps under a transpose, or one whose right side lies in parts."""
    if g.chance(0.3):
        return texts.dot_of_parts(g, g.dtype(("f32", "s32")).name)
    wanted = Wanted(g.dtype(("f32", "s32", "u8")), g.dims(1, 4, 400))
    if g.chance(0.5):
        return g.finish(g.by_opcode("dot", wanted, 1))
    order = g.permutation(len(wanted.dims))
    dot = g.by_opcode("dot", wanted, 1)
    return g.finish(g.emit("transpose", (dot,), {"dimensions": order}))


def _integer_dot(g: Generator) -> HloModule:
    return texts.large_dot(g, g.choose(("s8", "u8", "s16", "u16", "s32", "u32")))


def _small_dot(g: Generator) -> HloModule:
    return texts.large_dot(g, g.choose(("f32", "bf16")), _HIGHEST)


_REAL = ("pred", *INTEGERS, *FLOATS)
_LOOSE = ANY_ORDER | Freedom.ROUNDING

MAKERS: dict[tuple[str, str], tuple[Maker, Freedom]] = {
    **{
        ("simple-expansions", op): (_planned(op, *ALL), _LOOSE) for op in COMPOSED.keys() & PLANNERS
    },
    ("simple-expansions", "batch-norm-grad"): (partial(texts.batch_norm, kind="grad"), _LOOSE),
    ("simple-expansions", "batch-norm-inference"): (
        partial(texts.batch_norm, kind="inference"),
        _LOOSE,
    ),
    ("simple-expansions", "batch-norm-training"): (
        partial(texts.batch_norm, kind="training"),
        _LOOSE,
    ),
    ("simple-expansions", "bitcast-convert"): (texts.bit_cast, Freedom.NONE),
    ("simple-expansions", "convolution"): (texts.batch_groups, ANY_ORDER),
    ("simple-expansions", "dot"): (texts.mixed_dot, ANY_ORDER),
    ("simple-expansions", "dynamic-slice"): (_planned("dynamic-slice", *_REAL), Freedom.NONE),
    ("simple-expansions", "dynamic-update-slice"): (
        _planned("dynamic-update-slice", *_REAL),
        Freedom.NONE,
    ),
    ("simple-expansions", "gather"): (_planned("gather", *_REAL), Freedom.NONE),
    ("simple-expansions", "imag"): (partial(texts.real_part, opcode="imag"), Freedom.NONE),
    ("simple-expansions", "map"): (texts.mapped, Freedom.NONE),
    ("simple-expansions", "real"): (partial(texts.real_part, opcode="real"), Freedom.NONE),
    ("simple-expansions", "reduce"): (texts.two_reduces, Freedom.SIGN_OF_ZERO),
    ("simple-expansions", "reduce-window"): (texts.widened_window, ANY_ORDER),
    ("simple-expansions", "scatter"): (_planned("scatter", "pred", *INTEGERS), Freedom.NONE),
    ("simple-expansions", "stochastic-convert"): (texts.stochastic_convert, Freedom.NONE),
    ("linear-algebra-expander", "cholesky"): (texts.cholesky, _LOOSE),
    ("linear-algebra-expander", "triangular-solve"): (texts.triangular_solve, _LOOSE),
    ("fft-expander", "fft"): (texts.fft, ANY_ORDER),
    ("rng-expander", "rng-bit-generator"): (texts.random_bits, Freedom.NONE),
    ("sort-kernels", "sort"): (partial(texts.sort, least=300, most=700), Freedom.NONE),
    ("sort-expander", "sort"): (texts.sort, Freedom.NONE),
    ("custom-call-expander", "sort"): (texts.first_of_sort, Freedom.NONE),
    ("custom-call-expander", "topk"): (texts.topk, Freedom.NONE),
    ("topk-expander", "topk"): (texts.topk, Freedom.NONE),
    ("reduce-window-expander", "reduce-window"): (texts.reduce_window, ANY_ORDER),
    ("running-totals", "reduce-window"): (texts.running_total, ANY_ORDER),
    ("tap-expander", "reduce-window"): (texts.reduce_window, ANY_ORDER),
    ("tap-expander", "convolution"): (texts.convolution, ANY_ORDER),
    ("convolution-canonicalizer", "convolution"): (texts.convolution, ANY_ORDER),
    ("select-and-scatter-expander", "select-and-scatter"): (texts.select_and_scatter, ANY_ORDER),
    ("integer-dot-expander", "dot"): (_integer_dot, Freedom.NONE),
    ("small-dot-expander", "dot"): (_small_dot, ANY_ORDER),
    ("dot-canonicalizer", "dot"): (_turned_dot, ANY_ORDER),
}
"""By pass and opcode: how to draw one, and what the expansion is free to do. Composed opcodes that
rules are drawn of (elementwise ones are) need no line."""

ELSEWHERE: dict[tuple[str, str], str] = {
    ("simple-expansions", "ragged-dot"): "tests/unit/passes/expanders/test_simple.py",
    ("simple-expansions", "scaled-dot"): "tests/unit/passes/test_reduce_starts.py",
    ("custom-call-expander", "custom-call"): "tests/unit/passes/expanders/test_linear_algebra.py",
    ("single-device", "*"): "tests/unit/passes/expanders/test_simple.py",
    ("global-forms", "*"): "tests/property/test_fuzz_sharded.py",
    ("replica-flattener", "*"): "tests/integration/test_slices.py",
    ("collective-expander", "*"): "tests/integration/test_slices.py",
    ("convolution-folding", "convolution"): "tests/unit/passes/test_convolution_folding.py",
}
"""Expansions that are compared with the evaluator elsewhere."""


def expander_subjects() -> list[Subject]:
    """One for every pass and opcode."""
    return [
        Subject(f"{name}: {opcode}", make, _applier(name), freedom, _edges(freedom))
        for (name, opcode), (make, freedom) in MAKERS.items()
    ]


def _edges(freedom: Freedom) -> float:
    return 0.0 if Freedom.ORDER in freedom else 0.4


def _applier(name: str) -> Callable[[HloModule], bool]:
    def apply(module: HloModule) -> bool:
        return PASSES[name].run(module, PassContext(load_chip("v5e")))

    return apply
