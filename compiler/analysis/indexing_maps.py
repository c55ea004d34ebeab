"""How an instruction's result element reads its operands' elements, by opcode.

    elementwise  the same index                 transpose    the index permuted
    broadcast    some dims dropped              slice        stride * i + start
    reshape      linearise, delinearise         reverse      n - 1 - i
    pad          (i - low) / (interior + 1) where that is valid, else the padding value
    concatenate  the operand that i falls into  dynamic-slice  i + start, a clamped variable
    reduce, dot  variables for what is summed over

An `OperandAccess` reads one operand at one index. For most opcodes all accesses are read; for
those in `PIECEWISE` the value is that of the first access whose conditions hold. Where conditions
fail the index may lie outside the operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from compiler.analysis.indexing import Expr, Var, const, delinearize, linearize, var
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_trait
from compiler.rewrite.dims import reshape_groups

Index = tuple[Expr, ...]

PIECEWISE = with_trait(Trait.PIECEWISE)
"""Opcodes whose value is one of several accesses, chosen by conditions."""


class Condition(NamedTuple):
    """``low <= expr <= high``."""

    expr: Expr
    low: int
    high: int

    @property
    def is_always(self) -> bool:
        """Whether the ranges of the variables imply it."""
        low, high = self.expr.range()
        return self.low <= low and high <= self.high

    @property
    def is_never(self) -> bool:
        """Whether the ranges of the variables exclude it."""
        low, high = self.expr.range()
        return high < self.low or low > self.high


@dataclass(slots=True)
class OperandAccess:
    """Read operand `operand` (its number) at `index`, if all `conditions` hold. Never changed."""

    operand: int
    index: Index
    conditions: tuple[Condition, ...] = ()


def operand_indices(instr: HloInstruction, index: Index) -> list[OperandAccess]:
    """The reads behind element `index` of `instr` (for a reduce or tuple element: of each leaf).

    Raises UnsupportedError for opcodes whose reads are not a map of the index (gather, sort, ..).
    """
    opcode = instr.opcode
    if opcode in _MAPS:
        return _prune(instr, _MAPS[opcode](instr, index))
    if opcode in _ELEMENTWISE:
        return [
            OperandAccess(n, index if o.array.rank else ()) for n, o in enumerate(instr.operands)
        ]
    message = f"%{instr.name}: {opcode} has no index map; it needs a kernel of its own"
    raise UnsupportedError(message, instr.span)


def operand_reads(instr: HloInstruction, index: Index) -> list[tuple[HloInstruction, Index]]:
    """The operands and indices of `operand_indices`, conditions left out."""
    operands = instr.operands
    if instr.opcode in _ELEMENTWISE:
        return [(o, index if o.array.dims else ()) for o in operands]
    return [(operands[a.operand], a.index) for a in operand_indices(instr, index)]


def start_variable(instr: HloInstruction, dim: int) -> Var:
    """The clamped start index of a dynamic-slice or dynamic-update-slice in one dimension."""
    source = instr.operands[0].array.dims[dim]
    is_slice = instr.opcode == "dynamic-slice"
    size = (instr if is_slice else instr.operands[1]).array.dims[dim]
    return Var(f"{instr.name}.start{dim}", 0, source - size, instr, dim)


def start_index(instr: HloInstruction, dim: int) -> Expr:
    """The clamped start index: a number when the operand is a constant."""
    variable = start_variable(instr, dim)
    operand = start_operand(variable)
    if operand.opcode == "constant":
        value = int(np.asarray(operand.literal))
        return const(min(max(value, variable.low), variable.high))
    return var(variable)


def start_operand(variable: Var) -> HloInstruction:
    """The scalar operand that a start variable is the clamped value of."""
    instr = variable.start_of
    assert instr is not None, f"{variable} is not a start index"
    first = 1 if instr.opcode == "dynamic-slice" else 2
    return instr.operands[first + variable.dim]


def _prune(instr: HloInstruction, accesses: list[OperandAccess]) -> list[OperandAccess]:
    if instr.opcode not in PIECEWISE:
        return accesses
    kept: list[OperandAccess] = []
    for access in accesses:
        if any(c.is_never for c in access.conditions):
            continue
        open_conditions = tuple(c for c in access.conditions if not c.is_always)
        kept.append(OperandAccess(access.operand, access.index, open_conditions))
        if not open_conditions:
            break
    return kept


def _broadcast(instr: HloInstruction, index: Index) -> list[OperandAccess]:
    return [OperandAccess(0, tuple(index[d] for d in instr.dimensions))]


def _same(_: HloInstruction, index: Index) -> list[OperandAccess]:
    return [OperandAccess(0, index)]


def _none(_instr: HloInstruction, _index: Index) -> list[OperandAccess]:
    return []


def _reshape(instr: HloInstruction, index: Index) -> list[OperandAccess]:
    """Group by group of dimensions with equal element counts, so that indices stay small."""
    source, target = instr.operands[0].array.dims, instr.array.dims
    result = [const(0)] * len(source)
    for before, after in _groups(source, target):
        position = linearize(tuple([index[d] for d in after]), tuple([target[d] for d in after]))
        parts = delinearize(position, tuple([source[d] for d in before]))
        for dim, part in zip(before, parts, strict=True):
            result[dim] = part
    return [OperandAccess(0, tuple(result))]


_groups = lru_cache(maxsize=4096)(reshape_groups)


def _transpose(instr: HloInstruction, index: Index) -> list[OperandAccess]:
    permutation = instr.dimensions
    source: list[Expr] = [const(0)] * len(permutation)
    for position, dim in enumerate(permutation):
        source[dim] = index[position]
    return [OperandAccess(0, tuple(source))]


def _slice(instr: HloInstruction, index: Index) -> list[OperandAccess]:
    moved = (e * step + start for e, (start, _, step) in zip(index, instr.slice, strict=True))
    return [OperandAccess(0, tuple(moved))]


def _reverse(instr: HloInstruction, index: Index) -> list[OperandAccess]:
    flipped = instr.dimensions
    dims = instr.array.dims
    moved = (dims[d] - 1 - e if d in flipped else e for d, e in enumerate(index))
    return [OperandAccess(0, tuple(moved))]


def _pad(instr: HloInstruction, index: Index) -> list[OperandAccess]:
    moved: list[Expr] = []
    conditions: list[Condition] = []
    sizes = instr.operands[0].array.dims
    for expr, size, (low, high, interior) in zip(index, sizes, instr.padding, strict=True):
        at, checks = _undilate(expr - low, size, interior + 1)
        if 0 <= low <= interior and 0 <= high <= interior:
            checks = checks[1:]  # a whole step from an element, no place lies outside
        moved.append(at)
        conditions.extend(checks)
    return [OperandAccess(0, tuple(moved), tuple(conditions)), OperandAccess(1, ())]


def _undilate(position: Expr, size: int, dilation: int) -> tuple[Expr, list[Condition]]:
    """The element at `position` of a dimension spread out by `dilation`, and when there is one."""
    if dilation == 1:
        return position, [Condition(position, 0, size - 1)]
    inside = Condition(position, 0, (size - 1) * dilation)
    return position // dilation, [inside, Condition(position % dilation, 0, 0)]


def _concatenate(instr: HloInstruction, index: Index) -> list[OperandAccess]:
    (dim,) = instr.dimensions
    accesses: list[OperandAccess] = []
    start = 0
    for number, operand in enumerate(instr.operands):
        size = operand.array.dims[dim]
        moved = (*index[:dim], index[dim] - start, *index[dim + 1 :])
        start += size
        is_last = number == len(instr.operands) - 1
        # operands before this one come first, so its own start need not be asked for
        bounds = () if is_last else (Condition(index[dim], 0, start - 1),)
        if size:
            accesses.append(OperandAccess(number, moved, bounds))
    return accesses


def _dynamic_slice(instr: HloInstruction, index: Index) -> list[OperandAccess]:
    moved = tuple(e + start_index(instr, d) for d, e in enumerate(index))
    return [OperandAccess(0, moved)]


def _dynamic_update_slice(instr: HloInstruction, index: Index) -> list[OperandAccess]:
    sizes = instr.operands[1].array.dims
    moved = tuple(e - start_index(instr, d) for d, e in enumerate(index))
    conditions = tuple(Condition(e, 0, n - 1) for e, n in zip(moved, sizes, strict=True))
    return [OperandAccess(1, moved, conditions), OperandAccess(0, index)]


def _reduce(instr: HloInstruction, index: Index) -> list[OperandAccess]:
    count = len(instr.operands) // 2
    dims = instr.operands[0].array.dims
    at = reduced_index(instr, index, tuple(var(v) for v in reduction_variables(instr)))
    assert len(at) == len(dims)
    reads = [OperandAccess(n, at) for n in range(count)]
    return reads + [OperandAccess(count + n, ()) for n in range(count)]


def reduction_variables(instr: HloInstruction) -> tuple[Var, ...]:
    """One variable for each reduced dimension, in ascending order of dimension."""
    dims = instr.operands[0].array.dims
    reduced = sorted(instr.dimensions)
    return tuple(Var(f"{instr.name}.r{d}", 0, dims[d] - 1) for d in reduced)


def reduced_index(instr: HloInstruction, index: Index, inner: Index) -> Index:
    """The operand index of a reduce: result `index` with `inner` at the reduced dimensions."""
    reduced = sorted(instr.dimensions)
    outer = iter(index)
    return tuple(
        inner[reduced.index(d)] if d in reduced else next(outer)
        for d in range(instr.operands[0].array.rank)
    )


def _dot(instr: HloInstruction, index: Index) -> list[OperandAccess]:
    batch = len(instr.lhs_batch_dims)
    lhs_dims = instr.operands[0].array.dims
    summed = tuple(
        var(Var(f"{instr.name}.k{n}", 0, lhs_dims[d] - 1))
        for n, d in enumerate(instr.lhs_contracting_dims)
    )
    free = len(lhs_dims) - batch - len(summed)
    sides = (("lhs", index[batch : batch + free]), ("rhs", index[batch + free :]))
    accesses: list[OperandAccess] = []
    for number, (side, outer) in enumerate(sides):
        fixed = dict(zip(instr.ints(f"{side}_batch_dims"), index[:batch], strict=True))
        fixed |= dict(zip(instr.ints(f"{side}_contracting_dims"), summed, strict=True))
        rest = iter(outer)
        rank = instr.operands[number].array.rank
        at = tuple(fixed[d] if d in fixed else next(rest) for d in range(rank))
        accesses.append(OperandAccess(number, at))
    return accesses


def _reduce_window(instr: HloInstruction, index: Index) -> list[OperandAccess]:
    window = instr.window
    count = len(instr.operands) // 2
    dims = instr.operands[0].array.dims
    at: list[Expr] = []
    conditions: list[Condition] = []
    for d, (expr, size, w) in enumerate(zip(index, dims, window.dims, strict=True)):
        tap = var(Var(f"{instr.name}.w{d}", 0, w.size - 1))
        position = expr * w.stride + tap * w.window_dilation - w.pad_low
        moved, checks = _undilate(position, size, w.base_dilation)
        at.append(moved)
        conditions.extend(c for c in checks if not c.is_always)
    reads = [OperandAccess(n, tuple(at), tuple(conditions)) for n in range(count)]
    return reads + [OperandAccess(count + n, ()) for n in range(count)]


_MAPS = {
    "bitcast": _reshape,
    "bitcast-convert": _same,
    "broadcast": _broadcast,
    "concatenate": _concatenate,
    "constant": _none,
    "copy": _same,
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "get-tuple-element": _same,
    "iota": _none,
    "pad": _pad,
    "parameter": _none,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "reshape": _reshape,
    "reverse": _reverse,
    "slice": _slice,
    "transpose": _transpose,
}
_ELEMENTWISE = frozenset(
    name for name, info in OPCODES.items() if info.has(Trait.ELEMENTWISE) and name not in _MAPS
)
