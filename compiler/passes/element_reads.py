"""Single elements of arrays, seen through the operations that cut them out.

x: s32[512,64]
a = s32[1,64] dynamic-slice(x, i, 0)
b = s32[64] reshape(a)
c = s32[1] dynamic-slice(b, j)         element 64 * clamp(i, 0, 511) + clamp(j, 0, 63) of x
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

from compiler.analysis.element_access import ELEMENT_KIND
from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import PRED, S32, DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.rewrite import make
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.graph import emit

Instr = HloInstruction
Index = Sequence[Instr | None]
"""An index by dimension; None is 0."""

_MOST_STEPS = 8
"""Operations that a frontend writes to cut out an element, and some (assumed)."""


def word_type(dtype: DType) -> DType | None:
    """The type of the words that hold such elements in SMEM; None where none does."""
    if dtype == PRED:
        return S32
    return dtype if dtype.name in ("s32", "u32", "f32") else None


def source_of(value: Instr, arrays: Container[Instr]) -> Instr | None:
    """The array of `arrays` of which a value of one element is an element, if any."""
    if not isinstance(value.shape, ArrayShape) or value.array.element_count != 1:
        return None
    for _ in range(_MOST_STEPS):
        if value in arrays:
            return value
        if value.opcode == "dynamic-slice":
            if any(start.array.dtype != S32 for start in value.operands[1:]):
                return None
        elif value.opcode == "reshape":
            operand = value.operands[0]
            if operand not in arrays and not _drops_ones(operand, value):
                return None
        elif value.opcode not in _STEPS:
            return None
        value = value.operands[0]
    return None


def _drops_ones(operand: Instr, result: Instr) -> bool:
    """Whether a reshape adds or takes away dimensions of one element alone."""
    return [n for n in operand.array.dims if n > 1] == [n for n in result.array.dims if n > 1]


def index_of(value: Instr, source: Instr, near: Instr) -> Instr:
    """Where in `source`, its elements in a line, the element lies that `value` is."""
    e = Emitter.at(near)
    index: list[Instr | None] = [None] * value.array.rank
    while value is not source:
        operand = value.operands[0]
        if value.opcode == "reshape" and operand is source:
            return linear_index(e, index, value.array.dims)
        index = _STEPS[value.opcode](e, value, index)
        value = operand
    return linear_index(e, index, source.array.dims)


def linear_index(e: Emitter, index: Index, dims: Sequence[int]) -> Instr:
    """The number of the element at an index, row after row."""
    total: Instr | None = None
    for d, part in enumerate(index):
        if part is not None:
            stride = math.prod(dims[d + 1 :])
            term = part if stride == 1 else e.multiply(part, e.constant(S32, stride))
            total = term if total is None else e.add(total, term)
    return e.constant(S32, 0) if total is None else total


def _of_dynamic_slice(e: Emitter, cut: Instr, index: Index) -> list[Instr | None]:
    sizes = zip(cut.operands[0].array.dims, cut.array.dims, strict=True)
    starts = clamped(e, cut.operands[1:], [whole - part for whole, part in sizes])
    return [
        start if part is None else part if start is None else e.add(start, part)
        for start, part in zip(starts, index, strict=True)
    ]


def clamped(e: Emitter, starts: Sequence[Instr], last: Sequence[int]) -> list[Instr | None]:
    """Starts of a slice as they count: within 0 .. last."""
    zero = e.constant(S32, 0)
    return [
        e.clamp(zero, start, e.constant(S32, most)) if most else None
        for start, most in zip(starts, last, strict=True)
    ]


def _of_slice(e: Emitter, cut: Instr, index: Index) -> list[Instr | None]:
    found: list[Instr | None] = []
    for part, (start, _, stride) in zip(index, cut.slice, strict=True):
        moved = part if part is None or stride == 1 else e.multiply(part, e.constant(S32, stride))
        first = e.constant(S32, start) if start else None
        found.append(first if moved is None else e.add(moved, first) if first else moved)
    return found


def _of_transpose(_: Emitter, turned: Instr, index: Index) -> list[Instr | None]:
    found: list[Instr | None] = [None] * len(index)
    for d, source in enumerate(turned.dimensions):
        found[source] = index[d]
    return found


def _of_reshape(_: Emitter, view: Instr, index: Index) -> list[Instr | None]:
    kept = iter([p for p, n in zip(index, view.array.dims, strict=True) if n > 1])
    return [next(kept) if n > 1 else None for n in view.operands[0].array.dims]


_STEPS = {
    "dynamic-slice": _of_dynamic_slice,
    "slice": _of_slice,
    "transpose": _of_transpose,
    "reshape": _of_reshape,
}


def words_of(array: Instr) -> Instr:
    """A copy of an array, its elements in a line, for SMEM."""
    wanted = word_type(array.array.dtype)
    assert wanted is not None
    line = make.reshape(make.convert(array, wanted), (array.array.element_count,))
    return emit(array, "copy", line.shape, (line,))


def array_of(words: Instr, shape: ArrayShape) -> Instr:
    """A copy of what `words` hold, as the array they were made of."""
    line = emit(words, "copy", words.shape, (words,))
    return make.reshape(_as_type(line, shape.dtype), shape.dims)


def _as_type(value: Instr, dtype: DType) -> Instr:
    if dtype != PRED:
        return make.convert(value, dtype)
    e = Emitter.at(value)
    return e.compare(value, make.splat(value, value.array, 0), "NE")


def read_element(near: Instr, words: Instr, index: Instr, dtype: DType) -> Instr:
    """The scalar of a type that word `index` holds."""
    b = _body(near)
    array, place = b.parameter(words.array), b.parameter(index.array)
    root = b.reshape(b.dynamic_slice(array, [place], (1,)), ())
    return _as_type(_accessed(near, b, root, (words, index)), dtype)


def write_element(near: Instr, words: Instr, value: Instr, index: Instr) -> Instr:
    """The words with a scalar at `index`."""
    value = make.convert(value, words.array.dtype)
    b = _body(near)
    array, new, place = (b.parameter(i.array) for i in (words, value, index))
    root = b.dynamic_update_slice(array, b.reshape(new, (1,)), [place])
    return _accessed(near, b, root, (words, value, index))


def _body(near: Instr) -> HloBuilder:
    return HloBuilder("element", near.home.owner)


def _accessed(near: Instr, b: HloBuilder, root: Instr, operands: Sequence[Instr]) -> Instr:
    b.computation.root = root
    attrs: dict[str, object] = {
        "kind": ELEMENT_KIND,
        "calls": b.module.add_computation(b.computation),
    }
    return emit(near, "fusion", root.shape, operands, attrs, "element")


def scalar_of(value: Instr) -> Instr:
    """The one element of a value as a scalar, computed of scalars where it is made of such."""
    if not value.array.dims:
        return value
    operands = value.operands
    traits = OPCODES[value.opcode]
    if not operands or any(o.array.element_count != 1 for o in operands):
        return make.reshape(value, ())
    if traits.has(Trait.ELEMENTWISE):
        return make.elementwise(value, [scalar_of(o) for o in operands], ())
    is_same = len(operands) == 1 and traits.has(Trait.INDEX_MAP)
    return scalar_of(operands[0]) if is_same else make.reshape(value, ())
