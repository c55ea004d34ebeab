"""Which operations may give other values than the evaluator, and by how much.

What rounds, in which order sums are made, and which NaN comes out is an implementation's choice; a
sum of few multiples of one power of two is the same in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from benchmarks.fuzz.solvers import is_solver
from compiler.hlo.dtypes import BY_NAME, from_numpy
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import leaves

Array = npt.NDArray[Any]

ROUNDED = frozenset({"add", "subtract", "multiply"})
_ARE_EXACT = frozenset({
    "bitcast-convert", "ceil", "complex", "floor", "imag", "multiply-add", "negate", "real",
    "reduce-precision", "remainder", "round-nearest-afz", "round-nearest-even", "sqrt",
    "stochastic-convert",
})  # fmt: skip
"""Opcodes on elements that have one right result; those with the trait `EXACT` have too."""
SUMS = frozenset({
    "reduce", "reduce-window", "scatter", "select-and-scatter", "scan", "map", "all-reduce",
    "all-reduce-start", "collective-reduce", "reduce-scatter",
})  # fmt: skip
PRODUCTS = frozenset({"dot", "convolution", "ragged-dot", "scaled-dot"})
MANTISSA = {
    dtype.name: int(ml_dtypes.finfo(dtype.numpy).nmant) + 1
    for dtype in BY_NAME.values()
    if dtype.is_float or dtype.is_complex
}
"""Digits of a float, the hidden one too; of a complex number's parts."""
_MOVES = Trait.DATA_MOVEMENT | Trait.TUPLE_ONLY | Trait.CONTROL_FLOW | Trait.ASYNC
_LEAVES = frozenset(
    {"parameter", "constant", "iota", "select", "bitcast-convert", "fusion", "sort", "topk"}
)


def is_inexact(instr: HloInstruction) -> bool:
    """Whether a right implementation may give other values than the evaluator."""
    floats = [s for s in leaves(instr.shape) if s.dtype.is_float or s.dtype.is_complex]
    if not floats:
        return False
    opcode = instr.opcode
    if opcode == "convert":
        names = {s.dtype.name for s in (*floats, *leaves(instr.operands[0].shape))}
        return "bf16" in names
    if opcode == "sqrt":
        return floats[0].dtype.is_complex
    if opcode in _ARE_EXACT:
        return False
    if OPCODES[opcode].has(Trait.ELEMENTWISE | Trait.EXACT):
        return opcode in ("abs", "sign") and instr.operands[0].array.dtype.is_complex
    is_rounded = OPCODES[opcode].has(Trait.ELEMENTWISE) or opcode in SUMS | PRODUCTS
    return is_rounded or is_solver(instr)


def makes_nan(instr: HloInstruction) -> bool:
    """Whether a NaN of the result may be one that the operation made, of any sign and payload."""
    if OPCODES[instr.opcode].traits & _MOVES or instr.opcode in _LEAVES:
        return False
    return any(s.dtype.is_float for s in leaves(instr.shape))


def is_tainted(module: HloModule) -> bool:
    """Whether any instruction may have other values (or NaN bits) than the evaluator's."""
    return any(
        is_inexact(instr) or makes_nan(instr) for c in module.computations.values() for instr in c
    )


def reads_bits(module: HloModule) -> bool:
    """Whether some of a float's bits become a float of another type.

    Those of the lower half of a rounded number are noise, which as a float is any number at all.
    """
    return any(
        instr.opcode == "bitcast-convert"
        and instr.array.dtype.is_float
        and instr.operands[0].array.dtype.is_float
        for c in module.computations.values()
        for instr in c
    )


def step_of(name: str) -> float:
    """The distance of 1 and its next neighbour."""
    return float(2.0 ** (1 - MANTISSA[name]))


def is_whole(instr: HloInstruction, operands: Sequence[Array]) -> bool:
    """Whether every sum is exact in any order: few multiples of one power of two."""
    kinds = {"float", "complex"}
    if instr.opcode in PRODUCTS:  # of mixed types, too: integers become floats first
        kinds |= {"signed", "unsigned"}
    floats = [
        o for o in operands if isinstance(o, np.ndarray) and from_numpy(o.dtype).kind in kinds
    ]
    if is_solver(instr) or any(_multiplies(c) for c in instr.called_computations()):
        return False
    names = [s.dtype.name for s in leaves(instr.shape) if s.dtype.name in MANTISSA]
    room = 2.0 ** min(MANTISSA[name] for name in names)
    grids = [_grid(o) for o in floats]
    if None in grids:
        return False
    known = [g for g in grids if g is not None and g[1] > 0]
    count = float(max((o.size for o in operands if isinstance(o, np.ndarray)), default=1))
    if instr.opcode in PRODUCTS:
        unit, most = 1.0, count
        for u, m in known:
            unit, most = unit * u, most * m
    else:
        unit = min((u for u, _ in known), default=1.0)
        most = max((m for _, m in known), default=0.0) * (count + 1)
    largest = min(float(ml_dtypes.finfo(BY_NAME[name].numpy).max) for name in names)
    return most <= min(unit * room, largest)


def _grid(array: Array) -> tuple[float, float] | None:
    """(a power of two that all elements are multiples of, the largest magnitude)."""
    parts = [array.real, array.imag] if array.dtype.kind == "c" else [array]
    unit, most = 1.0, 0.0
    for part in parts:
        wide = part.astype(np.float64)
        if not np.isfinite(wide).all():
            return None
        scaled = wide * 16
        if np.any(scaled != np.rint(scaled)):
            return None
        if np.any(wide != np.rint(wide)):
            unit = min(unit, 1 / 16)
        most = max(most, float(np.abs(wide).max(initial=0.0)))
    return unit, most


def rounds(body: HloComputation) -> bool:
    """Whether something in a computation, or in those it calls, may round."""
    return any(is_inexact(i) or any(rounds(c) for c in i.called_computations()) for i in body)


def _multiplies(body: HloComputation) -> bool:
    return any(i.opcode not in ("add", "parameter") and is_inexact(i) for i in body)
