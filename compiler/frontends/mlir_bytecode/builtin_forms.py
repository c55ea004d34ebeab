"""MLIR's own attributes, types and locations, as ``mlir/IR/BuiltinDialectBytecode.td`` numbers them."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from compiler.frontends.mlir_bytecode.container import Forms, Source
from compiler.frontends.stablehlo.syntax import Attribute, Dense, Raw, Symbol
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.escapes import quote

_DYNAMIC = -(1 << 63)
"""How a dimension of unknown size is written."""
_WIDTH = re.compile(r"[su]?i(\d+)")


def tensor_type(shape: tuple[int, ...], element: str, encoding: Attribute | None = None) -> str:
    """``tensor<4x?xf32>``."""
    dims = "".join("?x" if size == _DYNAMIC else f"{size}x" for size in shape)
    behind = f", {encoding.text}" if isinstance(encoding, Raw) else ""
    return f"tensor<{dims}{element}{behind}>"


def dense(type_text: str, data: bytes, count: int | None) -> Dense:
    """A literal of bytes as they are, `count` elements; truth values of several to a byte take one each."""
    is_boolean = re.search(r"[<x]i1\b", type_text) is not None
    if is_boolean and data == b"\xff":
        data = b"\1"
    elif is_boolean and count is not None and len(data) == -(-count // 8) != count:
        data = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[:count].tobytes()
    text = f'dense<"0x{data.hex()}">' if data or count else "dense<>"
    return Dense(text, type_text)


def element_count(type_text: str) -> int | None:
    """How many elements a tensor type has; None where a dimension is not known."""
    sizes = re.match(r"(?:tensor|vector)<((?:(?:\d+|\?)x)*)", type_text)
    if sizes is None or "?" in sizes[1]:
        return None
    count = 1
    for size in sizes[1].split("x")[:-1]:
        count *= int(size)
    return count


def integer_of(source: Source, type_text: str) -> int | bool:
    """A number of an integer type, with the sign that the type gives it."""
    if type_text == "index":
        bits, is_unsigned = 64, False
    else:
        width = _WIDTH.fullmatch(type_text)
        if width is None:
            raise ValueError(f"a number of type {type_text}")
        bits, is_unsigned = int(width[1]), type_text.startswith("u")
    value = source.integer(bits)
    if bits == 1:
        return bool(value)
    return value if is_unsigned or not value >> (bits - 1) else value - (1 << bits)


def float_of(source: Source, type_text: str) -> float:
    """A number of a float type."""
    dtype = BY_NAME.get(type_text.lower())
    if dtype is None or not dtype.is_float:
        raise ValueError(f"a number of type {type_text}")
    return source.float(dtype.numpy)


def function_type(inputs: tuple[str, ...], results: tuple[str, ...]) -> str:
    """``(tensor<f32>) -> (tensor<f32>)``."""
    return f"({', '.join(inputs)}) -> ({', '.join(results)})"


def place(number: int) -> str:
    """How a location refers to another one, by its number among the attributes."""
    return f"#loc{number}"


def dictionary(source: Source) -> Attribute:
    """Attributes by name."""
    found: dict[str, Attribute] = {}
    for _ in range(source.count()):
        name = source.attribute()
        if not isinstance(name, str):
            raise ValueError("a name that is no string")
        found[name] = source.attribute()
    return found


def _string_with_type(source: Source) -> Attribute:
    text = source.string()
    source.type()
    return text


def _symbol(source: Source) -> Attribute:
    return Symbol(str(source.attribute()))


def _nested_symbol(source: Source) -> Attribute:
    root, inner = source.attribute(), source.attributes()
    last = inner[-1] if inner else Symbol(str(root))
    return last


def integer_attribute(source: Source) -> Attribute:
    """An integer behind its type."""
    return integer_of(source, source.type())


def float_attribute(source: Source) -> Attribute:
    """A float behind its type."""
    return float_of(source, source.type())


def dense_attribute(source: Source) -> Attribute:
    """A literal behind its type."""
    kind = source.type()
    return dense(kind, source.blob(), element_count(kind))


def _dense_array(source: Source) -> Attribute:
    kind, _, data = source.type(), source.number(), source.blob()
    width = _WIDTH.fullmatch(kind)
    if width is None or width[1] not in ("1", "8", "16", "32", "64"):
        raise ValueError(f"an array of {kind}")
    values = np.frombuffer(data, f"i{max(1, int(width[1]) // 8)}").tolist()
    return Raw(f"array<{kind}: {', '.join(map(str, values))}>")


def _resource(source: Source) -> Attribute:
    kind, _ = source.type(), source.number()  # the number of the resource
    return Dense("dense_resource<>", kind)


def _call_site(source: Source) -> Attribute:
    return Raw(f"callsite({place(source.number())} at {place(source.number())})")


def _file_place(source: Source) -> Attribute:
    file = source.attribute()
    return Raw(f"{quote(str(file))}:{source.number()}:{source.number()}")


def _file_range(source: Source) -> Attribute:
    file, numbers = source.attribute(), source.numbers()
    return Raw(f"{quote(str(file))}:{numbers[0] if numbers else 0}")


def _fused(source: Source) -> Attribute:
    return Raw(f"fused[{', '.join(map(place, source.numbers()))}]")


def _named(source: Source) -> Attribute:
    name = source.attribute()
    return Raw(f"{quote(str(name))}({place(source.number())})")


def ranked(source: Source) -> str:
    """A tensor's type."""
    return tensor_type(source.signed_numbers(), source.type())


def ranked_with_encoding(source: Source) -> str:
    """A tensor's type with what its dimensions mean."""
    encoding = source.attribute()
    return tensor_type(source.signed_numbers(), source.type(), encoding)


def _integer_type(source: Source) -> str:
    bits, sign = divmod(source.number(), 4)
    return f"{('i', 'si', 'ui', 'i')[sign]}{bits}"


def _named_type(name: str) -> Callable[[Source], str]:
    return lambda source: name


_FLOATS = {
    3: "bf16", 4: "f16", 5: "f32", 6: "f64", 7: "f80", 8: "f128", 21: "tf32", 22: "f8E5M2", 23: "f8E4M3",
    24: "f8E4M3FN", 25: "f8E5M2FNUZ", 26: "f8E4M3FNUZ", 27: "f8E4M3B11FNUZ", 28: "f8E3M4", 29: "f4E2M1FN",
    30: "f6E2M3FN", 31: "f6E3M2FN", 32: "f8E8M0FNU",
}  # fmt: skip
"""From 21 on, what files of before 2026 have as text."""

FORMS = Forms(
    attributes={
        0: Source.attributes,
        1: dictionary,
        2: Source.string,
        3: _string_with_type,
        4: _symbol,
        5: _nested_symbol,
        6: lambda source: Raw(source.type()),
        7: lambda source: True,
        8: integer_attribute,
        9: float_attribute,
        10: _call_site,
        11: _file_place,
        12: _fused,
        13: _fused,
        14: _named,
        15: lambda source: Raw("unknown"),
        16: _resource,
        17: _dense_array,
        18: dense_attribute,
        22: _file_range,
    },
    types={
        0: _integer_type,
        1: lambda source: "index",
        2: lambda source: function_type(source.types(), source.types()),
        **{code: _named_type(name) for code, name in _FLOATS.items()},
        9: lambda source: f"complex<{source.type()}>",
        12: lambda source: "none",
        13: ranked,
        14: ranked_with_encoding,
        15: lambda source: f"tuple<{', '.join(source.types())}>",
        18: lambda source: f"tensor<*x{source.type()}>",
    },
)
