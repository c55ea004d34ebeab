"""ShapeProto -> the text of a shape: ``bf16[256,512]{1,0:T(8,128)(2,1)S(1)}``."""

from __future__ import annotations

from compiler.hlo.shape_text import join_indexed
from compiler.protobuf import Message

_DTYPE_FIELD, _DIMENSIONS, _TUPLE, _LAYOUT, _IS_DYNAMIC = 2, 3, 4, 5, 6
_MINOR_TO_MAJOR, _TILES, _ELEMENT_BITS, _MEMORY_SPACE, _TAIL_ALIGNMENT = 1, 6, 7, 8, 16
_PREFIX_BYTES = 15
_STRANGE_LAYOUT = {
    9: "dim_level_types",
    10: "physical_shape",
    11: "index_primitive_type",
    12: "pointer_primitive_type",
    17: "split_configs",
}
_TUPLE_TYPE, _OPAQUE_TYPE, _TOKEN_TYPE, _BUFFER_TYPE = 13, 14, 17, 34

DTYPES = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16",
    11: "f32", 12: "f64", 15: "c64", 16: "bf16", 18: "c128", 19: "f8e5m2", 20: "f8e4m3fn", 21: "s4",
    22: "u4", 23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 26: "s2", 27: "u2", 28: "f8e4m3",
    29: "f8e3m4", 30: "s1", 31: "u1", 32: "f4e2m1fn", 33: "f8e8m0fnu",
}  # fmt: skip
"""Element types by their number in PrimitiveType."""


def shape_text(shape: Message) -> str:
    """The text of a shape; ValueError for a type or a layout that has none here."""
    kind = shape.integer(_DTYPE_FIELD)
    if kind == _TUPLE_TYPE:
        return "(" + join_indexed([shape_text(part) for part in shape.messages(_TUPLE)]) + ")"
    if kind == _TOKEN_TYPE:
        return "token[]"
    if kind == _OPAQUE_TYPE:
        return "opaque[]"
    if kind == _BUFFER_TYPE:
        return f"b({shape_text(shape.message(_TUPLE))})"
    if kind not in DTYPES:
        message = f"element type {kind} of PrimitiveType is not known"
        raise ValueError(message)
    dims = [str(size) for size in shape.integers(_DIMENSIONS)]
    for dim, is_dynamic in enumerate(shape.integers(_IS_DYNAMIC)):
        if is_dynamic:
            dims[dim] = f"<={dims[dim]}"
    return f"{DTYPES[kind]}[{','.join(dims)}]{_layout_text(shape)}"


def dtype_of(shape: Message) -> str:
    """The name of an array's element type; empty for anything else."""
    return DTYPES.get(shape.integer(_DTYPE_FIELD), "")


def minor_to_major(shape: Message) -> tuple[int, ...]:
    """The order of an array's dimensions in its layout; empty without one."""
    return shape.message(_LAYOUT).integers(_MINOR_TO_MAJOR)


def _layout_text(shape: Message) -> str:
    if _LAYOUT not in shape:
        return ""
    layout = shape.message(_LAYOUT)
    for number, name in _STRANGE_LAYOUT.items():
        if number in layout and any(layout.integers(number) if number != 10 else (1,)):
            message = f"a layout with {name} is not supported"
            raise ValueError(message)
    properties = "".join(_tile_text(tile) for tile in layout.messages(_TILES))
    properties = f"T{properties}" if properties else ""
    for number, letter, plain in (
        (_TAIL_ALIGNMENT, "L", 1), (_ELEMENT_BITS, "E", 0), (_MEMORY_SPACE, "S", 0), (_PREFIX_BYTES, "M", 0)
    ):  # fmt: skip
        if layout.integer(number) > plain:
            properties += f"{letter}({layout.integer(number)})"
    order = ",".join(map(str, layout.integers(_MINOR_TO_MAJOR)))
    return f"{{{order}:{properties}}}" if properties else f"{{{order}}}"


_COMBINED = -(1 << 63)


def _tile_text(tile: Message) -> str:
    sizes = ("*" if size == _COMBINED else str(size) for size in tile.integers(1))
    return f"({','.join(sizes)})"
