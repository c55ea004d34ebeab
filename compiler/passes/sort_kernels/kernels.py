"""sort-kernels: a sort whose lines fit VMEM becomes a `network-sort`, one kernel for all its stages.

    sort(x, y), by x                 network-sort(words of x, words of y), back to x and y
    sort(x, iota), by x              the kernel knows places: they are no operand
    sort(x), by a function of x      its words are made once, beside x

Keys are words that ascend (`keys`, `words`); lines lie along rows of one lane, or of several (`shapes`). What
is larger than VMEM, is small, or is in an order that is none of keys is left to the sort expander.
"""

from __future__ import annotations

import math

from compiler.analysis.code_costs import KernelCosts
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import TupleShape
from compiler.passes.context import PassContext
from compiler.passes.expanders.driver import expand
from compiler.passes.sort_kernels.keys import Key, keys_of
from compiler.passes.sort_kernels.shapes import SortArrays, SortLines, best_form, network_cycles
from compiler.passes.sort_kernels.words import has_words, of_words, to_words
from compiler.rewrite.emitter import Emitter, result_of
from tpu_sim.isa.chips import Chip

Instr = HloInstruction
_GREATEST = (1 << 31) - 1


def make_sort_kernels(module: HloModule, context: PassContext) -> bool:
    """Make kernels of all sorts that are cheaper so."""
    return expand(module, context, {"sort": lambda instr: sort_kernel(instr, context.chip)})


def sort_kernel(instr: Instr, chip: Chip) -> Instr | None:
    """The sorted operands, or None where a kernel does not fit or does not pay."""
    if 0 in instr.operands[0].array.dims:
        return None
    keys = keys_of(instr.to_apply)
    if keys is None:
        return None
    sort = _Sort(instr, keys)
    lines = sort.form(chip)
    if lines is None or not all(has_words(instr.operands[i].array.dtype) for i in sort.carried):
        return None
    e = Emitter.at(instr)
    return result_of(e, instr, sort.made(e, lines))


class _Sort:
    """One sort: what is an operand of its kernel, and what of its results is an operand."""

    def __init__(self, instr: Instr, keys: list[Key]) -> None:
        (dim,) = instr.dimensions
        self.instr = instr
        self.keys = keys
        dims = instr.operands[0].array.dims
        self.dims = dims
        self.view = math.prod(dims[:dim]), dims[dim], math.prod(dims[dim + 1 :])
        self.of_key: dict[int, int] = {}
        for number, key in enumerate(keys):
            if key.operand is not None:
                self.of_key.setdefault(key.operand, number)
        self.places = {
            number
            for number, operand in enumerate(instr.operands)
            if number not in self.of_key and is_place(operand, dim)
        }
        self.carried = [
            number
            for number in range(len(instr.operands))
            if number not in self.of_key and number not in self.places
        ]
        self.is_stable = bool(self.carried or self.places)
        self.results = [self._result(number) for number in range(len(instr.operands))]

    def _result(self, number: int) -> int:
        """The kernel's array that an operand comes back as."""
        if number in self.of_key:
            return self.of_key[number]
        if number in self.places:
            return len(self.keys) + len(self.carried)
        return len(self.keys) + self.carried.index(number)

    @property
    def arrays(self) -> SortArrays:
        """What the kernel has."""
        operands = len(self.keys) + len(self.carried)
        return SortArrays(operands, len(self.keys), len(set(self.results)), self.is_stable)

    def form(self, chip: Chip) -> SortLines | None:
        """How its lines lie at the least cost; None where a network of whole arrays is cheaper."""
        found = best_form(*self.view, self.arrays, chip)
        if found is None:
            return None
        cycles, lines = found
        operands, results = self.arrays.operands, self.arrays.results
        spared = (operands + results) * KernelCosts.of(chip).launch
        return lines if cycles < network_cycles(*self.view, self.arrays, chip) - spared else None

    def made(self, e: Emitter, lines: SortLines) -> list[Instr]:
        """The sorted operands."""
        operands = self.instr.operands
        comparator = self.instr.to_apply
        words = [key.words(e, comparator, operands) for key in self.keys]
        words += [to_words(e, operands[number]) for number in self.carried]
        boxes = [
            lines.to_box(e, e.shaped(w, self.view), _GREATEST if i < len(self.keys) else 0)
            for i, w in enumerate(words)
        ]
        wanted = sorted(set(self.results))
        attrs: dict[str, object] = {
            "num_keys": len(self.keys),
            "line_lanes": lines.lanes,
            "results": tuple(wanted),
            "is_stable": self.is_stable,
        }
        made = e.instruction("network-sort", boxes, attrs)
        parts = [made]
        if len(wanted) > 1:
            parts = [e.get_tuple_element(made, i) for i in range(len(wanted))]
        back = {
            result: e.shaped(lines.of_box(e, part), self.dims)
            for result, part in zip(wanted, parts, strict=True)
        }
        values = [self._value(e, i, back[self.results[i]]) for i in range(len(operands))]
        if not lines.is_turned:
            return values
        # lines are turned back once, not by each of several readers
        return [e.apart(v) if self._read_times(i) > 1 else v for i, v in enumerate(values)]

    def _read_times(self, number: int) -> float:
        """How often the elements of an operand's result are read: a slice, as of a median, reads a part."""
        results = [self.instr]
        if isinstance(self.instr.shape, TupleShape):
            parts = (user for user in self.instr.users if user.opcode == "get-tuple-element")
            results = [part for part in parts if part.index == number]
        return sum(
            times
            * (
                user.array.element_count / max(result.array.element_count, 1)
                if user.opcode == "slice"
                else 1
            )
            for result in results
            for user, times in result.users.items()
        )

    def _value(self, e: Emitter, number: int, words: Instr) -> Instr:
        """An operand's elements of the words that came back for it."""
        dtype = self.instr.operands[number].array.dtype
        if number in self.of_key:
            return self.keys[self.of_key[number]].values(e, words)
        return e.cast(words, dtype) if number in self.places else of_words(e, words, dtype)


def is_place(operand: Instr, dim: int) -> bool:
    """Whether an array holds, as numbers, the places along a dimension."""
    if operand.opcode == "broadcast" and operand.operands[0].array.rank == 1:
        return operand.dimensions == (dim,) and is_place(operand.operands[0], 0)
    dtype = operand.array.dtype
    is_exact = dtype.is_integer and operand.array.dims[dim] <= 1 << (dtype.bits - dtype.is_signed)
    return operand.opcode == "iota" and operand.iota_dimension == dim and is_exact
