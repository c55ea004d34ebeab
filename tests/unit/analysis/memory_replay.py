"""Replays a scheduled program on symbolic memory and checks that no value is overwritten early.

Every write puts a fresh token over its bytes; every read must find the token of the value it
means. Loops run three times, each branch of a conditional once. No arithmetic is done.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from compiler.analysis.aliasing import forwarded, leaf_count, updated_operand
from compiler.analysis.buffer_assignment import BufferAssignment
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.passes.copy_insertion import reads_in_place

Token = int
LOOP_TRIPS = 3


@dataclass
class Memory:
    """Byte ranges with the token last written there, one map per memory space."""

    ranges: dict[int, dict[tuple[int, int], Token]] = field(default_factory=dict)

    def write(self, space: int, offset: int, size: int, token: Token) -> None:
        """Put a token over a range; ranges it overlaps lose theirs."""
        held = self.ranges.setdefault(space, {})
        end = offset + max(size, 1)
        for low, high in [r for r in held if r[0] < end and offset < r[1]]:
            del held[low, high]
        held[offset, end] = token

    def read(self, space: int, offset: int, size: int) -> Token | None:
        """The token of exactly this range, or None when something wrote over it."""
        return self.ranges.get(space, {}).get((offset, offset + max(size, 1)))


class Replay:
    """One run of a module over symbolic memory; `errors` lists what was read too late."""

    def __init__(self, module: HloModule, assignment: BufferAssignment) -> None:
        self.assignment = assignment
        self.memory = Memory()
        self.errors: list[str] = []
        self._tokens = itertools.count(1)
        self._constants(module)
        values = {p: self._fresh(p) for p in module.entry.parameters}
        result = self._run(module.entry, values)
        self._check(module.entry.root_instruction, result, "the caller")

    def _constants(self, module: HloModule) -> None:
        self._constant_tokens: dict[HloInstruction, list[Token]] = {}
        for instr, leaf in self.assignment.slots:
            if instr.opcode == "constant" and leaf == 0:
                self._constant_tokens[instr] = self._fresh(instr)

    def _fresh(self, instr: HloInstruction) -> list[Token]:
        tokens = [next(self._tokens) for _ in range(leaf_count(instr.shape))]
        for leaf, token in enumerate(tokens):
            self._write(instr, leaf, token)
        return tokens

    def _write(self, instr: HloInstruction, leaf: int, token: Token) -> None:
        place = self.assignment.allocation(instr, leaf)
        self.memory.write(place.space, place.offset, place.size_bytes, token)

    def _check(self, instr: HloInstruction, tokens: list[Token], reader: str) -> None:
        for leaf, token in enumerate(tokens):
            place = self.assignment.allocation(instr, leaf)
            found = self.memory.read(place.space, place.offset, place.size_bytes)
            if found != token:
                self.errors.append(f"%{instr.name} leaf {leaf} was overwritten before {reader}")

    def _run(
        self, computation: HloComputation, values: dict[HloInstruction, list[Token]]
    ) -> list[Token]:
        for instr in computation:
            if instr not in values:
                values[instr] = self._step(instr, values)
        return values[computation.root_instruction]

    def _step(
        self, instr: HloInstruction, values: dict[HloInstruction, list[Token]]
    ) -> list[Token]:
        if instr.opcode == "constant":
            return self._constant_tokens[instr]
        if instr.opcode in ("tuple", "get-tuple-element", "bitcast"):
            found = {b[1]: values[a[0]][a[1]] for a, b in forwarded(instr)}
            return [found[leaf] for leaf in range(len(found))]
        for operand in instr.operands:
            self._check(operand, values[operand], f"%{instr.name}")
        if instr.opcode == "while":
            return self._loop(instr, values[instr.operands[0]])
        if instr.opcode == "conditional":
            return self._branches(instr, values)
        self._check_overlap(instr)
        return self._fresh(instr)

    def _check_overlap(self, instr: HloInstruction) -> None:
        """A result may lie on an operand only where the kernel allows it."""
        updated = updated_operand(instr)
        for leaf in range(leaf_count(instr.shape)):
            out = self.assignment.allocation(instr, leaf)
            for index, operand in enumerate(instr.operands):
                place = self.assignment.allocation(operand, 0)
                is_apart = (
                    place.space != out.space
                    or place.offset >= out.offset + out.size_bytes
                    or out.offset >= place.offset + place.size_bytes
                )
                if is_apart or index == updated or reads_in_place(instr, index):
                    continue
                self.errors.append(f"%{instr.name} writes over its operand {index}")

    def _loop(self, loop: HloInstruction, state: list[Token]) -> list[Token]:
        condition, body = loop.attrs["condition"], loop.attrs["body"]
        assert isinstance(condition, HloComputation)
        assert isinstance(body, HloComputation)
        for _ in range(LOOP_TRIPS):
            self._run(condition, {condition.parameters[0]: state})
            state = self._run(body, {body.parameters[0]: state})
            self._check(body.root_instruction, state, "the next iteration")
        return state

    def _branches(
        self, instr: HloInstruction, values: dict[HloInstruction, list[Token]]
    ) -> list[Token]:
        result: list[Token] = []
        for number, branch in enumerate(instr.called_computations()):
            operand = instr.operands[number + 1]
            result = self._run(branch, {branch.parameters[0]: values[operand]})
            self._check(branch.root_instruction, result, f"%{instr.name}")
        return result
