"""Which opcode runs on which element type: compile, run, compare with the evaluator, and write
docs/coverage.md.

    python -m benchmarks.coverage [--match OPCODE] [--machine llvm|numpy] [--jobs 2]

Each cell is a module of its own (`benchmarks.coverage_cases`) for v5e at the highest precision.
Integers and moved data must be equal to the evaluator's, floats within a few units in the last
place of their type. The exit code is 1 if a value is wrong or the compiler breaks.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import numpy as np
import numpy.typing as npt

from benchmarks.coverage_cases import case
from compiler.diagnostics import CompileError
from compiler.driver import CompileOptions
from compiler.frontends.models import parse_model
from compiler.hlo.dtypes import from_numpy
from compiler.hlo.evaluator import evaluate
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape, leaves
from runtime.api import compile as compile_model
from runtime.machines import MachineOptions

Array = npt.NDArray[np.generic]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "coverage.md"
DTYPES = (
    "pred", "s2", "u2", "s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f16",
    "bf16", "f32", "f8e4m3fn", "f8e5m2", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3", "f8e3m4", "c64",
    "f64",
)  # fmt: skip
SECONDS = 60
UNITS = 8.0  # in the last place, relative to each element (of sums: to the largest)
_FLOOR = float(np.finfo(np.float32).tiny)
OK, REFUSED, WRONG, BUG, ABSENT = "ok", "refused", "wrong", "bug", "n.a."


@dataclass(frozen=True)
class Cell:
    """The outcome of one opcode at one type; `reason` says more unless it is ok."""

    opcode: str
    dtype: str
    outcome: str
    reason: str = ""


def check(opcode: str, dtype: str, machine: str) -> Cell:
    """Compile and run one cell."""
    found = case(opcode, dtype)
    if found is None:
        return Cell(opcode, dtype, ABSENT)
    try:
        reason = _difference(opcode, found.text, found.inputs, machine)
    except CompileError as error:
        return Cell(opcode, dtype, REFUSED, _without_name(error.message))
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return Cell(opcode, dtype, BUG, f"{type(error).__name__}: {lines[0]}")
    return Cell(opcode, dtype, WRONG if reason else OK, reason)


def _difference(opcode: str, text: str, kind: str, machine: str) -> str:
    """What is wrong with the results of a module; empty if nothing is."""
    options = CompileOptions(precision="highest")
    executable = compile_model(text, machine=MachineOptions(machine=machine), options=options)
    module = parse_model(text)
    shapes = [s for p in module.entry.parameters for s in leaves(p.shape)]
    rng = np.random.default_rng(len(text))
    leaf_inputs = [made_up(rng, shape, kind) for shape in shapes]
    results = [np.asarray(r) for r in executable(*leaf_inputs)]
    if kind == "random":
        return _out_of_range(results)
    with np.errstate(all="ignore"):
        wanted = evaluate(module, leaf_inputs, "highest")
    for number, (got, want) in enumerate(zip(results, wanted, strict=True)):
        reason = mismatch(opcode, kind, got, np.asarray(want))
        if reason:
            return f"output {number}: {reason}"
    return ""


def mismatch(opcode: str, kind: str, got: Array, want: Array) -> str:
    """Where a result differs most from the evaluator's, beyond what opcode and type allow.

    `kind` says how the inputs were made. Empty if nothing differs.
    """
    traits = OPCODES[opcode].traits
    is_exact = bool(traits & (Trait.DATA_MOVEMENT | Trait.TUPLE_ONLY))
    is_sum = kind not in ("plain", "ordered") or bool(traits & Trait.CONTRACTION)
    return _mismatch(got, want, is_exact, is_sum)


def _mismatch(got: Array, want: Array, is_exact: bool, is_sum: bool) -> str:
    """Where two arrays differ most, beyond what their type allows."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"found {got.dtype}{list(got.shape)}, want {want.dtype}{list(want.shape)}"
    if not want.size:
        return ""
    a, b = (v.astype(np.complex128 if v.dtype.kind == "c" else np.float64) for v in (got, want))
    same = np.asarray(got == want) | (np.isnan(a) & np.isnan(b))
    dtype = from_numpy(want.dtype)
    if not is_exact and (dtype.is_float or dtype.is_complex):
        finite = np.isfinite(a) & np.isfinite(b)
        scale = np.abs(b)
        if is_sum:
            scale = np.full_like(scale, np.max(scale[np.isfinite(b)], initial=0.0))
        with np.errstate(all="ignore"):
            same |= finite & (np.abs(a - b) <= UNITS * _epsilon(want.dtype) * scale + _FLOOR)
    if same.all():
        return ""
    at = int(np.argmin(same.reshape(-1)))
    count = int(np.size(same) - np.sum(same))
    return f"{count} of {same.size}, e.g. {got.reshape(-1)[at]}, want {want.reshape(-1)[at]}"


def _epsilon(dtype: np.dtype[np.generic]) -> float:
    """The relative distance of neighbours; narrow types may be off by one of them."""
    from_one = {"float32": 2.0**-23, "complex64": 2.0**-23, "bfloat16": 2.0**-7 / 4}
    one = np.ones((), dtype)
    bits = one.view(f"u{dtype.itemsize}") + 1 if dtype.name not in from_one else None
    if bits is None:
        return from_one[dtype.name]
    step = float(np.asarray(bits.astype(f"u{dtype.itemsize}")).view(dtype).astype(np.float64)) - 1
    return step / (UNITS / 2)


def _out_of_range(results: Sequence[Array]) -> str:
    """Random numbers have no expected values: floats lie in [0, 1), other types in [0, 1]."""
    for result in results:
        if result.dtype == np.uint64:
            continue
        values = result.astype(np.float64)
        if not ((values >= 0) & (values <= 1)).all():
            return f"uniform numbers from {values.min()} to {values.max()}"
    return ""


