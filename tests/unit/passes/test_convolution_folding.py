"""Folded convolutions mean the same, whatever the fold; they are folded where that pays."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from compiler.analysis.window_search import plan_windows
from compiler.driver import compile_module
from compiler.hlo.attributes import WindowDim
from compiler.hlo.call_graph import sort_computations
from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.verifier import verify
from compiler.options import CompileOptions
from compiler.passes import convolution_folding as folding
from compiler.passes import convolution_plans
from compiler.passes.context import PassContext
from compiler.passes.convolution_estimate import sizes_of
from compiler.passes.convolution_folds import fold_of, gradient_fold
from compiler.passes.convolution_guards import needs_finite_image, needs_finite_kernel
from compiler.passes.convolution_plans import phase_folds, plans
from compiler.passes.pipeline import run_pipeline
from compiler.rewrite.graph import replace
from runtime.api import compile as compile_model
from tpu_sim.isa.chips import load_chip

TEXT = """HloModule m
ENTRY main {{
  x = {dtype}[{image}] parameter(0)
  k = {dtype}[{kernel}] parameter(1)
  ROOT c = {dtype}[{result}] convolution(x, k), window={{{window}}}, dim_labels={labels}
}}
"""
PLAIN = "b01f_01io->b01f"
FORWARD = {
    "strided": ("2,9,8,3", "5,3,3,4", "2,4,4,4", "size=5x3 stride=2x2 pad=1_1x0_1", PLAIN),
    "three": ("1,7,9,2", "3,3,2,4", "1,7,9,4", "size=3x3 pad=1_1x1_1", PLAIN),
    "dilated": ("1,9,9,2", "3,2,2,4", "1,5,7,4", "size=3x2 rhs_dilate=2x2", PLAIN),
    "transposed": ("2,4,5,3", "4,3,3,2", "2,8,10,2", "size=4x3 pad=2_2x1_2 lhs_dilate=2x2", PLAIN),
    "turned": ("1,4,4,2", "3,3,2,4", "1,9,9,4",
               "size=3x3 pad=2_2x2_2 lhs_dilate=2x2 rhs_reversal=1x1", PLAIN),
    "dilated by three": ("1,3,4,2", "5,2,2,3", "1,5,8,3",
                         "size=5x2 stride=2x1 pad=3_4x0_0 lhs_dilate=3x3 rhs_dilate=1x2", PLAIN),
    "pointwise": ("2,4,5,3", "1,1,3,4", "2,7,10,4", "size=1x1 pad=0_0x0_1 lhs_dilate=2x2", PLAIN),
    "one dilated": ("2,3,5,3", "3,2,3,2", "2,3,2,10", "size=3x2 pad=1_1x1_1 lhs_dilate=1x2",
                    "0b1f_01io->0bf1"),
    "both dilated": ("1,5,2", "4,2,3", "1,6,3", "size=4 pad=2_1 lhs_dilate=2 rhs_dilate=2",
                     "b0f_0io->b0f"),
    "cropped": ("1,9,7,2", "3,3,2,4", "1,5,5,4", "size=3x3 pad=-1_-1x0_0", PLAIN),
    "features first": ("2,3,6,6", "4,3,3,3", "2,4,4,4", "size=3x3", "bf01_oi01->bf01"),
    "one feature": ("2,400,1", "9,1,3", "2,400,3", "size=9 pad=4_4", "b0f_0io->b0f"),
    "a spectrum": ("2,700,1", "40,1,3", "2,20,3", "size=40 stride=32 pad=5_-40", "b0f_0io->b0f"),
    "rows of one feature": ("1,280,2,1", "3,2,1,2", "1,280,2,2", "size=3x2 pad=2_0x1_0", PLAIN),
    "three dimensions": ("1,4,5,6,2", "2,3,2,2,3", "1,3,3,5,3", "size=2x3x2",
                         "b012f_012io->b012f"),
}  # fmt: skip
GRADIENTS = {
    "plain": ("3,9,9,2", "7,7,2,4", "3,3,3,4", "size=7x7", PLAIN),
    "of a strided": ("3,10,8,2", "3,4,4,5", "5,3,2,5", "size=4x4 pad=1_0x0_1 rhs_dilate=2x2",
                     "f01b_i01o->01bf"),
    "of a dilated": ("3,9,9,2", "3,5,5,4", "3,3,2,4", "size=5x5 stride=2x2", "f01b_i01o->01bf"),
    "turned": ("1,8,8,2", "6,6,2,3", "1,3,3,3", "size=6x6 rhs_reversal=1x1", PLAIN),
}  # fmt: skip
STEM = ("32,224,224,3", "7,7,3,64", "32,112,112,64", "size=7x7 stride=2x2 pad=3_3x3_3", PLAIN)
STEM_IMAGE = (
    "32,112,112,64",
    "7,7,3,64",
    "32,224,224,3",
    "size=7x7 pad=4_3x4_3 lhs_dilate=2x2",
    "b01f_01oi->b01f",
)
STEM_KERNEL = (
    "32,224,224,3",
    "32,112,112,64",
    "7,7,3,64",
    "size=112x112 pad=2_3x2_3 rhs_dilate=2x2",
    "f01b_i01o->01bf",
)
DEEP = ("32,14,14,256", "3,3,256,256", "32,14,14,256", "size=3x3 pad=1_1x1_1", PLAIN)

Maker = Callable[[HloInstruction], folding.Replacement]
Case = tuple[str, str, str, str, str]


def _module(case: Case, dtype: str = "f32") -> HloModule:
    image, kernel, result, window, labels = case
    return parse_module(
        TEXT.format(dtype=dtype, image=image, kernel=kernel, result=result, window=window,
                    labels=labels)
    )  # fmt: skip


def _forward(instr: HloInstruction) -> Iterator[Maker]:
    sizes = sizes_of(instr, "default")
    for plan in plans(sizes):
        yield lambda i, plan=plan: folding._fold(i, sizes, plan, load_chip("v5e"))
    phases = phase_folds(sizes)
    if any(phases):
        yield lambda i: folding._guarded_phases(i, phases, load_chip("v5e"))


def _gradient(instr: HloInstruction) -> Iterator[Maker]:
    sizes, chip = sizes_of(instr, "default"), load_chip("v5e")
    for dim, (window, positions) in enumerate(zip(sizes.window, sizes.positions, strict=True)):
        for count in (1, 2, 3, window.size):
            fold = gradient_fold(window, positions, count)
            assert fold is not None
            yield lambda i, dim=dim, fold=fold: folding._fold_gradient(i, sizes, dim, fold, chip)


@pytest.mark.parametrize(
    ("case", "makers"),
    [*((c, _forward) for c in FORWARD.values()), *((c, _gradient) for c in GRADIENTS.values())],
    ids=[*FORWARD, *(f"gradient {name}" for name in GRADIENTS)],
)
@pytest.mark.parametrize("place", [None, 0, 1], ids=["finite", "image", "kernel"])
def test_every_fold_means_the_same(
    case: Case, makers: Callable[[HloInstruction], Iterator[Maker]], place: int | None
) -> None:
    """Small whole numbers: sums are exact whatever the order. What is not finite stays in place."""
    module = _module(case)
    rng = np.random.default_rng(3)
    inputs = [rng.integers(-3, 4, p.array.dims).astype("float32") for p in module.entry.parameters]
    if place is not None:
        for value in (np.inf, -np.inf, np.nan):
            inputs[place].flat[rng.integers(inputs[place].size)] = value
    (wanted,) = evaluate(module, inputs, "highest")
    assert np.any(wanted)
    assert (place is None) == bool(np.all(np.isfinite(wanted)))
    count = len(list(makers(module.entry.root_instruction)))
    assert count
    for number in range(count):
        folded = _module(case)
        root = folded.entry.root_instruction
        replace(*list(makers(root))[number](root))
        folded.entry.sort()
        sort_computations(folded)
        verify(folded)
        (found,) = evaluate(folded, inputs, "highest")
        np.testing.assert_array_equal(found, wanted)


def _folds(case: Case, dtype: str = "bf16") -> HloModule:
    module = _module(case, dtype)
    folding.fold_convolutions(module, PassContext(load_chip("v5e")))
    return module


@pytest.mark.parametrize("case", [STEM, STEM_IMAGE, STEM_KERNEL], ids=["stem", "image", "kernel"])
def test_convolutions_of_few_features_are_folded(case: Case) -> None:
    module = _folds(case)
    verify(module)
    made = [i for c in module.computations.values() for i in c if i.opcode == "convolution"]
    guards = [i for i in module.entry if i.opcode == "conditional"]
    assert len(made) == 1 + len(guards)
    if guards:
        folded = guards[0].attrs["false_computation"]
        made = [i for i in folded if i.opcode == "convolution"]
    window = made[0].attrs["window"]
    assert all(d.base_dilation == 1 for d in window.dims)


def test_rows_of_one_feature_are_whole_registers() -> None:
    """512 taps of a filter bank are five rows of 128 elements, not 527 slices of the signal."""
    bank = ("32,65536,1", "512,1,24", "32,65536,24", "size=512 pad=255_256", "b0f_0io->b0f")
    folded = next(
        c for c in _folds(bank, "f32").computations.values() if c.name.endswith("_folded")
    )
    (made,) = (i for i in folded if i.opcode == "convolution")
    assert made.operands[0].array.dims == (32, 516, 128)
    assert made.operands[1].array.dims == (5, 128, 128 * 24)


def test_even_blocks_of_a_window_need_no_guard() -> None:
    assert not any(i.opcode == "conditional" for i in _folds(STEM_KERNEL).entry)


def test_blocks_of_disjoint_phases_need_no_guard() -> None:
    """Stride 2, 2 taps, transposed: both positions of a block meet its one element."""
    window = WindowDim(2, 1, 1, 1, 2)
    fold = fold_of(window, 8, 2)
    assert not needs_finite_image((fold, None))
    assert needs_finite_kernel((window,), (fold,))
    assert needs_finite_image((fold_of(WindowDim(3), 8, 2),))


EPILOGUE = """HloModule m
larger {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT m = f32[] maximum(p, q)
}
ENTRY main {
  x = f32[2,9,8,3] parameter(0)
  k = f32[5,3,3,4] parameter(1)
  b = f32[4] parameter(2)
  r = bf16[2,4,4,4] parameter(3)
  c = f32[2,4,4,4] convolution(x, k), window={size=5x3 stride=2x2 pad=1_1x0_1}, dim_labels=b01f_01io->b01f
  bb = f32[2,4,4,4] broadcast(b), dimensions={3}
  s = f32[2,4,4,4] add(bb, c)
  rr = f32[2,4,4,4] convert(r)
  t = f32[2,4,4,4] subtract(s, rr)
  zero = f32[] constant(0)
  zeros = f32[2,4,4,4] broadcast(zero), dimensions={}
  u = f32[2,4,4,4] maximum(t, zeros)
  p = f32[2,2,2,4] reduce-window(u, zero), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=larger
  ROOT y = (f32[2,2,2,4], f32[2,2,2,4], bf16[2,4,4,4]) tuple(p, p, r)
}
"""


@pytest.mark.parametrize("value", [1.0, np.inf, np.nan, 3.4e38])
def test_what_follows_alone_goes_into_the_branches(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "_WORTH", 1e9)
    module, folded = parse_module(EPILOGUE), parse_module(EPILOGUE)
    assert folding.fold_convolutions(folded, PassContext(load_chip("v5e")))
    verify(folded)
    (guard,) = [i for i in folded.entry if i.opcode == "conditional"]
    assert folded.entry.root_instruction.operands[0] is guard
    assert not any(i.opcode in ("add", "subtract", "reduce-window") for i in folded.entry)
    rng = np.random.default_rng(3)
    types = [p.array for p in module.entry.parameters]
    inputs = [rng.integers(-3, 4, p.dims).astype(p.dtype.numpy) for p in types]
    inputs[0].flat[100] = value
    for want, got in zip(
        evaluate(module, inputs, "highest"), evaluate(folded, inputs, "highest"), strict=True
    ):
        np.testing.assert_array_equal(np.float32(got), np.float32(want))


def test_others_are_left_alone() -> None:
    module = _folds(DEEP)
    assert [i.opcode for i in module.entry if i.opcode != "parameter"] == ["convolution"]


def test_an_image_of_nothing_is_left_alone() -> None:
    """Its result is not empty: all padding."""
    case = ("8,16,4,0", "3,3,16,32", "8,32,4,2", "size=3x3 pad=1_1x2_2", "bf01_01io->bf01")
    module = _folds(case)
    assert [i.opcode for i in module.entry if i.opcode != "parameter"] == ["convolution"]


def test_a_block_reads_no_holes() -> None:
    """Positions 2b and 2b + 1 of a transposed convolution of 4 taps meet two of three elements."""
    fold = fold_of(WindowDim(4, 1, 2, 2, 2), 8, 2)
    assert fold is not None
    assert (fold.step, fold.first, fold.length, fold.blocks) == (1, -1, 3, 4)
    assert [(r.tap, r.tap_step, r.element, r.size) for r in fold.runs if r] == [
        (0, 2, 0, 2), (1, 2, 1, 2),
    ]  # fmt: skip
    assert fold_of(WindowDim(3, 1, 0, 0, 2), 8, 3) is None


def test_what_was_gathered_is_stored() -> None:
    """The product does not put the many parts together anew; they are turned as they are gathered."""
    module = _module(STEM, "bf16")
    run_pipeline(module, load_chip("v5e"))
    seen = 0
    (guard,) = [i for i in module.entry if i.opcode == "conditional"]
    folded = guard.attrs["false_computation"]
    assert isinstance(folded, HloComputation)
    for fusion in (*module.entry, *folded):
        body = fusion.attrs.get("calls")
        if not isinstance(body, HloComputation):
            continue
        joined = [len(i.operands) for i in body if i.opcode == "concatenate"]
        if any(i.opcode == "dot" for i in body):
            assert max(joined, default=0) < 8, "a row of taps at most"
        elif joined:
            seen += 1
            assert body.root_instruction.opcode == "transpose"
            width = plan_windows(fusion, load_chip("v5e")).outputs[0].extent[-1]
            assert width == fusion.array.dims[-1]
    assert seen == 1


def test_a_kernel_may_spill_many_scalars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many parts has conditions of its own: more scalars than registers and 128 words."""
    monkeypatch.setattr(convolution_plans, "COUNTS", (4,))
    case = ("8,17,17,17,1", "9,9,3,1,1", "8,7,10,5,1",
            "size=9x9x3 stride=3x4x4 pad=6_5x6_6x2_2 lhs_dilate=1x2x1", "b012f_012io->b012f")  # fmt: skip
    module = _module(case)
    assert compile_module(module, load_chip("v5e")).program.kernels


def test_the_way_out_of_a_folded_convolution_takes_no_memory_of_all_taps() -> None:
    """Patches become an image: each of 256 phases has one tap, and what is not finite may not spread."""
    text = """HloModule m
ENTRY e {
  x = f32[1,14,14,768] parameter(0)
  k = f32[16,16,3,768] parameter(1)
  ROOT c = f32[1,224,224,3] convolution(x, k), window={size=16x16 pad=15_15x15_15 lhs_dilate=16x16},
    dim_labels=b01f_01oi->b01f
}"""
    executable = compile_model(text, options=CompileOptions(precision="high"))
    assert executable.estimate().hbm_peak_bytes < 1 << 28
