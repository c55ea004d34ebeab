"""A module as the graph of the page."""

from __future__ import annotations

from collections.abc import Callable

from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.origins import origins_of
from compiler.hlo.printer import PrintOptions, print_instruction
from compiler.hlo.shape_text import print_shape
from tpu_sim.isa.origins import Origin
from tpuc.view.document import Computation, Graph, Json

_TEXT = PrintOptions(metadata=False, backend_config=False, large_constant_elements=16)
_MOST_ATTRIBUTES = 400
"""Letters of the attributes that are shown."""


def graph_of(module: HloModule, number: Callable[[Origin], int]) -> Graph:
    """All computations of a module; `number` says what an origin is called in the document."""
    roles = _roles(module)
    numbers = {c: n for n, c in enumerate(module.computations.values())}
    found = [
        Computation(
            name=computation.name,
            role=roles.get(computation, "applied"),
            root=_place(computation),
            instructions=_rows(computation, numbers, number),
        )
        for computation in module.computations.values()
    ]
    return Graph(found)


def _roles(module: HloModule) -> dict[HloComputation, str]:
    control = control_computations(module)
    roles = {i.calls: "fused" for c in control for i in c if i.opcode == "fusion"}
    roles |= dict.fromkeys(control, "body")
    roles[module.entry] = "entry"
    return roles


def _place(computation: HloComputation) -> int:
    return list(computation).index(computation.root_instruction)


def _rows(
    computation: HloComputation,
    numbers: dict[HloComputation, int],
    number: Callable[[Origin], int],
) -> list[list[Json]]:
    places = {instr: place for place, instr in enumerate(computation)}
    return [
        [
            instr.name,
            instr.opcode,
            print_shape(instr.shape),
            [places[operand] for operand in instr.operands],
            _attributes(instr),
            [numbers[c] for c in instr.called_computations() if c in numbers],
            [number(origin) for origin in origins_of(instr)],
        ]
        for instr in computation
    ]


def _attributes(instr: HloInstruction) -> str:
    """What stands behind the operands, in the text without metadata."""
    text = print_instruction(instr, _TEXT)
    head = f"%{instr.name} = {print_shape(instr.shape)} {instr.opcode}("
    rest = text.removeprefix(head)
    if instr.opcode != "constant":
        rest = rest.partition(")")[2].removeprefix(", ")
    return rest[:_MOST_ATTRIBUTES]
