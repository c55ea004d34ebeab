"""A few programs of the generator whose full runs are in docs/machine-programs.md."""

from __future__ import annotations

import random

import pytest

from benchmarks.machine_fuzz.minimize import minimize
from benchmarks.machine_fuzz.mutate import mutated
from benchmarks.machine_fuzz.trial import accepted_case, is_accepted, try_seed
from tpu_sim.isa.assembly import print_program
from tpu_sim.isa.assembly_parser import parse_program
from tpu_sim.isa.program import VMEM, Kernel, Program, blocks_of
from tpu_sim.jit.hbm_windows import windows_in_place


@pytest.mark.parametrize("seed", range(5_000_000, 5_000_024))
def test_machines_agree(seed: int) -> None:
    _, verdict = try_seed(seed)
    assert not verdict.is_wrong, f"{verdict.detail} {verdict.variant}"


def _rows(program: Program) -> set[str]:
    bodies = [program.main, *(kernel.body for kernel in program.kernels.values())]
    blocks = [block for body in bodies for block in blocks_of(body)]
    return {i.row.name for block in blocks for bundle in block.bundles for i in bundle}


def test_windows_are_read_in_place_of_all_forms() -> None:
    """Of one piece, of equal ones, and where an earlier kernel's window is only read again."""
    forms = set()
    for seed in range(5_000_000, 5_000_040):
        for kernel in accepted_case(seed).program.kernels.values():
            for found in windows_in_place(kernel).values():
                forms.add("pieces" if found.pieces.gap_bytes else "one piece")
            started = {kernel.descriptors[n] for n in _transfers(kernel)}
            left = {d.window for d in started if d.src_space == VMEM}
            filled = {d.window for d in started if d.dst_space == VMEM}
            forms |= {"kept" for n in filled - left if kernel.windows[n].kept}
    assert forms == {"one piece", "pieces", "kept"}


def _transfers(kernel: Kernel) -> set[int]:
    """Numbers of the descriptors that a kernel uses."""
    instrs = [i for b in blocks_of(kernel.body) for bundle in b.bundles for i in bundle]
    return {i.operands[i.row.descriptor_index] for i in instrs if i.row.is_transfer}


def test_the_minimiser_keeps_what_fails_and_little_else() -> None:
    case = next(c for c in map(accepted_case, range(2, 50)) if "vxpose.swap" in _rows(c.program))
    small = minimize(
        case.program, lambda p: is_accepted(p) and "vxpose.swap" in _rows(p), seconds=20
    )
    text = print_program(small)
    assert text.count("vxpose.swap") == 1 and text.count("{ v") <= 6
    assert print_program(parse_program(text)) == text


def test_mutants_are_accepted_and_differ() -> None:
    case = accepted_case(1)
    mutants = [mutated(case.program, random.Random(seed)) for seed in range(4)]
    assert all(is_accepted(mutant) for mutant in mutants)
    assert any(print_program(mutant) != print_program(case.program) for mutant in mutants)
