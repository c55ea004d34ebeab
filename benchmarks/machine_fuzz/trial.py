"""One seed: a program, what it is compared in, and the program that shows a difference."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

from benchmarks.machine_fuzz.compare import (
    MAX_CYCLES,
    Outcome,
    Runs,
    compare,
    compare_estimate,
    compare_pauses,
)
from benchmarks.machine_fuzz.minimize import minimize
from benchmarks.machine_fuzz.mutate import mutated
from benchmarks.machine_fuzz.programs import Case, random_case
from tpu_sim.isa.assembly import print_program
from tpu_sim.isa.checker import check_program
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.errors import ProgramError
from tpu_sim.isa.program import Program
from tpu_sim.jit import dma_copies, parallel_loops, segment, state_ops

_SHARING = (
    (parallel_loops, "MIN_WORK", 1),
    (segment, "_WORK_TO_SHARE", 1),
    (state_ops, "_PASSES_TO_SHARE", 1),
    (dma_copies, "_SHARED_BYTES", 8192),  # two blocks, the least that is cut
)
_MOST_TRIES = 20
_TWO_THREADS = 0.35
"""Of the seeds; the others run without host threads beside the first (assumed)."""


@dataclass(frozen=True)
class Variant:
    """How a case is run: host threads, limit of cycles, whether its estimate is looked at.

    With `pauses`, a seed, it is paused here and there and goes on on the other machine.
    """

    threads: int = 1
    max_cycles: int = MAX_CYCLES
    estimate: bool = False
    pauses: int | None = None


@dataclass(frozen=True)
class Verdict:
    """What became of a seed: `kind` is ok, a fault's name, or what differs; `detail` says how."""

    kind: str
    detail: str = ""
    variant: Variant = Variant()
    is_wrong: bool = False


def accepted_case(seed: int) -> Case:
    """The case of a seed that the checker accepts: the first of a row, one in three mutated."""
    source = random.Random(seed)
    for number in range(_MOST_TRIES):
        case = random_case(seed + number * 1_000_003)
        if is_accepted(case.program):
            if source.random() < 0.35:
                return replace(case, program=mutated(case.program, source), is_static=False)
            return case
    raise AssertionError(f"seed {seed}: no program that the checker accepts")


def is_accepted(program: Program) -> bool:
    """Whether the checker takes a program."""
    try:
        check_program(program, load_chip(program.target))
    except ProgramError:
        return False
    return True


def try_seed(seed: int) -> tuple[Case, Verdict]:
    """Make the case of a seed and compare the machines on it in several ways.

    All of them with as many host threads, for which code is made once.
    """
    case = accepted_case(seed)
    source = random.Random(~seed)
    threads = 2 if source.random() < _TWO_THREADS else 1
    runs = Runs(case)
    verdict, outcome = judge(runs, Variant(threads))
    if verdict.is_wrong:
        return case, verdict
    for variant in _variants(case, source, threads, outcome):
        other, _ = judge(runs, variant, outcome)
        if other.is_wrong:
            return case, other
    return case, verdict


def _variants(
    case: Case, source: random.Random, threads: int, outcome: Outcome | None
) -> Iterator[Variant]:
    cycles = 0 if outcome is None else outcome.cycles
    if cycles and source.random() < 0.4:
        limit = source.choice([cycles, cycles - 1, source.randrange(cycles), 0])
        yield Variant(threads, limit)
    if cycles and source.random() < 0.4:
        yield Variant(threads, pauses=source.randrange(1 << 30))
    if cycles and case.is_static:
        yield Variant(threads, estimate=True)


def judge(
    runs: Runs, variant: Variant, known: Outcome | None = None
) -> tuple[Verdict, Outcome | None]:
    """Compare the machines on a case.

    `known` is what whole runs with these threads agreed on: they are not compared again.
    """
    wrong, outcome = "", known
    try:
        if outcome is None or variant.max_cycles != MAX_CYCLES:
            with shared_work() if variant.threads > 1 else nullcontext():
                wrong, outcome = compare(runs, variant.threads, variant.max_cycles)
        if not wrong and variant.estimate:
            wrong = compare_estimate(runs, outcome.cycles)
        if not wrong and variant.pauses is not None:
            picks = random.Random(variant.pauses)
            with shared_work() if variant.threads > 1 else nullcontext():
                wrong = compare_pauses(runs, picks, outcome.cycles, variant.threads)
    except Exception as error:
        return Verdict(f"exception {type(error).__name__}", str(error), variant, True), None
    if wrong:
        return Verdict(wrong.split(":")[0], wrong, variant, True), outcome
    kind = "ok" if outcome.fault is None else outcome.fault[0].__name__
    return Verdict(kind, "", variant), outcome


@contextmanager
def shared_work() -> Iterator[None]:
    """Threads share whatever they may, however little work it is."""
    before = [getattr(module, name) for module, name, _ in _SHARING]
    for module, name, least in _SHARING:
        setattr(module, name, least)
    try:
        yield
    finally:
        for (module, name, _), value in zip(_SHARING, before, strict=True):
            setattr(module, name, value)


def smallest(case: Case, verdict: Verdict, seconds: float = 60.0) -> Program:
    """A small program that fails as the case does."""

    def fails(program: Program) -> bool:
        if not is_accepted(program):
            return False
        found, _ = judge(Runs(replace(case, program=program)), verdict.variant)
        return found.kind == verdict.kind

    return minimize(case.program, fails, seconds)


def assembly_of(case: Case, verdict: Verdict, program: Program) -> str:
    """The text of a `.tpu` file that says what is wrong with it."""
    lines = [f"seed {case.seed}, {verdict.variant}", *verdict.detail.splitlines()]
    return "".join(f"// {line}\n" for line in lines) + print_program(program)
