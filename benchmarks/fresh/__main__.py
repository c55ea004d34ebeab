"""Compile, check and estimate programs that JAX traces, each from another field.

    pip install tpuc[jax]
    python -m benchmarks.fresh [--only GLOB] [--target v5e] [--out docs/fresh-programs.md]

At a small size each is run with random inputs and compared with JAX on the CPU; at a real size it is
estimated, in a process of its own. The exit code is 1 if one is refused or differs.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import os
import pkgutil
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

import benchmarks.fresh
import tpuc
from benchmarks.distance.models import Estimator, KernelDistance, Model
from benchmarks.fresh.registry import PROGRAMS, Program
from benchmarks.sections import version

_TIMEOUT = 600.0


def error(program: Program) -> float:
    """The largest difference to JAX at the small size, over an output's largest element."""
    function, arguments = program.make(**program.small)
    rng = np.random.default_rng(0)
    values = [argument.value(rng) for argument in arguments]
    with jax.default_matmul_precision("highest"):
        wanted = jax.tree.leaves(jax.jit(function, keep_unused=True)(*values))
    executable = tpuc.compile(program.hlo(is_small=True), precision="highest")
    worst = 0.0
    for got, want in zip(executable(*values), wanted, strict=True):
        a, b = (np.asarray(x).astype(np.float64) for x in (got, want))
        worst = max(worst, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)))
    return worst


def estimate(program: Program, target: str) -> Model:
    """The program at its real size."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{program.name}_full.hlo"
        path.write_text(program.hlo(is_small=False), encoding="utf-8")
        return Estimator(target, Path(folder), _TIMEOUT).estimate(path, {})


def row(program: Program, model: Model, wrong: float) -> str:
    """A row of the page."""
    sizes = ", ".join(f"{name} {value}" for name, value in program.real.items())
    start = f"| {program.name} | {sizes} | {wrong:.0e} "
    if model.error:
        return f"{start}| {model.error.replace('|', '/')} | | | | | |"
    least = max(1, sum(kernel.least_bytes for kernel in model.kernels))
    roof = sum(kernel.roofline_cycles for kernel in model.kernels)
    loops = [kernel for kernel in model.kernels if kernel.roofline == "none"]
    others = [kernel for kernel in model.kernels if kernel not in loops]
    worst = max(others or loops, key=lambda kernel: kernel.lost)
    inside = sum(kernel.cycles for kernel in loops) / max(1, model.cycles)
    beside = model.cycles - sum(kernel.cycles for kernel in loops)
    return (
        f"{start}| {model.seconds:.1f} | {model.cycles:,} | {inside:.0%} "
        f"| {beside / max(1.0, roof):.1f} | {model.hbm_bytes / 1e6:,.1f} "
        f"| {model.hbm_bytes / least:.1f} | {_what(worst)} |"
    )


def _what(kernel: KernelDistance) -> str:
    return f"{kernel.kind}, {kernel.times:.1f} times its roofline"


def page(rows: list[str], target: str) -> str:
    """The page as Markdown."""
    head = (
        f"# Fresh programs\n\nWritten by `python -m benchmarks.fresh` for {target}, {version()}: "
        "programs from many fields, as JAX traces them. Mechanisms were made for what such "
        "programs showed, none for one of them.\n\n*Error* is the largest difference to JAX on the "
        "CPU at a small size, over the output's largest element. Compile times are wall time, other "
        "work beside. A loop that is one kernel has no roofline; *in loops* is such kernels' share "
        "of the cycles, and *over the roof* what all others take over their rooflines. *Bytes* are "
        "HBM's, *over the least* what was moved over operands and results once."
    )
    table = (
        "| program | sizes | error | compile s | cycles | in loops | over the roof | MB | over the least "
        "| loses most |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    return "\n".join([head, "", table, *rows]) + "\n"


def main() -> int:
    """Print or write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="*", metavar="GLOB", help="names of programs")
    parser.add_argument("--target", default="v5e")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    for module in pkgutil.iter_modules(benchmarks.fresh.__path__):
        if module.name != "__main__":
            importlib.import_module(f"benchmarks.fresh.{module.name}")  # notes its programs
    rows, failed = [], False
    for name, program in sorted(PROGRAMS.items()):
        if not fnmatch.fnmatch(name, args.only):
            continue
        wrong, model = error(program), estimate(program, args.target)
        failed |= bool(model.error) or not wrong <= program.tolerance
        rows.append(row(program, model, wrong))
        print(rows[-1], file=sys.stderr, flush=True)
    text = page(rows, args.target)
    if args.out is None:
        print(text)
    else:
        args.out.write_text(text, encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.exit(main())
