"""What is true of every HLO module, checked between passes. Reads only.

What the text cannot even express (the parser refuses it), so only a pass can break it:

V1   An opcode is in the opcode table, and has as many operands as the table says.
V2   Names differ: of instructions within a computation, of computations within the module.
V3   Parameters are numbered 0, 1, 2, ... without gaps.
V4   Operands, the root and control predecessors are instructions of the same computation, and
     the users of an instruction are exactly those that have it as an operand, with its count.
V5   Instructions stand after their operands and control predecessors.
V6   A constant's literal has its shape's element type and dimensions.

At every level:

V7   A result shape is what shape inference gives (layouts aside).
V8   A called computation is in the module, stands before its caller, and is not the entry;
     calls are nested at most 100 deep.
V9   A fusion's computation is called by that fusion alone.
V10  ``entry_computation_layout`` and ``input_output_alias`` fit the entry computation.
V11  ``replica_groups`` name a device once and have the size that shapes say; ``source_target_pairs``
     name a target once.

From `Level.LAYOUT_ASSIGNED` on:

V12  Outside of fusion bodies and reducers every array has a layout with tiles.
V13  A value handed on as it is keeps its layout: through tuples, parameters and results of
     while, conditional and call.

At `Level.SCHEDULED`:

V14  The module says ``is_scheduled=true``, and control-flow computations hold nothing but
     parameters, constants, tuples, while, conditional, bitcast, copy and fusion.
V15  A fusion has a kind, and its body has neither control flow nor another fusion.
V16  Kind and body agree: kOutput has one dot or convolution, kLoop and kInput have none,
     kInput returns reductions, perhaps beside what they reduce.

A violation raises VerifyError: ``error[V7]: %dot.3: result is ..., inference gives ...``,
then the instruction's line, then its place in the source when it has one.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable
from typing import NoReturn

import numpy as np

from compiler.diagnostics import CompileError, UnsupportedError, VerifyError
from compiler.hlo.attributes import ComputationLayout, InputOutputAlias
from compiler.hlo.call_graph import callers, control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.printer import PrintOptions, print_instruction
from compiler.hlo.replica_groups import device_counts, device_groups, explicit_groups
from compiler.hlo.shape import (
    UNKNOWN_SIZE,
    ArrayShape,
    Shape,
    TupleShape,
    has_size_of,
    is_compatible,
    leaves,
    subshape,
)
from compiler.hlo.shape_inference import infer_instruction_shape
from compiler.hlo.shape_text import print_shape


class Level(enum.IntEnum):
    """How far a module has come; each level promises what the one before it does."""

    PARSED = 0
    LAYOUT_ASSIGNED = 1
    SCHEDULED = 2


FUSION_KINDS = ("kLoop", "kInput", "kOutput", "kCustom", "kScalar")

SCHEDULED_OPCODES = frozenset(
    {
        "async-done", "async-start", "async-update", "bitcast", "collective-permute-done",
        "collective-permute-start", "conditional", "constant", "copy", "fusion",
        "get-tuple-element", "parameter", "partition-id", "tuple", "while",
    }
)  # fmt: skip
"""What may stand outside of fusions once the module is scheduled."""


_MAX_CALL_DEPTH = 100
"""Passes go down by recursion: far below Python's limit of 1000 frames, far above any program met."""


def verify(module: HloModule, level: Level = Level.PARSED) -> None:
    """Check every invariant up to `level`; raises VerifyError for the first that is broken."""
    _check_computation_list(module)
    _check_call_depth(module)
    _check_sizes_known(module)
    control = set(control_computations(module))
    for computation in module.computations.values():
        _verify_computation(computation, level, is_control=computation in control)
    _check_fusion_callers(module)
    _check_entry(module)
    if level >= Level.SCHEDULED and module.attrs.get("is_scheduled") is not True:
        raise VerifyError("error[V14]: the module does not say is_scheduled=true")


def verify_computation(computation: HloComputation, level: Level = Level.PARSED) -> None:
    """Check the invariants that concern one computation (not V9, V10)."""
    module = computation.module
    is_control = module is not None and (
        level > Level.PARSED and computation in control_computations(module)
    )
    _verify_computation(computation, level, is_control=is_control)


def _verify_computation(computation: HloComputation, level: Level, *, is_control: bool) -> None:
    _check_structure(computation)
    for instr in computation.instructions:
        _check_shape(instr)
        if instr.attrs:
            for name in instr.attrs.keys() & _ATTRIBUTE_CHECKS.keys():
                _ATTRIBUTE_CHECKS[name](instr)
    if level >= Level.LAYOUT_ASSIGNED and is_control:
        for instr in computation:
            _check_has_tiles(instr)
            _check_layouts_agree(instr)
    if level >= Level.SCHEDULED and is_control:
        for instr in computation:
            _check_scheduled(instr)


