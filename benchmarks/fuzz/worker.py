"""A batch of seeds in a process of its own: a line of JSON when one begins and when it ends.

    python -m benchmarks.fuzz.worker FIRST LAST [--xla] [--numpy-cycles N] [--series NAME]

The parent (`benchmarks.seeds`) reads the lines; where they stop, the process died or hangs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings

from benchmarks.fuzz.check import INTERNAL, Outcome, Ways, check
from benchmarks.fuzz.series import NOTHING, SERIES, target_of
from benchmarks.fuzz.xla_process import XlaProcess
from benchmarks.limits import SlowError, processor_seconds, watch_memory

SECONDS = 60


def limited(text: str, ways: Ways, seed: int) -> Outcome:
    """`check` within `SECONDS` of processor time; a hang is an outcome."""
    try:
        with processor_seconds(SECONDS):
            return check(text, ways, seed)
    except SlowError as error:
        trace, place = error.__traceback__, ""
        while trace is not None:
            code = trace.tb_frame.f_code
            if "/benchmarks/" not in code.co_filename:
                place = f"{code.co_filename.split('/')[-1]}:{code.co_name}"
                break
            trace = trace.tb_next
        return Outcome("hang", f"not done in {SECONDS} s, in {place}", f"hang {place}")
    except MemoryError:
        return Outcome(INTERNAL, "MemoryError", "memory")


def main() -> None:
    """Run the seeds given on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--xla", action="store_true")
    parser.add_argument("--numpy-cycles", type=int, default=0)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--target", default="")
    parser.add_argument("--series", choices=SERIES, default="random")
    args = parser.parse_args()
    watch_memory()
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    xla = XlaProcess() if args.xla else None
    series = SERIES[args.series]()
    for seed in range(args.first, args.last):
        out.write(json.dumps({"begin": seed}) + "\n")
        out.flush()
        started = time.perf_counter()
        on_numpy = args.numpy_cycles if seed % args.every == 0 else 0
        try:
            text, other = series.small(seed)
        except Exception as error:
            outcome = Outcome("generator", f"{type(error).__name__}: {error}", "generator")
        else:
            as_stablehlo = seed % args.every == 1
            target = target_of(seed, args.target)
            ways = Ways(xla, on_numpy, True, target, as_stablehlo, other)
            outcome = limited(text, ways, seed) if text else Outcome(NOTHING)
        seconds = round(time.perf_counter() - started, 2)
        out.write(json.dumps({"seed": seed, "seconds": seconds, **outcome.as_dict()}) + "\n")
        out.flush()
    if xla is not None:
        xla.close()


if __name__ == "__main__":
    sys.exit(main())
