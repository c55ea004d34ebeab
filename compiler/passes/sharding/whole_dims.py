"""Operations that need a dimension whole which their operand is cut along: what else could be cut.

An FFT, a sort or a running sum of rows that lie on several devices needs them together. An all-to-all
brings the pieces so that another dimension is cut instead, as a batch or the features:

    f32[8,32,512,512]   rows cut over 8: {2 -> d}        the batch cut instead: {0 -> d}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compiler.sharding.mesh import Axes, Mesh
from compiler.sharding.projection import product
from compiler.sharding.propagation import PropagationStep
from compiler.sharding.rule import DimFactors, FactorKind, ShardingRule
from compiler.sharding.values import ShardedValue


def free_factors(rule: ShardingRule, mapping: DimFactors, axes: Axes) -> list[int]:
    """The factors of an operand that these axes can cut evenly, each a dimension of the operand and of a
    result."""
    made = {f for result in rule.results for factors in result for f in factors}
    return [
        factors[0]
        for factors in mapping
        if len(factors) == 1
        and factors[0] in made
        and rule.kinds[factors[0]] is FactorKind.PASS
        and rule.sizes[factors[0]] % product(axes) == 0
    ]


@dataclass(frozen=True)
class OtherCut:
    """A dimension that could be cut by axes, which now cut what must be whole."""

    value: ShardedValue
    dim: int
    axes: Axes
    mesh: Mesh | None

    def apply(self) -> None:
        """Cut it, unless the program says how it is cut."""
        value = self.value
        is_free = value.is_open[self.dim] and not value.axes[self.dim] and not value.is_fixed
        if is_free and not any(
            a.overlaps(b) for have in value.axes for a in have for b in self.axes
        ):
            value.mesh = value.mesh or self.mesh
            value.axes[self.dim] = self.axes


def other_cuts(steps: Sequence[PropagationStep], most: int) -> list[list[OtherCut]]:
    """Where operands are cut, by the values' axes now, along what must be whole: of all such operations the
    first dimension that could be cut instead, of all the second, and so on, at most so many lists."""
    ways: list[list[OtherCut]] = [[] for _ in range(most)]
    for step in steps:
        for value, mapping in zip(step.operands, step.rule.operands, strict=True):
            for axes, factors in zip(value.axes, mapping, strict=True):
                if any(step.rule.kinds[f] is FactorKind.REPLICATE for f in factors) and axes:
                    found = free_factors(step.rule, mapping, axes)
                    for at, way in enumerate(ways):
                        if found:
                            way += _cuts(step, found[min(at, len(found) - 1)], axes, value.mesh)
    return [way for at, way in enumerate(ways) if way and way not in ways[:at]]


def _cuts(step: PropagationStep, factor: int, axes: Axes, mesh: Mesh | None) -> Iterator[OtherCut]:
    values = (*step.operands, *step.results)
    mappings = (*step.rule.operands, *step.rule.results)
    for value, mapping in zip(values, mappings, strict=True):
        for dim, factors in enumerate(mapping):
            if factors == (factor,):
                yield OtherCut(value, dim, axes, mesh)
