"""IR -> HLO text exactly as XLA prints a module that it has parsed, in a named style.

`compiler.hlo.printer` prints what the IR holds and loses nothing. Here every default is spelled
out or left out as XLA does it: layouts, the order of attributes, of instructions (post order
unless the module is scheduled) and of computations, asynchronous operations in their short form.

    default   everything; constants of more than ten elements are elided as ``{...}``
    short     what XLA needs to read it back: no metadata, signatures, percent signs or marks

>>> from compiler.hlo.parser import parse_module
>>> module = parse_module("ENTRY e { x = f32[2] parameter(0) }")
>>> print(print_styled(module, STYLES["short"]).strip())
HloModule module_e, entry_computation_layout={(f32[2]{0})->f32[2]{0}}
<BLANKLINE>
ENTRY e {
  ROOT x = f32[2]{0} parameter(0)
}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from compiler.hlo import attribute_text
from compiler.hlo.attribute_order import own_attributes
from compiler.hlo.attributes import ComputationLayout, FrontendAttributes, OpMetadata, RawText
from compiler.hlo.escapes import quote, unquote
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.json_text import is_json_object
from compiler.hlo.literal_text import as_xla_reads, print_literal
from compiler.hlo.metadata_text import canonical_metadata
from compiler.hlo.parser import parse_module
from compiler.hlo.print_order import (
    computations_in_order,
    fused_computations,
    instructions_in_order,
    wrapped_instruction,
)
from compiler.hlo.profile_text import canonical_accuracy, canonical_origin
from compiler.hlo.recovery_text import canonical_recovery_table
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.hlo.shape_text import join_indexed, print_shape, with_default_layouts
from compiler.hlo.sharding import HloSharding, leaf_count
from compiler.hlo.stack_frames import StackFrames, print_stack_frames


@dataclass(frozen=True)
class Style:
    """What one of XLA's styles shows. `elided_above`: literals of more elements are ``{...}``."""

    percent: bool = True
    metadata: bool = True
    signatures: bool = True
    marks: bool = True
    control_dependencies: bool = True
    elided_above: int | None = 10


STYLES = {
    "default": Style(),
    "short": Style(
        percent=False,
        metadata=False,
        signatures=False,
        marks=False,
        control_dependencies=False,
        elided_above=None,
    ),
}
"""By the name that ``tpuc opt --style`` takes."""

_HEADER = (
    "is_scheduled", "input_output_alias", "buffer_donor", "alias_passthrough_params",
    "entry_computation_layout", "allow_spmd_sharding_propagation_to_parameters",
    "allow_spmd_sharding_propagation_to_output", "replica_count", "num_partitions",
    "frontend_attributes", "origin_recovery_table", "debug_attributes",
)  # fmt: skip
_HEADER_DEFAULTS = {
    "is_scheduled": False,
    "alias_passthrough_params": False,
    "input_output_alias": (),
    "buffer_donor": (),
    "replica_count": 1,
    "num_partitions": 1,
}


_NO_QUEUES = re.compile(r'"wait_on_operation_queues"\s*:\s*\[\s*\]\s*,')
"""A field of XLA:GPU's configurations that is gone: XLA drops it from what it reads when empty."""


def print_styled(module: HloModule, style: Style) -> str:
    """Return the text of a whole module as XLA prints it in `style`."""
    is_scheduled = module.attrs.get("is_scheduled") is True
    fused = fused_computations(module)
    bodies = [
        _computation(computation, style, is_scheduled and computation not in fused)
        for computation in computations_in_order(module)
    ]
    return "\n\n".join([_header(module, style), *bodies]) + "\n\n"


def _header(module: HloModule, style: Style) -> str:
    text = f"HloModule {module.name}"
    for name in _HEADER:
        value = module.attrs.get(name)
        if name == "entry_computation_layout":
            value = _entry_layout(module, value)
        if value is not None and value != _HEADER_DEFAULTS.get(name):
            text += f", {name}={_header_value(name, value, style)}"
    frames = module.attrs.get("stack_frames")
    if isinstance(frames, StackFrames) and style.metadata:
        text += print_stack_frames(frames)
    return text


def _header_value(name: str, value: object, style: Style) -> str:
    if name == "origin_recovery_table" and isinstance(value, RawText):
        return canonical_recovery_table(value.text, _printed_anew)
    text = _value(name, value, style)
    if name.startswith("allow_spmd_") and not text.startswith("{"):
        return f"{{{text}}}"
    return text


def _printed_anew(text: str) -> str:
    return print_styled(parse_module(text), STYLES["default"])


def _entry_layout(module: HloModule, given: object) -> ComputationLayout:
    if isinstance(given, ComputationLayout):
        parameters, result = given.parameters, given.result
    else:
        entry = module.entry
        parameters = tuple(parameter.shape for parameter in entry.parameters)
        result = entry.root_instruction.shape
    return ComputationLayout(
        tuple(with_default_layouts(shape) for shape in parameters), with_default_layouts(result)
    )


def _computation(computation: HloComputation, style: Style, is_scheduled: bool) -> str:
    module = computation.module
    head = _name(computation.name, style)
    if module is not None and module.entry_name == computation.name:
        head = f"ENTRY {head}"
    if style.signatures:
        parameters = [f"{p.name}: {print_shape(p.shape, False)}" for p in computation.parameters]
        result = print_shape(computation.root_instruction.shape, False)
        head += f" ({', '.join(parameters)}) -> {result}"
    root = computation.root
    order = computation if is_scheduled else instructions_in_order(computation)
    lines = [f"  {'ROOT ' if instr is root else ''}{_instruction(instr, style)}" for instr in order]
    thread = computation.attrs.get("execution_thread", "main")
    tail = "" if thread == "main" else f", execution_thread={quote(str(thread))}"
    return "\n".join([head + " {", *lines, "}" + tail])


