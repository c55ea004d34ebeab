"""Random programs on both machines.

    python -m benchmarks.machine_fuzz --programs 1000 [--seed 0] [--jobs 1] [--out FOLDER] [--write PAGE]

Programs come from the grammar of what the checker accepts (`programs`, `mutate`). Each must mean the
same on the NumPy machine and on the LLVM machine: memory, cycles, causes, and the kind and kernel of
a fault; some also with two host threads, with a limit of cycles, and estimated. Seeds run in child
processes with limits of time and memory. What differs is made small and written as a `.tpu` file;
what became of each seed is kept in `FOLDER/seeds.jsonl`, where the same command goes on.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.sections import put_section
from benchmarks.seeds import Ledger, Plan, run

_TITLE = "# Random programs on both machines\n"
_WRONG = ("wrong", "crash", "hang")
_BATCH = 400
"""Seeds of a process: a process takes as long to start as four programs run."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.machine_fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--programs", type=int, default=200, help="how many seeds")
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("machine-failures"), help="for .tpu files")
    parser.add_argument("--write", type=Path, help="a page that gets the counts")
    options = parser.parse_args()
    ledger = Ledger(options.out, "run", range(options.seed, options.seed + options.programs))

    def tell(record: dict[str, Any]) -> None:
        ledger.keep(record)
        if record["kind"].startswith(_WRONG):
            print(f"{record['seed']}: {record['kind']}: {record['detail'][:400]}", flush=True)

    arguments = [str(options.out)]
    plan = Plan("benchmarks.machine_fuzz.worker", ledger.missing(), options.jobs, arguments)
    run(replace(plan, batch=_BATCH), tell)
    page = ledger.page("", "outcome on both machines")
    print(page)
    if options.write:
        put_section("run", page, options.write, _TITLE)
    sys.exit(any(record["kind"].startswith(_WRONG) for record in ledger.records))


if __name__ == "__main__":
    main()
