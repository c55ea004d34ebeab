"""What HLO text becomes while it is read: the grammar's callbacks call `TextBuild`'s methods.

Computations are complete when their closing brace is read; names of computations are resolved
at the end of the text, so that they may stand in any order.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NoReturn

from lark import Token

from compiler.diagnostics import CompileError, ElidedConstantsWarning, SourceText, made_up_note
from compiler.hlo import attribute_text
from compiler.hlo.async_text import (
    AsyncHalf,
    share_with_wrapped,
    split_opcode,
    wrapped_computation,
)
from compiler.hlo.attribute_text import InlineBody, Reference
from compiler.hlo.attributes import ComputationLayout
from compiler.hlo.call_graph import post_order
from compiler.hlo.escapes import without_comments
from compiler.hlo.implied_shapes import inferred_shape, transfer_shape
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.json_text import object_end
from compiler.hlo.literal_text import ELIDED, parse_literal, signless_zeros
from compiler.hlo.opcodes import OPCODES
from compiler.hlo.shape import Shape, TupleShape, is_compatible
from compiler.hlo.shape_inference import without_layout
from compiler.hlo.shape_text import parse_shape, print_shape
from compiler.hlo.stack_frames import parse_stack_frames, renumber_stack_frames
from compiler.hlo.text_checks import check_text
from compiler.hlo.text_parts import NestedOperand, Operand, TypedName, bare, opcode_text
from compiler.hlo.unique_names import make_names_unique


class TextBuild:
    """One module while it is being read.

    `read_body` parses the text of a computation written in an attribute's place, calling this
    object's methods; the second argument is where the text begins.
    """

    def __init__(self, source: SourceText, read_body: Callable[[str, TextBuild], None]) -> None:
        self.source = source
        self.read_body = read_body
        self.base = 0  # where the text being parsed begins in the source
        self.module = HloModule("module")
        self.has_header = False
        self.computations: dict[str, HloComputation] = {}
        self.entry: HloComputation | None = None
        self.last: HloComputation | None = None
        self.shapes: dict[str, Shape] = {}
        self.attributes: dict[str, tuple[str, object]] = {}
        self.references: list[tuple[HloInstruction | HloModule, str, Reference, int]] = []
        self.environment: dict[str, HloInstruction] = {}
        self.pending: dict[HloInstruction, list[str]] = {}  # operands that stand further down
        self.root: HloInstruction | None = None
        self.async_instructions: list[HloInstruction] = []
        self.wrapped: dict[HloInstruction, str] = {}  # what the short form says is done
        self.elided: list[HloInstruction] = []  # constants of which the text has no values
        self.makes_parameters = False  # a text of one instruction: unknown operands are inputs

    # The header and computations.

    def header(self, name: str, attributes: list[Token]) -> None:
        """Take the module's name and attributes."""
        self.has_header, self.module.name = True, name.removesuffix(":")
        self.module.attrs = self.read_attributes(attributes, self.module)

    def stack_frames(self, token: Token) -> None:
        """Take the tables that metadata's ``stack_frame_id`` refers to."""
        try:
            self.module.attrs["stack_frames"] = parse_stack_frames(token)
        except ValueError as error:
            self.fail(str(error), token.start_pos or 0)

    def computation(
        self, name: Token, is_entry: bool, result: Shape | None, attributes: list[Token]
    ) -> None:
        """Finish the computation whose instructions have been read."""
        offset = name.start_pos or 0
        computation = HloComputation(bare(name))
        computation.span = self.source.span(self.base + offset)
        if computation.name in self.computations:
            self.fail(f"computation %{computation.name} is defined twice", offset)
        self.fill(computation, offset)
        if result is not None and not is_compatible(result, computation.root_instruction.shape):
            message = f"the signature's result is {print_shape(result, False)}"
            self.fail_at(computation.root_instruction, message)
        self.computations[computation.name] = self.last = computation
        if is_entry:
            if self.entry is not None:
                self.fail(f"a second ENTRY computation: %{self.entry.name} is one", offset)
            self.entry = computation
        if attributes:
            computation.attrs = self.read_attributes(attributes, None)

    def fill(self, computation: HloComputation, offset: int) -> None:
        """Move what has been read into `computation`, with operands and root in place."""
        if not self.environment:
            self.fail(f"computation %{computation.name} has no instructions", offset)
        for instr in self.environment.values():
            computation.add(instr)
        computation.root = self.root if self.root is not None else instr
        self.resolve_predecessors()
        self.resolve_operands(computation)  # sorts, for which it is known what waits for what
        self.check_parameters(computation)
        self.environment = {}
        self.root = None

    def resolve_operands(self, computation: HloComputation) -> None:
        """Fill in operands that were used before their line; then the order is not the text's."""
        if not self.pending:
            return
        for instr, names in self.pending.items():
            for name in names:
                if name not in self.environment:
                    self.fail_at(instr, f"%{instr.name}: operand %{name} is not defined")
            instr.set_operands(self.environment[name] for name in names)
        self.pending = {}
        computation.sort()

    def resolve_predecessors(self) -> None:
        """Replace the names of control predecessors by this computation's instructions."""
        kept = []
        for item in self.references:
            holder, attribute, reference, _ = item
            if not reference.of_instructions or isinstance(holder, HloModule):
                kept.append(item)
                continue
            missing = [name for name in reference.names if name not in self.environment]
            if missing:
                self.fail_at(holder, f"%{holder.name}: {attribute}: %{missing[0]} is not defined")
            holder.attrs[attribute] = tuple(self.environment[name] for name in reference.names)
            if isinstance(holder, HloInstruction) and holder.computation is not None:
                for before in holder.control_predecessors():
                    holder.computation.control_successors.setdefault(before, {})[holder] = None
        self.references = kept

    def check_parameters(self, computation: HloComputation) -> None:
        """Parameters are numbered from 0 without gaps."""
        for want, parameter in enumerate(computation.parameters):
            number = parameter.attrs["parameter_number"]
            if number != want:
                problem = "appears twice" if want and number == want - 1 else f"but no {want}"
                self.fail_at(parameter, f"%{computation.name}: parameter {number}, {problem}")

    # Instructions.

    def instruction(
        self,
        result: Token,
        shape: Token | None,
        opcode: str,
        operand_names: list[str],
        attributes: list[Token],
    ) -> HloInstruction:
        """Add one line: its operands are names."""
        offset = result.start_pos or 0
        name = result[: result.index("=")].rstrip()
        is_root = name.startswith("ROOT") and name[4:5].isspace()
        if is_root:
            name = name[4:].lstrip()
        if name[0] == "%":
            name = name[1:]
        instr = self.add(name, shape, opcode, operand_names, attributes, offset)
        if is_root:
            if self.root is not None:
                self.fail(f"a second ROOT: %{self.root.name} is one", offset)
            self.root = instr
        return instr

    def add(
        self,
        name: str,
        shape: Token | None,
        opcode: str,
        operand_names: list[str],
        attributes: list[Token],
        offset: int,
    ) -> HloInstruction:
        """Add an instruction under a name that must be free."""
        environment = self.environment
        if name in environment:
            self.fail(f"%{name} is defined twice in this computation", offset)
        attrs: dict[str, object] = {}
        operands: list[HloInstruction] = []
        pending = half = None
        if opcode == "parameter":
            attrs["parameter_number"] = self.parameter_number(operand_names, offset)
        else:
            try:
                operands = [environment[operand] for operand in operand_names]
            except KeyError:
                pending = operand_names
            half = self.check_opcode(name, opcode, len(operand_names), offset)
        if half is not None:
            opcode = half.opcode
        known = _UNKNOWN if shape is None else self.shape(shape)
        instr = HloInstruction(opcode, name, known, operands, attrs)
        instr.location = (self.source, self.base + offset)
        if half is not None and half.opcode == "async-start":
            self.async_start(instr, half, attributes, offset)
        elif attributes:
            attrs.update(self.read_attributes(attributes, instr))
        if shape is None:
            if pending is not None:
                missing = next(n for n in pending if n not in environment)
                self.fail(f"%{name}: operand %{missing} is not defined above", offset)
            instr.shape = self.inferred_shape(instr, offset)
        if opcode in _TRANSFERS:
            instr.shape = transfer_shape(instr)
        elif opcode.startswith("async-"):
            self.async_instructions.append(instr)
            if half is not None:
                self.wrapped[instr] = half.wrapped
        environment[name] = instr
        if pending is not None:
            self.pending[instr] = pending
        return instr

    def constant(
        self, result: Token, shape: Token, literal: Token, attributes: list[Token]
    ) -> HloInstruction:
        """Add a constant."""
        instr = self.instruction(result, shape, "constant", [], attributes)
        return self.set_literal(instr, literal)

    def set_literal(self, instr: HloInstruction, literal: Token) -> HloInstruction:
        """Decode the text between the parentheses of a constant."""
        if ELIDED in literal:
            self.elided.append(instr)
        try:
            value = parse_literal(literal, instr.shape)
        except ValueError as error:
            self.fail(f"%{instr.name}: {error}", literal.start_pos or 0)
        instr.attrs = {"literal": value, **instr.attrs}
        if "-0" in literal and (zeros := signless_zeros(literal)):
            self.module.signless_zeros[instr] = zeros
        return instr

    def unnamed(self, operand: Operand, attributes: list[Token]) -> HloInstruction:
        """Add the instruction of a text that leaves out even ``name =``."""
        assert isinstance(operand, NestedOperand)
        names = [self.operand_name(inner, 0) for inner in operand.operands]
        return self.add("_", operand.shape, opcode_text(operand.opcode), names, attributes, 0)

    def operand_name(self, operand: Operand, offset: int) -> str:
        """The name that stands for an operand; nested instructions are added on the way."""
        if isinstance(operand, str):
            return operand
        if isinstance(operand, TypedName):
            return self.typed_operand(operand, offset)
        opcode = opcode_text(operand.opcode)
        names = [self.operand_name(inner, offset) for inner in operand.operands]
        name = self.free_name(f"{opcode}.anon")
        at = operand.opcode.start_pos or offset
        instr = self.add(name, operand.shape, opcode, names, [], at)
        if operand.literal is not None:
            self.set_literal(instr, operand.literal)
        return name

    def typed_operand(self, operand: TypedName, offset: int) -> str:
        """Check the shape in front of an operand, if the operand is known by now."""
        at = operand.shape.start_pos or offset
        shape = self.shape(operand.shape)
        known = self.environment.get(operand.name) if operand.name else None
        if known is None and self.makes_parameters:
            number = sum(i.opcode == "parameter" for i in self.environment.values())
            name = operand.name or self.free_name(f"_{number}")
            parameter = HloInstruction("parameter", name, shape, (), {"parameter_number": number})
            parameter.location = (self.source, self.base + at)
            self.environment[name] = parameter
            return name
        if not operand.name:
            self.fail("want the name of an operand after its shape", at)
        if known is not None and not is_compatible(shape, known.shape):
            found, said = print_shape(known.shape, False), print_shape(shape, False)
            self.fail(f"operand %{operand.name} is {found}, not {said}", at)
        return operand.name

    def free_name(self, wanted: str) -> str:
        """`wanted`, or the first numbered form of it that this computation has not."""
        name, number = wanted, 0
        while name in self.environment:
            number += 1
            name = f"{wanted}.{number}"
        return name

    def inferred_shape(self, instr: HloInstruction, offset: int) -> Shape:
        """The result's shape where the text leaves it out."""
        attrs = {name: self.known_now(value) for name, value in instr.attrs.items()}
        try:
            return inferred_shape(instr, attrs)
        except CompileError as error:
            message = f"%{instr.name}: no shape is given and none can be inferred: {error.message}"
            self.fail(message, offset)

    def known_now(self, value: object) -> object:
        """A computation in place of its name, when it stands above."""
        if not isinstance(value, Reference) or value.of_instructions:
            return value
        found = [self.computations[n] for n in value.names if n in self.computations]
        return tuple(found) if value.is_list else next(iter(found), None)

    def check_opcode(
        self, name: str, opcode: str, operand_count: int, offset: int
    ) -> AsyncHalf | None:
        """Refuse what the opcode table does not know; which half a ``slice-start`` is."""
        info = OPCODES.get(opcode)
        if info is None:
            half = split_opcode(opcode)
            if half is None:
                self.fail(f"%{name}: unknown opcode `{opcode}`", offset)
            return half
        if not info.accepts(operand_count):
            message = f"%{name}: {opcode} takes {info.arity_text()}, found {operand_count}"
            self.fail(message, offset)
        return None

    def async_start(
        self, instr: HloInstruction, half: AsyncHalf, attributes: list[Token], offset: int
    ) -> None:
        """Give ``slice-start(x), slice=...`` the computation that it stands for."""
        try:
            callee = wrapped_computation(instr, half.wrapped)
        except ValueError as error:
            self.fail(f"%{instr.name}: {error}", offset)
        read = self.read_attributes(attributes, callee.root_instruction)
        half.share_attributes(read, instr, callee.root_instruction)
        for index, (holder, name, reference, at) in enumerate(self.references):
            if holder is callee.root_instruction and reference.of_instructions:
                self.references[index] = (instr, name, reference, at)
        self.computations[f" async {len(self.computations)}"] = callee
        instr.attrs["calls"] = callee

    def parameter_number(self, names: list[str], offset: int) -> int:
        """The number between a parameter's parentheses."""
        if len(names) != 1 or not names[0].isdecimal():
            self.fail("want parameter(N) with the parameter's number", offset)
        return int(names[0])

    def shape(self, token: Token) -> Shape:
        """Decode a shape, once for each distinct text."""
        shape = self.shapes.get(token)
        if shape is None:
            try:
                shape = parse_shape(without_comments(token).strip())
            except ValueError as error:
                self.fail(str(error), token.start_pos or 0)
            self.shapes[str(token)] = shape
        return shape

    def read_attributes(
        self, tokens: list[Token], holder: HloInstruction | HloModule | None
    ) -> dict[str, object]:
        """Decode attributes, each distinct text once; names are left as references."""
        attrs: dict[str, object] = {}
        for token in tokens:
            decoded = self.attributes.get(token)
            if decoded is None:
                decoded = self.decode_attribute(token)
            name, value = decoded
            if name in attrs:
                self.fail(f"attribute {name} is given twice", token.start_pos or 0)
            if isinstance(value, InlineBody):
                value = self.inline_value(token)
            attrs[name] = value
            if isinstance(value, Reference):
                assert holder is not None
                self.references.append((holder, name, value, self.base + (token.start_pos or 0)))
        return attrs

    def decode_attribute(self, token: Token) -> tuple[str, object]:
        """Decode ``, name=value``."""
        name, _, text = without_comments(token)[1:].partition("=")
        name = name.strip()
        try:
            decoded = (name, attribute_text.decode(name, text.strip()))
        except ValueError as error:
            self.fail(f"attribute {name}: {error}", (token.start_pos or 0) + 2)
        self.attributes[str(token)] = decoded
        return decoded

    def inline_value(self, token: Token) -> HloComputation | tuple[HloComputation, ...]:
        """Read computations that stand in braces where their names could stand."""
        at = token.index("{", token.index("="))
        if not token[at + 1 :].lstrip().startswith("{"):
            return self.inline_computation(token, at)
        found: list[HloComputation] = []
        start = token.find("{", at + 1)
        while start >= 0:
            found.append(self.inline_computation(token, start))
            start = token.find("{", object_end(token, start))
        return tuple(found)

    def inline_computation(self, token: Token, at: int) -> HloComputation:
        """Read one computation whose body begins at `at` of the token."""
        saved = self.environment, self.pending, self.root, self.base, self.last, self.references
        makes_parameters, self.makes_parameters = self.makes_parameters, False
        head = "_ "
        self.environment, self.pending, self.root, self.references = {}, {}, None, []
        self.base += (token.start_pos or 0) + at - len(head)
        held = self.computations.pop("_", None)
        self.read_body(head + token[at : object_end(token, at)], self)
        computation = self.computations.pop("_")
        if held is not None:
            self.computations["_"] = held
        self.computations[f" inline {len(self.computations)}"] = computation
        inner = self.references
        self.environment, self.pending, self.root, self.base, self.last, self.references = saved
        self.references.extend(inner)
        self.makes_parameters = makes_parameters
        return computation

    # The whole module.

    def lone_instruction(self, instr: HloInstruction) -> None:
        """Make a text of one instruction the entry computation."""
        self.has_header, self.module.name = True, "_"
        self.module.attrs["is_scheduled"] = True
        computation = HloComputation(self.module.name)
        self.root = instr
        self.fill(computation, 0)
        self.computations = {computation.name: computation, **self.computations}
        self.last = computation
        parameters = tuple(without_layout(p.shape) for p in computation.parameters)
        layout = ComputationLayout(parameters, without_layout(instr.shape))
        self.module.attrs["entry_computation_layout"] = layout

    def finish(self) -> HloModule:
        """Resolve computation names and put callees before callers."""
        for holder, attribute, reference, offset in self.references:
            missing = [name for name in reference.names if name not in self.computations]
            if missing:
                message = f"{attribute}: computation %{missing[0]} is not defined"
                raise CompileError(message, self.source.span(offset + 2))
            found = tuple(self.computations[name] for name in reference.names)
            holder.attrs[attribute] = found if reference.is_list else found[0]
        entry = self.entry or self.last
        assert entry is not None
        if not self.has_header:
            self.module.name = f"module_{entry.name}"
        if self.elided:
            self.warn_of_elided()
        check_text(self.computations.values(), self.wrapped)
        for instr in self.async_instructions:
            share_with_wrapped(instr)
        renumber_stack_frames(self.module, self.computations.values())
        make_names_unique(self.computations.values())
        for computation in post_order(self.computations.values()):
            self.module.add_computation(computation, keep_names=True)
        self.module.entry_name = entry.name
        return self.module

    def warn_of_elided(self) -> None:
        """Say that results will not be the model's: values in the text's place are made up."""
        self.module.made_up = tuple(instr.name for instr in self.elided)
        span = self.elided[0].span
        where = f" (line {span.line})" if span else ""
        note = f"{made_up_note(self.module.made_up)}{where}; print the text with large constants"
        warnings.warn(note, ElidedConstantsWarning, stacklevel=4)

    def fail_at(self, instr: HloInstruction, message: str) -> NoReturn:
        """Refuse the text at an instruction."""
        raise CompileError(message, instr.span)

    def fail(self, message: str, offset: int) -> NoReturn:
        """Refuse the text at an offset of what is being parsed."""
        raise CompileError(message, self.source.span(self.base + offset))


_UNKNOWN: Shape = TupleShape(())
_TRANSFERS = frozenset(("send", "send-done", "recv", "recv-done", "outfeed"))