def _instruction(instr: HloInstruction, style: Style) -> str:
    shape = print_shape(with_default_layouts(_held_shape(instr)))
    wrapped = wrapped_instruction(instr)
    opcode = instr.opcode
    if wrapped is not None:
        opcode = wrapped.opcode + opcode.removeprefix("async")
    text = f"{_name(instr.name, style)} = {shape} {opcode}({_operands(instr, style)})"
    return text + "".join(f", {name}={value}" for name, value in _attributes(instr, style))


def _held_shape(instr: HloInstruction) -> Shape:
    """A literal does not hold the width of its elements in memory (``E(4)``)."""
    shape = instr.shape
    if instr.opcode != "constant" or not isinstance(shape, ArrayShape) or shape.layout is None:
        return shape
    layout = shape.layout
    return shape.with_layout(replace(layout, extra=re.sub(r"E\(\d+\)", "", layout.extra)))


def _attributes(instr: HloInstruction, style: Style) -> Iterator[tuple[str, str]]:
    yield from _extra_attributes(instr, style, with_frontend=True)
    origin = _origin(instr)
    if origin is not None:
        yield "origin", canonical_origin(_value("origin", origin, style))
    metadata = instr.attrs.get("metadata")
    if style.metadata and isinstance(metadata, OpMetadata):
        text = canonical_metadata(metadata.text)
        if text:
            yield "metadata", text
    config = instr.attrs.get("backend_config")
    if config:
        yield "backend_config", _json_or_quoted(_NO_QUEUES.sub("", str(config)))


def _origin(instr: HloInstruction) -> object:
    """Where the value comes from; an element of a tuple made here says it of itself."""
    origin = instr.attrs.get("origin")
    index = instr.attrs.get("index")
    if origin is None and instr.opcode == "get-tuple-element" and isinstance(index, int):
        made = instr.operands[0]
        if made.opcode == "tuple" and index < len(made.operands):
            return _origin(made.operands[index])
    return origin


def _extra_attributes(
    instr: HloInstruction, style: Style, *, with_frontend: bool
) -> Iterator[tuple[str, str]]:
    wrapped = wrapped_instruction(instr) if instr.opcode == "async-start" else None
    for name, value in own_attributes(instr):
        if wrapped is not None and name in ("output_to_operand_aliasing", "calls"):
            continue
        yield name, _value(name, value, style)
    frontend = instr.attrs.get("frontend_attributes")
    if wrapped is not None:
        yield from _extra_attributes(wrapped, style, with_frontend=not frontend)
        aliasing = instr.attrs.get("output_to_operand_aliasing")
        if aliasing:
            yield (
                "output_to_operand_aliasing",
                _value("output_to_operand_aliasing", aliasing, style),
            )
    for name in ("sharding", "frontend_attributes", "control-predecessors", "statistics",
                 "result_accuracy"):  # fmt: skip
        value = instr.attrs.get(name)
        if value is None or (name == "frontend_attributes" and not (with_frontend and value)):
            continue
        if name == "control-predecessors" and not (style.control_dependencies and value):
            continue
        if name == "sharding" and isinstance(value, HloSharding):
            if isinstance(instr.shape, TupleShape) and not value.is_tuple:
                value = value.for_leaves(leaf_count(instr.shape))
            yield name, value.text(style.metadata)
        elif name == "result_accuracy" and isinstance(value, RawText):
            text = canonical_accuracy(value.text)
            if text:
                yield name, text
        else:
            yield name, _value(name, value, style)


def _value(name: str, value: object, style: Style) -> str:
    if isinstance(value, FrontendAttributes):
        return _frontend_attributes(value)
    if name == "outfeed_shape" and isinstance(value, RawText):
        return value.text
    text = attribute_text.encode(name, value)
    is_reference = isinstance(value, HloComputation) or (
        isinstance(value, tuple) and value and isinstance(value[0], HloComputation | HloInstruction)
    )
    return text.replace("%", "") if is_reference and not style.percent else text


def _frontend_attributes(attributes: FrontendAttributes) -> str:
    parts = []
    for key, text in sorted(attributes.items):
        plain = unquote(text) if text.startswith('"') else text
        parts.append(f"{key}={_json_or_quoted(plain)}")
    return "{" + ",".join(parts) + "}"


def _json_or_quoted(text: str) -> str:
    return text if is_json_object(text) else quote(text)


def _name(name: str, style: Style) -> str:
    return f"%{name}" if style.percent else name


def _operands(instr: HloInstruction, style: Style) -> str:
    if instr.opcode == "parameter":
        return str(instr.attrs["parameter_number"])
    if instr.opcode == "constant":
        return _literal(instr, style)
    names = [_name(operand.name, style) for operand in instr.operands]
    return join_indexed(names) if style.marks else ", ".join(names)


def _literal(instr: HloInstruction, style: Style) -> str:
    if style.elided_above is not None and not _is_small(instr.shape, style.elided_above):
        return "{...}"
    module = instr.computation.module if instr.computation is not None else None
    zeros = module.signless_zeros.get(instr, ()) if module is not None else ()
    return print_literal(as_xla_reads(instr.attrs["literal"], zeros), instr.shape)


def _is_small(shape: Shape, limit: int) -> bool:
    return isinstance(shape, ArrayShape) and shape.element_count <= limit
