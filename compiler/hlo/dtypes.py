"""Element types of HLO: name, width, NumPy dtype."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tpu_sim.isa.cached_property import cached_property


@dataclass(frozen=True)
class DType:
    """One primitive type of HLO. `bits` is its width in device memory (pred takes 8)."""

    name: str
    bits: int
    kind: str  # "pred" | "signed" | "unsigned" | "float" | "complex"
    numpy: np.dtype[np.generic]

    @property
    def is_float(self) -> bool:
        """Whether this is a (real) floating-point type."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer (pred is not)."""
        return self.kind in ("signed", "unsigned")

    @property
    def is_signed(self) -> bool:
        """Whether this is a signed integer."""
        return self.kind == "signed"

    @property
    def is_complex(self) -> bool:
        """Whether this is a complex type."""
        return self.kind == "complex"

    @cached_property
    def packing(self) -> int:
        """How many elements share one 32-bit word of a vreg (1 for 32 bits and wider)."""
        return max(1, 32 // self.bits)

    def __str__(self) -> str:
        return self.name


def _rows() -> tuple[DType, ...]:
    plain = [
        ("pred", 8, "pred", np.bool_),
        ("s8", 8, "signed", np.int8),
        ("s16", 16, "signed", np.int16),
        ("s32", 32, "signed", np.int32),
        ("s64", 64, "signed", np.int64),
        ("u8", 8, "unsigned", np.uint8),
        ("u16", 16, "unsigned", np.uint16),
        ("u32", 32, "unsigned", np.uint32),
        ("u64", 64, "unsigned", np.uint64),
        ("f16", 16, "float", np.float16),
        ("f32", 32, "float", np.float32),
        ("f64", 64, "float", np.float64),
        ("c64", 64, "complex", np.complex64),
        ("c128", 128, "complex", np.complex128),
    ]
    extended = [
        ("s2", 2, "signed", ml_dtypes.int2),
        ("s4", 4, "signed", ml_dtypes.int4),
        ("u2", 2, "unsigned", ml_dtypes.uint2),
        ("u4", 4, "unsigned", ml_dtypes.uint4),
        ("bf16", 16, "float", ml_dtypes.bfloat16),
        ("f8e5m2", 8, "float", ml_dtypes.float8_e5m2),
        ("f8e4m3", 8, "float", ml_dtypes.float8_e4m3),
        ("f8e3m4", 8, "float", ml_dtypes.float8_e3m4),
        ("f8e4m3fn", 8, "float", ml_dtypes.float8_e4m3fn),
        ("f8e4m3b11fnuz", 8, "float", ml_dtypes.float8_e4m3b11fnuz),
        ("f8e5m2fnuz", 8, "float", ml_dtypes.float8_e5m2fnuz),
        ("f8e4m3fnuz", 8, "float", ml_dtypes.float8_e4m3fnuz),
        ("f8e8m0fnu", 8, "float", ml_dtypes.float8_e8m0fnu),
        ("f4e2m1fn", 4, "float", ml_dtypes.float4_e2m1fn),
        ("f6e2m3fn", 6, "float", ml_dtypes.float6_e2m3fn),
        ("f6e3m2fn", 6, "float", ml_dtypes.float6_e3m2fn),
    ]
    return tuple(DType(n, b, k, np.dtype(t)) for n, b, k, t in plain + extended)


BY_NAME: dict[str, DType] = {row.name: row for row in _rows()}
BY_NUMPY: dict[np.dtype[np.generic], DType] = {row.numpy: row for row in BY_NAME.values()}

PRED = BY_NAME["pred"]
S8 = BY_NAME["s8"]
S32 = BY_NAME["s32"]
S64 = BY_NAME["s64"]
U8 = BY_NAME["u8"]
U16 = BY_NAME["u16"]
U32 = BY_NAME["u32"]
BF16 = BY_NAME["bf16"]
F16 = BY_NAME["f16"]
F32 = BY_NAME["f32"]
F64 = BY_NAME["f64"]
C64 = BY_NAME["c64"]
C128 = BY_NAME["c128"]


def real_type(dtype: DType) -> DType:
    """The type of a complex type's parts; a real type is itself."""
    return F32 if dtype is C64 else F64 if dtype is C128 else dtype


def integer_limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    assert dtype.is_integer, dtype
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    return low, (1 << (dtype.bits - dtype.is_signed)) - 1


def from_numpy(dtype: np.dtype[np.generic]) -> DType:
    """Return the HLO type of a NumPy dtype; raise KeyError when HLO has none."""
    return BY_NUMPY[np.dtype(dtype)]
