"""``dense<...>`` literals -> NumPy arrays: splats, nested lists and raw bytes in hexadecimal."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from compiler.hlo.dtypes import BY_NAME, DType
from compiler.hlo.shape import ArrayShape

Array = npt.NDArray[np.generic]

_FIRST_LOOK = 64
"""Elements: most arrays of several values are told by these."""
_PART = re.compile(r"[^\s,\[\]()]+")
_STRUCTURE = re.compile(r"[^\[\],]+")
_PAIR = re.compile(r"\(([^(),]+),([^(),]+)\)")


def integer(text: str) -> int:
    """An integer of MLIR: decimal, with zeros in front if one likes, or hexadecimal."""
    return int(text, 16 if "x" in text else 10)


def parse_dense(text: str, shape: ArrayShape) -> Array:
    """Decode a literal of `shape`; raises ValueError saying what does not fit.

    One value for all elements takes no memory for each: it is a view of that value (`is_one_value`).
    """
    if text.startswith("dense_resource"):
        raise ValueError(
            f"{text}: the text carries no such resource at its end; print its constants inline"
        )
    if text.startswith("sparse"):
        raise ValueError("sparse literals are not supported; use dense<...>")
    inside = text[text.index("<") + 1 : -1].strip()
    if inside.startswith('"'):
        return _from_hex(inside[1:-1], shape)
    if "..." in inside or "__elided__" in inside:
        raise ValueError("the literal is elided; print the module with its large constants")
    if shape.element_count == 0:
        return np.empty(shape.dims, shape.dtype.numpy)
    with np.errstate(invalid="ignore", over="ignore"):  # NaN payloads; 1e40 as f32 is inf
        return _from_list(inside, shape)


def _from_hex(text: str, shape: ArrayShape) -> Array:
    if not text.startswith("0x"):
        raise ValueError(f'want dense<"0x...">, found dense<"{text[:20]}...">')
    raw = bytes.fromhex(text[2:])
    dtype = shape.dtype
    if dtype.name == "pred":
        return _booleans(raw, shape)
    item = dtype.numpy.itemsize
    if len(raw) not in (item, item * shape.element_count):
        want = item * shape.element_count
        raise ValueError(f"the literal has {len(raw)} bytes, want {want} (or {item}, a splat)")
    values = np.frombuffer(raw, f"u{item}" if item <= 8 else np.dtype(np.complex128))
    if dtype.bits < 8:
        values = values & np.array((1 << dtype.bits) - 1, values.dtype)
        return _filled(_narrow(values, dtype), shape.dims)
    return _filled(values.view(dtype.numpy), shape.dims)


def _filled(values: Array, dims: tuple[int, ...]) -> Array:
    """All elements, or a view of the one that there is."""
    return np.broadcast_to(values[0], dims) if values.size == 1 else values.reshape(dims)


def is_one_value(array: Array) -> bool:
    """Whether all elements of an array, which has some, have the same bits."""
    if not any(array.strides):
        return True
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = flat.view(np.uint8).reshape(flat.size, -1)
    if not bool((bits[:_FIRST_LOOK] == bits[0]).all()):
        return False
    words = flat.view(f"u{bits.shape[1]}") if bits.shape[1] in (2, 4, 8) else bits
    return bool((words == words[0]).all())


def _narrow(values: npt.NDArray[np.generic], dtype: DType) -> Array:
    """Elements of 4 or 2 bits, one in each byte."""
    if dtype.is_float:
        return values.astype(np.uint8).view(dtype.numpy)
    wide = values.astype(np.int64)
    if dtype.is_signed:
        wide = np.where(wide >> (dtype.bits - 1), wide - (1 << dtype.bits), wide)
    return wide.astype(dtype.numpy)


def _booleans(raw: bytes, shape: ArrayShape) -> Array:
    """One byte for each element, or a splat; MLIR before 2026 packed eight into a byte instead."""
    count = shape.element_count
    data: Array = np.frombuffer(raw, np.uint8)
    if len(raw) == 1:
        return np.broadcast_to(np.bool_(raw != b"\x00"), shape.dims)
    if len(raw) == count:
        return data.astype(np.bool_).reshape(shape.dims)
    bits = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")
    if len(raw) != (count + 7) // 8:
        raise ValueError(f"the literal has {len(raw)} bytes, want {count}")
    return bits[:count].astype(np.bool_).reshape(shape.dims)


def _from_list(inside: str, shape: ArrayShape) -> Array:
    dtype = shape.dtype
    if dtype.is_complex:
        inside = _PAIR.sub(lambda m: f"{m[1].strip()}|{m[2].strip()}", inside)
    parts = _PART.findall(inside)
    if not inside.startswith("["):
        if len(parts) != 1:
            raise ValueError(f"want one value or a [list], found {inside[:40]}")
        return _filled(elements(parts, dtype), shape.dims)
    if _STRUCTURE.sub("", inside) != _structure(shape.dims):
        raise ValueError(f"the nesting does not fit dimensions {list(shape.dims)}")
    return elements(parts, dtype).reshape(shape.dims)


def _structure(dims: tuple[int, ...]) -> str:
    text = ""
    for size in reversed(dims):
        text = "[" + ",".join([text] * size) + "]"
    return text


def elements(parts: list[str], dtype: DType) -> Array:
    """Element texts -> a flat array. A hexadecimal float is its bit pattern."""
    if dtype.name == "pred":
        return np.array([_boolean(p) for p in parts], np.bool_)
    if dtype.is_integer:
        return _integers([integer(p) for p in parts], dtype)
    if dtype.is_complex:
        half = np.dtype(np.float32 if dtype.bits == 64 else np.float64)
        pairs = [p.partition("|") for p in parts]
        result = np.empty(len(parts), dtype.numpy)
        result.real = _floats([p[0] for p in pairs], half)
        result.imag = _floats([p[2] or "0.0" for p in pairs], half)
        return result
    return _floats(parts, dtype.numpy)


def _boolean(text: str) -> bool:
    if text not in ("true", "false", "0", "1", "-1"):
        raise ValueError(f"want true or false, found {text}")
    return text not in ("false", "0")


def _integers(numbers: list[int], dtype: DType) -> Array:
    """MLIR prints ui64 values unsigned and signless ones signed; both forms are read."""
    span = 1 << dtype.bits
    least, most = (-(span >> 1), span - 1)
    if min(numbers) < least or max(numbers) > most:
        raise ValueError(f"a value is outside of {dtype}'s range")
    low = -(span >> 1) if dtype.is_signed else 0
    wide = np.uint64 if dtype.kind == "unsigned" else np.int64
    wrapped = numbers
    if min(numbers) < low or max(numbers) >= low + span:
        wrapped = [(n - low) % span + low for n in numbers]
    return np.array(wrapped, wide).astype(dtype.numpy)


def _floats(parts: list[str], target: np.dtype[np.generic]) -> Array:
    try:
        return np.array([float(p) for p in parts], np.float64).astype(target)
    except ValueError:
        return np.array([_float(p, target) for p in parts], target)


def _float(text: str, target: np.dtype[np.generic]) -> np.generic:
    digits = text.removeprefix("-")
    if not digits.startswith("0x"):
        return _first(np.array([float(text)], np.float64).astype(target))
    bits = int(digits, 16)
    if bits >> (8 * target.itemsize):
        raise ValueError(f"bit pattern {text} does not fit {target}")
    return _first(np.array([bits], f"u{target.itemsize}").view(target))


def _first(values: Array) -> np.generic:
    first: np.generic = values[0]
    return first


def float_attribute(value: int, type_text: str) -> float:
    """A float attribute written as an integer is its bit pattern: ``0x7F800000 : f32``."""
    dtype = BY_NAME.get(type_text)
    if dtype is None or dtype.bits < 8:
        raise ValueError(f"a number of type {type_text} is not supported as an attribute")
    return float(np.array([value], f"u{dtype.bits // 8}").view(dtype.numpy)[0])
