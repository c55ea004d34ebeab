"""running-total: kernels against the evaluator, over dimensions, types, sizes and blocks."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from compiler.diagnostics import CompileError
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.parser import parse_module
from compiler.hlo.verifier import verify
from tests.support.expansions import assert_close, on_machine, reference

SMALL = "v5e{vmem=128KiB}"
"""Blocks of some twenty registers."""


def _text(shape: str, attributes: str) -> str:
    call = f"  ROOT r = {shape} running-total(p), {attributes}"
    return f"HloModule m\nENTRY e {{\n  p = {shape} parameter(0)\n{call}\n}}\n"


@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize(
    ("dims", "axis"),
    [
        ("1000", 0), ("40000", 0), ("25600", 0),
        ("1,1,5,300", 3), ("2,1,60,700", 3), ("1,1,3,9000", 3), ("1,3,17,256", 3),
        ("1,1,70,5", 2), ("3,1,700,130", 2), ("1,1,1024,384", 2), ("1,1,9,3000", 2),
        ("1,37,8,128", 1), ("2,23,5,140", 1), ("1,5,100,520", 1), ("1,300,1,1", 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("target", ["v5e", SMALL])
def test_sums(dims: str, axis: int, is_reverse: bool, target: str) -> None:
    shape = tuple(map(int, dims.split(",")))
    values = np.random.default_rng(0).integers(-50, 50, shape).astype(np.int32)
    text = _text(
        f"s32[{dims}]", f"dimensions={{{axis}}}, kind=add, is_reverse={str(is_reverse).lower()}"
    )
    (want,), (got,) = reference(text, [values]), on_machine(text, [values], target)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("f32", "add"), ("f32", "multiply"), ("f32", "maximum"), ("f32", "minimum"),
        ("s32", "multiply"), ("s32", "minimum"), ("s32", "and"), ("s32", "or"), ("s32", "xor"),
        ("u32", "add"), ("u32", "maximum"), ("u32", "minimum"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("dims", "axis"), [("3000", 0), ("1,1,20,300", 3), ("2,1,90,6", 2), ("1,9,8,3", 1)]
)
def test_operations(dtype: str, kind: str, dims: str, axis: int) -> None:
    shape = tuple(map(int, dims.split(",")))
    rng = np.random.default_rng(1)
    if dtype == "f32":
        values = rng.uniform(0.9, 1.1, shape).astype(np.float32) * rng.choice([-1, 1], shape)
        values = values.astype(np.float32)
    else:
        values = rng.integers(0, 1 << 32, shape, dtype=np.uint64).astype(np.uint32)
        values = values.view(np.int32) if dtype == "s32" else values
    for is_reverse in ("false", "true"):
        text = _text(
            f"{dtype}[{dims}]", f"dimensions={{{axis}}}, kind={kind}, is_reverse={is_reverse}"
        )
        assert_close(reference(text, [values]), on_machine(text, [values], SMALL), 1e-5)


@pytest.mark.parametrize(
    ("shape", "attributes", "message"),
    [
        ("s8[64]", "dimensions={0}, kind=add", "want f32, s32 or u32"),
        ("f32[]", "dimensions={}, kind=add", "want one dimension"),
        ("f32[4,4]", "dimensions={0,1}, kind=add", "want one dimension"),
        ("f32[4,0]", "dimensions={0}, kind=add", "has no elements"),
        ("f32[64]", "dimensions={0}, kind=and", "no and of f32"),
        ("f32[64]", "dimensions={0}, kind=divide", "want one of"),
    ],
)
def test_refused(shape: str, attributes: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        verify(parse_module(_text(shape, attributes), "test.hlo"))


def test_values_behind_the_end_are_not_met() -> None:
    """A reverse total begins in a register that the array does not fill."""
    values = np.full((3, 130), np.inf, np.float32)
    values[:, :-1] = 1
    text = _text("f32[3,130]", "dimensions={1}, kind=minimum, is_reverse=true")
    (got,) = on_machine(text, [values])
    np.testing.assert_array_equal(got, np.where(np.arange(130) < 129, 1, np.inf)[None].repeat(3, 0))


def _window(dims: tuple[int, ...], axis: int, dtype: str, combine: str, init: str) -> str:
    size = dims[axis]
    sizes = "x".join(str(size if d == axis else 1) for d in range(len(dims)))
    pads = "x".join(f"{size - 1}_0" if d == axis else "0_0" for d in range(len(dims)))
    shape = f"{dtype}[{','.join(map(str, dims))}]"
    return (
        f"HloModule m\nf {{\n  a = {dtype}[] parameter(0)\n  b = {dtype}[] parameter(1)\n"
        f"  ROOT s = {dtype}[] {combine}(a, b)\n}}\nENTRY e {{\n  p = {shape} parameter(0)\n"
        f"  q = {shape} add(p, p)\n  i = {dtype}[] constant({init})\n"
        f"  t = {shape} reduce-window(q, i), window={{size={sizes} pad={pads}}}, to_apply=f\n"
        f"  ROOT r = {shape} add(t, q)\n}}\n"
    )


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8", "u16", "s32"])
@pytest.mark.parametrize(
    ("dims", "axis"), [((70000,), 0), ((3000, 40), 0), ((30, 5000), 1), ((4, 700, 3, 50), 1)]
)
def test_windows_between_other_operations(dtype: str, dims: tuple[int, ...], axis: int) -> None:
    """What a program writes as a window, whose array lies as its neighbours like it."""
    rng = np.random.default_rng(2)
    values = rng.integers(-3, 4, dims) if dtype != "u16" else rng.integers(0, 9, dims)
    text = _window(dims, axis, dtype, "add", "0")
    inputs = [values.astype(BY_NAME[dtype].numpy)]
    (want,), (got,) = reference(text, inputs), on_machine(text, inputs)
    assert "running-total(" in tpuc.compile(text, target="v5e").text("hlo")
    np.testing.assert_array_equal(got, want)
