"""What handlers share: values, options, and how a handler runs another computation.

A value is a NumPy array, or a tuple of values (a token is the empty tuple). Arrays have the NumPy
dtype of their HLO type, with one exception: inside a fusion under `keep_f32_in_fusion` every bf16
array is held as float32 (`Context.is_wide`), and rounds when it leaves the fusion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import CompileError, UnsupportedError
from compiler.hlo.dtypes import BF16, DType
from compiler.hlo.evaluator.exchange import Participant
from compiler.hlo.evaluator.numerics import cast_exactly_once, convert
from compiler.hlo.ir import HloComputation, HloInstruction

# The element type is a run-time fact of the HLO; NumPy's stubs cannot carry it.
Array: TypeAlias = npt.NDArray[Any]
Value: TypeAlias = "Array | tuple[Value, ...]"
# What an operand is (array or tuple) is the verifier's knowledge, not the type checker's.
Operands: TypeAlias = Sequence[Any]

PRECISIONS = ("default", "high", "highest")


@dataclass(frozen=True)
class EvaluationOptions:
    """`precision` of f32 dots and convolutions, one of `PRECISIONS`; `seed` of the rng opcode."""

    precision: str = "default"
    keep_f32_in_fusion: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise CompileError(f"precision: found {self.precision!r}, want one of {PRECISIONS}")


class Context(Protocol):
    """The interpreter as a handler sees it."""

    options: EvaluationOptions
    is_wide: bool
    is_batched: bool
    generator: np.random.Generator
    rng_state: int
    device: Participant

    def call(self, computation: HloComputation, operands: Operands) -> Value:
        """Run a computation on whole operands and return its root's value."""
        ...

    def call_fused(self, computation: HloComputation, operands: Operands) -> Value:
        """Run a fusion's computation, in f32 throughout when the options say so."""
        ...

    def call_batched(
        self, computation: HloComputation, operands: Sequence[Array]
    ) -> tuple[Array, ...]:
        """Run a computation of scalars on every element of equally shaped arrays."""
        ...


Handler: TypeAlias = Callable[[Context, HloInstruction, Operands], Value]


def finish(ctx: Context, instr: HloInstruction, result: Array) -> Array:
    """Give a computed array the instruction's element type: the one rounding of the operation."""
    target = instr.array.dtype
    of_floats = any(o.array.dtype.is_float for o in instr.operands)
    if of_floats and (target.is_integer or target.kind == "pred"):
        return convert(
            result, target
        )  # a product of floats as an integer is limited, as converts are
    return cast_exactly_once(result, storage_dtype(ctx, target))


def storage_dtype(ctx: Context, dtype: DType) -> np.dtype[np.generic]:
    """The NumPy type that holds values of `dtype` here."""
    return np.dtype(np.float32) if ctx.is_wide and dtype is BF16 else dtype.numpy


def unsupported(instr: HloInstruction, advice: str) -> UnsupportedError:
    """The error for an instruction the evaluator does not run."""
    return UnsupportedError(f"%{instr.name}: {instr.opcode} is not evaluated: {advice}", instr.span)
