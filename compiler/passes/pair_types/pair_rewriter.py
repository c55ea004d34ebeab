"""Pair types: every 64-bit integer becomes two u32 arrays, every c64 two f32 arrays.

A lane is 32 bits wide. The pass runs over all computations, callees first, and rewrites in place
what has a wide array among its operands or results. The entry takes and returns the two parts as
arrays of their own; the module notes what the host sees (`compiler.analysis.host_ports`).
"""

from __future__ import annotations

from compiler.analysis.host_ports import changed_ports, set_host_ports
from compiler.analysis.reducers import reducer_kind
from compiler.hlo.call_graph import callers, drop_unreachable, reachable, sort_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape import Shape
from compiler.passes.context import PassContext
from compiler.passes.pair_types.contraction_rules import CONTRACTION_RULES
from compiler.passes.pair_types.elementwise_rules import ELEMENTWISE_RULES, Rule
from compiler.passes.pair_types.reduction_rules import REDUCTION_RULES
from compiler.passes.pair_types.scope import Scope, refuse, unpacked
from compiler.passes.pair_types.structure_rules import STRUCTURE_RULES
from compiler.passes.pair_types.values import (
    PAIRS,
    Pair,
    TupleValue,
    has_wide,
    is_wide,
    lowered,
    part_dtype,
)
from compiler.rewrite.graph import emit

Instr = HloInstruction

RULES: dict[str, Rule] = {
    **ELEMENTWISE_RULES,
    **STRUCTURE_RULES,
    **REDUCTION_RULES,
    **CONTRACTION_RULES,
}

_ONE_PARAMETER = with_trait(Trait.HANDS_STATE)


def rewrite_pairs(module: HloModule, context: PassContext) -> bool:
    """Rewrite all computations; raises UnsupportedError for operations that have no form."""
    computations = reachable(module)
    if not any(has_wide(i.shape) for c in computations for i in c):
        return False
    attrs = PAIRS.attributes(module)
    ports = changed_ports(module, lambda shape: 2 if is_wide(shape) else 0)
    called_by = callers(module)
    kinds = {c: kind for c in computations if (kind := reducer_kind(c)) is not None}
    for computation in computations:
        opcodes = {caller.opcode for caller in called_by[computation]}
        rewriter = _Rewriter(computation, opcodes, Scope(kinds))
        context.counts["instructions"] += rewriter.run()
    module.attrs = attrs
    set_host_ports(module, ports)
    drop_unreachable(module)
    sort_computations(module)
    return True


class _Rewriter:
    """Rewrites one computation. `opcodes` are those of its callers (none of the entry)."""

    def __init__(self, computation: HloComputation, opcodes: set[str], scope: Scope) -> None:
        self.computation = computation
        self.opcodes = opcodes
        self.scope = scope
        self.old: list[Instr] = []

    def run(self) -> int:
        """Rewrite; return how many instructions were replaced."""
        instructions = list(self.computation)
        self._parameters()
        for instr in instructions:
            if instr.opcode != "parameter" and _is_touched(instr):
                self._rewrite(instr)
        root = self.computation.root_instruction
        if has_wide(root.shape):
            self.computation.root = self.scope.packed(root)
        for instr in reversed(self.old):
            self.computation.remove(instr)
        if self.old:
            self.computation.sort()
        return len(self.old)

    def _rewrite(self, instr: Instr) -> None:
        rule = RULES.get(instr.opcode)
        if rule is None:
            raise refuse(instr, "no expansion into 32-bit lanes; use a 32-bit type")
        value = rule(self.scope, instr)
        self.old.append(instr)
        if has_wide(instr.shape):
            self.scope.values[instr] = value
            return
        if isinstance(value, TupleValue):  # several results, none of them wide
            parts = [part for part in value.elements if isinstance(part, HloInstruction)]
            value = emit(instr, "tuple", instr.shape, parts)
        assert isinstance(value, HloInstruction)
        instr.replace_all_uses_with(value)

    def _parameters(self) -> None:
        """Renumber the parameters and make those that stand for wide ones."""
        olds = list(self.computation.parameters)
        if not any(has_wide(p.shape) for p in olds):
            return
        if "sort" in self.opcodes:
            places = _comparator_places(olds)
        else:
            places = self._places(olds)
        for parameter, numbers in zip(olds, places, strict=True):
            if has_wide(parameter.shape):
                self._split_parameter(parameter, numbers)
                self.old.append(parameter)
            else:
                parameter.attrs["parameter_number"] = numbers[0]
        self.computation.parameters.sort(key=lambda p: (p in self.old, p.parameter_number))

    def _places(self, olds: list[Instr]) -> list[list[int]]:
        """The new numbers of each parameter, in order."""
        places: list[list[int]] = []
        count = 0
        for parameter in olds:
            width = 2 if is_wide(parameter.shape) and not self._takes_one() else 1
            places.append(list(range(count, count + width)))
            count += width
        return places

    def _takes_one(self) -> bool:
        return bool(self.opcodes & _ONE_PARAMETER)

    def _split_parameter(self, parameter: Instr, numbers: list[int]) -> None:
        if not is_wide(parameter.shape) or len(numbers) == 1:
            new = _parameter(parameter, lowered(parameter.shape), numbers[0], "")
            self.scope.values[parameter] = unpacked(new, parameter.shape)
            return
        dtype = parameter.array.dtype
        part = part_dtype(dtype)
        assert part is not None
        shape = parameter.array.with_layout(None).with_dtype(part)
        names = (".re", ".im") if dtype.is_complex else (".lo", ".hi")
        first, second = (
            _parameter(parameter, shape, number, name)
            for number, name in zip(numbers, names, strict=True)
        )
        self.scope.values[parameter] = Pair(first, second, dtype)


def _comparator_places(olds: list[Instr]) -> list[list[int]]:
    """A comparator takes (left, right) of each operand: those of both parts one after another."""
    places: list[list[int]] = []
    count = 0
    for parameter in olds[::2]:
        width = 2 if is_wide(parameter.shape) else 1
        places.append([count + 2 * k for k in range(width)])
        places.append([count + 2 * k + 1 for k in range(width)])
        count += 2 * width
    return places


def _parameter(old: Instr, shape: Shape, number: int, suffix: str) -> Instr:
    attrs = {k: v for k, v in old.attrs.items() if k != "sharding"}
    attrs["parameter_number"] = number
    return emit(old, "parameter", shape, (), attrs, old.name + suffix)


def _is_touched(instr: Instr) -> bool:
    return has_wide(instr.shape) or any(has_wide(o.shape) for o in instr.operands)
