"""Shapes as text, both ways: ``bf16[256,512]{1,0:T(8,128)(2,1)S(1)}``.

    >>> shape = parse_shape("(f32[2,<=3]{1,0}, /*index=1*/token[])")
    >>> print_shape(shape)
    '(f32[2,<=3]{1,0}, token[])'

The decoder is memoised on the text: a module repeats few distinct shapes many times.
Malformed text raises ValueError; the parser turns it into a CompileError with a place.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.shape import (
    COMBINE,
    UNKNOWN_SIZE,
    ArrayShape,
    BufferShape,
    Layout,
    OpaqueShape,
    Shape,
    Tile,
    TokenShape,
    TupleShape,
    array_text,
)

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_ARRAY = re.compile(
    r"\s*(?P<dtype>[a-z]\w*)\s*\[(?P<dims>[^\]]*)\]"
    r"\s*(?:\{(?P<minor>[\d,\s]*)(?::(?P<properties>(?:[^{}]|\{[^{}]*\})*))?\})?\s*"
)
_TILES = re.compile(r"T((?:\([^()]*\))+)")
_MEMORY_SPACE = re.compile(r"S\((\d+)\)")
_PROPERTIES = re.compile(
    r"\s*(?:D\([DCS][~+]*(?:,\s*[DCS][~+]*)*\)|[L*#EM]\(\s*\w*\s*\)|SC(?:\([^()]*\))+|P\(.*\)|\s)*",
    re.DOTALL,
)
_MAX_RANK = 64  # of a NumPy array
_MAX_DEPTH = 100  # of tuples
_MAX_ELEMENTS = 1 << 60  # so that sizes in bytes fit 64 bits


@lru_cache(maxsize=65536)
def parse_shape(text: str) -> Shape:
    """Decode a shape; raises ValueError naming what is malformed."""
    plain = _COMMENT.sub("", text) if "/*" in text else text
    shape, end = _shape_at(plain, 0)
    if plain[end:].strip():
        raise ValueError(f"trailing text after the shape: {plain[end:].strip()[:40]!r}")
    return shape


def _shape_at(text: str, start: int, depth: int = 0) -> tuple[Shape, int]:
    found = _ARRAY.match(text, start)
    if found is not None:
        return _array(found[0].strip()), found.end()
    position = _skip_space(text, start)
    if text.startswith("b(", position):
        inner, position = _shape_at(text, position + 2, depth + 1)
        if not isinstance(inner, ArrayShape) or text[position : position + 1] != ")":
            raise ValueError(f"want b(array shape), found {text[start : start + 40]!r}")
        return BufferShape(inner), _skip_space(text, position + 1)
    if text[position : position + 1] != "(":
        raise ValueError(f"want a shape, found {text[position : position + 40]!r}")
    if depth > _MAX_DEPTH:
        raise ValueError(f"tuples are nested deeper than {_MAX_DEPTH}")
    elements: list[Shape] = []
    position = _skip_space(text, position + 1)
    while text[position : position + 1] != ")":
        element, position = _shape_at(text, position, depth + 1)
        elements.append(element)
        position = _skip_space(text, position)
        if text[position : position + 1] == ",":
            position = _skip_space(text, position + 1)
        elif text[position : position + 1] != ")":
            raise ValueError(f"want ',' or ')' in a tuple shape, found {text[position:][:40]!r}")
    return TupleShape(tuple(elements)), _skip_space(text, position + 1)


def _skip_space(text: str, position: int) -> int:
    while text[position : position + 1].isspace():
        position += 1
    return position


@lru_cache(maxsize=65536)
def _array(text: str) -> Shape:
    found = _ARRAY.fullmatch(text)
    assert found is not None, text
    name, dims_text = found["dtype"], found["dims"].strip()
    if name == "token":
        return TokenShape()
    if name == "opaque":
        return OpaqueShape()
    if name not in BY_NAME:
        raise ValueError(f"unknown element type {name!r}")
    dims, dynamic = _dims(dims_text)
    layout = None if found["minor"] is None else _layout(found["minor"], found["properties"] or "")
    if layout is not None and sorted(layout.minor_to_major) != list(range(len(dims))):
        raise ValueError(f"layout of {text} does not order {len(dims)} dimensions")
    # XLA prints a scalar without braces: `{}` says nothing, so both decode alike.
    if layout is not None and layout == Layout(()):
        layout = None
    return ArrayShape(BY_NAME[name], dims, layout, dynamic)


def _dims(text: str) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    if not text:
        return (), ()
    parts = [part.strip() for part in text.split(",")]
    dynamic = tuple(part.startswith("<=") for part in parts)
    sizes = [part.removeprefix("<=").strip() for part in parts]
    if not all(size.isdecimal() or size == "?" for size in sizes):
        raise ValueError(f"want dimension sizes, found [{text}]")
    dims = tuple(UNKNOWN_SIZE if size == "?" else int(size) for size in sizes)
    if len(dims) > _MAX_RANK:
        raise ValueError(f"{len(dims)} dimensions, at most {_MAX_RANK} are possible")
    if math.prod(max(1, n) for n in dims) > _MAX_ELEMENTS:
        raise ValueError(f"[{text}] has more than 2**60 elements")
    return dims, dynamic if any(dynamic) else ()


def _layout(minor_text: str, properties: str) -> Layout:
    minor = tuple(int(d) for d in minor_text.split(",")) if minor_text.strip() else ()
    tiles: tuple[Tile, ...] = ()
    found = _TILES.search(properties)
    if found is not None:
        tiles = tuple(Tile(_tile_dims(t)) for t in found[1][1:-1].split(")("))
        properties = properties.replace(found[0], "", 1)
    space = _MEMORY_SPACE.search(properties)
    if space is not None:
        properties = properties.replace(space[0], "", 1)
    _check_properties(properties)
    return Layout(minor, tiles, int(space[1]) if space is not None else 0, properties)


def _check_properties(text: str) -> None:
    """What a layout may say beside tiles and memory space; physical shapes are for sparse arrays."""
    if not text:
        return
    if _PROPERTIES.fullmatch(text) is None:
        raise ValueError(f"a layout has no property {text!r}")
    levels = re.match(r"D\(([^)]*)\)", text)
    if "P(" in text and (levels is None or not re.search("[CS]", levels[1])):
        raise ValueError(f"only a sparse array has a physical shape: {text!r}")


def _tile_dims(text: str) -> tuple[int, ...]:
    dims = tuple(COMBINE if d.strip() == "*" else int(d) for d in text.split(","))
    if any(d < 1 and d != COMBINE for d in dims) or "-" in text:
        raise ValueError(f"want tile sizes of at least 1, found ({text})")
    return dims


@lru_cache(maxsize=65536)
def print_shape(shape: Shape, layouts: bool = True) -> str:
    """Return XLA's text of a shape; tuples carry ``/*index=N*/`` before every fifth element."""
    match shape:
        case ArrayShape():
            return array_text(shape, layouts)
        case TupleShape():
            return f"({join_indexed([print_shape(e, layouts) for e in shape.elements])})"
        case TokenShape():
            return "token[]"
        case OpaqueShape():
            return "opaque[]"
        case BufferShape():
            return f"b({array_text(shape.array, layouts)})"


@lru_cache(maxsize=65536)
def with_default_layouts(shape: Shape) -> Shape:
    """Give every array that has no layout the descending one, as XLA does when it reads text."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(with_default_layouts(element) for element in shape.elements))
    if isinstance(shape, BufferShape):
        array = with_default_layouts(shape.array)
        return BufferShape(array) if isinstance(array, ArrayShape) else shape
    if isinstance(shape, ArrayShape) and shape.layout is None and shape.dims:
        return shape.with_layout(Layout(shape.minor_to_major))
    return shape


def join_indexed(items: list[str]) -> str:
    """Join a list with commas, marking every fifth place the way XLA does."""
    return ", ".join(
        f"/*index={i}*/{item}" if i and i % 5 == 0 else item for i, item in enumerate(items)
    )


def inside_braces(text: str) -> str:
    """Return what stands between the outermost braces of a list; ValueError without them."""
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError(f"want a list in braces, found {text[:40]!r}")
    return text[1:-1].strip()
