"""Every opcode at awkward sizes in either dimension: the LLVM machine against the evaluator.

The cases are those of the coverage table. Each shape gets one of the opcode's element types in
turn, so that all types meet all sizes; many cases are computations of one module.

    TPUC_ALL_SHAPES=1 pytest tests/differential/test_awkward_shapes.py

runs every type at every size.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

import tpuc
from benchmarks.coverage import DTYPES, made_up, mismatch
from benchmarks.coverage_cases import Case, case
from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import leaves
from compiler.hlo.shape_text import print_shape

SIZES = (0, 1, 7, 8, 127, 128, 129, 1025)
SHAPES = [(n, 3) for n in SIZES] + [(3, n) for n in SIZES]
REFUSED = frozenset(
    {
        "dynamic-reshape", "infeed", "outfeed", "ragged-all-to-all", "recv", "recv-done", "send",
        "send-done", "set-dimension-size", "shuffle",
    }
)  # fmt: skip
"""What the compiler refuses at any shape (docs/coverage.md says why)."""
BATCH = 6
OPCODE_NAMES = sorted(OPCODES.keys() - REFUSED)
BATCHES = [OPCODE_NAMES[n : n + BATCH] for n in range(0, len(OPCODE_NAMES), BATCH)]


@dataclass(frozen=True)
class Cell:
    """One opcode at one type and shape."""

    opcode: str
    dtype: str
    dims: tuple[int, int]
    case: Case

    def __str__(self) -> str:
        return f"{self.opcode} {self.dtype}[{self.dims[0]},{self.dims[1]}]"


def cells(opcode: str) -> Iterator[Cell]:
    """The cells of an opcode: one type for each shape (or all), every text once."""
    seen: set[str] = set()
    types = [d for d in DTYPES if d != "f64" and case(opcode, d) is not None]
    first = OPCODE_NAMES.index(opcode)
    for number, dims in enumerate(SHAPES):
        turn = types[(first + 3 * number) % len(types)]
        for dtype in types if os.environ.get("TPUC_ALL_SHAPES") else [turn]:
            found = case(opcode, dtype, dims)
            if found is not None and found.inputs != "random" and found.text not in seen:
                seen.add(found.text)
                yield Cell(opcode, dtype, dims, found)


def module_of(batch: list[Cell]) -> str:
    """A module that calls every case and returns all their results."""
    computations, lines, results = [], [], []
    parameters = 0
    for number, cell in enumerate(batch):
        entry = parse_module(cell.case.text).entry
        computations.append(_as_computation(cell.case.text, number))
        names = []
        for parameter in entry.parameters:
            shape = print_shape(parameter.shape, False)
            lines.append(f"  p{parameters} = {shape} parameter({parameters})")
            names.append(f"p{parameters}")
            parameters += 1
        shape = print_shape(entry.root_instruction.shape, False)
        lines.append(f"  r{number} = {shape} call({', '.join(names)}), to_apply=case_{number}")
        results.append((shape, f"r{number}"))
    shapes, names = ", ".join(s for s, _ in results), ", ".join(n for _, n in results)
    lines.append(f"  ROOT all = ({shapes}) tuple({names})")
    return "HloModule m\n" + "\n".join([*computations, "ENTRY e {", *lines, "}"])


def _as_computation(text: str, number: int) -> str:
    """A case's computations, its entry one of them, with names of their own."""
    text = text.removeprefix("HloModule m\n")
    for name in re.findall(r"^(\w+) \{", text, re.MULTILINE):
        text = re.sub(rf"(^|=){name}\b", rf"\g<1>{name}_{number}", text, flags=re.MULTILINE)
    return text.replace("ENTRY e {", f"case_{number} {{")


def differences(batch: list[Cell]) -> list[str]:
    """What differs between machine and evaluator, by cell."""
    text = module_of(batch)
    module = parse_module(text)
    rng = np.random.default_rng(len(text))
    inputs = [
        made_up(rng, shape, cell.case.inputs)
        for cell, parameters in zip(batch, _parameters(batch), strict=True)
        for parameter in parameters
        for shape in leaves(parameter.shape)
    ]
    got = [np.asarray(r) for r in tpuc.compile(text, precision="highest")(*inputs)]
    with np.errstate(all="ignore"):
        want = [np.asarray(r) for r in evaluate(module, inputs, "highest")]
    owners = [
        cell
        for cell, result in zip(batch, module.entry.root_instruction.operands, strict=True)
        for _ in leaves(result.shape)
    ]
    found = []
    for cell, mine, theirs in zip(owners, got, want, strict=True):
        reason = mismatch(cell.opcode, cell.case.inputs, mine, theirs)
        if reason:
            found.append(f"{cell}: {reason}")
    return found


def _parameters(batch: list[Cell]) -> list[list[HloInstruction]]:
    return [list(parse_module(cell.case.text).entry.parameters) for cell in batch]


@pytest.mark.parametrize("opcodes", BATCHES, ids=" ".join)
def test_machine_and_evaluator_agree(opcodes: list[str]) -> None:
    batch = [cell for opcode in opcodes for cell in cells(opcode)]
    try:
        found = differences(batch) if batch else []
    except Exception:
        found = [reason for cell in batch for reason in _alone(cell)]
        assert found, "a batch fails whose cells pass one by one"
    assert not found, "\n".join(found)


def _alone(cell: Cell) -> list[str]:
    """What is wrong with one cell, an exception among it."""
    try:
        return differences([cell])
    except Exception as error:
        return [f"{cell}: {type(error).__name__}: {error}"]
