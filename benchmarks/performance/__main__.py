"""Measure this project beside XLA:CPU and write a page.

    python -m benchmarks.performance [--workloads NAME,...] [--models FOLDER] [--repeat N]
        [--levels native,avx512,avx2] [--threads N] [--results FILE] [--out docs/performance.md]

With ``--results`` rows are kept in a JSON file, to which later commands of the same version add
theirs; the page shows them all. What else stands on the page stays as it is. Without jax only this
project's side runs, and the page says so.

A row is marked, and the command ends with code 1, if a side failed, if the two sides' values differ,
or if the warm compile found not everything in the cache.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import shlex
import sys
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path

from benchmarks.performance.levels import LEVELS
from benchmarks.performance.measure import Options, Row, SideResult, measure
from benchmarks.performance.page import TITLE, page
from benchmarks.performance.startup import start_seconds
from benchmarks.performance.versions import commit
from benchmarks.performance.workloads import WORKLOADS, Workload, chosen, source_file
from benchmarks.sections import put_section
from tpu_sim.jit.host import NATIVE


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.performance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--workloads", default="", help="names between commas; * and ? match")
    parser.add_argument("--models", type=Path, action="append", default=[], help="NAME_full.hlo")
    parser.add_argument("--levels", default=NATIVE, help=f"between commas, of {', '.join(LEVELS)}")
    parser.add_argument("--repeat", type=int, default=5, help="turns of each workload, at most")
    parser.add_argument("--threads", type=int, default=2, help="of each side")
    parser.add_argument("--budget", type=float, default=60, help="seconds for a workload's turns")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for a single step")
    parser.add_argument("--results", type=Path, help="JSON file to keep rows in")
    parser.add_argument("--out", type=Path, help="the page to write; none: only print")
    parser.add_argument("--without-start", action="store_true", help="do not time starts")
    args = parser.parse_args(arguments)
    args.levels = args.levels.split(",")
    if unknown := [level for level in args.levels if level not in LEVELS]:
        parser.error(f"--levels: {', '.join(unknown)}: want some of {', '.join(LEVELS)}")
    return args


Rows = dict[tuple[str, str], Row]
"""By level and name."""


def load_results(path: Path | None) -> tuple[Rows, dict[str, float]]:
    """Rows, and start times, of earlier commands on this version of the project."""
    if path is None or not path.exists():
        return {}, {}
    kept = json.loads(path.read_text())
    if kept.get("commit") != commit():
        return {}, {}
    rows = [Row.from_json(row) for row in kept["rows"]]
    return {(row.level, row.name): row for row in rows}, kept["start"]


def keep_results(path: Path | None, rows: Rows, start: dict[str, float]) -> None:
    if path is not None:
        shown_rows = [row.to_json() for row in rows.values()]
        kept = {"commit": commit(), "rows": shown_rows, "start": start}
        path.write_text(json.dumps(kept, indent=1))


def run(workload: Workload, args: argparse.Namespace, options: Options, scratch: Path) -> Row:
    path = source_file(workload, args.models, scratch)
    if path is None:
        missing = SideResult(error=f"no {workload.name}_full.hlo: name its folder by --models")
        row = Row(workload.name, missing, counts=workload.counts, level=options.level)
    else:
        row = measure(workload, path, options)
    row.date = str(datetime.date.today())
    return row


def say(row: Row) -> None:
    """One line for whoever waits."""
    cells = [row.name, row.level]
    for side in (row.ours, row.xla):
        cells.append(side.error or f"{side.execute or 0:.4f} s, compile {side.compile_cold:.2f} s")
    if row.ratio is not None:
        cells.append(f"ratio {row.ratio:.2f}, CPU {row.cpu_ratio:.2f}")
    if row.difference is not None:
        cells.append(f"values differ by {row.difference:.1e}")
    cells += [f"PROBLEM: {problem}" for problem in row.problems]
    print(" | ".join(cells), file=sys.stderr, flush=True)


def main() -> None:
    """Measure, write the page, and exit with 1 if a row of it is not to be believed."""
    args = parse_arguments()
    with_xla = importlib.util.find_spec("jax") is not None
    options = Options(args.threads, args.repeat, args.budget, args.timeout, with_xla)
    rows, start = load_results(args.results)
    workloads = chosen([name for name in args.workloads.split(",") if name])
    with tempfile.TemporaryDirectory(prefix="tpuc-benchmark-") as folder:
        for workload, level in product(workloads, args.levels):
            held = replace(options, level=level)
            row = rows[level, workload.name] = run(workload, args, held, Path(folder))
            say(row)
            keep_results(args.results, rows, start)
    if not args.without_start:
        start = start_seconds()
        keep_results(args.results, rows, start)
    command = shlex.join(["python", "-m", "benchmarks.performance", *shown(sys.argv[1:])])
    ordered = [rows[at] for at in product(LEVELS, (w.name for w in WORKLOADS)) if at in rows]
    text = page(ordered, start, command, args.threads)
    if args.out is None:
        print(text)
    else:
        put_section("performance", text, args.out, TITLE)
    if any(row.problems for row in ordered):
        sys.exit(1)


def shown(arguments: list[str]) -> list[str]:
    """Arguments for the page: folders of this computer mean nothing elsewhere."""
    hidden = {"--models": "FOLDER", "--results": "FILE"}
    before = ["", *arguments]
    return [hidden.get(left, word) for left, word in zip(before, arguments, strict=False)]


if __name__ == "__main__":
    main()
