"""Laws of sums of pads.

The gradient of what was cut into parts, ``x[:, :n]`` beside ``x[:, n:]``, a roll, or the parts of a stack,
is a sum of arrays that are zero but for one part each. Where the parts lie one after the other along one
dimension the sum is a concatenation, whose parts other laws see.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from compiler.hlo.ir import HloInstruction
from compiler.passes.rules_shape import triples
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op, equals_exactly, splat_value
from compiler.rewrite.rewriter import rule


@dataclass(frozen=True)
class _Part:
    """An array that lies from `low` along `dim` of a pad with zeros of the sign `is_negative`."""

    value: HloInstruction
    dim: int
    low: int
    is_negative: bool

    @property
    def end(self) -> int:
        """The place after its last."""
        return self.low + self.value.array.dims[self.dim]


# pad(a, 0, low) + pad(b, 0, low') == concatenate(a + 0, b + 0) if they do not meet
@rule("sum-of-parts", Op("add"))
def sum_of_parts(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Put parts beside each other instead of adding what is zero elsewhere."""
    if any(user.opcode == "add" and _parts(user) for user in instr.users):
        return None  # the whole sum is rewritten, once
    parts = sorted(_parts(instr), key=lambda part: part.low)
    if len(parts) < 2 or any(a.end > b.low for a, b in itertools.pairwise(parts)):
        return None
    dim, size = parts[0].dim, instr.array.dims[parts[0].dim]
    is_negative = all(part.is_negative for part in parts)
    pieces: list[HloInstruction] = []
    place = 0
    for part in parts:
        if part.low > place:
            pieces.append(_zeros(instr, dim, part.low - place, is_negative=is_negative))
        pieces.append(part.value if is_negative else _plus_zero(part.value))
        place = part.end
    if place < size:
        pieces.append(_zeros(instr, dim, size - place, is_negative=is_negative))
    return emit(instr, "concatenate", instr.array, tuple(pieces), {"dimensions": (dim,)})


def _parts(instr: HloInstruction) -> list[_Part]:
    """The parts along one dimension whose pads `instr`, a sum, adds; none if it adds anything else."""
    found: list[_Part] = []
    for operand in instr.operands:
        if operand.opcode == "add" and len(operand.users) == 1:
            inner = _parts(operand)
        else:
            part = _part(operand)
            inner = [] if part is None else [part]
        if not inner or (found and inner[0].dim != found[0].dim):
            return []
        found += inner
    return found


def _part(instr: HloInstruction) -> _Part | None:
    if instr.opcode != "pad" or instr.operands[0].array.element_count == 0:
        return None
    zero = splat_value(instr.operands[1])
    if zero is None or zero != 0:
        return None
    padding = triples(instr.padding)
    dims = [d for d, padded in enumerate(padding) if padded != (0, 0, 0)]
    if len(dims) != 1 or min(padding[dims[0]]) < 0 or padding[dims[0]][2]:
        return None
    is_negative = instr.array.dtype.is_float and not equals_exactly(zero, 0.0)
    return _Part(instr.operands[0], dims[0], padding[dims[0]][0], is_negative)


def _plus_zero(value: HloInstruction) -> HloInstruction:
    """A negative zero becomes a positive one, as in the sum; integers have none."""
    if not (value.array.dtype.is_float or value.array.dtype.is_complex):
        return value
    return emit(value, "add", value.array, (value, make.splat(value, value.array, 0)))


def _zeros(near: HloInstruction, dim: int, count: int, *, is_negative: bool) -> HloInstruction:
    dims = tuple(count if d == dim else n for d, n in enumerate(near.array.dims))
    return make.splat(near, near.array.with_dims(dims), -0.0 if is_negative else 0)
