"""Random programs on both machines.

    python -m benchmarks.machine_fuzz --programs 1000 [--seed 0] [--out FOLDER] [--write PAGE]

Programs come from the grammar of what the checker accepts (`programs`, `mutate`). Each must mean the
same on the NumPy machine and on the LLVM machine: memory, cycles, causes, and the kind and kernel of
a fault; some also with two host threads, with a limit of cycles, and estimated. Seeds run in child
processes with limits of time and memory. What differs is made small and written as a `.tpu` file.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from benchmarks.machine_fuzz.trial import assembly_of, smallest, try_seed
from benchmarks.sections import put_section, version

_BATCH = 100
_BATCH_SECONDS = 900
_MEMORY_BYTES = 12 << 30  # mapped: of the chip's memories little is used


_TITLE = "# Random programs on both machines\n"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.machine_fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--programs", type=int, default=200, help="how many seeds")
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    parser.add_argument("--out", type=Path, default=Path("machine-failures"), help="for .tpu files")
    parser.add_argument("--write", type=Path, help="a page that gets the counts")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(options.seed, options.programs, options.out)
        return
    counts = _run(options.seed, options.programs, options.out)
    if options.write:
        text = _page(options.seed, options.programs, counts)
        put_section("run", text, options.write, _TITLE)
    sys.exit(1 if any(kind.startswith("wrong") for kind in counts) else 0)


def _run(first: int, programs: int, out: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    at, end, start = first, first + programs, time.monotonic()
    while at < end:
        done, note = _batch(at, min(_BATCH, end - at), out)
        counts.update(kind for _, kind in done)
        at += len(done)
        if note:  # the seed after the last one that is done ended the child
            counts[f"wrong: {note}"] += 1
            print(f"seed {at}: {note}", flush=True)
            at += 1
        print(
            f"{at - first} programs, {time.monotonic() - start:.0f} s: {_text(counts)}", flush=True
        )
    return counts


def _batch(first: int, count: int, out: Path) -> tuple[list[tuple[int, str]], str]:
    """Seeds that are done, with what became of them, and how the child ended if not well."""
    arguments = ["--child", "--seed", str(first), "--programs", str(count), "--out", str(out)]
    command = [sys.executable, "-m", "benchmarks.machine_fuzz", *arguments]
    note = ""
    try:
        child = subprocess.run(command, stdout=subprocess.PIPE, timeout=_BATCH_SECONDS, check=False)
        output = child.stdout
        if child.returncode:
            note = f"the process ended with {child.returncode}"
    except subprocess.TimeoutExpired as error:
        output, note = error.stdout or b"", "timeout"
    lines = output.decode().splitlines()
    return [tuple(json.loads(line)) for line in lines if line.startswith("[")], note


def _child(first: int, count: int, out: Path) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["TPUC_NO_CACHE"] = "1"
    for seed in range(first, first + count):
        case, verdict = try_seed(seed)
        kind = verdict.kind
        if verdict.is_wrong:
            kind = f"wrong: {kind}"
            print(f"seed {seed}: {verdict.detail}", file=sys.stderr, flush=True)
            out.mkdir(parents=True, exist_ok=True)
            text = assembly_of(case, verdict, smallest(case, verdict))
            (out / f"seed{seed}.tpu").write_text(text, encoding="utf-8")
        print(json.dumps([seed, kind]), flush=True)
        gc.collect()  # of machines that are no longer used, the memories


def _text(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common())


def _page(first: int, programs: int, counts: Counter[str]) -> str:
    rows = "\n".join(f"| {kind} | {count} |" for kind, count in counts.most_common())
    seeds = f"Seeds {first} to {first + programs - 1}, {programs} programs, {version()}:"
    return f"{seeds}\n\n| outcome on both machines | programs |\n| --- | ---: |\n{rows}"


if __name__ == "__main__":
    main()
