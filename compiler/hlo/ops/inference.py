"""What a shape rule sees of an instruction, and how it refuses one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from compiler.diagnostics import CompileError
from compiler.hlo.attributes import Window
from compiler.hlo.dtypes import PRED, DType
from compiler.hlo.ir import HloComputation
from compiler.hlo.shape import ArrayShape, Shape, TupleShape, leaves
from compiler.hlo.shape_text import print_shape


@dataclass(slots=True)
class Inference:
    """One question: the shape of `opcode`, given operand shapes and attributes.

    Not declared frozen: one is made for every instruction, and a frozen dataclass takes longer to make.

    `declared` is the shape written on the instruction, if there is one already: rules take
    from it only what operands and attributes leave open (the dtype of a convert).
    """

    opcode: str
    shapes: tuple[Shape, ...]
    attrs: dict[str, object]
    declared: Shape | None = None

    def fail(self, message: str) -> NoReturn:
        """Refuse the instruction."""
        raise CompileError(f"{self.opcode}: {message}")

    def require(self, condition: bool, message: str) -> None:
        """Refuse the instruction unless `condition` holds."""
        if not condition:
            self.fail(message)

    def array(self, index: int) -> ArrayShape:
        """Operand `index`, which must be an array."""
        shape = self.shapes[index]
        if not isinstance(shape, ArrayShape):
            self.fail(f"operand {index} is {print_shape(shape, False)}, want an array")
        return shape

    def arrays(self) -> list[ArrayShape]:
        """All operands, which must be arrays."""
        return [self.array(i) for i in range(len(self.shapes))]

    def declared_shape(self) -> Shape:
        """The declared shape, for opcodes whose result nothing else determines."""
        if self.declared is None:
            self.fail("the result shape cannot be inferred, it must be given")
        return self.declared

    def declared_array(self) -> ArrayShape:
        """The declared shape, which must be an array."""
        shape = self.declared_shape()
        if not isinstance(shape, ArrayShape):
            self.fail(f"the result is {print_shape(shape, False)}, want an array")
        return shape

    def declared_dtype(self, default: DType) -> DType:
        """The dtype of the declared array, or `default` when nothing is declared."""
        return self.declared.dtype if isinstance(self.declared, ArrayShape) else default

    def ints(self, name: str) -> tuple[int, ...]:
        """A tuple-of-int attribute; absent means empty."""
        value = self.attrs.get(name, ())
        if not (isinstance(value, tuple) and all(isinstance(v, int) for v in value)):
            self.fail(f"attribute {name} is {value!r}, want a list of numbers")
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        """An int attribute; absent means `default`, or a refusal when there is none."""
        value = self.attrs.get(name, default)
        if not isinstance(value, int):
            self.fail(f"want attribute {name}=<number>")
        return value

    def flag(self, name: str) -> bool:
        """A bool attribute; absent means false."""
        return bool(self.attrs.get(name, False))

    def computation(self, name: str) -> HloComputation:
        """A computation attribute, which must be there."""
        value = self.attrs.get(name)
        if not isinstance(value, HloComputation):
            self.fail(f"want attribute {name}=%computation")
        return value

    def dims_in_range(self, name: str, rank: int) -> tuple[int, ...]:
        """A list of distinct dimension numbers below `rank`."""
        dims = self.ints(name)
        if len(set(dims)) != len(dims) or not all(0 <= d < rank for d in dims):
            self.fail(f"{name}={{{','.join(map(str, dims))}}}: want distinct dimensions < {rank}")
        return dims

    def same_dtype(self, a: ArrayShape, b: ArrayShape) -> None:
        """Refuse when two operands differ in element type."""
        if a.dtype != b.dtype:
            self.fail(f"operands have element types {a.dtype} and {b.dtype}, want the same")


Rule = Callable[[Inference], Shape]


def first_operand(q: Inference) -> Shape:
    """The result has the shape of operand 0."""
    return q.shapes[0]


def declared(q: Inference) -> Shape:
    """The result has whatever shape is declared: nothing to check it against."""
    return q.declared_shape()


def one_or_tuple(shapes: list[ArrayShape]) -> Shape:
    """One array as it is, several as a tuple: how variadic opcodes return."""
    return shapes[0] if len(shapes) == 1 else TupleShape(tuple(shapes))


def plain(dtype: DType, dims: tuple[int, ...] | list[int]) -> ArrayShape:
    """An array shape without layout."""
    return ArrayShape(dtype, tuple(dims))


def dims_text(shape: ArrayShape) -> str:
    """``f32[8,128]``, for messages."""
    return print_shape(shape, False)


def applied(q: Inference, name: str, operands: int, results: int = 1) -> list[ArrayShape]:
    """The results of a computation that is applied to elements: scalars, as its parameters are."""
    body = q.computation(name)
    found = leaves(body.root_instruction.shape)
    q.require(len(found) == results, f"%{body.name} returns {len(found)} values, want {results}")
    count = len(body.parameters)
    q.require(count == operands, f"%{body.name} takes {count} parameters, want {operands}")
    shapes = [*found, *(parameter.shape for parameter in body.parameters)]
    is_scalar = all(isinstance(s, ArrayShape) and s.rank == 0 for s in shapes)
    q.require(is_scalar, f"%{body.name} must take and return scalars")
    return found


def predicate(q: Inference, name: str, operands: int) -> None:
    """A computation of scalars that says true or false."""
    (result,) = applied(q, name, operands)
    q.require(result.dtype == PRED, f"{name} returns {result.dtype}, want pred")


def window_of(q: Inference, rank: int) -> Window:
    """The attribute ``window``, of `rank` dimensions; sizes, strides and dilations are positive."""
    window = q.attrs.get("window", Window())
    if not isinstance(window, Window) or len(window.dims) != rank:
        q.fail(f"want a window of {rank} dimensions")
    for d in window.dims:
        least = min(d.size, d.stride, d.base_dilation, d.window_dilation)
        q.require(least > 0, "want a window of positive sizes, strides and dilations")
    return window
