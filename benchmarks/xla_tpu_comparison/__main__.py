"""Compile the workloads of a folder of XLA:TPU records and put our cycles beside its estimates.

    python -m benchmarks.xla_tpu_comparison FOLDER [--out docs/xla-comparison.md]
        [--into docs/accuracy.md] [--only GLOB] [--sample N] [--jobs N] [--cache FOLDER]
        [--worst N] [--target CHIP]

Nothing is executed: programs are estimated with values off. Results are kept in the cache folder
under a digest of our sources and of the model, so that a second run costs seconds. The page is
printed, or written with ``--out``; ``--into`` fills the part named xla of a page with the summary.
"""

from __future__ import annotations

import argparse
import fnmatch
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.sections import put_section
from benchmarks.xla_tpu_comparison.matching import match
from benchmarks.xla_tpu_comparison.ours import Estimator, Ours
from benchmarks.xla_tpu_comparison.page import Line, page, summary
from benchmarks.xla_tpu_comparison.records import Record, read_records


def sampled(records: Sequence[Record], count: int) -> list[Record]:
    """`count` records spread evenly over all, 0 for all of them."""
    if not 0 < count < len(records):
        return list(records)
    return [records[i * len(records) // count] for i in range(count)]


def estimates(
    records: Sequence[Record], estimator: Estimator, jobs: int
) -> Iterator[tuple[Record, Ours]]:
    """Each record with what tpuc makes of it; `jobs` processes at a time."""
    texts = [record.text for record in records]
    if jobs == 1:
        yield from zip(records, map(estimator.estimate, texts), strict=True)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from zip(records, pool.imap(estimator.estimate, texts), strict=True)


def main() -> int:
    """Estimate, print or write the page. The exit code is 1 if a workload does not compile."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--into", type=Path, help="a page with a part named xla")
    parser.add_argument("--only", default="*", metavar="GLOB", help="names of workloads")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="so many of them")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--worst", type=int, default=40, help="rows of the table of outliers")
    cache = Path(tempfile.gettempdir()) / "tpuc-xla-comparison"
    parser.add_argument("--cache", type=Path, default=cache, metavar="FOLDER")
    parser.add_argument("--target", default="v5e", metavar="CHIP", help="a chip with records")
    args = parser.parse_args()
    every = [
        r for r in read_records(args.folder, args.target) if fnmatch.fnmatch(r.name, args.only)
    ]
    lines: list[Line] = []
    for record, ours in estimates(
        sampled(every, args.sample), Estimator(args.target, args.cache), args.jobs
    ):
        matches, missing = match(record, ours)
        lines.append(Line(record, ours, tuple(matches), tuple(missing)))
        print(f"{record.name}: {ours.error or f'{ours.cycles:,}'}", file=sys.stderr, flush=True)
    text = page(lines, args.target, args.worst)
    if args.out is None:
        print(text)
    else:
        args.out.write_text(text)
    if args.into is not None:
        put_section("xla", summary(lines, args.target), args.into, "# Accuracy")
    return int(any(line.ours.error for line in lines))


if __name__ == "__main__":
    sys.exit(main())
