"""One HLO computation while it is being built from a block of MLIR operations.

A `Body` is an `HloBuilder` that knows the operation it is lowering: its operands as HLO
instructions, its attributes, its declared result types. Names of enclosing blocks are visible to
constants only; everything else a region needs is passed to it explicitly (`control.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import CompileError
from compiler.frontends.stablehlo.annotations import ANNOTATIONS, annotation_attrs
from compiler.frontends.stablehlo.attributes import Attributes
from compiler.frontends.stablehlo.dense import is_one_value
from compiler.frontends.stablehlo.folding import folded, is_foldable
from compiler.frontends.stablehlo.locations import Locations
from compiler.frontends.stablehlo.syntax import Attribute, Document, Operation, Raw, Region
from compiler.frontends.stablehlo.types import Signature, Types, fits, is_static
from compiler.hlo.builder import HloBuilder
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.origins import said, set_origins
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.hlo.shape_text import print_shape

Instr: TypeAlias = HloInstruction
Array = npt.NDArray[np.generic]
Lowering: TypeAlias = Callable[["Body", Operation], "Instr | Sequence[Instr]"]


class DocumentLowering:
    """A document being lowered: its functions, and the module they become."""

    def __init__(self, document: Document, module: HloModule, table: dict[str, Lowering]) -> None:
        self.document = document
        self.module = module
        self.table = table
        self.types = Types(document.type_aliases)
        self.locations = Locations(document.locations)
        self.functions: dict[str, Operation] = {}
        self.computations: dict[str, HloComputation] = {}
        self.active: list[str] = []  # functions being lowered, outermost first
        self.device_count = 1
        self.foldable: set[Instr] = set()  # instructions that depend on constants only
        self.constants: dict[Instr, Array] = {}  # the values of those that were asked for

    def type(self, text: str, op: Operation) -> Shape:
        """Decode a type of `op`."""
        try:
            return self.types.type(text)
        except ValueError as error:
            op.fail(str(error))

    def signature(self, op: Operation) -> Signature:
        """Decode the signature of `op`."""
        try:
            return self.types.signature(op.signature)
        except ValueError as error:
            op.fail(str(error))


class Body(HloBuilder):
    """Lowers operations into one computation."""

    def __init__(
        self, unit: DocumentLowering, name: str, op: Operation, parent: Body | None = None
    ) -> None:
        super().__init__(name, unit.module)
        self.unit = unit
        self.op = op
        self.parent = parent
        self.values: dict[str, tuple[Instr, ...]] = {}
        self.captured: dict[str, Instr] = {}
        self.computation.span = op.span

    # Instructions.

    def instruction(
        self,
        opcode: str,
        operands: Sequence[Instr] = (),
        attrs: dict[str, object] | None = None,
        declared: Shape | None = None,
        name: str | None = None,
    ) -> Instr:
        """Append an instruction that stands where the present operation does."""
        try:
            instr = super().instruction(opcode, operands, attrs, declared, name)
        except CompileError as error:
            if error.span is not None:
                raise
            raise type(error)(f"{self.op.name}: {error.message}", self.op.span) from None
        instr.location = (self.op.source, self.op.offset)
        if self.op.location and opcode != "parameter":
            self.locate(instr, self.op.location)
        if all(o in self.unit.foldable for o in instr.operands) and is_foldable(instr):
            self.unit.foldable.add(instr)
        return instr

    def locate(self, instr: Instr, location: str) -> None:
        """Let an instruction say where it comes from: the text inside of a ``loc(...)``."""
        texts = self.unit.locations.metadata(location)
        if texts:
            set_origins(instr, texts)

    def results_of(self, instr: Instr, count: int) -> list[Instr]:
        """The `count` results of a variadic instruction: itself, or its tuple elements."""
        if count == 1 and not _is_tuple_result(instr):
            return [instr]
        return [self.get_tuple_element(instr, i) for i in range(count)]

    def pack(self, values: Sequence[Instr]) -> Instr:
        """One value as it is, several (or none) as a tuple."""
        return values[0] if len(values) == 1 else self.tuple(values)

    def pack_types(self, types: Sequence[Shape]) -> Shape:
        """The shape of `pack`ed values."""
        return types[0] if len(types) == 1 else TupleShape(tuple(types))

    def function(self, name: str) -> HloComputation:
        """The computation of a function of the module, lowered when first asked for."""
        unit = self.unit
        function = unit.functions.get(name)
        if function is None:
            self.op.fail(f"function @{name} is not defined")
        if not function.regions:
            function.fail(f"@{name} is declared, but has no body")
        known = unit.computations.get(name)
        if known is not None:
            return known
        child = Body(unit, re.sub(r"[^\w.\-]", "_", name), function)
        region = function.regions[0]
        for argument, text in region.arguments:
            child.bind(argument, child.parameter(unit.type(text, function), argument[1:]))
        results = child.lower_block(region.operations)
        check_results(unit, function, results)
        made = unit.computations[name] = child.build(child.pack(results))
        return made

    # What the present operation says.

    def attributes(self) -> Attributes:
        """Its attributes."""
        return Attributes(self.op, self.unit.types, self.unit.document.attribute_aliases)

    def operands(self) -> list[Instr]:
        """Its operands."""
        return [self.value(name) for name in self.op.operands]

    def result_types(self) -> tuple[Shape, ...]:
        """Its declared result types, which may have unknown dimensions."""
        declared = self.unit.signature(self.op).results
        count = self.op.result_count
        if count == 1 and len(declared) > 1:
            return declared[-1:]
        return declared * count if len(declared) == 1 and count > 1 else declared

    def result_type(self) -> Shape:
        """Its only declared result type."""
        types = self.result_types()
        if len(types) != 1:
            self.op.fail(f"found {len(types)} result types, want 1")
        return types[0]

    def result_array(self) -> ArrayShape:
        """Its only declared result type, an array whose dimensions may be unknown."""
        shape = self.result_type()
        if not isinstance(shape, ArrayShape):
            self.op.fail(f"the result is {print_shape(shape)}, want a tensor")
        return shape

    def static_result(self) -> ArrayShape:
        """Its only result type, whose dimensions must all be known."""
        shape = self.result_array()
        if not is_static(shape):
            self.op.fail(
                "the result shape is not known: its sizes depend on run-time values; "
                "only shapes that are constant are supported"
            )
        return shape

    # Values.

    def value(self, name: str) -> Instr:
        """The instruction that a use stands for: ``%x``, ``%0#1``."""
        base, _, index = name.partition("#")
        group = self.values.get(base)
        if group is None:
            return self._outer(name)
        position = int(index) if index else 0
        if position >= len(group) or (not index and len(group) != 1):
            self.op.fail(f"{name} is not a value: {base} stands for {len(group)}")
        return group[position]

    def _outer(self, name: str) -> Instr:
        """A value passed in from an enclosing block, or a constant of it made again here."""
        if name in self.captured:
            return self.captured[name]
        if self.parent is None:
            self.op.fail(f"{name} is not defined")
        outer = self.parent.value(name)
        if is_plain_constant(outer):
            made = self._again(outer)
        else:
            literal = self.parent.constant_value(outer)
            if literal is None:
                self.op.fail(f"{name} comes from outside of this region; only constants may")
            made = self.dense(literal)
        self.captured[name] = made
        return made

    def _again(self, outer: Instr) -> Instr:
        """A plain constant of another block, whatever its size: none is too large to be one here."""
        operands = [self._again(o) for o in outer.operands]
        return self.instruction(outer.opcode, operands, dict(outer.attrs), outer.shape)

    def dense(self, literal: Array) -> Instr:
        """A constant; one value repeated becomes a broadcast scalar, as XLA's import makes it."""
        if literal.ndim and literal.size > 1 and is_one_value(literal):
            first = literal[(slice(1),) * literal.ndim].reshape(())
            return self.broadcast(self.literal(first), literal.shape)
        return self.literal(literal)

    def constant_value(self, instr: Instr) -> Array | None:
        """The value of an array that depends on constants only, else None."""
        unit = self.unit
        if instr not in unit.foldable or not isinstance(instr.shape, ArrayShape):
            return None
        known = unit.constants.get(instr)
        if known is None:
            known = unit.constants[instr] = folded(instr)
        return known

    def constant_ints(self, instr: Instr, what: str) -> tuple[int, ...]:
        """The numbers of an operand that must be constant."""
        value = self.constant_value(instr)
        if value is None:
            self.op.fail(
                f"{what} must be constant: shapes that depend on run-time values are not supported"
            )
        return tuple(int(v) for v in value.reshape(-1).tolist())

    # Blocks.

    def lower_block(self, operations: Sequence[Operation]) -> list[Instr]:
        """Lower the operations of a block and return what its terminator returns."""
        try:
            return self._lowered(operations)
        except CompileError as error:
            error.say_origin(said(self.unit.locations.origins(self.op.location)))
            raise

    def _lowered(self, operations: Sequence[Operation]) -> list[Instr]:
        table = self.unit.table
        for op in operations:
            self.op = op
            lowering = table.get(op.name)
            if lowering is None:
                if op.name.endswith("return"):
                    return self.returned()
                op.fail(_unknown(op.name, table))
            self.check_operands()
            results = lowering(self, op)
            self.define([results] if isinstance(results, HloInstruction) else list(results))
        if operations:
            self.op.fail("the block ends here, without a return")
        return []

    def returned(self) -> list[Instr]:
        """The values of the terminator, whose signature lists their types."""
        values = self.operands()
        signature = self.unit.signature(self.op)
        types = signature.results if signature.operands is None else signature.operands
        if len(types) != len(values) or not all(map(fits, [v.shape for v in values], types)):
            found = ", ".join(print_shape(v.shape, False) for v in values)
            self.op.fail(f"({found}) is returned, the signature differs")
        return values

    def check_operands(self) -> None:
        """Refuse an operation whose signature does not say what its operands are."""
        signature = self.unit.signature(self.op)
        declared = signature.operands
        if declared is None:
            return
        if len(declared) != len(self.op.operands):
            self.op.fail(f"{len(self.op.operands)} operands, {len(declared)} in the signature")
        for name, want in zip(self.op.operands, declared, strict=True):
            found = self.value(name).shape
            if found != want and not fits(found, want):
                self.op.fail(f"{name} is {print_shape(found, False)}, the signature differs")

    def define(self, results: list[Instr]) -> None:
        """Give the results of the present operation their names, checking declared types."""
        op = self.op
        if len(results) != op.result_count:
            op.fail(f"{op.result_count} results are named, it has {len(results)}")
        if results:
            self.annotate(results)
            declared = self.result_types()
            if len(declared) != len(results):
                op.fail(f"{len(results)} results, {len(declared)} in the signature")
            for result, want in zip(results, declared, strict=True):
                if result.shape != want and not fits(result.shape, want):
                    found = print_shape(result.shape, False)
                    op.fail(f"the result is {found}, the signature says {print_shape(want, False)}")
        position = 0
        for name, count in op.results:
            self.values[name] = tuple(results[position : position + count])
            position += count

    def annotate(self, results: list[Instr]) -> None:
        """Give the results the shardings and frontend attributes that the operation carries."""
        attributes = self.op.attributes
        if not any(name in attributes for name in ANNOTATIONS):
            return
        owner = results[0]
        if len(results) > 1 and owner.opcode == "get-tuple-element":
            owner = owner.operands[0]
        if owner in self.operands():
            results[0] = self.annotated(owner, attributes)
        else:
            owner.attrs |= self.annotations(attributes)

    def annotations(self, attributes: dict[str, Attribute]) -> dict[str, object]:
        """The HLO attributes for annotations that stand in `attributes`."""
        unit = self.unit
        try:
            return annotation_attrs(attributes, unit.document.meshes, unit.device_count)
        except ValueError as error:
            self.op.fail(str(error))

    def annotated(
        self, value: Instr, attributes: dict[str, Attribute], target: str = "Sharding"
    ) -> Instr:
        """A value that is annotated where it is not made: a custom call."""
        attrs = {"custom_call_target": target, **self.annotations(attributes)}
        if "sharding" not in attrs:
            return value
        return self.instruction("custom-call", (value,), attrs, value.shape)

    def bind(self, name: str, value: Instr) -> None:
        """Let a block argument stand for an instruction."""
        self.values[name] = (value,)

    def capture(self, name: str, value: Instr) -> None:
        """Let a use of an outer value, ``%x`` or ``%0#1``, stand for an instruction here."""
        self.captured[name] = value

    def embedded(self, region: Region, name: str) -> HloComputation:
        """The computation of a region that runs per element: a reducer, a comparator."""
        op = self.op
        child = Body(self.unit, name, op, self)
        for argument, text in region.arguments:
            child.bind(argument, child.parameter(self.unit.type(text, op), argument[1:]))
        return child.build(child.pack(child.lower_block(region.operations)))


