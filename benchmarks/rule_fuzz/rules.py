"""The rewrite rules as subjects: a module that matches the pattern, and the one rule applied."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.rule_fuzz.generator import Generator, Wanted
from benchmarks.rule_fuzz.harness import Subject
from benchmarks.rule_fuzz.index_planners import ALL_PLANNERS
from benchmarks.rule_fuzz.rule_makers import MAKERS
from compiler.hlo.call_graph import drop_unreachable
from compiler.hlo.cloning import clone
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.algebraic_simplifier import rules_on
from compiler.passes.context import PassContext
from compiler.passes.pipeline import PASSES
from compiler.rewrite.graph import emit, replace
from compiler.rewrite.pattern import match
from compiler.rewrite.rewriter import ANY_ORDER, Freedom, Rule
from tpu_sim.isa.chips import load_chip


def rule_subjects() -> list[Subject]:
    """One for every rule of the algebraic simplifier."""
    return [
        Subject(f"rule {rule.name}", _maker(rule), _applier(rule), rule.freedom, _edges(rule))
        for rule in rules_on(load_chip("v5e")).rules
    ]


_COMPOSED = ("algebraic-simplifier", "constant-folding", "cse", "zero-sized-elimination")
"""Passes that simplify whatever they meet: run on expressions of several operations."""


def composed_subjects() -> list[Subject]:
    """Rules after rules, until none applies: what one leaves is another's match."""
    return [
        Subject(
            f"pass {name}",
            _expression_twice if name == "cse" else _expression,
            _pass_applier(name), _EVERYTHING, 0.02,
        )
        for name in _COMPOSED
    ]  # fmt: skip


_EVERYTHING = ANY_ORDER | Freedom.ROUNDING


def _expression(g: Generator) -> HloModule:
    wanted = Wanted(g.dtype(), g.dims(0, 4, 600))
    return g.finish(g.by_opcode(g.choose(sorted(g.planners)), wanted, 3))


def _expression_twice(g: Generator) -> HloModule:
    """An expression beside a copy of itself, for what looks for equal operations."""
    root = g.by_opcode(g.choose(sorted(g.planners)), Wanted(g.dtype(), g.dims(1, 4, 300)), 3)
    assert root.computation is not None
    copies: dict[HloInstruction, HloInstruction] = {}
    for instr in list(root.computation):
        copies[instr] = instr
        if instr.operands:
            copies[instr] = clone(instr, root.computation, [copies[o] for o in instr.operands])
    rows, *rest = root.array.dims
    both = root.array.with_dims((2 * rows, *rest))
    return g.finish(emit(root, "concatenate", both, (root, copies[root]), {"dimensions": (0,)}))


def _pass_applier(name: str) -> Callable[[HloModule], bool]:
    def apply(module: HloModule) -> bool:
        return PASSES[name].run(module, PassContext(load_chip("v5e")))

    return apply


def _edges(rule: Rule) -> float:
    """Where the order of a sum is free, few of its terms may be of other magnitudes."""
    return 0.02 if Freedom.ORDER in rule.freedom else 0.5


def _maker(rule: Rule) -> Callable[[Generator], HloModule]:
    special = MAKERS.get(rule.name)
    is_planned = any(opcode in ALL_PLANNERS for opcode in rule.pattern.opcodes)

    def make(g: Generator) -> HloModule:
        if special is not None and (not is_planned or g.chance(0.8)):
            return g.finish(special(g))
        pattern = g.choose(rule.examples) if rule.examples and g.chance(0.8) else rule.pattern
        return g.finish(g.match(pattern, Wanted(g.dtype(), g.dims())))

    return make


def _applier(rule: Rule) -> Callable[[HloModule], bool]:
    def apply(module: HloModule) -> bool:
        root = module.entry.root_instruction
        bound = match(rule.pattern, root)
        result = None if bound is None else rule.apply(root, bound)
        if result is None or result is root:
            return False
        replace(root, result)
        module.entry.sort()
        drop_unreachable(module)
        return True

    return apply
