"""Command line."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import benchmarks.rule_fuzz
from benchmarks.rule_fuzz.harness import Subject, Tally, run
from benchmarks.rule_fuzz.subjects import subjects


def main(arguments: list[str] | None = None) -> int:
    """Run matches of all subjects (or those whose name contains `--only`); 1 if one failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rule_fuzz",
        description=benchmarks.rule_fuzz.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--matches", type=int, default=2000, help="over all subjects")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="subjects whose name contains this")
    parser.add_argument("--report", type=Path, help="write a table here")
    parser.add_argument("--show", type=int, default=3, help="failures to print")
    options = parser.parse_args(arguments)
    chosen = [s for s in subjects() if options.only in s.name]
    tally = Tally()
    start = time.perf_counter()
    for number, subject in enumerate(chosen):
        share = options.matches * (number + 1) // len(chosen) - options.matches * number // len(
            chosen
        )
        run(subject, share, options.seed << 32, tally)
    seconds = time.perf_counter() - start
    silent = [s.name for s in chosen if not tally.matches[s.name]]
    for failure in tally.failures[: options.show]:
        print(failure)
    wrong = sorted({f.subject for f in tally.failures})
    print(
        f"{tally.matches.total()} matches of {len(chosen)} subjects in {seconds:.0f} s, "
        f"seed {options.seed}: {len(tally.failures)} failures"
    )
    for name in wrong:
        print(f"  wrong: {name} ({sum(f.subject == name for f in tally.failures)})")
    for name in silent:
        print(f"  never fired: {name}")
    if options.report is not None:
        options.report.write_text(_report(chosen, tally, options.seed, arguments or sys.argv[1:]))
    return 1 if wrong or silent else 0


def _report(chosen: list[Subject], tally: Tally, seed: int, arguments: list[str]) -> str:
    """A page with the counts of every subject."""
    lines = [
        "# Rewrites on random matches",
        "",
        f"Made by `python -m benchmarks.rule_fuzz {' '.join(arguments)}`.",
        "",
        f"{tally.matches.total()} matches of {len(chosen)} rewrites from seed {seed} on, "
        f"{len(tally.failures)} wrong. A match is a module that the rewrite changed, on edge values "
        "of random types and shapes; a draw is a try for one. What may differ is what the rewrite "
        "declares (`compiler.rewrite.rewriter.Freedom`).",
        "",
        "| rewrite | matches | draws | wrong | may differ in |",
        "|---|---|---|---|---|",
    ]
    wrong = Counter(failure.subject for failure in tally.failures)
    for s in chosen:
        free = str(s.freedom.name or "NONE").lower().replace("_", " ").replace("|", ", ")
        free = "" if free == "none" else free
        counts = f"{tally.matches[s.name]} | {tally.draws[s.name]} | {wrong[s.name]}"
        lines.append(f"| {s.name} | {counts} | {free} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
