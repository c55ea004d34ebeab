"""Literals as text, both ways: ``{ { 0, 1 }, { 2, 3 } }`` of ``s32[2,2]`` <-> a NumPy array.

Text forms are XLA's: ``true``, ``-inf``, ``nan(0x1)``, complex ``(re, im)``, comments such as
``/*i0=1*/``. Floats print with the fewest digits XLA prints. Malformed text raises ValueError.
"""

from __future__ import annotations

import math
import re

import ml_dtypes
import numpy as np
import numpy.typing as npt

from compiler.hlo.dtypes import DType, real_type
from compiler.hlo.parsing import split_top_level
from compiler.hlo.shape import ArrayShape, Shape, TupleShape

ELIDED = "{...}"
"""What stands for a literal that XLA was told not to print."""

Literal = npt.NDArray[np.generic] | tuple["Literal", ...]

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_NOT_STRUCTURE = re.compile(r"[^{},]+")
_ELEMENT = re.compile(r"\((?:[^()]|\([^()]*\))*\)|[^{},()\s]+(?:\([^()]*\))?")
_NO_SEPARATORS = str.maketrans("", "", ", \t\r\n")
_ONE_NAN = (
    "f8e4m3fn", "f8e4m3fnuz", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e8m0fnu", "f4e2m1fn", "f6e2m3fn",
    "f6e3m2fn",
)  # fmt: skip
_SIGNLESS = re.compile(r"-0+")
_PART = r"\s*((?:[^(),]|\([^()]*\))+?)\s*"  # a number or nan(0x1)
_COMPLEX = re.compile(rf"\({_PART},{_PART}\)")
_NAN = re.compile(r"([+-]?)nan(?:\(0x([0-9a-fA-F]+)\))?")


def parse_literal(text: str, shape: Shape) -> Literal:
    """Decode the text of a literal of `shape`; raises ValueError when it does not fit."""
    if "/*" in text:
        text = _COMMENT.sub("", text)
    text = text.strip()
    if isinstance(shape, TupleShape):
        return _parse_tuple(text, shape)
    if not isinstance(shape, ArrayShape):
        raise ValueError(f"a literal of {shape} has no text form")
    if text.replace(" ", "") == ELIDED:
        return made_up_values(shape)
    with np.errstate(invalid="ignore", over="ignore"):  # NaN payloads; what is out of range
        return _parse_array(text, shape)


