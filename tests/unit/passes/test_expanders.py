"""Convolutions, windows and top-k mean the same after their expansion."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.passes.context import PassContext
from compiler.passes.pipeline import PASSES, PIPELINE, run_pipeline
from tests.support.expansions import on_machine
from tpu_sim.isa.chips import load_chip

CONVOLUTION = """HloModule m
ENTRY main {{
  x = f32[{image}] parameter(0)
  k = f32[{kernel}] parameter(1)
  ROOT c = f32[{result}] convolution(x, k), window={{{window}}}, dim_labels={labels}{extra}
}}
"""

CONVOLUTIONS = {
    "3x3": ("2,7,9,5", "3,3,5,4", "2,5,7,4", "size=3x3", "b01f_01io->b01f", ""),
    "padded": ("2,7,9,5", "3,3,5,4", "2,7,9,4", "size=3x3 pad=1_1x1_1", "b01f_01io->b01f", ""),
    "strided": ("2,8,9,3", "3,3,3,4", "2,4,4,4", "size=3x3 stride=2x2 pad=1_0x0_0",
                "b01f_01io->b01f", ""),
    "dilated": ("1,9,9,2", "3,2,2,4", "1,5,7,4", "size=3x2 rhs_dilate=2x2", "b01f_01io->b01f", ""),
    "backward": ("1,4,4,2", "3,3,2,4", "1,9,9,4", "size=3x3 pad=2_2x2_2 lhs_dilate=2x2 "
                 "rhs_reversal=1x1", "b01f_01io->b01f", ""),
    "channels first": ("2,3,6,6", "4,3,3,3", "2,4,4,4", "size=3x3", "bf01_oi01->bf01", ""),
    "grouped": ("2,6,6,4", "3,3,2,6", "2,4,4,6", "size=3x3", "b01f_01io->b01f",
                ", feature_group_count=2"),
    "depthwise": ("1,6,6,8", "3,3,1,8", "1,4,4,8", "size=3x3", "b01f_01io->b01f",
                  ", feature_group_count=8"),
    "patches": ("2,8,12,3", "4,4,3,5", "2,2,3,5", "size=4x4 stride=4x4", "b01f_01io->b01f", ""),
    "pointwise strided": ("2,7,8,3", "1,1,3,5", "2,4,4,5", "size=1x1 stride=2x2",
                          "b01f_01io->b01f", ""),
    "kernel gradient": ("3,9,9,2", "7,7,2,4", "3,3,3,4", "size=7x7", "b01f_01io->b01f", ""),
    "dilated kernel gradient": ("2,8,8,3", "4,4,3,5", "2,2,2,5",
                                "size=4x4 pad=0_0x0_0 rhs_dilate=2x2", "b01f_01io->b01f", ""),
    "global": ("2,5,5,3", "5,5,3,4", "2,1,1,4", "size=5x5", "b01f_01io->b01f", ""),
    "one feature": ("2,1,9,40", "1,1,3,3", "2,1,9,40", "size=3x3 pad=1_1x1_1", "bf01_oi01->bf01",
                    ""),
    "one feature, dilated and turned": (
        "2,5,33,1", "3,2,1,1", "2,9,33,1",
        "size=3x2 pad=1_1x0_1 lhs_dilate=2x1 rhs_dilate=1x1 rhs_reversal=1x1", "b01f_01io->b01f",
        "",
    ),
    "two features, strided": ("3,90,2", "5,2,2", "3,44,2", "size=5 stride=2 pad=0_1",
                              "b0f_0io->b0f", ""),
    "1d": ("2,16,3", "5,3,4", "2,12,4", "size=5", "b0f_0io->b0f", ""),
}  # fmt: skip

REDUCE_WINDOW = """HloModule m
op {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] {kind}(a, b)
}}
ENTRY main {{
  x = f32[{operand}] parameter(0)
  i = f32[] constant({init})
  ROOT w = f32[{result}] reduce-window(x, i), window={{{window}}}, to_apply=op
}}
"""

WINDOWS = {
    "max pool": ("maximum", "2,8,8,3", "-inf", "2,4,4,3",
                 "size=1x3x3x1 stride=1x2x2x1 pad=0_0x0_1x0_1x0_0"),
    "average": ("add", "2,6,6,3", "0", "2,5,5,3", "size=1x2x2x1"),
    "running sum": ("add", "70,3", "0", "70,3", "size=70x1 pad=69_0x0_0"),
    "short running product": ("multiply", "2,6,5", "1", "2,6,5", "size=1x6x1 pad=0_0x5_0x0_0"),
    "backward maximum": ("maximum", "3,70", "-inf", "3,70", "size=1x70 pad=0_0x0_69"),
    "dilated": ("minimum", "3,20", "inf", "3,14", "size=1x4 rhs_dilate=1x2"),
}  # fmt: skip


def _values(text: str) -> tuple[list[npt.NDArray[np.generic]], list[npt.NDArray[np.generic]]]:
    module = parse_module(text)
    rng = np.random.default_rng(7)
    args = [rng.standard_normal(p.array.dims).astype(np.float32) for p in module.entry.parameters]
    wanted = evaluate(module, args, "highest")
    run_pipeline(module, load_chip("v5e"))
    left = {i.opcode for c in module.computations.values() for i in c}
    assert not left & {"convolution", "reduce-window", "topk"}
    return evaluate(module, args, "highest"), wanted


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name: str) -> None:
    image, kernel, result, window, labels, extra = CONVOLUTIONS[name]
    text = CONVOLUTION.format(
        image=image, kernel=kernel, result=result, window=window, labels=labels, extra=extra
    )
    found, wanted = _values(text)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", WINDOWS)
def test_reduce_window(name: str) -> None:
    kind, operand, init, result, window = WINDOWS[name]
    text = REDUCE_WINDOW.format(kind=kind, operand=operand, init=init, result=result, window=window)
    found, wanted = _values(text)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("padding", ["31_0", "0_31"])
def test_a_short_running_sum_is_rounded_like_a_loop(padding: str) -> None:
    text = REDUCE_WINDOW.format(
        kind="add", operand="5,32", init="0", result="5,32", window=f"size=1x32 pad=0_0x{padding}"
    )
    x = np.random.default_rng(5).standard_normal((5, 32)).astype(np.float32)
    order = slice(None, None, 1 if padding == "31_0" else -1)
    wanted = np.add.accumulate(x[:, order], axis=1)[:, order]
    np.testing.assert_array_equal(on_machine(text, [x])[0], wanted)


@pytest.mark.parametrize(
    ("operand", "window", "additions"),
    [
        ("32,2048", "size=32x1 pad=31_0x0_0", 31),
        ("32,2049", "size=32x1 pad=31_0x0_0", 5),
        ("33,3", "size=33x1 pad=32_0x0_0", 6),
    ],
)
def test_long_or_large_running_sums_double(operand: str, window: str, additions: int) -> None:
    text = REDUCE_WINDOW.format(
        kind="add", operand=operand, init="0", result=operand, window=window
    )
    module = parse_module(text)
    PASSES["tap-expander"].run(module, PassContext(load_chip("v5e")))
    assert sum(i.opcode == "add" for i in module.entry) == additions


TOP = """HloModule m
ENTRY main {
  x = f32[4,9] parameter(0)
  ROOT t = (f32[4,3], s32[4,3]) topk(x), k=3, largest=true
}
"""


def test_topk_with_ties_infinities_and_nans() -> None:
    rows = np.array(
        [
            [1, 5, 5, 5, 2, 0, 0, 0, 0],
            [-np.inf] * 9,
            [np.nan, 1, np.inf, np.nan, 2, 3, 4, 5, 6],
            [-1, -2, -3, -4, -5, -6, -7, -8, -9],
        ],
        np.float32,
    )
    module = parse_module(TOP)
    wanted = evaluate(module, [rows])
    run_pipeline(module, load_chip("v5e"))
    found = evaluate(module, [rows])
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_array_equal(found[1], wanted[1])


def test_the_least_elements_are_left_to_a_kernel() -> None:
    module = parse_module(TOP.replace("largest=true", "largest=false"))
    context = PassContext(load_chip("v5e"))
    assert PASSES["topk-expander"].run(module, context) is False


def test_a_long_running_sum_is_cut_into_kernels_that_repeat_little() -> None:
    text = REDUCE_WINDOW.format(
        kind="add",
        operand="4096,16",
        init="0",
        result="4096,16",
        window="size=4096x1 pad=4095_0x0_0",
    )
    module = parse_module(text)
    run_pipeline(module, load_chip("v5e"), passes=[p for p in PIPELINE if p != "running-totals"])
    bodies = [i.attrs["calls"] for i in module.entry if i.opcode == "fusion"]
    adds = [sum(i.opcode == "add" for i in body) for body in bodies]  # type: ignore[attr-defined]
    assert sum(adds) >= 12
    assert max(adds) <= 6