def check_results(unit: DocumentLowering, function: Operation, results: Sequence[Instr]) -> None:
    """Refuse a function that does not return what its signature says."""
    declared = function.attributes.get("result_types", ())
    assert isinstance(declared, tuple)
    if len(declared) != len(results):
        function.fail(f"{len(results)} values are returned, the signature has {len(declared)}")
    for result, kind in zip(results, declared, strict=True):
        text = kind.text if isinstance(kind, Raw) else ""
        if not fits(result.shape, unit.type(text, function)):
            found = print_shape(result.shape, False)
            function.fail(f"{found} is returned, the signature says {text}")


def _is_tuple_result(instr: Instr) -> bool:
    return not isinstance(instr.shape, ArrayShape)


def _unknown(name: str, table: dict[str, Lowering]) -> str:
    if "quantize" in name:
        return "quantized operations are not supported; dequantize the model first"
    dialect = name.partition(".")[0]
    known = sorted({key.partition(".")[0] for key in table})
    if dialect not in known:
        return f"dialect {dialect} is not supported; known are {', '.join(known)}"
    return "this operation is not supported"


def is_plain_constant(value: Instr) -> bool:
    """A constant as the text has it: a literal, or one value spread over a shape."""
    return value.opcode == "constant" or (
        value.opcode == "broadcast" and value.operands[0].opcode == "constant"
    )
