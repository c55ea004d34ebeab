"""Element types of `tpuc.numpy`: which there are, their limits, and the type of mixed operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from compiler.diagnostics import UnsupportedError
from compiler.frontends.numpy.promotion import OperandType, promote
from compiler.hlo.dtypes import from_numpy
from compiler.hlo.host_types import NumpyDType, device_dtype, stated_dtype

bfloat16 = ml_dtypes.bfloat16
STANDARD: dict[str, type[np.generic]] = {
    "bool": np.bool_,
    "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64,
    "float32": np.float32, "complex64": np.complex64,
}  # fmt: skip
"""The standard's types that a chip has, by name."""

BEYOND: dict[str, Any] = {
    "float16": np.float16,
    **{
        name: getattr(ml_dtypes, name)
        for name in (
            "bfloat16", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
            "float8_e3m4", "float8_e5m2", "float8_e5m2fnuz", "int2", "int4", "uint2", "uint4",
        )
    },
}  # fmt: skip
"""Types of a chip that the standard has no names for."""

NARROWED = {"float64": "float32", "complex128": "complex64"}
"""Types that no chip has, and what to use. Their names are there to compare with; arrays are refused."""

DEFAULTS: dict[str, NumpyDType] = {
    "real floating": np.dtype(np.float32),
    "complex floating": np.dtype(np.complex64),
    "integral": np.dtype(np.int32),
    "indexing": np.dtype(np.int32),
}

_KINDS: dict[str, frozenset[str]] = {
    "bool": frozenset({"pred"}),
    "signed integer": frozenset({"signed"}),
    "unsigned integer": frozenset({"unsigned"}),
    "integral": frozenset({"signed", "unsigned"}),
    "real floating": frozenset({"float"}),
    "complex floating": frozenset({"complex"}),
    "numeric": frozenset({"signed", "unsigned", "float", "complex"}),
}


def known_dtype(dtype: Any) -> NumpyDType | None:
    """The type that a program names, None for None; UnsupportedError for f64 and c128."""
    if dtype is None:
        return None
    if dtype in (float, complex):
        return device_dtype(dtype)
    name = np.dtype(int if dtype is int else dtype).name
    if name in NARROWED:
        raise UnsupportedError(f"dtype {name}: no chip has it; use {NARROWED[name]}")
    return stated_dtype(dtype)


def default_dtype(host: NumpyDType) -> NumpyDType:
    """The type of values of the host for which none is stated."""
    return device_dtype(host)


@dataclass(frozen=True)
class FloatLimits:
    """Limits of a floating-point type (of the parts, for a complex one), as Python's numbers."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: NumpyDType

    @property
    def tiny(self) -> float:
        """As `smallest_normal`."""
        return self.smallest_normal


@dataclass(frozen=True)
class IntegerLimits:
    """Limits of an integer type."""

    bits: int
    max: int
    min: int
    dtype: NumpyDType


def finfo(type: Any, /) -> FloatLimits:
    """Limits of a floating-point type, or of an array's."""
    dtype = _dtype_of(type)
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    real = np.dtype(np.float32) if dtype.kind == "c" else dtype
    eps, largest, lowest, normal = map(float, (info.eps, info.max, info.min, info.smallest_normal))
    return FloatLimits(int(info.bits), eps, largest, lowest, normal, real)


def iinfo(type: Any, /) -> IntegerLimits:
    """Limits of an integer type, or of an array's."""
    dtype = _dtype_of(type)
    info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return IntegerLimits(int(info.bits), int(info.max), int(info.min), dtype)


def _dtype_of(value: Any) -> NumpyDType:
    found = known_dtype(value if isinstance(value, type) else getattr(value, "dtype", value))
    assert found is not None
    return found


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a type is of a kind of the standard, equals a type, or is one of several."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, each) for each in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"isdtype: kind {kind!r}, want one of {sorted(_KINDS)}")
        return from_numpy(np.dtype(dtype)).kind in _KINDS[kind]
    return bool(np.dtype(dtype) == np.dtype(kind))


def result_type(*arrays_and_dtypes: Any) -> NumpyDType:
    """The type of mixed operands: arrays, types and Python scalars, which are weak."""
    if not arrays_and_dtypes:
        raise ValueError("result_type: want at least one array or dtype")
    return promote([_operand(item) for item in arrays_and_dtypes]).dtype


def _operand(item: Any) -> OperandType:
    if isinstance(item, bool | int | float | complex) and not isinstance(item, np.generic):
        return promote([OperandType(np.asarray(item).dtype, is_weak=True)])
    if isinstance(item, np.ndarray | np.generic):
        return OperandType(device_dtype(item.dtype), is_weak=False)
    return OperandType(_dtype_of(item), is_weak=bool(getattr(item, "is_weak", False)))


def promote_types(type1: Any, type2: Any) -> NumpyDType:
    """The type of two mixed types."""
    return result_type(known_dtype(type1), known_dtype(type2))


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion would make `to` of a type, or of an array's and `to`."""
    return promote_types(_dtype_of(from_), to) == known_dtype(to)
