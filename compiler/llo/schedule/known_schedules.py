"""Schedules of blocks by all that they depend on: equal blocks of a program are scheduled once.

A schedule depends on the rows of a block's operations, on which of them share vregs and vmasks, on
their units and on the edges between them; not on addresses, constants or the numbers of registers.
Copies of a loop's body, and kernels of layers that differ in a scalar, have many equal blocks.
"""

from __future__ import annotations

from array import array

from compiler.llo.op_table import OpInfo
from compiler.llo.schedule.dependences import BlockGraph
from compiler.llo.schedule.scheduler import Schedule, schedule_block
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import Instr

_MOST = 2048
"""Schedules that are kept, those used last."""

_Key = tuple[Chip, bytes]
_KNOWN: dict[_Key, tuple[Schedule, list[int]]] = {}
"""With each schedule, the block's registers in the order in which the block names them."""
_ROWS: dict[str, int] = {}
"""Numbers of instruction rows, as they are met."""


def known_schedule(
    ops: list[Instr], infos: list[OpInfo], graph: BlockGraph, chip: Chip
) -> Schedule:
    """The schedule of a block, as of `schedule_block`; found again where an equal block had one."""
    registers: dict[int, int] = {}
    key = (chip, _structure(ops, infos, graph, registers))
    known = _KNOWN.pop(key, None)
    if known is None:
        schedule = schedule_block(ops, infos, graph, chip)
        known = (schedule, list(registers))
    else:
        schedule = _renamed(*known, list(registers))
    if len(_KNOWN) >= _MOST:
        _forget_some()
    _KNOWN[key] = known
    return schedule


def _forget_some() -> None:
    """Drop the half that was asked for longest ago; other threads may add and drop meanwhile."""
    for key in list(_KNOWN)[: _MOST // 2]:
        _KNOWN.pop(key, None)


def _structure(
    ops: list[Instr],
    infos: list[OpInfo],
    graph: BlockGraph,
    registers: dict[int, int],
) -> bytes:
    """Equal for equal blocks. `registers` gets their number in order: a vreg twice its own, a vmask the
    odd number after that."""
    words: list[int] = []
    append, number = words.append, registers.setdefault
    for instr, info, successors in zip(ops, infos, graph.successors, strict=True):
        operands = instr.operands
        append(_ROWS.setdefault(info.row.name, len(_ROWS)))
        for i in info.vregs:
            append(number(2 * operands[i], len(registers)))
        for i in info.masks:
            append(number(2 * operands[i] + 1, len(registers)))
        if info.defines == "v":
            append(number(2 * operands[0], len(registers)))
        elif info.defines == "m":
            append(number(2 * operands[0] + 1, len(registers)))
        if info.unit >= 0:
            append(operands[info.unit])
        append(len(successors))
        for edge in successors:
            words += edge
    for edge in graph.earliest.items():
        words += edge
    return array("i", words).tobytes()


def _renamed(schedule: Schedule, known: list[int], registers: list[int]) -> Schedule:
    """The schedule of a block for an equal one with other registers."""
    vregs: dict[int, int] = {}
    masks: dict[int, int] = {}
    for before, register in zip(known, registers, strict=True):
        if before & 1:
            masks[register >> 1] = schedule.masks[before >> 1]
        else:
            vregs[register >> 1] = schedule.vregs[before >> 1]
    return Schedule(schedule.bundles, vregs, masks, schedule.window)
