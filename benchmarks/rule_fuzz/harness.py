"""One match: build it, evaluate it, rewrite it, verify it, evaluate it again, compare."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.rule_fuzz.compare import difference
from benchmarks.rule_fuzz.generator import Generator, Impossible
from benchmarks.rule_fuzz.index_planners import ALL_PLANNERS
from benchmarks.rule_fuzz.values import Array
from compiler.diagnostics import UnsupportedError
from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloModule
from compiler.hlo.printer import print_module
from compiler.hlo.verifier import verify
from compiler.rewrite.rewriter import Freedom

MOST_DRAWS = 400
"""Draws without one match after which a subject counts as one that never fires."""

Inputs = Sequence[Array]


@dataclass(frozen=True)
class Subject:
    """One rewrite: `make` draws a module (or raises `Impossible`), `apply` rewrites it in place and
    says whether it did. `split` turns inputs of the module into those of the rewritten one, and
    `join` its results into those of the module."""

    name: str
    make: Callable[[Generator], HloModule]
    apply: Callable[[HloModule], bool]
    freedom: Freedom = Freedom.NONE
    edges: float = 0.5
    split: Callable[[Inputs], Inputs] = field(default=lambda inputs: inputs)
    join: Callable[[Inputs, Inputs], Inputs] = field(default=lambda results, like: results)


@dataclass(frozen=True)
class Failure:
    """A match after which the module means something else (or nothing)."""

    subject: str
    seed: int
    what: str
    before: str
    after: str

    def __str__(self) -> str:
        return (
            f"{self.subject}, seed {self.seed}: {self.what}\n--- before\n{self.before}"
            f"--- after\n{self.after}"
        )


@dataclass
class Tally:
    """What was seen of all subjects."""

    matches: Counter[str] = field(default_factory=Counter)
    draws: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)


def try_draw(subject: Subject, seed: int) -> Failure | bool:
    """One draw: a failure, or whether the subject fired."""
    rng = np.random.default_rng((zlib.crc32(subject.name.encode()), seed))
    g = Generator(rng, ALL_PLANNERS, subject.edges)
    try:
        module = subject.make(g)
    except Impossible:
        return False
    verify(module)
    before, what, after = print_module(module), "", ""
    with np.errstate(all="ignore"):
        try:
            want = evaluate(module, g.inputs, "highest")
            if not subject.apply(module):
                return False
            after = print_module(module)
            verify(module)
            found = subject.join(evaluate(module, list(subject.split(g.inputs)), "highest"), want)
        except UnsupportedError:
            return False
        except Exception as error:  # whatever it is, the match is shown
            what = f"{type(error).__name__}: {error}"
        else:
            what = _difference(want, found, subject.freedom)
    return Failure(subject.name, seed, what, before, after) if what else True


def _difference(want: Inputs, found: Inputs, freedom: Freedom) -> str:
    if len(want) != len(found):
        return f"{len(found)} results, wanted {len(want)}"
    with np.errstate(all="ignore"):
        found_wrong = [difference(w, f, freedom) for w, f in zip(want, found, strict=True)]
    return next((what for what in found_wrong if what), "")


def run(subject: Subject, matches: int, first_seed: int, tally: Tally) -> None:
    """Draw until so many matches were compared (or none fires); failures are kept, not raised."""
    fired = 0
    seed = first_seed
    while fired < matches and tally.draws[subject.name] < MOST_DRAWS * (
        tally.matches[subject.name] + 1
    ):
        result = try_draw(subject, seed)
        seed += 1
        tally.draws[subject.name] += 1
        if isinstance(result, Failure):
            tally.failures.append(result)
        if result is not False:
            fired += 1
            tally.matches[subject.name] += 1
