"""Arrays that a kernel brings from HBM to VMEM for later ones, as results of it that are its operands.

    r = (f32[64,512]{1,0:T(8,128)}, f32[512,512]{1,0:T(8,128)S(1)}) fusion(x, y, w), calls=f
    d = f32[64,512]{1,0:T(8,128)} get-tuple-element(r), index=0
    v = f32[512,512]{1,0:T(8,128)S(1)} get-tuple-element(r), index=1

where the root of f is ``tuple(dot, w)`` and w a parameter. Who read w in HBM read v then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compiler.analysis.fusion_body import is_carried
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.array_places import move_arrays
from compiler.passes.kernel_results import add_result, drop_elements, put_after, view_of
from tpu_sim.isa.program import HBM, VMEM


@dataclass(frozen=True)
class Read:
    """Operand `number` of an instruction."""

    user: HloInstruction
    number: int


def carry(kernel: HloInstruction, value: HloInstruction, reads: Sequence[Read]) -> HloInstruction:
    """Let a kernel bring `value` in for `reads`, of it or of bitcasts of it.

    Returns the new element, which lies in VMEM.
    """
    body = kernel.calls
    number = len(kernel.operands)
    kernel.set_operands((*kernel.operands, value))
    parameter = HloInstruction(
        "parameter", value.name, value.array.with_layout(None), (), {"parameter_number": number}
    )
    body.add(parameter)
    body.instructions = dict.fromkeys((parameter, *body.instructions))
    element, made = add_result(kernel, parameter, value.array)
    views = {value: element}
    for read in reads:
        read.user.set_operand(read.number, view_of(read.user.operands[read.number], views, made))
    put_after(kernel.home, {kernel: made})
    index = element.index
    move_arrays(
        [(kernel, index), *((view, 0) for view in views.values() if view is not value)], VMEM
    )
    return element


def drop_carried(element: HloInstruction) -> list[HloInstruction]:
    """Let the readers of such an element read the array in HBM; its kernel does not bring it in.

    Returns the readers.
    """
    kernel = element.operands[0]
    parameter = kernel.calls.root_instruction.operands[element.index]
    number = parameter.parameter_number
    views = list(_views(element))
    readers = [user for view in views for user in view.users if user not in views]
    move_arrays([(view, 0) for view in views], HBM)
    drop_elements(kernel, {element: kernel.operands[number]})
    _drop_operand(kernel, number)
    return readers


def _views(value: HloInstruction) -> Iterator[HloInstruction]:
    """A value and the bitcasts of it."""
    yield value
    for user in value.users:
        if user.opcode == "bitcast":
            yield from _views(user)


def _drop_operand(kernel: HloInstruction, number: int) -> None:
    """Take away an operand that a kernel does not read."""
    body = kernel.calls
    body.remove(body.parameters[number])
    for place, parameter in enumerate(body.parameters):
        parameter.attrs["parameter_number"] = place
    kernel.set_operands(o for place, o in enumerate(kernel.operands) if place != number)


def carried_elements(module: HloModule) -> list[HloInstruction]:
    """All elements of kernels' results that are brought in."""
    found: list[HloInstruction] = []
    for computation in control_computations(module):
        for kernel in computation:
            if kernel.opcode == "fusion":
                elements = [u for u in kernel.users if u.opcode == "get-tuple-element"]
                found += [e for e in elements if is_carried(kernel, e.index)]
    return found