_SHOWN = PrintOptions(metadata=False)
"""Where an instruction stands in the text is said beside it; where no line is known, metadata are made up."""


def _fail(number: int, instr: HloInstruction, message: str) -> NoReturn:
    line = print_instruction(instr, _SHOWN) if _is_printable(instr) else repr(instr)
    if len(line) > 400:
        line = line[:400] + "..."
    text = f"error[V{number}]: %{instr.name}: {message}\n  >   {line}"
    raise VerifyError(text, instr.span)


def _is_printable(instr: HloInstruction) -> bool:
    if instr.opcode == "constant":
        return False
    return instr.opcode != "parameter" or "parameter_number" in instr.attrs


# V1 to V5: structure.


def _check_structure(computation: HloComputation) -> None:
    names: set[str] = set()
    placed: set[HloInstruction] = set()
    for instr in computation.instructions:
        info = OPCODES.get(instr.opcode)
        if info is None:
            _fail(1, instr, f"unknown opcode `{instr.opcode}`")
        if not info.accepts(len(instr.operands)):
            found = len(instr.operands)
            _fail(1, instr, f"{instr.opcode} takes {info.arity_text()}, found {found}")
        if instr.name in names:
            _fail(2, instr, "another instruction of the computation has this name")
        names.add(instr.name)
        for operand in instr.operands:
            if operand not in placed:
                _fail_misplaced(computation, instr, operand)
        if instr.attrs:
            for predecessor in instr.control_predecessors():
                if predecessor not in placed:
                    _fail_misplaced(computation, instr, predecessor)
        placed.add(instr)
    _check_users(computation)
    _check_parameters(computation)


def _fail_misplaced(
    computation: HloComputation, instr: HloInstruction, needed: HloInstruction
) -> NoReturn:
    if needed not in computation.instructions:
        _fail(4, instr, f"%{needed.name} is not an instruction of %{computation.name}")
    _fail(5, instr, f"%{needed.name} stands after it")


def _check_users(computation: HloComputation) -> None:
    uses = 0
    for instr in computation.instructions:
        uses += len(instr.operands)
        if instr.computation is not computation:
            _fail(4, instr, f"does not know that it is in %{computation.name}")
        for user, count in instr.users.items():
            found = user.operands.count(instr)
            if found != count or user not in computation.instructions:
                _fail(4, instr, f"user %{user.name} counts {count} uses, has {found}")
            uses -= count
    if uses:
        lost = next(i for i in computation for o in i.operands if i not in o.users)
        _fail(4, lost, "is not among the users of its operands")
    if computation.root not in computation.instructions:
        message = f"error[V4]: the root of %{computation.name} is not one of its instructions"
        raise VerifyError(message, computation.span)


def _check_parameters(computation: HloComputation) -> None:
    found = [i for i in computation.instructions if i.opcode == "parameter"]
    if len(found) != len(computation.parameters):
        message = f"error[V3]: %{computation.name} lists {len(computation.parameters)} parameters"
        raise VerifyError(f"{message}, it has {len(found)}", computation.span)
    for number, parameter in enumerate(computation.parameters):
        if parameter.attrs.get("parameter_number") != number:
            _fail(3, parameter, f"want parameter({number})")


def _check_computation_list(module: HloModule) -> None:
    before: set[HloComputation] = set()
    for name, computation in module.computations.items():
        if computation.name != name or computation.module is not module:
            message = f"error[V2]: computation %{computation.name} is listed as %{name}"
            raise VerifyError(message, computation.span)
        for instr in computation:
            for callee in instr.called_computations() if instr.attrs else ():
                if callee not in before or callee.name == module.entry_name:
                    _fail_callee(module, instr, callee)
        before.add(computation)


def _fail_callee(module: HloModule, instr: HloInstruction, callee: HloComputation) -> NoReturn:
    if callee.name == module.entry_name and callee.module is module:
        _fail(8, instr, f"calls the entry computation %{callee.name}")
    if module.computations.get(callee.name) is not callee:
        _fail(8, instr, f"calls %{callee.name}, which is not in the module")
    _fail(8, instr, f"calls %{callee.name}, which stands after it")


# V6 to V11: values, shapes, calls.


def _check_call_depth(module: HloModule) -> None:
    depth: dict[HloComputation, int] = {}  # callees stand before their callers (V8)
    for computation in module.computations.values():
        depth[computation] = 0
        for instr in computation.instructions:
            for callee in instr.called_computations() if instr.attrs else ():
                depth[computation] = max(depth[computation], depth.get(callee, 0) + 1)
        if depth[computation] > _MAX_CALL_DEPTH:
            message = f"calls are nested deeper than {_MAX_CALL_DEPTH} at %{computation.name}"
            raise VerifyError(f"error[V8]: {message}", computation.span)


