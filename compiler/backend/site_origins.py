"""The origins of a program's kernels, by call site: the user's operations and lines.

Sites that run equal computations share a kernel, whose instructions are named after the first one's.
Position by position the others' instructions are the same, with origins of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compiler.backend.kernel_library import KernelRequest
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.origins import IDLE, METADATA, inside, origins_of
from tpu_sim.isa.control_flow import Call, If, Loop, While
from tpu_sim.isa.origins import Origin, OriginTable
from tpu_sim.isa.program import Node


def site_origins(
    module: HloModule, requests: Mapping[str, KernelRequest], main: list[Node]
) -> OriginTable:
    """Origins of every call of `main`; an empty table for a module that names none."""
    if not any(METADATA in i.attrs for c in module.computations.values() for i in c):
        return OriginTable()
    instructions = {i.name: i for c in control_computations(module) for i in c}
    table = OriginTable()
    for call in _calls(main):
        instr = instructions.get(call.site)
        if instr is not None:
            table.sites[call.site] = _of_site(instr, requests[call.kernel].instr)
    return table


def _of_site(instr: HloInstruction, first: HloInstruction) -> dict[str, tuple[Origin, ...]]:
    found = {"": origins_of(instr)}
    for named, here in zip(inside(first), inside(instr), strict=True):
        if here.opcode == "parameter" or here.opcode not in IDLE:
            found.setdefault(named.name, _origins(here))
    return {source: origins for source, origins in found.items() if origins}


def _origins(instr: HloInstruction) -> tuple[Origin, ...]:
    """Those of an instruction; an operand is fetched for who reads it, be it a broadcast or reshape
    that another one reads."""
    if instr.opcode != "parameter":
        return origins_of(instr)
    return tuple(dict.fromkeys(o for user in instr.users for o in origins_of(user)))


def _calls(nodes: list[Node]) -> Iterator[Call]:
    for node in nodes:
        match node:
            case Call():
                yield node
            case Loop():
                yield from _calls(node.body)
            case If():
                yield from _calls([*node.then, *node.orelse])
            case While():
                yield from _calls([*node.test, *node.body])