def made_up_values(shape: ArrayShape) -> npt.NDArray[np.generic]:
    """Values for a literal whose text is elided: the bit patterns 0, 1, 2, ... as in XLA."""
    if shape.dtype.kind == "pred":
        return np.resize(np.array([False, True]), shape.dims)
    size = shape.element_count * shape.dtype.numpy.itemsize
    words = np.arange(-(-size // 4), dtype=np.uint32)
    if shape.dtype.bits < 8:  # one element per byte in NumPy: only the low bits count
        words &= np.uint32(0x01010101 * ((1 << (shape.dtype.bits - 1)) - 1))
    values: npt.NDArray[np.generic] = words.view(np.uint8)[:size].view(shape.dtype.numpy)
    return values.reshape(shape.dims)


def _parse_tuple(text: str, shape: TupleShape) -> Literal:
    if not (text.startswith("(") and text.endswith(")")):
        raise ValueError(f"want a tuple literal, found {text[:40]!r}")
    parts = split_top_level(text[1:-1])
    if len(parts) != len(shape.elements):
        raise ValueError(f"want {len(shape.elements)} tuple elements, found {len(parts)}")
    pairs = zip(parts, shape.elements, strict=True)
    return tuple(parse_literal(_without_shape(part), element) for part, element in pairs)


def _without_shape(text: str) -> str:
    """Drop a shape in front of a tuple element: ``s32[2]{0} {1, 2}``."""
    return re.sub(r"^\s*[a-z]\w*\[[^\]]*\](?:\{[^{}\s]*\}(?=\s*[{(\d]))?", "", text)


def _parse_array(text: str, shape: ArrayShape) -> npt.NDArray[np.generic]:
    if shape.dtype.is_complex:
        return _parse_complex(text, shape)
    if shape.dims and "{" not in text and shape.element_count:
        return _first_element(text, shape)
    return _values(_elements(text, shape), shape.dtype).reshape(shape.dims)


def _first_element(text: str, shape: ArrayShape) -> npt.NDArray[np.generic]:
    """``f32[3] constant(5)``: XLA sets the first element and leaves the others zero."""
    values = np.zeros(shape.element_count, shape.dtype.numpy)
    values[:1] = _values([text], shape.dtype)
    return values.reshape(shape.dims)


def _elements(text: str, shape: ArrayShape) -> list[str]:
    """Split into element texts, after checking that braces nest as the dimensions say."""
    if _NOT_STRUCTURE.sub("", text) != _structure(shape.dims):
        return _without_commas(text, shape)
    if shape.element_count == 0:
        return []
    return text.replace("{", " ").replace("}", " ").split(",")


def _without_commas(text: str, shape: ArrayShape) -> list[str]:
    """Commas may be missing or too many: braces alone tell which element is which."""
    elements = _ELEMENT.findall(text)
    found = _ELEMENT.sub("e", text).translate(_NO_SEPARATORS)
    wanted = _structure(shape.dims, "e" if elements else "").translate(_NO_SEPARATORS)
    if found != wanted:
        raise ValueError(f"the nesting does not fit dimensions {list(shape.dims)}")
    return elements


def _structure(dims: tuple[int, ...], element: str = "") -> str:
    """The braces and commas of a literal: ``{{,},{,}}`` for dimensions [2,2]."""
    text = element
    if 0 in dims:
        dims = dims[: dims.index(0) + 1]  # within nothing there is nothing, however much of it
    for size in reversed(dims):
        text = "{" + ",".join([text] * size) + "}"
    return text


def _values(elements: list[str], dtype: DType) -> npt.NDArray[np.generic]:
    if dtype.is_float:
        try:
            wide = np.array([float(e) for e in elements], dtype=np.float64)
        except ValueError:
            return np.concatenate([_float(e, dtype) for e in elements])
        values = _narrowed(wide, dtype)
        _check_range(elements, values, dtype)
        return values
    if dtype.kind == "pred":
        return np.array([_bool(e.strip()) for e in elements], dtype=np.bool_)
    numbers = [int(e) for e in elements]
    span = 1 << dtype.bits
    least = -(span >> 1) if dtype.is_signed else 0
    if not dtype.is_signed and dtype.bits == 64:  # XLA reads these through a signed number
        numbers = [n % span if n >= -(span >> 1) else n for n in numbers]
    if numbers and (min(numbers) < least or max(numbers) >= least + span):
        raise ValueError(f"a value is outside of {dtype}'s range {least}..{least + span - 1}")
    wide_type = np.uint64 if dtype.kind == "unsigned" else np.int64
    return np.array(numbers, dtype=wide_type).astype(dtype.numpy)


def _check_range(elements: list[str], values: npt.NDArray[np.generic], dtype: DType) -> None:
    """Only what is written as infinity or NaN may become one."""
    for i in np.flatnonzero(~np.isfinite(values.astype(np.float64))):
        text = elements[i].strip()
        if text.lstrip("+-")[:3] not in ("inf", "nan"):
            raise ValueError(f"{text} is out of range for {dtype}")


def _narrowed(wide: npt.NDArray[np.float64], dtype: DType) -> npt.NDArray[np.generic]:
    values: npt.NDArray[np.generic] = wide.astype(dtype.numpy)
    if dtype.name == "f8e8m0fnu":  # ml_dtypes makes 2^-126 of 2^-127, whose code is 0
        values.view(np.uint8)[wide < 1.5 * 2.0**-127] = 0
    return values


def _bool(text: str) -> bool:
    if text in ("true", "false"):
        return text == "true"
    if not text.lstrip("-").isdecimal():
        raise ValueError(f"want true, false, 1 or 0, found {text!r}")
    return int(text) != 0


def _float(text: str, dtype: DType) -> npt.NDArray[np.generic]:
    """One element, NaN payloads included: ``nan(0x1)`` sets the mantissa bits."""
    found = _NAN.fullmatch(text.strip())
    if found is None:
        return np.array([float(text)]).astype(dtype.numpy)
    value: npt.NDArray[np.generic] = np.array([np.nan], dtype=dtype.numpy)
    if found[2] is not None:
        mantissa = _mantissa_bits(dtype.numpy)
        bits = value.view(f"u{dtype.bits // 8}")
        payload = int(found[2], 16)
        if dtype.name in _ONE_NAN:
            raise ValueError(f"{dtype} has a single NaN, without payload")
        if not 0 < payload < 1 << mantissa:
            raise ValueError(f"NaN payload 0x{payload:x} does not fit {dtype}")
        bits[0] = (int(bits[0]) >> mantissa << mantissa) | payload
    return np.negative(value) if found[1] == "-" else value


def _mantissa_bits(dtype: np.dtype[np.generic]) -> int:
    return int(ml_dtypes.finfo(dtype).nmant)


def _parse_complex(text: str, shape: ArrayShape) -> npt.NDArray[np.generic]:
    pairs: list[tuple[str, str]] = _COMPLEX.findall(text)
    skeleton = _NOT_STRUCTURE.sub("", _COMPLEX.sub("", text))
    if len(pairs) != shape.element_count:
        raise ValueError(f"want (real, imaginary) pairs nested as {list(shape.dims)}")
    if skeleton != _structure(shape.dims):
        _without_commas(text, shape)
    values = np.empty(len(pairs), dtype=shape.dtype.numpy)
    part = real_type(shape.dtype)
    values.real = _values([re_text for re_text, _ in pairs], part)
    values.imag = _values([im_text for _, im_text in pairs], part)
    return values.reshape(shape.dims)


def signless_zeros(text: str) -> tuple[int, ...]:
    """Which numbers of a literal are written ``-0``: XLA reads that as the integer 0.

    >>> signless_zeros("{-0, -0.0, -1, -0}")
    (0, 3)
    """
    words = re.findall(r"[^\s,{}()]+", _COMMENT.sub("", text))
    return tuple(i for i, word in enumerate(words) if _SIGNLESS.fullmatch(word))


def as_xla_reads(value: object, zeros: tuple[int, ...]) -> object:
    """A literal with what XLA's parser makes of it: ``-0`` loses its sign; NaN fills a pair.

    Only a single array changes: XLA never prints the values of a tuple.
    """
    if not isinstance(value, np.ndarray) or not (zeros or value.dtype.kind == "c"):
        return value
    values = value.copy()
    if values.dtype.kind == "c":
        values.imag[np.isnan(values.real)] = values.real[np.isnan(values.real)]
        values.reshape(-1).view(values.real.dtype)[list(zeros)] = 0
    elif values.dtype.kind not in "biu":
        values.reshape(-1)[list(zeros)] = 0
    return values


def print_literal(value: object, shape: Shape) -> str:
    """Return XLA's one-line text of a literal."""
    if isinstance(shape, TupleShape):
        assert isinstance(value, tuple)
        pairs = zip(value, shape.elements, strict=True)
        return f"( {', '.join(print_literal(v, s) for v, s in pairs)} )"
    assert isinstance(shape, ArrayShape)
    flat = np.asarray(value).reshape(-1)
    with np.errstate(invalid="ignore", over="ignore"):  # signalling NaNs, probing short texts
        texts = element_texts(flat, shape.dtype, is_scalar=not shape.dims)
    return texts[0] if not shape.dims else _nest(texts, shape.dims)


def _nest(texts: list[str], dims: tuple[int, ...]) -> str:
    """Group element texts by dimensions, with XLA's spaces and ``/*i0=1*/`` marks."""
    if len(dims) == 1:
        return "{" + ", ".join(texts) + "}"
    pad = " " if dims[-1] > 1 else ""
    inner = dims[-1]
    rows = math.prod(dims[:-1])
    groups = [
        "{" + pad + ", ".join(texts[i * inner : (i + 1) * inner]) + pad + "}" for i in range(rows)
    ]
    for depth in range(len(dims) - 2, -1, -1):
        size = dims[depth]
        count = math.prod(dims[:depth])
        groups = [
            _open(dims, depth, i) + ", ".join(groups[i * size : (i + 1) * size]) + " }"
            for i in range(count)
        ]
    return groups[0]


def _open(dims: tuple[int, ...], depth: int, position: int) -> str:
    if len(dims) <= 3 or depth == 0:
        return "{ "
    mark = f"{{ /*i{depth - 1}={position % dims[depth - 1]}*/"
    return mark + " " if dims[depth] else mark


def element_texts(flat: npt.NDArray[np.generic], dtype: DType, *, is_scalar: bool) -> list[str]:
    """The text of each element of a flat array."""
    if dtype.kind == "pred":
        words = ("false", "true") if is_scalar else ("0", "1")
        return [words[int(v)] for v in flat.tolist()]
    if dtype.is_integer:
        return [str(v) for v in flat.astype(_wide_integer(dtype)).tolist()]
    if dtype.is_complex:
        half = np.dtype(f"f{dtype.bits // 16}")
        reals = _float_texts(flat.real.astype(half), dtype.bits // 2)
        imags = _float_texts(flat.imag.astype(half), dtype.bits // 2)
        return [f"({re_text}, {im_text})" for re_text, im_text in zip(reals, imags, strict=True)]
    if dtype.bits in (32, 64):
        return _float_texts(flat, dtype.bits)
    precision = _mantissa_bits(dtype.numpy) + 1
    digits = math.ceil(precision * math.log10(2) + 1)
    wide = flat.astype(np.float64).tolist()
    return [_special(v, flat, i) or f"{v:.{digits}g}" for i, v in enumerate(wide)]


def _wide_integer(dtype: DType) -> type[np.int64] | type[np.uint64]:
    return np.int64 if dtype.is_signed else np.uint64


def _float_texts(flat: npt.NDArray[np.generic], bits: int) -> list[str]:
    """Six (or fifteen) digits when they read back to the same value, else nine (seventeen)."""
    few, many = ("%.6g", "%.9g") if bits == 32 else ("%.15g", "%.17g")
    numpy_type = np.float32 if bits == 32 else np.float64
    wide = flat.astype(np.float64).tolist()
    short = [few % v for v in wide]
    read_back = np.array([float(s) for s in short], dtype=np.float64).astype(numpy_type)
    exact = read_back == flat
    return [
        _special(v, flat, i) or (short[i] if exact[i] else many % v) for i, v in enumerate(wide)
    ]


def _special(value: float, flat: npt.NDArray[np.generic], index: int) -> str:
    """``inf`` and ``nan`` with its payload when that is not the quiet default; else empty."""
    if math.isfinite(value):
        return ""
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    element = flat[index : index + 1].copy()
    width = element.dtype.itemsize * 8
    bits = int(element.view(f"u{width // 8}")[0])
    sign = "-" if bits >> (width - 1) else ""
    if width == 8:
        return f"{sign}nan"
    mantissa = _mantissa_bits(element.dtype)
    payload = bits & ((1 << mantissa) - 1)
    return f"{sign}nan" if payload == 1 << (mantissa - 1) else f"{sign}nan(0x{payload:x})"
