"""Shapes with layouts and tiles: ``bf16[256,512]{1,0:T(8,128)(2,1)}`` as values.

All classes are frozen and hashable. `dims` are logical (HLO order); a layout's
`minor_to_major` lists logical dimensions from fastest-varying to slowest, as in XLA.
Text is read in `compiler.hlo.shape_text`, which prints what is more than an array.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from compiler.hlo.dtypes import DType
from tpu_sim.isa.cached_property import cached_property

UNKNOWN_SIZE = -1
"""The size of a dimension written ``?``: such a shape can be read and printed, no more."""
COMBINE = -1
"""A size of a tile that XLA writes ``*``: this dimension is combined with the next one."""


@dataclass(frozen=True)
class Tile:
    """One level of tiling, e.g. ``(8,128)``; -1 stands for XLA's ``*`` (combine with next)."""

    dims: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """How an array lies in memory.

    `memory_space`: 0 HBM, 1 VMEM, 2 sync flags, 6 SMEM (XLA's ``S(n)``).
    `extra` keeps what else XLA's text has (``E(4)``, ``L(..)``, dim level types), verbatim.
    """

    minor_to_major: tuple[int, ...]
    tiles: tuple[Tile, ...] = ()
    memory_space: int = 0
    extra: str = ""


@dataclass(frozen=True)
class ArrayShape:
    """A dense array: element type, logical dimensions, optional layout.

    `dynamic` flags dimensions printed ``<=n``; empty when all are static. A dimension may be
    `UNKNOWN_SIZE` in a module that was only read: the verifier refuses it.
    """

    dtype: DType
    dims: tuple[int, ...]
    layout: Layout | None = None
    dynamic: tuple[bool, ...] = ()

    def __hash__(self) -> int:
        """Worked out once: shapes are keys of many tables."""
        found: int | None = self.__dict__.get("_hash")
        if found is None:
            found = hash((self.dtype.name, self.dims, self.layout, self.dynamic))
            object.__setattr__(self, "_hash", found)
        return found

    def __repr__(self) -> str:
        """XLA's text, ``f32[8,128]{1,0}``: shapes stand in lists and in what a debugger shows."""
        return array_text(self)

    def __getstate__(self) -> dict[str, object]:
        """The fields: hashes of strings are another process's own."""
        return {name: self.__dict__[name] for name in ("dtype", "dims", "layout", "dynamic")}

    @cached_property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def element_count(self) -> int:
        """Number of elements (1 for a scalar)."""
        return math.prod(self.dims)

    @property
    def byte_count(self) -> int:
        """Bytes of the elements alone, side by side without padding."""
        return -(-self.element_count * self.dtype.bits // 8)

    @property
    def minor_to_major(self) -> tuple[int, ...]:
        """The layout's order, or descending when there is no layout."""
        if self.layout is not None:
            return self.layout.minor_to_major
        return tuple(reversed(range(len(self.dims))))

    def with_layout(self, layout: Layout | None) -> ArrayShape:
        """Return this shape with another layout."""
        return ArrayShape(self.dtype, self.dims, layout, self.dynamic)

    def with_dims(self, dims: tuple[int, ...]) -> ArrayShape:
        """Return an array of this dtype with other dimensions and no layout."""
        return ArrayShape(self.dtype, tuple(dims))

    def with_dtype(self, dtype: DType) -> ArrayShape:
        """Return this shape with another element type and the bare dimension order."""
        layout = None if self.layout is None else Layout(self.layout.minor_to_major)
        return replace(self, dtype=dtype, layout=layout)

    def is_same_array(self, other: Shape) -> bool:
        """Whether dtype and dimensions agree, layouts aside."""
        return (
            isinstance(other, ArrayShape) and self.dtype == other.dtype and self.dims == other.dims
        )


@dataclass(frozen=True)
class TupleShape:
    """A tuple of shapes, possibly nested or empty."""

    elements: tuple[Shape, ...]

    @cached_property
    def leaf_offsets(self) -> tuple[int, ...]:
        """How many arrays come before each element, and in all: worked out once for all its elements."""
        return tuple(accumulate((len(leaves(e)) for e in self.elements), initial=0))


@dataclass(frozen=True)
class TokenShape:
    """The ordering token ``token[]``."""


@dataclass(frozen=True)
class OpaqueShape:
    """XLA's ``opaque[]``."""


@dataclass(frozen=True)
class BufferShape:
    """``b(f32[8])``: an array in memory that may be written in place, as XLA:GPU has them."""

    array: ArrayShape


def array_text(shape: ArrayShape, layouts: bool = True) -> str:
    """Return XLA's text of an array, ``bf16[256,512]{1,0:T(8,128)}``, or what stands before its layout."""
    dynamic = shape.dynamic or (False,) * shape.rank
    sizes = ["?" if n == UNKNOWN_SIZE else str(n) for n in shape.dims]
    dims = ",".join(f"<={n}" if d else n for n, d in zip(sizes, dynamic, strict=True))
    head = f"{shape.dtype.name}[{dims}]"
    if not layouts or shape.layout is None:
        return head
    return head + layout_text(shape.layout)


def layout_text(layout: Layout) -> str:
    """Return ``{1,0:T(8,128)S(1)}``, or nothing for the empty layout of a plain scalar."""
    properties = ""
    if layout.tiles:
        tiles = "".join(
            f"({','.join('*' if d == COMBINE else str(d) for d in tile.dims)})"
            for tile in layout.tiles
        )
        properties = f"T{tiles}"
    space = f"S({layout.memory_space})" if layout.memory_space else ""
    properties += _with_space(layout.extra, space)
    order = ",".join(str(d) for d in layout.minor_to_major)
    if not properties:
        return f"{{{order}}}" if order else ""
    return f"{{{order}:{properties}}}"


def _with_space(extra: str, space: str) -> str:
    """Place ``S(n)`` among the other properties in XLA's order: D, T, L, #, *, E, S, P, SC, M."""
    later = re.search(r"(?<![A-Z])(?:P\(|SC\(|M\()", extra)
    at = len(extra) if later is None else later.start()
    return extra[:at] + space + extra[at:]


Shape = ArrayShape | TupleShape | TokenShape | OpaqueShape | BufferShape


def token_numbers(shapes: Sequence[Shape]) -> list[int]:
    """Which of several shapes are tokens."""
    return [number for number, shape in enumerate(shapes) if isinstance(shape, TokenShape)]


def array(dtype: DType, *dims: int) -> ArrayShape:
    """Build a shape without layout: ``array(F32, 8, 128)``."""
    return ArrayShape(dtype, dims)


def is_compatible(a: Shape, b: Shape) -> bool:
    """Whether two shapes are equal up to layouts, at every tuple level."""
    if isinstance(a, ArrayShape):
        return a.is_same_array(b)
    if isinstance(a, TupleShape):
        return (
            isinstance(b, TupleShape)
            and len(a.elements) == len(b.elements)
            and all(is_compatible(x, y) for x, y in zip(a.elements, b.elements, strict=True))
        )
    if isinstance(a, BufferShape):
        return isinstance(b, BufferShape) and a.array.is_same_array(b.array)
    return type(a) is type(b)


def has_size_of(a: Shape, b: Shape) -> bool:
    """Whether two arrays take the same number of bits, or any two values are compatible."""
    if isinstance(a, ArrayShape) and isinstance(b, ArrayShape):
        return a.element_count * a.dtype.bits == b.element_count * b.dtype.bits
    return is_compatible(a, b)


def subshape(shape: Shape, index: tuple[int, ...]) -> Shape | None:
    """An element of a tuple's elements, by index; None if there is none."""
    for i in index:
        if not isinstance(shape, TupleShape) or i >= len(shape.elements):
            return None
        shape = shape.elements[i]
    return shape


def leaves(shape: Shape) -> list[ArrayShape]:
    """Return the array shapes of a shape in depth-first order (tokens left out)."""
    if isinstance(shape, ArrayShape):
        return [shape]
    found: list[ArrayShape] = []
    if isinstance(shape, TupleShape):
        for element in shape.elements:
            if isinstance(element, ArrayShape):
                found.append(element)
            else:
                found += leaves(element)
    return found
