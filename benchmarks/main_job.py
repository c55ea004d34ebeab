"""Run the example models on an emulated v5e and write docs/main-job.md.

    python -m benchmarks.main_job [--match TEXT] [--without TEXT] [--xla]

Each model is compiled and executed in a process of its own with random inputs. With ``--xla`` (needs jax)
the same text also runs on XLA's CPU backend in turn, for the ratio of execution times.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import llvmlite
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "main-job.md"
MODELS = (
    "mandelbrot_while_full", "heat_stencil_full", "kmeans_full", "mlp_train_full", "transformer_block",
    "gpt2_fwd_full", "llama_fwd_scan_full", "gpt2_train_full",
)  # fmt: skip
DOT_SIZES = (1024, 2048, 4096)
ESTIMATED = ("gpt2_train_full",)
"""Too large for a computer with 24 GB beside other work: cycles by ``tpuc estimate``, which are the same."""


@dataclass(frozen=True)
class Row:
    """One measured model; `failure` is the last line of the error when it did not run."""

    name: str
    report: dict[str, object]
    xla_seconds: float | None
    failure: str = ""


def dot_text(n: int) -> str:
    """HLO of a bf16 n x n x n matmul."""
    shape = f"bf16[{n},{n}]{{1,0}}"
    return (
        f"HloModule dot_{n}, entry_computation_layout={{({shape}, {shape})->{shape}}}\n\n"
        f"ENTRY main {{\n  a = {shape} parameter(0)\n  b = {shape} parameter(1)\n"
        f"  ROOT d = {shape} dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n}}\n"
    )


def measure(path: Path, *, with_xla: bool, timeout: float) -> Row:
    """Run ``tpuc run --json`` on a model, and XLA:CPU on the same text if asked."""
    action = "estimate" if path.stem in ESTIMATED else "run"
    command = [sys.executable, "-m", "tpuc", action, str(path), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return Row(path.stem, {}, None, f"no result within {timeout:g} s")
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["(no message)"]
        return Row(path.stem, {}, None, lines[0])
    seconds = None
    if with_xla and action == "run":
        xla = [sys.executable, "-m", "benchmarks.xla_cpu", str(path)]
        other = subprocess.run(xla, capture_output=True, text=True, timeout=timeout, check=False)
        seconds = float(other.stdout) if other.returncode == 0 else None
    return Row(path.stem, json.loads(done.stdout), seconds)


def number(row: Row, key: str) -> float:
    """A number of the report."""
    return float(str(row.report[key]))


def line(row: Row) -> str:
    """One row of the table."""
    if row.failure:
        return f"| {row.name} | {row.failure} " + "| " * 9 + "|"
    estimated = bool(row.report.get("estimated"))
    cells = [
        row.name + (" (estimate)" if estimated else ""),
        f"{number(row, 'cycles'):,.0f}",
        f"{number(row, 'seconds') * 1e3:,.3f}",
        f"{number(row, 'mxu_utilisation'):.1%}",
        f"{number(row, 'mxu_busy'):.1%}",
        f"{number(row, 'hbm_bytes') / 1e6:,.0f}",
        f"{number(row, 'hbm_peak_bytes') / 1e9:.3f}",
        f"{number(row, 'compile_seconds'):.1f}",
        "" if estimated else f"{number(row, 'execute_seconds'):.2f}",
        "" if row.xla_seconds is None else f"{row.xla_seconds:.2f}",
        ""
        if row.xla_seconds is None
        else f"{number(row, 'execute_seconds') / row.xla_seconds:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def slowest(row: Row, count: int = 6) -> str:
    """A table of the slowest kernels: where the cycles go."""
    kernels = sorted(row.report.get("kernels", ()), key=lambda k: -k["cycles"])[:count]  # type: ignore[attr-defined, index]
    lines = [
        "| kernel | calls | cycles | MXU utilisation | waiting on DMA | what |",
        "|---|---|---|---|---|---|",
    ]
    for k in kernels:
        wait = k["dma_wait_cycles"] / max(k["cycles"], 1)
        lines.append(
            f"| {k['name']} | {k['calls']} | {k['cycles']:,} | {k['mxu_utilisation']:.1%} "
            f"| {wait:.1%} | {k['note']} |"
        )
    return "\n".join(lines)


def page(rows: list[Row], command: str) -> str:
    """The whole page."""
    head = (
        "# The main job in numbers\n\n"
        f"Written by `{command}` on {datetime.date.today()}: Python {platform.python_version()}, "
        f"NumPy {np.__version__}, llvmlite {llvmlite.__version__}, {platform.machine()}, target v5e.\n"
        "Cycles are the emulated chip's; seconds are this computer's (compile from a warm code cache where "
        "one exists). XLA is its CPU backend on the same text, best of three runs.\n\n"
        "| model | cycles | ms on v5e | MXU utilisation | MXU busy | HBM MB | HBM peak GB | compile s "
        "| execute s | XLA:CPU s | ratio |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
    )
    tables = "\n\n".join(f"## {r.name}\n\n{slowest(r)}" for r in rows if not r.failure)
    return head + "\n".join(line(r) for r in rows) + "\n\n" + tables + "\n"


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--match", default="", help="only models whose name contains this")
    parser.add_argument("--without", default="", help="leave out models whose name contains this")
    parser.add_argument("--xla", action="store_true", help="time XLA on the CPU too")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for a model")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        paths = [ROOT / "examples" / f"{name}.hlo" for name in MODELS]
        for size in DOT_SIZES:
            paths.append(Path(folder) / f"dot_bf16_{size}.hlo")
            paths[-1].write_text(dot_text(size))
        for path in paths:
            left_out = args.without and args.without in path.stem
            if args.match in path.stem and not left_out:
                rows.append(measure(path, with_xla=args.xla, timeout=args.timeout))
                print(line(rows[-1]), flush=True)
    if not args.match:
        PAGE.write_text(
            page(rows, "python -m benchmarks.main_job" + (" --xla" if args.xla else ""))
        )


if __name__ == "__main__":
    main()
