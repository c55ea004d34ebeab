"""Build HLO in Python: ``b.add(x, y)`` with inferred shapes.

    >>> from compiler.hlo.dtypes import F32
    >>> from compiler.hlo.shape import array
    >>> b = HloBuilder("main")
    >>> x = b.parameter(array(F32, 8, 128))
    >>> module = b.build_entry(b.reduce(x, b.constant(F32, 0.0), (1,), b.scalar("add", F32)))
    >>> module.entry.root_instruction.array.dims
    (8,)

A method is named after its opcode with underscores; methods that a keyword or a common word
would hide end in an underscore (`and_`, `not_`, `or_`, `while_`). Shapes carry no layout.
Operands that do not fit raise CompileError.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from compiler.hlo.attributes import ComputationLayout, ConvDims, Window
from compiler.hlo.dtypes import PRED, DType, from_numpy, real_type
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import ELEMENTWISE_BINARY, ELEMENTWISE_UNARY
from compiler.hlo.shape import ArrayShape, Shape
from compiler.hlo.shape_inference import infer_shape

Dims = Sequence[int]
Instr = HloInstruction


class HloBuilder:
    """Appends instructions to one computation of a module (a new one unless given)."""

    def __init__(self, name: str, module: HloModule | None = None) -> None:
        self.module = HloModule(name) if module is None else module
        self.computation = HloComputation(name)
        self.computation.module = self.module

    def build(self, root: Instr) -> HloComputation:
        """Finish the computation with this root, add it to the module and return it."""
        self.computation.root = root
        return self.module.add_computation(self.computation, keep_names=True)

    def build_entry(self, root: Instr) -> HloModule:
        """Finish the computation as the module's entry and return the module."""
        computation = self.build(root)
        self.module.entry_name = computation.name
        parameters = tuple(p.shape for p in computation.parameters)
        self.module.attrs["entry_computation_layout"] = ComputationLayout(parameters, root.shape)
        return self.module

    def instruction(
        self,
        opcode: str,
        operands: Sequence[Instr] = (),
        attrs: dict[str, object] | None = None,
        declared: Shape | None = None,
        name: str | None = None,
    ) -> Instr:
        """Append any instruction; its shape is inferred, `declared` filling what is open."""
        attrs = {} if attrs is None else attrs
        shape = infer_shape(opcode, operands, attrs, declared)
        return self.computation.add(Instr(opcode, name or opcode, shape, operands, attrs))

    # Leaves.

    def parameter(self, shape: Shape, name: str | None = None) -> Instr:
        """The next parameter."""
        number = len(self.computation.parameters)
        attrs: dict[str, object] = {"parameter_number": number}
        return self.instruction("parameter", (), attrs, shape, name or f"p{number}")

    def constant(self, dtype: DType, value: npt.ArrayLike) -> Instr:
        """A constant of any rank."""
        literal = np.asarray(value).astype(dtype.numpy)
        return self.literal(literal)

    def literal(self, literal: npt.NDArray[np.generic]) -> Instr:
        """A constant of exactly this array's element type and dimensions."""
        shape = ArrayShape(from_numpy(literal.dtype), literal.shape)
        return self.instruction("constant", (), {"literal": literal}, shape)

    def iota(self, dtype: DType, dims: Dims, dimension: int) -> Instr:
        """Numbers counting up along one dimension."""
        shape = ArrayShape(dtype, tuple(dims))
        return self.instruction("iota", (), {"iota_dimension": dimension}, shape)

    def full(self, dtype: DType, dims: Dims, value: npt.ArrayLike) -> Instr:
        """An array all of whose elements are `value`."""
        scalar = self.constant(dtype, value)
        return scalar if not dims else self.broadcast(scalar, dims)

    def like(self, other: Instr, value: npt.ArrayLike) -> Instr:
        """An array of the type and dimensions of `other` filled with `value`."""
        return self.full(other.array.dtype, other.array.dims, value)

    def spread(self, operand: Instr, like: Instr) -> Instr:
        """A scalar broadcast to the dimensions of `like`; anything else as it is."""
        if operand.array.rank or not like.array.rank:
            return operand
        return self.broadcast(operand, like.array.dims)

    # Elementwise.

    def unary(self, opcode: str, operand: Instr) -> Instr:
        """Any elementwise opcode of one operand whose result type follows from it."""
        assert opcode in ELEMENTWISE_UNARY, opcode
        return self.instruction(opcode, (operand,))

    def binary(self, opcode: str, lhs: Instr, rhs: Instr) -> Instr:
        """Any elementwise opcode of two operands of equal shape."""
        assert opcode in ELEMENTWISE_BINARY, opcode
        return self.instruction(opcode, (lhs, rhs))

    def add(self, lhs: Instr, rhs: Instr) -> Instr:
        """``lhs + rhs``."""
        return self.binary("add", lhs, rhs)

    def subtract(self, lhs: Instr, rhs: Instr) -> Instr:
        """``lhs - rhs``."""
        return self.binary("subtract", lhs, rhs)

    def multiply(self, lhs: Instr, rhs: Instr) -> Instr:
        """``lhs * rhs``."""
        return self.binary("multiply", lhs, rhs)

    def divide(self, lhs: Instr, rhs: Instr) -> Instr:
        """``lhs / rhs``."""
        return self.binary("divide", lhs, rhs)

    def maximum(self, lhs: Instr, rhs: Instr) -> Instr:
        """The larger of each pair; NaN wins."""
        return self.binary("maximum", lhs, rhs)

    def minimum(self, lhs: Instr, rhs: Instr) -> Instr:
        """The smaller of each pair; NaN wins."""
        return self.binary("minimum", lhs, rhs)

    def and_(self, lhs: Instr, rhs: Instr) -> Instr:
        """Bitwise (or, of pred, logical) and."""
        return self.binary("and", lhs, rhs)

    def or_(self, lhs: Instr, rhs: Instr) -> Instr:
        """Bitwise (or, of pred, logical) or."""
        return self.binary("or", lhs, rhs)

    def not_(self, operand: Instr) -> Instr:
        """Bitwise (or, of pred, logical) not."""
        return self.unary("not", operand)

    def negate(self, operand: Instr) -> Instr:
        """``-operand``."""
        return self.unary("negate", operand)

    def compare(self, lhs: Instr, rhs: Instr, direction: str) -> Instr:
        """A pred array; `direction` is EQ, NE, LT, LE, GT or GE."""
        return self.instruction("compare", (lhs, rhs), {"direction": direction})

    def select(self, condition: Instr, on_true: Instr, on_false: Instr) -> Instr:
        """Elements of `on_true` where `condition` holds, else of `on_false`."""
        return self.instruction("select", (condition, on_true, on_false))

    def clamp(self, low: Instr, operand: Instr, high: Instr) -> Instr:
        """``min(max(operand, low), high)``; the bounds may be scalars."""
        return self.instruction("clamp", (low, operand, high))

    def convert(self, operand: Instr, dtype: DType) -> Instr:
        """The values in another element type."""
        return self.instruction("convert", (operand,), None, operand.array.with_dtype(dtype))

    def bitcast_convert(self, operand: Instr, dtype: DType) -> Instr:
        """The bits as another type; a last dimension appears or goes when widths differ."""
        declared = operand.array.with_dtype(dtype)
        return self.instruction("bitcast-convert", (operand,), None, declared)

    def cast(self, operand: Instr, dtype: DType) -> Instr:
        """`operand` in another type, or itself."""
        return operand if operand.array.dtype == dtype else self.convert(operand, dtype)

    def conj(self, operand: Instr) -> Instr:
        """The complex conjugate; a real operand is itself."""
        if not operand.array.dtype.is_complex:
            return operand
        minus = self.negate(self.unary("imag", operand))
        return self.instruction("complex", (self.unary("real", operand), minus))

    def real(self, operand: Instr) -> Instr:
        """The real part; a real operand is itself."""
        return self.unary("real", operand) if operand.array.dtype.is_complex else operand

    def as_type(self, operand: Instr, dtype: DType) -> Instr:
        """A real array as a complex one without imaginary part, or converted."""
        if dtype.is_complex and not operand.array.dtype.is_complex:
            part = real_type(dtype)
            value = self.cast(operand, part)
            return self.instruction("complex", (value, self.like(value, 0)))
        return self.cast(operand, dtype)

    def squared(self, operand: Instr) -> Instr:
        """``|x|^2``, real."""
        if not operand.array.dtype.is_complex:
            return self.multiply(operand, operand)
        re, im = self.unary("real", operand), self.unary("imag", operand)
        return self.add(self.multiply(re, re), self.multiply(im, im))

    # Data movement.

    def broadcast(self, operand: Instr, dims: Dims, dimensions: Dims = ()) -> Instr:
        """Operand dimension ``i`` becomes result dimension ``dimensions[i]``."""
        shape = operand.array.with_dims(tuple(dims))
        return self.instruction("broadcast", (operand,), {"dimensions": tuple(dimensions)}, shape)

    def reshape(self, operand: Instr, dims: Dims) -> Instr:
        """The same elements in row-major order under other dimensions."""
        return self.instruction("reshape", (operand,), None, operand.array.with_dims(tuple(dims)))

    def transpose(self, operand: Instr, permutation: Dims) -> Instr:
        """Result dimension ``i`` is operand dimension ``permutation[i]``."""
        return self.instruction("transpose", (operand,), {"dimensions": tuple(permutation)})

    def reverse(self, operand: Instr, dimensions: Dims) -> Instr:
        """The elements in reverse order along some dimensions."""
        return self.instruction("reverse", (operand,), {"dimensions": tuple(dimensions)})

    def slice(
        self, operand: Instr, starts: Dims, limits: Dims, strides: Dims | None = None
    ) -> Instr:
        """``operand[start:limit:stride]`` in every dimension."""
        strides = strides if strides is not None else (1,) * operand.array.rank
        ranges = tuple(zip(starts, limits, strides, strict=True))
        return self.instruction("slice", (operand,), {"slice": ranges})

    def pad(self, operand: Instr, value: Instr, padding: Sequence[tuple[int, int, int]]) -> Instr:
        """`padding` gives (low, high, interior) per dimension; low and high may be negative."""
        return self.instruction("pad", (operand, value), {"padding": tuple(padding)})

    def concatenate(self, operands: Sequence[Instr], dimension: int) -> Instr:
        """Arrays one after another along one dimension."""
        return self.instruction("concatenate", operands, {"dimensions": (dimension,)})

    def dynamic_slice(self, operand: Instr, starts: Sequence[Instr], sizes: Dims) -> Instr:
        """A box of `sizes` from where the scalar `starts` say, clamped into the operand."""
        attrs: dict[str, object] = {"dynamic_slice_sizes": tuple(sizes)}
        return self.instruction("dynamic-slice", (operand, *starts), attrs)

    def dynamic_update_slice(self, operand: Instr, update: Instr, starts: Sequence[Instr]) -> Instr:
        """`operand` with `update` written at the scalar `starts`, clamped into it."""
        return self.instruction("dynamic-update-slice", (operand, update, *starts))

    def gather(self, operand: Instr, indices: Instr, **attrs: object) -> Instr:
        """XLA's gather; `attrs` are its attributes (`offset_dims=(1,)`, ...)."""
        return self.instruction("gather", (operand, indices), attrs)

    def scatter(
        self,
        operands: Sequence[Instr],
        indices: Instr,
        updates: Sequence[Instr],
        to_apply: HloComputation,
        **attrs: object,
    ) -> Instr:
        """XLA's scatter of one or more arrays; `attrs` are its attributes."""
        attrs["to_apply"] = to_apply
        return self.instruction("scatter", (*operands, indices, *updates), attrs)

    # Contractions, reductions, sorts.

    def dot(
        self,
        lhs: Instr,
        rhs: Instr,
        contracting: tuple[Dims, Dims],
        batch: tuple[Dims, Dims] = ((), ()),
        dtype: DType | None = None,
    ) -> Instr:
        """Batch dimensions, then lhs free, then rhs free; `dtype` of the result if not lhs's."""
        attrs: dict[str, object] = {}
        if batch[0]:
            attrs |= {"lhs_batch_dims": tuple(batch[0])}
        attrs |= {"lhs_contracting_dims": tuple(contracting[0])}
        if batch[1]:
            attrs |= {"rhs_batch_dims": tuple(batch[1])}
        attrs |= {"rhs_contracting_dims": tuple(contracting[1])}
        declared = ArrayShape(lhs.array.dtype if dtype is None else dtype, ())
        return self.instruction("dot", (lhs, rhs), attrs, declared)

    def convolution(
        self, lhs: Instr, rhs: Instr, window: Window, dim_labels: ConvDims, **attrs: object
    ) -> Instr:
        """A convolution; further `attrs` such as ``feature_group_count=2``."""
        attrs = {"window": window, "dim_labels": dim_labels, **attrs}
        return self.instruction("convolution", (lhs, rhs), attrs)

    def reduce(
        self,
        operands: Instr | Sequence[Instr],
        inits: Instr | Sequence[Instr],
        dimensions: Dims,
        to_apply: HloComputation,
    ) -> Instr:
        """Fold `dimensions` away; several operands are reduced together into a tuple."""
        attrs: dict[str, object] = {"dimensions": tuple(dimensions), "to_apply": to_apply}
        return self.instruction("reduce", (*_several(operands), *_several(inits)), attrs)

    def total(self, operand: Instr, *dimensions: int, kind: str = "add") -> Instr:
        """Sum (or other `kind` whose identity for this type is known) over some dimensions."""
        dtype = operand.array.dtype
        neutral = identity(kind, dtype)
        assert neutral is not None, f"{kind} has no identity in {dtype}"
        init = self.constant(dtype, neutral)
        dims = tuple(d % operand.array.rank for d in dimensions)
        return self.reduce(operand, init, dims, self.scalar(kind, dtype))

    def reduce_window(
        self, operand: Instr, init: Instr, window: Window, to_apply: HloComputation
    ) -> Instr:
        """Reduce every position of a window over the operand."""
        attrs: dict[str, object] = {"window": window, "to_apply": to_apply}
        return self.instruction("reduce-window", (operand, init), attrs)

    def sort(
        self, operands: Sequence[Instr], dimension: int, to_apply: HloComputation, *, stable: bool
    ) -> Instr:
        """Sort along one dimension, all operands by the same permutation."""
        attrs: dict[str, object] = {"dimensions": (dimension,)}
        if stable:
            attrs["is_stable"] = True
        attrs["to_apply"] = to_apply
        return self.instruction("sort", operands, attrs)

    # Tuples, calls, control flow.

    def tuple(self, operands: Sequence[Instr]) -> Instr:
        """A tuple of values."""
        return self.instruction("tuple", operands)

    def get_tuple_element(self, operand: Instr, index: int) -> Instr:
        """One element of a tuple."""
        return self.instruction("get-tuple-element", (operand,), {"index": index})

    def call(self, callee: HloComputation, operands: Sequence[Instr]) -> Instr:
        """Call a computation."""
        return self.instruction("call", operands, {"to_apply": callee})

    def fusion(self, body: HloComputation, operands: Sequence[Instr], kind: str) -> Instr:
        """One fused operation; `kind` is kLoop, kInput, kOutput or kCustom."""
        return self.instruction("fusion", operands, {"kind": kind, "calls": body})

    def while_(self, condition: HloComputation, body: HloComputation, init: Instr) -> Instr:
        """Repeat `body` on the state as long as `condition` of it holds."""
        return self.instruction("while", (init,), {"condition": condition, "body": body})

    def conditional(
        self, selector: Instr, branches: Sequence[HloComputation], arguments: Sequence[Instr]
    ) -> Instr:
        """Run one branch on its argument: by number, or true then false for a pred selector."""
        attrs: dict[str, object] = {"branch_computations": tuple(branches)}
        if selector.array.dtype == PRED:
            attrs = {"true_computation": branches[0], "false_computation": branches[1]}
        return self.instruction("conditional", (selector, *arguments), attrs)

    def custom_call(self, target: str, operands: Sequence[Instr], shape: Shape) -> Instr:
        """A call of something outside HLO, by name."""
        return self.instruction("custom-call", operands, {"custom_call_target": target}, shape)

    def scalar(self, opcode: str, dtype: DType) -> HloComputation:
        """The module's computation ``opcode(x, y)`` of two scalars, made when it is missing."""
        name = f"{opcode}_{dtype}"
        if name in self.module.computations:
            return self.module.computations[name]
        b = HloBuilder(name, self.module)
        x, y = (b.parameter(ArrayShape(dtype, ()), n) for n in ("x", "y"))
        return b.build(b.binary(opcode, x, y))


def _several(value: Instr | Sequence[Instr]) -> Sequence[Instr]:
    return (value,) if isinstance(value, Instr) else value