def made_up(rng: np.random.Generator, shape: ArrayShape, kind: str) -> Array:
    """Inputs: "plain" has every kind of value, "ordered" all but NaN, "small" stays exact."""
    dtype, dims = shape.dtype, shape.dims
    if not dims:
        return np.asarray(1).astype(dtype.numpy)
    if dtype.kind == "pred":
        return rng.integers(0, 2, dims).astype(np.bool_)
    if dtype.is_integer:
        return _integers(rng, shape, kind)
    values = rng.standard_normal(dims) * (1.0 if dtype.bits > 8 else 0.5)
    if kind == "positive":
        values = np.abs(values) + 0.5
    if kind == "definite" and dims == (4, 4):
        values = 0.1 * values @ values.T + 2 * np.eye(4)
    elif dtype.is_complex:
        values = values + 1j * rng.standard_normal(dims)
    elif kind == "plain" and values.size > 8:
        special = rng.permutation([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5])
        values.reshape(-1)[: len(special)] = special
    with np.errstate(all="ignore"):
        return np.asarray(values.astype(np.float32) if not dtype.is_complex else values).astype(
            dtype.numpy
        )


def _integers(rng: np.random.Generator, shape: ArrayShape, kind: str) -> Array:
    dtype, dims = shape.dtype, shape.dims
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    high = (1 << (dtype.bits - (1 if dtype.is_signed else 0))) - 1
    wide = np.uint64 if not dtype.is_signed else np.int64
    if kind not in ("plain", "ordered"):
        low, high = max(low, -4), min(high, 4)
    values = rng.integers(low, high, dims, dtype=wide, endpoint=True)
    if kind in ("plain", "ordered") and values.size > 8:
        edges = np.array([0, 0, 1, 1, low, low, high, high if low == 0 else -1], wide)
        values.reshape(-1)[:8] = rng.permutation(edges)
    return values.astype(dtype.numpy)


def _without_name(message: str) -> str:
    """The reason alone, on one line: no instruction name, no place."""
    line = re.sub(r" \(in %[^)]*\)$", "", message.strip().splitlines()[0])
    return line.partition(": ")[2] if line.startswith("%") and ": " in line else line


def _late(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"not done in {SECONDS} s")


def _task(arguments: tuple[str, str, str]) -> Cell:
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(SECONDS)
    try:
        return check(*arguments)
    finally:
        signal.alarm(0)


def run(opcodes: Sequence[str], machine: str, jobs: int) -> list[Cell]:
    """All cells of some opcodes, in `jobs` processes."""
    tasks = [(opcode, dtype, machine) for opcode in opcodes for dtype in DTYPES]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        cells = []
        for cell in pool.imap(_task, tasks, chunksize=len(DTYPES)):
            cells.append(cell)
            if cell.outcome in (WRONG, BUG):
                text = f"{cell.outcome}: {cell.opcode} {cell.dtype}: {cell.reason}"
                print(text, file=sys.stderr, flush=True)
        return cells


def table(opcodes: Sequence[str], cells: Sequence[Cell]) -> str:
    """The matrix, and its footnotes."""
    notes: dict[str, int] = {}
    by_place = {(c.opcode, c.dtype): c for c in cells}
    lines = [f"| opcode | {' | '.join(DTYPES)} |", "|---" * (len(DTYPES) + 1) + "|"]
    for opcode in opcodes:
        row = [_mark(by_place[opcode, dtype], notes) for dtype in DTYPES]
        lines.append(f"| {opcode} | {' | '.join(row)} |")
    numbered = (f"{number}. {reason}" for reason, number in notes.items())
    return "\n".join(lines) + "\n\n" + "\n".join(numbered)


def _mark(cell: Cell, notes: dict[str, int]) -> str:
    if cell.outcome in (OK, ABSENT):
        return {OK: OK, ABSENT: ""}[cell.outcome]
    reason = cell.reason if cell.outcome == REFUSED else f"**{cell.outcome}**: {cell.reason}"
    number = notes.setdefault(reason, len(notes) + 1)
    return f"no [{number}]" if cell.outcome == REFUSED else f"**{cell.outcome}** [{number}]"


def page(opcodes: Sequence[str], cells: Sequence[Cell], machine: str) -> str:
    """The whole page."""
    count = Counter(cell.outcome for cell in cells)
    return (
        "# Coverage: opcode by element type\n\n"
        "Written by `python -m benchmarks.coverage`: each cell is a small module, compiled for v5e "
        f"at the highest precision, run on the {machine} machine and compared with the evaluator. "
        "`ok`: the values agree. `no`: refused by the compiler with the numbered message. Empty: "
        "XLA's typing has no such operation.\n\n"
        f"{count[OK]} ok, {count[REFUSED]} refused, {count[WRONG]} wrong, {count[BUG]} broken.\n\n"
        f"{table(opcodes, cells)}\n"
    )


def main() -> int:
    """Run the matrix; write the page when all of it was run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--match", default="", help="only opcodes that contain this")
    parser.add_argument("--machine", default="llvm", choices=("llvm", "numpy"), help="what runs")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    args = parser.parse_args()
    opcodes = [name for name in sorted(OPCODES) if args.match in name]
    started = time.perf_counter()
    cells = run(opcodes, args.machine, args.jobs)
    text = page(opcodes, cells, args.machine)
    if args.match:
        print(text)
    else:
        PAGE.write_text(text)
    print(f"{len(cells)} cells in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    return int(any(cell.outcome in (WRONG, BUG) for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
