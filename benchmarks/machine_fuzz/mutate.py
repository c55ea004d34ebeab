"""Changes to programs that a generator would not think of; the checker says which of them are programs."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

from benchmarks.machine_fuzz.blocks import FLOAT_BITS, NUMBERS
from tpu_sim.isa.checker import check_program
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.encoding import operand_range
from tpu_sim.isa.errors import ProgramError
from tpu_sim.isa.instruction import ROWS, Instr, Kind
from tpu_sim.isa.program import Block, Program, blocks_of

_ROWS = list(ROWS.values())
_TRIES = 12


def mutated(program: Program, source: random.Random) -> Program:
    """A copy of the program after a few changes that the checker accepts."""
    changed = copy.deepcopy(program, _shared(program))
    for _ in range(_TRIES):
        blocks = [block for block in _blocks(changed) if block.bundles]
        if not blocks:
            break
        change = source.choice([_operand, _operand, _row, _drop, _bubble, _move, _double])
        block = source.choice(blocks)
        before = list(block.bundles)
        change(block, source)
        if block.bundles == before:
            continue
        try:
            check_program(changed, load_chip(changed.target))
        except ProgramError:
            block.bundles[:] = before
    return changed


def _blocks(program: Program) -> list[Block]:
    bodies = (program.main, *(kernel.body for kernel in program.kernels.values()))
    return [block for body in bodies for block in blocks_of(body)]


def _shared(program: Program) -> dict[int, object]:
    """For `deepcopy`: bundles never change, so that copies have the very same."""
    return {id(bundle): bundle for block in _blocks(program) for bundle in block.bundles}


def _place(block: Block, source: random.Random) -> tuple[int, int] | None:
    places = [(b, i) for b, bundle in enumerate(block.bundles) for i in range(len(bundle))]
    return source.choice(places) if places else None


def _put(block: Block, place: tuple[int, int], *instrs: Instr) -> None:
    bundle, at = place
    old = block.bundles[bundle]
    block.bundles[bundle] = (*old[:at], *instrs, *old[at + 1 :])


def _operand(block: Block, source: random.Random) -> None:
    """Another number for an operand."""
    place = _place(block, source)
    if place is None:
        return
    instr = block.bundles[place[0]][place[1]]
    if not instr.operands:
        return
    at = source.randrange(len(instr.operands))
    kind = instr.row.operands[at].kind
    values = [source.choice(operand_range(kind)), instr.operands[at] + source.choice([-1, 1])]
    if kind in (Kind.I32, Kind.F32, Kind.IMM):
        values.append(source.choice([*NUMBERS, *FLOAT_BITS]))
    operands = list(instr.operands)
    operands[at] = source.choice(values)
    _put(block, place, replace(instr, operands=tuple(operands)))


def _row(block: Block, source: random.Random) -> None:
    """Another instruction of the same form."""
    place = _place(block, source)
    if place is None:
        return
    instr = block.bundles[place[0]][place[1]]
    kinds = [operand.kind for operand in instr.row.operands]
    same = [row for row in _ROWS if [operand.kind for operand in row.operands] == kinds]
    _put(block, place, replace(instr, row=source.choice(same)))


def _drop(block: Block, source: random.Random) -> None:
    place = _place(block, source)
    if place is not None:
        _put(block, place)


def _bubble(block: Block, source: random.Random) -> None:
    """One empty bundle less, or one more."""
    at = source.randrange(len(block.bundles))
    if not block.bundles[at]:
        del block.bundles[at]
    else:
        block.bundles.insert(at, ())


def _move(block: Block, source: random.Random) -> None:
    """An instruction to another bundle near by."""
    place = _place(block, source)
    if place is None:
        return
    instr = block.bundles[place[0]][place[1]]
    to = min(max(place[0] + source.choice([-2, -1, 1, 2]), 0), len(block.bundles) - 1)
    _put(block, place)
    block.bundles[to] = (*block.bundles[to], instr)


def _double(block: Block, source: random.Random) -> None:
    """An instruction once more, in its bundle or the next."""
    place = _place(block, source)
    if place is None:
        return
    instr = block.bundles[place[0]][place[1]]
    to = min(place[0] + source.choice([0, 1]), len(block.bundles) - 1)
    block.bundles[to] = (*block.bundles[to], instr)
