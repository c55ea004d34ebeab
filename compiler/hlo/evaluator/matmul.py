"""Matrix products under XLA's precision settings, on BLAS.

With f32 operands: "default" rounds both to bf16; "high" is three bf16 passes (hi*hi, hi*mid,
mid*hi); "highest" is plain f32. Accumulation is always in f32. Narrower floats are exact in f32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from compiler.hlo.evaluator.context import Context
from compiler.hlo.evaluator.numerics import round_to_bf16, split_bf16, widen
from compiler.hlo.ir import HloInstruction

Array: TypeAlias = npt.NDArray[Any]
Product: TypeAlias = Callable[[Array, Array], Array]

_ALGORITHM_PRECISION = {
    "dot_bf16_bf16_bf16": "default",
    "dot_bf16_bf16_f32": "default",
    "dot_bf16_bf16_f32_x3": "high",
    "dot_bf16_bf16_f32_x6": "highest",
    "dot_bf16_bf16_f32_x9": "highest",
    "dot_tf32_tf32_f32": "high",
    "dot_tf32_tf32_f32_x3": "highest",
    "dot_f32_f32_f32": "highest",
    "dot_f64_f64_f64": "highest",
}
_RANK = {"default": 0, "high": 1, "highest": 2}
_F64_EXACT = 2.0**53


def dot_precision(ctx: Context, instr: HloInstruction) -> str:
    """The precision of a dot or convolution: its algorithm, its operand_precision, the option."""
    algorithm = instr.algorithm
    if algorithm in _ALGORITHM_PRECISION:
        return _ALGORITHM_PRECISION[algorithm]
    stated = instr.attrs.get("operand_precision", ())
    words = [str(word).lower() for word in stated] if isinstance(stated, tuple) else []
    best = max((word for word in words if word in _RANK), key=_RANK.__getitem__, default="default")
    return ctx.options.precision if best == "default" else best


def contract(a: Array, b: Array, product: Product, precision: str) -> Array:
    """Apply a bilinear `product` (a matmul or a part of a convolution) to two arrays.

    Floats come back as f32, f64 or complex, integers as 64-bit sums modulo 2**64.
    """
    kinds = a.dtype.kind + b.dtype.kind
    wide_a, wide_b = widen(a), widen(b)
    if _is_integer(wide_a) and _is_integer(wide_b):
        return _integer_product(wide_a, wide_b, product)
    floats = [side.dtype for side in (wide_a, wide_b) if not _is_integer(side)]
    common = np.result_type(*floats, np.float32)  # an integer beside a float is rounded to one
    rounds = np.dtype(np.float32) in (a.dtype, b.dtype) or a.dtype == np.complex64
    wide_a, wide_b = wide_a.astype(common, copy=False), wide_b.astype(common, copy=False)
    if precision == "highest" or not rounds or common in (np.float64, np.complex128):
        return product(wide_a, wide_b)
    if "c" in kinds:
        return _complex_product(wide_a, wide_b, product, precision)
    return _bf16_product(wide_a, wide_b, product, precision)


def _bf16_product(a: Array, b: Array, product: Product, precision: str) -> Array:
    if precision == "default":
        return product(round_to_bf16(a), round_to_bf16(b))
    a_high, a_mid = split_bf16(a)
    b_high, b_mid = split_bf16(b)
    low = product(a_high, b_mid) + product(a_mid, b_high)
    return np.where(np.isnan(low), np.float32(0), low) + product(a_high, b_high)


def _complex_product(a: Array, b: Array, product: Product, precision: str) -> Array:
    def real(x: Array, y: Array) -> Array:
        return _bf16_product(np.ascontiguousarray(x), np.ascontiguousarray(y), product, precision)

    re = real(a.real, b.real) - real(a.imag, b.imag)
    return np.asarray(re + 1j * (real(a.real, b.imag) + real(a.imag, b.real)), dtype=a.dtype)


def _is_integer(array: Array) -> bool:
    return array.dtype.kind in "iub"


def _integer_product(a: Array, b: Array, product: Product) -> Array:
    """Sums of products modulo 2**64; through f64 BLAS where that is exact."""
    bound = _largest(a) * _largest(b) * max(a.size, 1)
    if bound < _F64_EXACT:
        return product(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
    return product(a.astype(np.int64), b.astype(np.int64))


def _largest(array: Array) -> float:
    if array.size == 0:
        return 0.0
    return max(abs(float(array.max())), abs(float(array.min())))
