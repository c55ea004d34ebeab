"""Sharding rules of operations that compute element by element or move elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from compiler.hlo.iota_order import Ints
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import leaves
from compiler.sharding.rule import FactorKind, RuleMaker, ShardingRule

RuleOf: TypeAlias = Callable[[HloInstruction], ShardingRule]


def maker_of(instr: HloInstruction) -> RuleMaker:
    """An empty rule for the arrays of an instruction."""
    operands = [leaf.dims for operand in instr.operands for leaf in leaves(operand.shape)]
    return RuleMaker(operands, [leaf.dims for leaf in leaves(instr.shape)])


def ints(instr: HloInstruction, name: str) -> Ints:
    """An attribute that is a tuple of numbers; empty when absent."""
    value = instr.attrs.get(name, ())
    assert isinstance(value, tuple), f"%{instr.name}: {name} is {value!r}"
    return value


def number(instr: HloInstruction, name: str, default: int) -> int:
    """An attribute that is a number."""
    value = instr.attrs.get(name, default)
    assert isinstance(value, int)
    return value


def pointwise(instr: HloInstruction) -> ShardingRule:
    """Every dimension is the same in all arrays; scalars (of select, clamp) have none."""
    found = maker_of(instr)
    for dim in range(len(found.result_dims[0]) if found.result_dims else 0):
        found.add_same(dim)
    return found.rule()


def unrelated(instr: HloInstruction) -> ShardingRule:
    """Every dimension is on its own."""
    return maker_of(instr).rule()


def _broadcast(instr: HloInstruction) -> ShardingRule:
    found = maker_of(instr)
    for dim, target in enumerate(ints(instr, "dimensions")):
        found.add(found.operand_dims[0][dim], {0: dim}, {0: target})
    return found.rule()


def _transpose(instr: HloInstruction) -> ShardingRule:
    found = maker_of(instr)
    for target, dim in enumerate(ints(instr, "dimensions")):
        found.add(found.operand_dims[0][dim], {0: dim}, {0: target})
    return found.rule()


def _reshape(instr: HloInstruction) -> ShardingRule:
    """Both sides cut into common parts, major first, for as far as they have any."""
    found = maker_of(instr)
    given, made = found.operand_dims[0], found.result_dims[0]
    if 0 not in given:
        for sources, targets in common_runs(given, made):
            _add_run(found, sources, targets)
    return found.rule()


def common_runs(a: Ints, b: Ints) -> list[tuple[list[int], list[int]]]:
    """The shortest runs of dimensions, larger than one, with equal products in both shapes.

    >>> common_runs((6, 4, 1, 5), (4, 6, 5))
    [([0, 1], [0, 1]), ([3], [2])]
    """
    runs: list[tuple[list[int], list[int]]] = []
    left = [d for d, size in enumerate(a) if size != 1]
    right = [d for d, size in enumerate(b) if size != 1]
    while left and right:
        sources, targets = [left.pop(0)], [right.pop(0)]
        m, n = a[sources[0]], b[targets[0]]
        while m != n:
            if m < n:
                sources.append(left.pop(0))
                m *= a[sources[-1]]
            else:
                targets.append(right.pop(0))
                n *= b[targets[-1]]
        runs.append((sources, targets))
    return runs


def _add_run(found: RuleMaker, sources: list[int], targets: list[int]) -> None:
    """Factors of a run: common ones while there are any, then each side its own."""
    given = [(d, found.operand_dims[0][d]) for d in sources]
    made = [(d, found.result_dims[0][d]) for d in targets]
    while given and made:
        (i, left), (j, right) = given[0], made[0]
        part = math.gcd(left, right)
        if part == 1:
            break
        found.add(part, {0: i}, {0: j})
        given[0], made[0] = (i, left // part), (j, right // part)
        given = given[1:] if left == part else given
        made = made[1:] if right == part else made
    for dim, size in given:
        found.add(size, {0: dim}, {})
    for dim, size in made:
        found.add(size, {}, {0: dim})


def _bitcast_convert(instr: HloInstruction) -> ShardingRule:
    """The dimensions that both have; a wider type has one fewer."""
    found = maker_of(instr)
    for dim in range(min(len(found.operand_dims[0]), len(found.result_dims[0]))):
        found.add_same(dim)
    return found.rule()


def _by_sizes(kind: FactorKind, *, is_blocked: bool) -> RuleOf:
    """Pass where a dimension keeps its size, else `kind`: what is cut, padded or joined."""

    def rule(instr: HloInstruction) -> ShardingRule:
        found = maker_of(instr)
        (made,) = found.result_dims
        for dim, size in enumerate(made):
            arrays = [d for d in found.operand_dims if dim < len(d)]
            if all(dims[dim] == size for dims in arrays):
                found.add_same(dim)
            else:
                largest = max([size, *(dims[dim] for dims in arrays)])
                found.add_same(dim, kind, is_blocked=is_blocked, size=largest)
        return found.rule()

    return rule


def _dynamic_update_slice(instr: HloInstruction) -> ShardingRule:
    """What is not updated whole passes between operand and result only."""
    found = maker_of(instr)
    operand, update = found.operand_dims[:2]
    for dim, size in enumerate(operand):
        if update[dim] == size:
            found.add(size, {0: dim, 1: dim}, {0: dim})
        else:
            found.add(size, {0: dim}, {0: dim})
            found.add(update[dim], {1: dim}, {}, FactorKind.REPLICATE)
    return found.rule()


def _reverse(instr: HloInstruction) -> ShardingRule:
    found = maker_of(instr)
    for dim in range(len(found.result_dims[0])):
        is_reversed = dim in ints(instr, "dimensions")
        found.add_same(dim, FactorKind.PERMUTE if is_reversed else FactorKind.PASS)
    return found.rule()


def whole_along(instr: HloInstruction) -> ShardingRule:
    """Of what joins or orders elements along a dimension, which every device has whole."""
    found = maker_of(instr)
    (along,) = ints(instr, "dimensions")
    for dim in range(len(found.result_dims[0])):
        found.add_same(dim, FactorKind.REPLICATE if dim == along else FactorKind.PASS)
    return found.rule()


ELEMENTWISE_RULES: dict[str, RuleOf] = {
    name: pointwise for name, info in OPCODES.items() if info.has(Trait.ELEMENTWISE)
}

MOVEMENT_RULES: dict[str, RuleOf] = {
    "bitcast": _reshape,
    "bitcast-convert": _bitcast_convert,
    "broadcast": _broadcast,
    "concatenate": whole_along,
    "copy": pointwise,
    "dynamic-slice": _by_sizes(FactorKind.REPLICATE, is_blocked=True),
    "dynamic-update-slice": _dynamic_update_slice,
    "iota": unrelated,
    "map": pointwise,
    "constant": unrelated,
    "pad": _by_sizes(FactorKind.PERMUTE, is_blocked=False),
    "partition-id": unrelated,
    "replica-id": unrelated,
    "reshape": _reshape,
    "reverse": _reverse,
    "rng": unrelated,
    "slice": _by_sizes(FactorKind.PERMUTE, is_blocked=False),
    "transpose": _transpose,
}
