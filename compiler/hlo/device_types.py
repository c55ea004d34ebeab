"""How element types that a lane cannot hold are held on the device.

    s64 u64                two u32: low words, then high words
    c64                    two f32: real parts, then imaginary parts
    s4 s2                  one s8 per element, sign-extended
    u4 u2                  one u8 per element, zero-extended
    f4.. f6..              one f8e4m3fn per element, which holds their values
    f8e8m0fnu              one bf16 per element
    f64 c128               as f32 and c64, with rounding

Passes rewrite modules so that no other types are left (`compiler.passes.pair_types`); the runtime
lays host arrays out the same way (`runtime.storage`).
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.hlo.dtypes import BF16, BY_NAME, C64, F32, S8, U8, U32, DType

TINY_FLOATS: Mapping[str, DType] = dict.fromkeys(
    ("f4e2m1fn", "f6e2m3fn", "f6e3m2fn"), BY_NAME["f8e4m3fn"]
) | {"f8e8m0fnu": BF16}
"""Floats without arithmetic of their own, and the type that holds their values."""

SUB_BYTE: Mapping[str, DType] = {"s4": S8, "s2": S8, "u4": U8, "u2": U8}
"""Integers of less than a byte, and the type that holds them extended."""

PARTS: Mapping[str, DType] = {"s64": U32, "u64": U32, "c64": F32}
"""Types of two parts, and the type of each."""

DOUBLES: Mapping[str, DType] = {"f64": F32, "c128": C64}
"""Types that no chip has, and what they are narrowed to."""


def device_type(dtype: DType) -> DType:
    """The type an array of `dtype` has while it is on the device: f64 has none there."""
    return DOUBLES.get(dtype.name, dtype)


def plane_type(dtype: DType) -> tuple[DType, int]:
    """The element type of an array's planes in device memory, and how many there are."""
    dtype = device_type(dtype)
    if dtype.name in PARTS:
        return PARTS[dtype.name], 2
    return TINY_FLOATS.get(dtype.name) or SUB_BYTE.get(dtype.name, dtype), 1
