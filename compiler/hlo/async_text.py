"""XLA's short form of asynchronous operations: ``slice-start(x), slice=...`` and its other halves.

The short form stands for an async-start whose computation holds nothing but that operation.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES
from compiler.hlo.shape import TupleShape

_HALVES = ("start", "update", "done")
_NATIVE = ("all-gather", "all-reduce", "collective-permute", "copy", "recv", "send")
_OF_START = (
    "async_execution_thread",
    "output_to_operand_aliasing",
    "sharding",
    "control-predecessors",
)
_OF_BOTH = ("metadata", "origin", "backend_config", "frontend_attributes", "statistics")


@dataclass(frozen=True)
class AsyncHalf:
    """The wrapped opcode and the async opcode of which this is the short form."""

    wrapped: str
    opcode: str

    def share_attributes(
        self, attrs: dict[str, object], start: HloInstruction, root: HloInstruction
    ) -> None:
        """Give each attribute to the async-start, to the operation inside, or to both."""
        for name, value in attrs.items():
            keeps_aliasing = self.wrapped in ("custom-call", "fusion")
            of_start = name in _OF_START and not (
                name == "output_to_operand_aliasing" and keeps_aliasing
            )
            if of_start or name in _OF_BOTH:
                start.attrs[name] = value
            if not of_start:
                root.attrs[name] = value


def share_with_wrapped(instr: HloInstruction) -> None:
    """Give the operation inside what XLA keeps on both, and its computations the thread."""
    start = instr
    while start.opcode in ("async-update", "async-done") and start.operands:
        start = start.operands[0]
    body = start.attrs.get("calls")
    if start.opcode != "async-start" or not isinstance(body, HloComputation):
        return
    root = body.root_instruction
    root.attrs.update({n: instr.attrs[n] for n in _OF_BOTH if n in instr.attrs})
    if instr is start:
        _set_thread(body, start.attrs.get("async_execution_thread"))


def _set_thread(computation: HloComputation, thread: object) -> None:
    if thread is not None:
        computation.attrs["execution_thread"] = thread
    else:  # it runs on the main thread, whatever its own text says
        computation.attrs.pop("execution_thread", None)
    for instr in computation:
        for callee in instr.called_computations():
            _set_thread(callee, thread)


def split_opcode(opcode: str) -> AsyncHalf | None:
    """What ``slice-start`` stands for; None when this is no short form."""
    wrapped, _, half = opcode.rpartition("-")
    if wrapped in OPCODES and half in _HALVES and wrapped not in _NATIVE:
        return AsyncHalf(wrapped, f"async-{half}")
    return None


def wrapped_computation(start: HloInstruction, opcode: str) -> HloComputation:
    """The computation of a short form, from the start's shape ``((operands), result, ...)``."""
    elements = start.shape.elements if isinstance(start.shape, TupleShape) else ()
    if len(elements) < 2 or not isinstance(elements[0], TupleShape):
        raise ValueError("want the shape ((operands), result, ...)")
    computation = HloComputation("async_wrapped")
    operands = [
        computation.add(
            HloInstruction("parameter", "async_param", shape, (), {"parameter_number": number})
        )
        for number, shape in enumerate(elements[0].elements)
    ]
    root = computation.add(HloInstruction(opcode, opcode, elements[1], operands))
    root.location = start.location
    computation.root = root
    return computation