def _check_sizes_known(module: HloModule) -> None:
    """A dimension ``?`` can be read and printed: no program can be made of it."""
    for computation in module.computations.values():
        for instr in computation.instructions:
            if any(UNKNOWN_SIZE in leaf.dims for leaf in leaves(instr.shape)):
                shape = print_shape(instr.shape, False)
                message = f"%{instr.name} is {shape}: a dimension of unknown size"
                raise UnsupportedError(f"{message}; write its size in place of `?`", instr.span)


def _check_shape(instr: HloInstruction) -> None:
    try:
        inferred = infer_instruction_shape(instr)
    except CompileError as error:
        _fail(7, instr, error.message)
    if not is_compatible(inferred, instr.shape):
        found, want = print_shape(instr.shape, False), print_shape(inferred, False)
        _fail(7, instr, f"result is {found}, inference gives {want}")


def _check_literal(instr: HloInstruction) -> None:
    if instr.opcode == "constant" and not _literal_fits(instr.attrs["literal"], instr.shape):
        _fail(6, instr, f"the literal does not fit {print_shape(instr.shape, False)}")


def _literal_fits(value: object, shape: Shape) -> bool:
    if isinstance(shape, TupleShape):
        return (
            isinstance(value, tuple)
            and len(value) == len(shape.elements)
            and all(_literal_fits(v, s) for v, s in zip(value, shape.elements, strict=True))
        )
    if not isinstance(shape, ArrayShape) or not isinstance(value, np.ndarray | np.generic):
        return False
    return value.shape == shape.dims and value.dtype == shape.dtype.numpy


def _check_fusion_callers(module: HloModule) -> None:
    for computation, found in callers(module).items():
        fusions = [instr for instr in found if instr.opcode == "fusion"]
        if fusions and len(found) > 1:
            other = next(i for i in found if i is not fusions[0])
            _fail(9, fusions[0], f"%{other.name} calls %{computation.name} too")


def _check_entry(module: HloModule) -> None:
    layout = module.attrs.get("entry_computation_layout")
    if isinstance(layout, ComputationLayout):
        declared = TupleShape((*layout.parameters, layout.result))
        entry = module.entry
        shapes = [p.shape for p in entry.parameters]
        actual = TupleShape((*shapes, entry.root_instruction.shape))
        if not is_compatible(declared, actual):
            _fail_entry(module, "entry_computation_layout differs from the entry's signature")
    aliases = module.attrs.get("input_output_alias", ())
    if isinstance(aliases, tuple):
        _check_aliases(module, [a for a in aliases if isinstance(a, InputOutputAlias)])


def _check_aliases(module: HloModule, aliases: list[InputOutputAlias]) -> None:
    entry = module.entry
    seen: Counter[tuple[object, ...]] = Counter()
    for alias in aliases:
        result = subshape(entry.root_instruction.shape, alias.output_index)
        known = alias.parameter_number < len(entry.parameters)
        shape = entry.parameters[alias.parameter_number].shape if known else None
        parameter = None if shape is None else subshape(shape, alias.parameter_index)
        if result is None or parameter is None or not has_size_of(result, parameter):
            _fail_entry(module, f"input_output_alias: {alias} does not fit the entry")
        seen[("output", alias.output_index)] += 1
        seen[("parameter", alias.parameter_number, alias.parameter_index)] += 1
    if any(count > 1 for count in seen.values()):
        _fail_entry(module, "input_output_alias uses a buffer twice")


def _fail_entry(module: HloModule, message: str) -> NoReturn:
    raise VerifyError(f"error[V10]: {message}", module.entry.span)


def _check_replica_groups(instr: HloInstruction) -> None:
    groups = explicit_groups(instr.attrs["replica_groups"])
    _check_distinct(instr, [device for group in groups for device in group], "device")
    counts = device_counts(instr.home.owner)
    if counts.devices > 1 and instr.opcode in ("all-gather", "reduce-scatter"):
        _check_growth(instr, {len(group) for group in device_groups(instr, counts)})


def _check_growth(instr: HloInstruction, sizes: set[int]) -> None:
    """A dimension of what all devices of a group hold is as many times that of one's."""
    (dim,) = instr.dimensions
    for operand, result in zip(instr.operands, leaves(instr.shape), strict=True):
        given, made = operand.array.dims[dim], result.dims[dim]
        all_of, one = (made, given) if instr.opcode == "all-gather" else (given, made)
        if {one * size for size in sizes} != {all_of}:
            found = " or ".join(map(str, sorted(sizes)))
            _fail(11, instr, f"groups of {found} devices make no {made} of {given}")


