"""A greedy worklist rewriter.

Every instruction is tried once; when a rule replaces one, the new instructions and the users
of the result are tried again, until nothing matches. It ends because each rule's right side is
cheaper than its left, or equally cheap and nearer canonical form (shape operations nearer the
root, fewer of them); a rule that breaks this is caught by the step limit.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType

from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.origins import IDLE, absorb
from compiler.rewrite.graph import is_dead, remove_dead, replace
from compiler.rewrite.pattern import Match, Op, Pattern, match
from tpu_sim.isa.cached_property import cached_property
from tpu_sim.isa.chips import Chip

Rewrite = Callable[[HloInstruction, Match], HloInstruction | None]
WeighedRewrite = Callable[[HloInstruction, Match, Chip], HloInstruction | None]

STEPS_PER_INSTRUCTION = 64
"""Rewrites for each instruction, by which rules that undo each other are found: programs met need a
few."""


class Freedom(enum.Flag):
    """What a rewrite may change in the values of floats. Anything else is a bug of the rewrite."""

    NONE = 0
    SIGN_OF_ZERO = enum.auto()
    """0.0 may become -0.0 and back."""
    BRANCH_SIDE = enum.auto()
    """On a cut of a complex function a zero may count as positive whatever its sign, as in XLA."""
    ROUNDING = enum.auto()
    """A few units in the last place of each value, which for a complex one is its modulus."""
    OVERFLOW = enum.auto()
    """A sum of two products may overflow, or not, when one product alone does."""
    ORDER = enum.auto()
    """Sums and products may be taken in any order, and so reach infinity or not."""
    COMPLEX_PARTS = enum.auto()
    """The zeros of a complex product may have other signs, and beside a part that is not finite the
    other may be anything: a factor of one that is left out no longer meets zeros and infinities."""


ANY_ORDER = Freedom.SIGN_OF_ZERO | Freedom.ORDER | Freedom.COMPLEX_PARTS
"""The freedom of rewrites that combine the terms of a reduction otherwise."""


@dataclass(frozen=True)
class Rule:
    """A named rewrite: where `pattern` matches, `apply` returns the replacement or None.

    `freedom` is what it may change in floats. `examples` are patterns whose matches pass the guards
    in `apply` more often than those of `pattern`: the harness that runs every rule on random matches
    (`benchmarks.rule_fuzz`) draws from them.
    """

    name: str
    pattern: Op
    apply: Rewrite
    freedom: Freedom = Freedom.NONE
    examples: tuple[Op, ...] = ()

    @cached_property
    def inner(self) -> tuple[str, ...]:
        """Names that the pattern gives to operations below its root."""
        return tuple(op.name for part in self.pattern.operands for op in _ops(part) if op.name)


@dataclass(frozen=True)
class WeighedRule:
    """A rule that asks what its two sides cost on a chip: `on` is the rule for one."""

    name: str
    pattern: Op
    apply: WeighedRewrite
    freedom: Freedom

    def on(self, chip: Chip) -> Rule:
        """The rule on a chip."""
        return Rule(self.name, self.pattern, partial(self._apply, chip), self.freedom)

    def _apply(self, chip: Chip, instr: HloInstruction, bound: Match) -> HloInstruction | None:
        return self.apply(instr, bound, chip)


def _ops(pattern: Pattern) -> Iterator[Op]:
    if isinstance(pattern, Op):
        yield pattern
        for operand in pattern.operands:
            yield from _ops(operand)


def rule(
    name: str, pattern: Op, freedom: Freedom = Freedom.NONE, examples: tuple[Op, ...] = ()
) -> Callable[[Rewrite], Rule]:
    """Decorate the right side of a rule: ``@rule("double-negate", Op("negate", ...))``."""

    def make(function: Rewrite) -> Rule:
        return Rule(name, pattern, function, freedom, examples)

    return make


def weighed_rule(
    name: str, pattern: Op, freedom: Freedom = Freedom.NONE
) -> Callable[[WeighedRewrite], WeighedRule]:
    """The same of a right side that is given the chip as well."""

    def make(function: WeighedRewrite) -> WeighedRule:
        return WeighedRule(name, pattern, function, freedom)

    return make


def rules_of(chip: Chip, *files: ModuleType) -> list[Rule]:
    """The rules that files define, on a chip, in the order in which they are tried."""
    defined = (value for file in files for value in vars(file).values())
    return [
        value.on(chip) if isinstance(value, WeighedRule) else value
        for value in defined
        if isinstance(value, (Rule, WeighedRule))
    ]


class RuleSet:
    """Rules by the opcode they start at."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self.by_opcode: dict[str, list[Rule]] = {}
        self.names: list[str] = []
        for item in self.rules:
            assert item.name not in self.names, f"two rules are called {item.name}"
            self.names.append(item.name)
            for opcode in item.pattern.opcodes:
                self.by_opcode.setdefault(opcode, []).append(item)


def rewrite_computation(
    computation: HloComputation, rules: RuleSet, start: Iterable[HloInstruction] | None = None
) -> Counter[str]:
    """Apply `rules` until none matches; return how often each did. Sorts when it changed.

    With `start` it begins at those instructions and goes on from what changes.
    """
    counts: Counter[str] = Counter()
    pending = deque(computation.instructions if start is None else dict.fromkeys(start))
    queued = set(pending)
    limit = STEPS_PER_INSTRUCTION * (len(pending) + 16)
    while pending:
        instr = pending.popleft()
        queued.discard(instr)
        if instr.computation is not computation:
            continue
        if is_dead(instr):
            remove_dead(instr)
            counts["dead"] += 1
            continue
        touched = _try_rules(instr, rules, counts)
        for other in touched:
            if other not in queued and other.computation is computation:
                queued.add(other)
                pending.append(other)
        limit -= 1
        assert limit > 0, f"rules do not end in %{computation.name}: {counts.most_common(4)}"
    if counts:
        computation.sort()
    return counts


def _try_rules(instr: HloInstruction, rules: RuleSet, counts: Counter[str]) -> list[HloInstruction]:
    """Apply the first rule that fires; return the instructions that deserve another look."""
    computation = instr.home
    for item in rules.by_opcode.get(instr.opcode, ()):
        bound = match(item.pattern, instr)
        if bound is None:
            continue
        before = len(computation.instructions)
        result = item.apply(instr, bound)
        if result is None or result is instr:
            continue
        counts[item.name] += 1
        added = _last(computation, len(computation.instructions) - before)
        operands = list(instr.operands)
        replace(instr, result)
        _keep_origins(item, bound, added or [result])
        return [*added, result, *result.users, *operands]
    return []


def _keep_origins(item: Rule, bound: Match, made: list[HloInstruction]) -> None:
    """What was made comes from all operations of the pattern that are gone, not from its root alone."""
    gone = [bound[n] for n in item.inner if n in bound and bound[n].computation is None]
    if gone:
        for instr in made:
            if instr.computation is not None and instr.opcode not in IDLE:
                absorb(instr, gone)


def _last(computation: HloComputation, count: int) -> list[HloInstruction]:
    found: list[HloInstruction] = []
    for instr in reversed(computation.instructions):
        if len(found) == count:
            break
        found.append(instr)
    return found[::-1]
