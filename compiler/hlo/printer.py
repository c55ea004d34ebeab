"""IR -> HLO text, in the form XLA prints by default; `parse_module` reads it back unchanged.

>>> from compiler.hlo.parser import parse_module
>>> module = parse_module("ENTRY e { x = f32[2]{0} parameter(0) }")
>>> print(print_module(module, PrintOptions(percent=False)).strip())
HloModule module
<BLANKLINE>
ENTRY e (x: f32[2]) -> f32[2] {
  ROOT x = f32[2]{0} parameter(0)
}
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.hlo import attribute_text
from compiler.hlo.attributes import FrontendAttributes, RawText
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.literal_text import print_literal
from compiler.hlo.origins import ALSO_FROM, METADATA, NOTE
from compiler.hlo.shape import ArrayShape, Shape, leaves
from compiler.hlo.shape_text import join_indexed, print_shape
from compiler.hlo.stack_frames import StackFrames, print_stack_frames


@dataclass(frozen=True)
class PrintOptions:
    """What to print; the defaults lose nothing and are what XLA prints by default.

    `large_constant_elements`: longer literals are elided as ``{...}`` (text that does not
    parse back); None prints all of them.
    """

    layouts: bool = True
    metadata: bool = True
    backend_config: bool = True
    operand_shapes: bool = False
    percent: bool = True
    signatures: bool = True
    large_constant_elements: int | None = None


_DEFAULT = PrintOptions()
_HEADER_ONLY = ("parameter_number", "literal")  # printed between the parentheses


def print_module(module: HloModule, options: PrintOptions = _DEFAULT) -> str:
    """Return the text of a whole module, the computations in the module's order."""
    head = f"HloModule {module.name}" + "".join(
        f", {name}={attribute_text.encode(name, value)}"
        for name, value in module.attrs.items()
        if not isinstance(value, StackFrames)
    )
    frames = module.attrs.get("stack_frames")
    if options.metadata and isinstance(frames, StackFrames):
        head += print_stack_frames(frames)
    bodies = [print_computation(c, options) for c in module.computations.values()]
    return "\n\n".join([head, *bodies]) + "\n\n"


def print_computation(computation: HloComputation, options: PrintOptions = _DEFAULT) -> str:
    """Return one computation, without a line end after its closing brace."""
    module = computation.module
    is_entry = module is not None and module.entry_name == computation.name
    head = ("ENTRY " if is_entry else "") + _name(computation.name, options)
    if options.signatures:
        parameters = ", ".join(
            f"{p.name}: {print_shape(p.shape, False)}" for p in computation.parameters
        )
        result = print_shape(computation.root_instruction.shape, False)
        head += f" ({parameters}) -> {result}"
    root = computation.root
    lines = [
        f"  {'ROOT ' if instr is root else ''}{print_instruction(instr, options)}"
        for instr in computation
    ]
    tail = "".join(
        f", {name}={attribute_text.encode(name, value)}"
        for name, value in computation.attrs.items()
    )
    return "\n".join([head + " {", *lines, "}" + tail])


def print_instruction(instr: HloInstruction, options: PrintOptions = _DEFAULT) -> str:
    """Return ``%name = shape opcode(operands), attributes`` on one line."""
    text = (
        f"{_name(instr.name, options)} = {print_shape(instr.shape, options.layouts)} "
        f"{instr.opcode}({_operands(instr, options)})"
    )
    for name, value in instr.attrs.items():
        if _is_printed(name, value, options):
            text += f", {name}={_attribute(name, value, options)}"
    return text


def _attribute(name: str, value: object, options: PrintOptions) -> str:
    if name == NOTE and not options.metadata:
        value = _without_origins(value)
    text = attribute_text.encode(name, value)
    is_reference = isinstance(value, HloComputation) or (
        isinstance(value, tuple) and value and isinstance(value[0], HloComputation | HloInstruction)
    )
    return text if options.percent or not is_reference else text.replace("%", "")


def _is_printed(name: str, value: object, options: PrintOptions) -> bool:
    if name in _HEADER_ONLY:
        return name == "literal" and isinstance(value, RawText)  # a custom call's
    if name in (METADATA, NOTE) and not options.metadata:
        return name == NOTE and bool(_without_origins(value))
    return name != "backend_config" or options.backend_config


def _without_origins(value: object) -> FrontendAttributes:
    assert isinstance(value, FrontendAttributes)
    return FrontendAttributes(tuple(item for item in value.items if item[0] != ALSO_FROM))


def _name(name: str, options: PrintOptions) -> str:
    return f"%{name}" if options.percent else name


def _operands(instr: HloInstruction, options: PrintOptions) -> str:
    if instr.opcode == "parameter":
        return str(instr.attrs["parameter_number"])
    if instr.opcode == "constant":
        return _literal(instr, options)
    names = [_name(operand.name, options) for operand in instr.operands]
    if options.operand_shapes:
        shapes = [print_shape(operand.shape, options.layouts) for operand in instr.operands]
        names = [f"{shape} {name}" for shape, name in zip(shapes, names, strict=True)]
    return join_indexed(names) if options.percent else ", ".join(names)


def _literal(instr: HloInstruction, options: PrintOptions) -> str:
    limit = options.large_constant_elements
    if limit is not None and _element_count(instr.shape) > limit:
        return "{...}"
    return print_literal(instr.attrs["literal"], instr.shape)


def _element_count(shape: Shape) -> int:
    arrays: list[ArrayShape] = leaves(shape)
    return sum(array.element_count for array in arrays)
