"""What XLA's parser refuses although every part of the text is well formed.

The verifier asks whether a module means something; these are contradictions within one line of
text, or between the halves of an asynchronous operation, that XLA does not even read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from compiler.diagnostics import CompileError
from compiler.hlo.attribute_order import KNOWN_NAMES, allowed_names
from compiler.hlo.dtypes import PRED, S32
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import ArrayShape, Shape, TupleShape, is_compatible
from compiler.hlo.shape_text import print_shape

API_VERSIONS = (
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
)


def check_text(
    computations: Iterable[HloComputation], wrapped: Mapping[HloInstruction, str]
) -> None:
    """Raise CompileError for the first instruction that XLA would not read.

    `wrapped` has the opcode that the short form of an asynchronous half names (``slice-done``).
    """
    started: dict[HloComputation, HloInstruction] = {}
    for computation in computations:
        for instr in computation:
            if instr.attrs:
                _check_names(instr)
            check = _CHECKS.get(instr.opcode)
            if check is not None:
                check(instr)
            if instr.opcode == "async-start":
                _check_own_computation(instr, started)
    for instr, opcode in wrapped.items():
        if opcode != _start(instr).called_computations()[0].root_instruction.opcode:
            _fail(instr, f"%{_start(instr).name} starts no {opcode}")


def _check_names(instr: HloInstruction) -> None:
    """An attribute that XLA knows, but not of this opcode. Unknown names are kept as they are."""
    for name in instr.attrs:
        if name in KNOWN_NAMES and name not in allowed_names(instr.opcode):
            _fail(instr, f"{instr.opcode} has no attribute {name}")


def _start(instr: HloInstruction) -> HloInstruction:
    while instr.opcode != "async-start" and instr.operands:
        instr = instr.operands[0]
    return instr


def _fail(instr: HloInstruction, message: str) -> NoReturn:
    raise CompileError(f"%{instr.name}: {message}", instr.span)


def _text(shape: Shape) -> str:
    return print_shape(shape, False)


def _check_conditional(instr: HloInstruction) -> None:
    if not instr.operands:
        _fail(instr, "conditional needs an operand that chooses the branch")
    chooser = instr.operands[0].shape
    wanted = PRED if "true_computation" in instr.attrs else S32
    listed = "branch_computations" in instr.attrs
    if not isinstance(chooser, ArrayShape) or chooser.rank or chooser.dtype not in (PRED, S32):
        _fail(instr, f"operand 0 is {_text(chooser)}, want pred[] or s32[]")
    if chooser.dtype != wanted:
        names = "branch_computations" if listed else "true_computation and false_computation"
        _fail(instr, f"operand 0 is {_text(chooser)}, which does not choose among {names}")


def _check_custom_call(instr: HloInstruction) -> None:
    version = instr.attrs.get("api_version", API_VERSIONS[0])
    if version not in API_VERSIONS:
        _fail(instr, f"api_version={version}, want one of {', '.join(API_VERSIONS)}")
    shapes = instr.attrs.get("operand_layout_constraints")
    if not isinstance(shapes, tuple):
        return
    if len(shapes) != len(instr.operands):
        count = len(instr.operands)
        _fail(instr, f"want {count} operand_layout_constraints, found {len(shapes)}")
    for number, (shape, operand) in enumerate(zip(shapes, instr.operands, strict=True)):
        if not is_compatible(shape, operand.shape):
            found = f"{_text(shape)} for operand {number}, which is {_text(operand.shape)}"
            _fail(instr, f"operand_layout_constraints has {found}")


def _check_infeed(instr: HloInstruction) -> None:
    if not isinstance(instr.shape, TupleShape) or not instr.shape.elements:
        _fail(instr, f"the result of infeed is {_text(instr.shape)}, want a tuple")


def _check_one_dimension(instr: HloInstruction) -> None:
    dimensions = instr.attrs.get("dimensions", ())
    if not isinstance(dimensions, tuple) or len(dimensions) != 1:
        _fail(instr, f"{instr.opcode} has exactly one dimension")


def _check_start(instr: HloInstruction) -> None:
    elements = instr.shape.elements if isinstance(instr.shape, TupleShape) else ()
    if len(elements) < 2 or not isinstance(elements[0], TupleShape):
        _fail(instr, f"the result is {_text(instr.shape)}, want ((operands), result, state)")


def _check_later_half(instr: HloInstruction) -> None:
    """An update or done: what it follows, and that it says the same as the start."""
    before = instr.operands[0] if instr.operands else None
    if before is None or before.opcode not in ("async-start", "async-update"):
        _fail(instr, "operand 0 must be an async-start or async-update")
    if instr.opcode == "async-update":
        _check_start(instr)
        if len(instr.operands) == 1 and not is_compatible(instr.shape, before.shape):
            _fail(instr, f"the result is {_text(instr.shape)}, want {_text(before.shape)}")
    start = _start(before)
    if "calls" in instr.attrs and instr.attrs["calls"] is not start.attrs.get("calls"):
        _fail(instr, f"calls another computation than %{start.name}")
    thread = instr.attrs.get("async_execution_thread")
    if thread is not None and thread != start.attrs.get("async_execution_thread", "main"):
        _fail(instr, f'async_execution_thread="{thread}" is not that of %{start.name}')


def _check_own_computation(
    instr: HloInstruction, started: dict[HloComputation, HloInstruction]
) -> None:
    body = instr.attrs.get("calls")
    if isinstance(body, HloComputation) and started.setdefault(body, instr) is not instr:
        _fail(instr, f"%{started[body].name} calls %{body.name} too")


_CHECKS: dict[str, Callable[[HloInstruction], None]] = {
    "all-gather": _check_one_dimension,
    "async-done": _check_later_half,
    "async-start": _check_start,
    "async-update": _check_later_half,
    "conditional": _check_conditional,
    "custom-call": _check_custom_call,
    "infeed": _check_infeed,
    "reduce-scatter": _check_one_dimension,
}