def _check_pairs(instr: HloInstruction) -> None:
    pairs = instr.attrs["source_target_pairs"]
    if isinstance(pairs, tuple):
        if any(len(pair) != 2 for pair in pairs):
            _fail(11, instr, "source_target_pairs: want {source,target}")
        if len(instr.operands) == 1:  # slices of one target may come from several sources
            _check_distinct(instr, [target for _, target in pairs], "target")


def _check_distinct(instr: HloInstruction, values: list[int], what: str) -> None:
    for value, count in Counter(values).items():
        if count > 1:
            _fail(11, instr, f"{what} {value} appears {count} times")


_ATTRIBUTE_CHECKS: dict[str, Callable[[HloInstruction], None]] = {
    "literal": _check_literal,
    "replica_groups": _check_replica_groups,
    "source_target_pairs": _check_pairs,
}


# V12, V13: layouts.


def _check_has_tiles(instr: HloInstruction) -> None:
    for leaf in leaves(instr.shape):
        if leaf.layout is None or not leaf.layout.tiles:
            _fail(12, instr, f"{print_shape(leaf)} has no tiled layout")


def _check_layouts_agree(instr: HloInstruction) -> None:
    for what, source, target in _handed_on(instr):
        if source != target:
            found, want = print_shape(target), print_shape(source)
            _fail(13, instr, f"{what}: {found} holds a value of {want}")


def _handed_on(instr: HloInstruction) -> list[tuple[str, Shape, Shape]]:
    """Pairs of places that hold the same value, with what the second one is."""
    shape, operands = instr.shape, instr.operands
    match instr.opcode:
        case "tuple":
            return [("tuple", TupleShape(tuple(o.shape for o in operands)), shape)]
        case "get-tuple-element":
            tuple_shape = operands[0].shape
            assert isinstance(tuple_shape, TupleShape)
            index = instr.attrs["index"]
            assert isinstance(index, int)
            return [("element", tuple_shape.elements[index], shape)]
        case "while":
            pairs = [("result", operands[0].shape, shape)]
            for callee in instr.called_computations():
                pairs.append((f"%{callee.name}", shape, callee.parameters[0].shape))
                if callee is instr.attrs["body"]:
                    pairs.append(("body result", callee.root_instruction.shape, shape))
            return pairs
        case "conditional":
            pairs = []
            for callee, operand in zip(instr.called_computations(), operands[1:], strict=True):
                pairs.append((f"%{callee.name}", operand.shape, callee.parameters[0].shape))
                pairs.append(("result", callee.root_instruction.shape, shape))
            return pairs
        case "call":
            callee = instr.called_computations()[0]
            pairs = [("result", callee.root_instruction.shape, shape)]
            for operand, parameter in zip(operands, callee.parameters, strict=True):
                pairs.append((f"%{parameter.name}", operand.shape, parameter.shape))
            return pairs
    return []


# V14 to V16: scheduled modules.


def _check_scheduled(instr: HloInstruction) -> None:
    if instr.opcode not in SCHEDULED_OPCODES:
        _fail(14, instr, f"{instr.opcode} stands outside of a fusion")
    if instr.opcode == "fusion":
        _check_fusion(instr)


def _check_fusion(fusion: HloInstruction) -> None:
    kind = fusion.attrs.get("kind")
    if kind not in FUSION_KINDS:
        _fail(15, fusion, f"kind is {kind}, want one of {', '.join(FUSION_KINDS)}")
    body = fusion.called_computations()[0]
    contractions = 0
    for instr in body:
        info = OPCODES[instr.opcode]
        contractions += info.has(Trait.CONTRACTION)
        if instr.opcode == "fusion" or info.has(Trait.CONTROL_FLOW):
            _fail(15, fusion, f"its body has %{instr.name}, a {instr.opcode}")
    if kind == "kOutput" and contractions != 1:
        _fail(16, fusion, f"a kOutput fusion has one dot or convolution, found {contractions}")
    if kind in ("kLoop", "kInput") and contractions:
        _fail(16, fusion, f"a {kind} fusion has no dot or convolution, found {contractions}")
    if kind == "kInput" and not _returns_reductions(body):
        _fail(16, fusion, "a kInput fusion returns reductions")


def _returns_reductions(body: HloComputation) -> bool:
    return any(_is_reduction(result) for result in body.results)


def _is_reduction(instr: HloInstruction) -> bool:
    """A reduce, seen through the elementwise and shape ops that may follow it."""
    while instr.opcode in ("bitcast", "reshape", "get-tuple-element", "convert", "copy"):
        instr = instr.operands[0]
    return OPCODES[instr.opcode].has(Trait.REDUCTION)
