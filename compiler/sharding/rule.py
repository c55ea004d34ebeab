"""Sharding rules: which dimensions of an operation's arrays are cut together.

A rule names *factors*. A dimension is one factor, or several, major first, when the operation
splits or merges it: a reshape of 32 to 4x8 has ``([ij])->([i, j]) {i=4, j=8}``. Whatever cuts a
factor in one array may cut it in all of them. The kind of a factor says what that costs:

    pass      nothing: each device computes its own part
    reduce    partial results that are to be added
    replicate nothing can be computed on parts; the array is gathered along it first
    permute   rows at the borders are exchanged with neighbours
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.hlo.iota_order import Ints


class FactorKind(enum.Enum):
    """What it costs to cut a factor."""

    PASS = "pass"
    REDUCE = "reduce"
    REPLICATE = "replicate"
    PERMUTE = "permute"


DimFactors = tuple[Ints, ...]
"""The factors of each dimension of one array, major first."""


@dataclass(frozen=True)
class ShardingRule:
    """Factors by number: their sizes and kinds, and where they are in each operand and result.

    Operands and results are leaves: a tuple counts as its arrays. `blocked` factors are never
    spread from one array to another.
    """

    sizes: Ints
    kinds: tuple[FactorKind, ...]
    operands: tuple[DimFactors, ...]
    results: tuple[DimFactors, ...]
    blocked: frozenset[int] = frozenset()

    def __str__(self) -> str:
        """``([i, k], [k, j])->([i, j]) {i=8, j=4, k=2} reduce={k}``."""
        sides = "->".join(
            f"({', '.join(map(_dims, side))})" for side in (self.operands, self.results)
        )
        sizes = ", ".join(f"{_name(i)}={size}" for i, size in enumerate(self.sizes))
        text = f"{sides} {{{sizes}}}"
        for kind in (FactorKind.REDUCE, FactorKind.REPLICATE, FactorKind.PERMUTE):
            found = [_name(i) for i, k in enumerate(self.kinds) if k is kind]
            if found:
                text += f" {kind.value}={{{', '.join(found)}}}"
        return text


def _dims(dims: DimFactors) -> str:
    return f"[{', '.join(''.join(map(_name, factors)) for factors in dims)}]"


def _name(factor: int) -> str:
    letters = "ijklmnopqrstuvwxyz"
    return letters[factor] if factor < len(letters) else f"z_{factor}"


class RuleMaker:
    """Collects the factors of a rule; a dimension that gets none has one of its own."""

    def __init__(self, operands: Sequence[Ints], results: Sequence[Ints]) -> None:
        self.operand_dims = operands
        self.result_dims = results
        self._sizes: list[int] = []
        self._kinds: list[FactorKind] = []
        self._blocked: set[int] = set()
        self._operands: list[list[list[int]]] = [[[] for _ in dims] for dims in operands]
        self._results: list[list[list[int]]] = [[[] for _ in dims] for dims in results]

    def add(
        self,
        size: int,
        operands: Mapping[int, int],
        results: Mapping[int, int],
        kind: FactorKind = FactorKind.PASS,
        *,
        is_blocked: bool = False,
    ) -> None:
        """A factor in these dimensions, ``{array: dimension}``; minor to what they have so far."""
        number = len(self._sizes)
        self._sizes.append(size)
        self._kinds.append(kind)
        if is_blocked:
            self._blocked.add(number)
        for index, dim in operands.items():
            self._operands[index][dim].append(number)
        for index, dim in results.items():
            self._results[index][dim].append(number)

    def add_same(
        self,
        dim: int,
        kind: FactorKind = FactorKind.PASS,
        *,
        is_blocked: bool = False,
        size: int | None = None,
    ) -> None:
        """A factor in dimension `dim` of every operand that has so many, and of every result."""
        operands = {i: dim for i, dims in enumerate(self.operand_dims) if dim < len(dims)}
        results = {i: dim for i, dims in enumerate(self.result_dims) if dim < len(dims)}
        found = self.result_dims[0][dim] if size is None else size
        self.add(found, operands, results, kind, is_blocked=is_blocked)

    def rule(self) -> ShardingRule:
        """The finished rule."""
        for index, dims in enumerate(self.operand_dims):
            for dim, size in enumerate(dims):
                if not self._operands[index][dim]:
                    self.add(size, {index: dim}, {})
        for index, dims in enumerate(self.result_dims):
            for dim, size in enumerate(dims):
                if not self._results[index][dim]:
                    self.add(size, {}, {index: dim})
        return ShardingRule(
            tuple(self._sizes),
            tuple(self._kinds),
            tuple(tuple(map(tuple, dims)) for dims in self._operands),
            tuple(tuple(map(tuple, dims)) for dims in self._results),
            frozenset(self._blocked),
        )
