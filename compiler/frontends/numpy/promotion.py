"""Element types of traced values: the type of mixed operands.

Python scalars are weak: they take the type of the arrays they meet, unless their kind is above it
(int < float < complex).
Of strong types the higher kind wins (s32 with bf16 is bf16); within a kind NumPy's rule holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.hlo.dtypes import DType, from_numpy
from compiler.hlo.host_types import NumpyDType, stated_dtype

_KIND_RANK = {"pred": 0, "unsigned": 1, "signed": 1, "float": 2, "complex": 3}
_WEAK_DEFAULT: dict[int, NumpyDType] = {
    0: np.dtype(np.bool_),
    1: np.dtype(np.int32),
    2: np.dtype(np.float32),
    3: np.dtype(np.complex64),
}


@dataclass(frozen=True)
class OperandType:
    """What promotion needs to know of an operand."""

    dtype: NumpyDType
    is_weak: bool


def promote(operands: Sequence[OperandType]) -> OperandType:
    """The common type of operands; weak only when all are."""
    strong = [operand.dtype for operand in operands if not operand.is_weak]
    weak_rank = max((kind_rank(o.dtype) for o in operands if o.is_weak), default=0)
    if not strong:
        return OperandType(_WEAK_DEFAULT[weak_rank], is_weak=True)
    common = strong[0]
    for dtype in strong[1:]:
        common = promote_pair(common, dtype)
    if weak_rank > kind_rank(common):
        common = _WEAK_DEFAULT[weak_rank]
    return OperandType(common, is_weak=False)


def promote_pair(a: NumpyDType, b: NumpyDType) -> NumpyDType:
    """The common type of two strong types."""
    if a == b:
        return a
    if kind_rank(a) != kind_rank(b):
        return a if kind_rank(a) > kind_rank(b) else b
    if _hlo(a).is_float and max(_hlo(a).bits, _hlo(b).bits) < 32:
        return np.dtype(np.float32)  # bf16 with f16: neither holds the other
    return stated_dtype(np.promote_types(a, b))


def float_dtype(dtype: NumpyDType) -> NumpyDType:
    """The type a transcendental function of this type computes in."""
    return dtype if kind_rank(dtype) >= 2 else np.dtype(np.float32)


def sum_dtype(dtype: NumpyDType) -> NumpyDType:
    """The type of a sum or product: narrow integers and booleans widen to 32 bits."""
    if kind_rank(dtype) >= 2 or _hlo(dtype).bits >= 32:
        return dtype
    return np.dtype(np.uint32) if _hlo(dtype).kind == "unsigned" else np.dtype(np.int32)


def is_floating(dtype: NumpyDType) -> bool:
    """Whether the type is real floating point (bf16 and fp8 included) or complex."""
    return kind_rank(dtype) >= 2


def kind_rank(dtype: NumpyDType) -> int:
    """The place of the type's kind among boolean, integer, floating and complex."""
    return _KIND_RANK[_hlo(dtype).kind]


def _hlo(dtype: NumpyDType) -> DType:
    return from_numpy(dtype)
