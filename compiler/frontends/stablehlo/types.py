"""MLIR types and type signatures as text -> HLO shapes.

A dimension that is not known (``?``) is `DYNAMIC` in a shape returned from here; such shapes
never reach the HLO module, they only say that inference has to supply the size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from compiler.hlo.dtypes import BY_NAME, DType
from compiler.hlo.parsing import split_top_level
from compiler.hlo.shape import ArrayShape, Shape, TokenShape, TupleShape

DYNAMIC = -1

_RENAMED = {"i1": "pred", "index": "s64", "complex<f32>": "c64", "complex<f64>": "c128"}
_INTEGER = re.compile(r"(ui|si|i)(\d+)")
_ARRAY = re.compile(r"(?:tensor|vector)\s*<(.*)>", re.DOTALL)
_DIMENSION = re.compile(r"\s*(\d+|\?)\s*x")
_TUPLE = re.compile(r"tuple\s*<(.*)>", re.DOTALL)
_FUTURE = re.compile(r"!(?:stablehlo\.future|mhlo\.async_bundle)\s*<(.*)>", re.DOTALL)
_TOKENS = ("!stablehlo.token", "!mhlo.token", "!vhlo.token_v1")


@dataclass(frozen=True)
class Signature:
    """Operand types (None where the text gives result types alone) and result types."""

    operands: tuple[Shape, ...] | None
    results: tuple[Shape, ...]
    is_static: bool


class Types:
    """Decodes type texts of one document, each distinct spelling once. Failures: ValueError."""

    def __init__(self, aliases: dict[str, str]) -> None:
        self._aliases = aliases
        self._types: dict[str, Shape] = {}
        self._signatures: dict[str, Signature] = {}

    def type(self, text: str) -> Shape:
        """One type."""
        shape = self._types.get(text)
        if shape is None:
            shape = self._types[text] = self._parse(text.strip())
        return shape

    def signature(self, text: str) -> Signature:
        """``: (operand types) -> result types`` or ``: types``."""
        known = self._signatures.get(text)
        if known is None:
            known = self._signatures[text] = self._parse_signature(text)
        return known

    def _parse_signature(self, text: str) -> Signature:
        text = text.lstrip(": \t\n")
        arrow = find_arrow(text)
        if arrow < 0:
            results = self._list(text)
            return Signature(None, results, all(map(is_static, results)))
        operands, results = self._list(text[:arrow]), self._list(text[arrow + 2 :])
        return Signature(operands, results, all(map(is_static, (*operands, *results))))

    def _list(self, text: str) -> tuple[Shape, ...]:
        text = text.strip()
        if text.startswith("("):
            text = text[1:-1]
        return tuple(self.type(part) for part in split_top_level(text))

    def _parse(self, text: str) -> Shape:
        if text in self._aliases:
            return self.type(self._aliases[text])
        if text in _TOKENS:
            return TokenShape()
        if found := _TUPLE.fullmatch(text):
            return TupleShape(tuple(self.type(part) for part in split_top_level(found[1])))
        if found := _ARRAY.fullmatch(text):
            return _array(found[1])
        if found := _FUTURE.fullmatch(text):
            return self._future(text, split_top_level(found[1]))
        raise ValueError(f"type {text} is not supported; want tensor, tuple or token types")

    def _future(self, text: str, parts: Sequence[str]) -> Shape:
        """What an asynchronous operation will give; a bundle has its operands in front of that."""
        results = parts[1:2] if text.startswith("!mhlo") else parts
        shapes = tuple(self.type(part) for part in results)
        return shapes[0] if len(shapes) == 1 else TupleShape(shapes)


def _array(inside: str) -> ArrayShape:
    """``4x?xf32, #encoding`` -> a shape; the encoding (bounds, sparsity) must mean nothing."""
    dims: list[int] = []
    position = 0
    while found := _DIMENSION.match(inside, position):
        dims.append(DYNAMIC if found[1] == "?" else int(found[1]))
        position = found.end()
    element, *encoding = split_top_level(inside[position:])
    if inside.lstrip().startswith("*"):
        raise ValueError(f"tensor<{inside}> has no rank; only ranked tensors are supported")
    if encoding and "sparse" in encoding[0]:
        raise ValueError(f"sparse tensor<{inside}> is not supported; use a dense one")
    return ArrayShape(element_type(element.strip()), tuple(dims))


def element_type(text: str) -> DType:
    """``f32``, ``ui8``, ``complex<f32>``, ``f8E4M3FN`` -> the HLO type."""
    if text.startswith("!quant"):
        raise ValueError(f"quantized type {text} is not supported; dequantize the model first")
    name = _RENAMED.get(text.replace(" ", ""), text.lower())
    if found := _INTEGER.fullmatch(name):
        name = ("u" if found[1] == "ui" else "s") + found[2]
    dtype = BY_NAME.get(name)
    if dtype is None:
        raise ValueError(f"element type {text} is not supported; known are {', '.join(BY_NAME)}")
    return dtype


def is_static(shape: Shape) -> bool:
    """Whether every dimension at every level is known."""
    if isinstance(shape, TupleShape):
        return all(map(is_static, shape.elements))
    return not isinstance(shape, ArrayShape) or DYNAMIC not in shape.dims


def fits(found: Shape, declared: Shape) -> bool:
    """Whether a static shape agrees with a type that may have unknown dimensions."""
    if isinstance(declared, TupleShape):
        return (
            isinstance(found, TupleShape)
            and len(found.elements) == len(declared.elements)
            and all(map(fits, found.elements, declared.elements))
        )
    if not isinstance(declared, ArrayShape):
        return type(found) is type(declared)
    return (
        isinstance(found, ArrayShape)
        and found.dtype is declared.dtype
        and len(found.dims) == len(declared.dims)
        and all(w in (f, DYNAMIC) for f, w in zip(found.dims, declared.dims, strict=True))
    )


def find_arrow(text: str) -> int:
    """Where the arrow outside of all brackets stands, or -1."""
    depth = 0
    for found in re.finditer(r"->|[<>()\[\]]", text):
        if found[0] == "->" and depth == 0:
            return found.start()
        if found[0] != "->":
            depth += 1 if found[0] in "<([" else -1
    return -1
