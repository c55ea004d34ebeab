"""HLO text on both machines against the evaluator, bit for bit: for values of every type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tpuc
from compiler.hlo.dtypes import DType
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from runtime.machines import MachineOptions

Array = np.ndarray[Any, Any]
MACHINES = {
    "numpy": MachineOptions(machine="numpy", checked=True),
    "llvm": MachineOptions(machine="llvm"),
}


def check(
    text: str,
    args: Sequence[Array] = (),
    *,
    precision: str = "highest",
    target: str = "v5e",
    ulps: int = 0,
) -> list[Array]:
    """Compile, run on both machines, compare; return the evaluator's results."""
    with np.errstate(all="ignore"):
        want = [np.asarray(w) for w in evaluate(parse_module(text), list(args), precision)]
        for machine, options in MACHINES.items():
            run = tpuc.compile(text, target, precision=precision, machine=options)
            got = run(*args)
            results = got if isinstance(got, (tuple, list)) else [got]
            assert len(results) == len(want)
            for number, (g, w) in enumerate(zip(results, want, strict=True)):
                assert_same(np.asarray(g), w, f"{machine}, result {number}", ulps)
    return want


def assert_same(got: Array, want: Array, name: str, ulps: int = 0) -> None:
    """Equal elements of equal type; any NaN equals any NaN, and +0 is not -0."""
    assert got.dtype == want.dtype and got.shape == want.shape, (name, got.dtype, got.shape)
    if want.dtype.kind == "c":
        assert_same(got.real, want.real, f"{name}, real", ulps)
        assert_same(got.imag, want.imag, f"{name}, imaginary", ulps)
        return
    if want.dtype.kind in "iub" or "int" in want.dtype.name:
        same = got.astype(object) == want.astype(object)
    else:
        a, b = got.astype(np.float64), want.astype(np.float64)
        same = ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
        if ulps:
            same |= np.abs(a - b) <= ulps * np.spacing(np.abs(want.astype(np.float32)))
    where = np.argwhere(np.logical_not(np.asarray(same, np.bool_)))[:3].tolist()
    assert not where, (name, where, [(got[tuple(w)], want[tuple(w)]) for w in where])


def random_values(
    dtype: DType, dims: Sequence[int], seed: int = 0, *, whole: bool = False
) -> Array:
    """Seeded numbers of any type; `whole` ones are small, so that their sums do not round."""
    rng = np.random.default_rng(seed)
    shape = tuple(dims)
    if dtype.kind == "pred":
        return rng.random(shape) < 0.5
    if dtype.is_integer:
        low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
        high = (1 << (dtype.bits - dtype.is_signed)) - 1
        return rng.integers(max(low, -100), min(high, 100), shape, endpoint=True).astype(
            dtype.numpy
        )
    draw = rng.integers(-2, 3, shape) if whole else rng.standard_normal(shape)
    if dtype.is_complex:
        return (
            (draw + 1j * draw[..., ::-1]).astype(dtype.numpy) if shape else draw.astype(dtype.numpy)
        )
    with np.errstate(all="ignore"):
        return np.asarray(draw, np.float32).astype(dtype.numpy)


def tupled(lines: Sequence[str], results: dict[str, str], computations: str = "") -> str:
    """HLO text of an entry with those lines and a tuple of named results (name -> shape)."""
    shapes, names = ", ".join(results.values()), ", ".join(results)
    body = "\n".join(f"  {line}" for line in lines)
    root = f"  ROOT all.results = ({shapes}) tuple({names})"
    return f"HloModule m\n{computations}\nENTRY e {{\n{body}\n{root}\n}}\n"


def binary(name: str, opcode: str, dtype: str) -> str:
    """A computation of two scalars."""
    return (
        f"{name} {{\n  {name}.a = {dtype}[] parameter(0)\n  {name}.b = {dtype}[] parameter(1)\n"
        f"  ROOT {name}.r = {dtype}[] {opcode}({name}.a, {name}.b)\n}}\n"
    )
