"""A few programs of the generator whose full runs are in docs/machine-programs.md."""

from __future__ import annotations

import random

import pytest

from benchmarks.machine_fuzz.minimize import minimize
from benchmarks.machine_fuzz.mutate import mutated
from benchmarks.machine_fuzz.trial import accepted_case, is_accepted, try_seed
from tpu_sim.isa.assembly import print_program
from tpu_sim.isa.assembly_parser import parse_program
from tpu_sim.isa.program import Program, blocks_of


@pytest.mark.parametrize("seed", range(5_000_000, 5_000_024))
def test_machines_agree(seed: int) -> None:
    _, verdict = try_seed(seed)
    assert not verdict.is_wrong, f"{verdict.detail} {verdict.variant}"


def _rows(program: Program) -> set[str]:
    bodies = [program.main, *(kernel.body for kernel in program.kernels.values())]
    blocks = [block for body in bodies for block in blocks_of(body)]
    return {i.row.name for block in blocks for bundle in block.bundles for i in bundle}


def test_the_minimiser_keeps_what_fails_and_little_else() -> None:
    case = next(c for c in map(accepted_case, range(2, 50)) if "vxpose.swap" in _rows(c.program))
    small = minimize(
        case.program, lambda p: is_accepted(p) and "vxpose.swap" in _rows(p), seconds=20
    )
    text = print_program(small)
    assert text.count("vxpose.swap") == 1 and text.count("{ v") <= 3
    assert print_program(parse_program(text)) == text


def test_mutants_are_accepted_and_differ() -> None:
    case = accepted_case(1)
    mutants = [mutated(case.program, random.Random(seed)) for seed in range(4)]
    assert all(is_accepted(mutant) for mutant in mutants)
    assert any(print_program(mutant) != print_program(case.program) for mutant in mutants)
