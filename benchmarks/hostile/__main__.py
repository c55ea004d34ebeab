"""Damaged files through the command line.

    python -m benchmarks.hostile --kinds tpu tpux chip hlo mlir --mutants 1000 [--seed 0] [--out FOLDER]

Each mutant of a file is given to the commands that read such files, in child processes whose time
and memory are limited. The end must be an answer or a clear error: exit code 0, 1 or 2, and no
internal error. What ends otherwise is written to the folder; `--write PAGE` keeps the counts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.hostile.kinds import KINDS, mutant, prepare
from benchmarks.hostile.trial import try_mutant
from benchmarks.limits import Stopwatch
from benchmarks.sections import put_section, version

_SECONDS = 60.0
"""Of processor time, for one mutant."""
_MEMORY_KB = 3 << 20
_BATCH = 400
_LOOK_SECONDS = 0.5
_FAILURES = ("internal", "signal", "hang", "memory")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hostile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--mutants", type=int, default=200, help="of each kind")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--out", type=Path, default=Path("hostile-failures"))
    parser.add_argument("--write", type=Path, help="a page that gets the counts")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(options.kinds[0], options.seed, options.mutants)
        return
    is_good = True
    for kind in options.kinds:
        counts = _run(kind, options.seed, options.mutants, options.out)
        is_good &= not any(counts[name] for name in _FAILURES)
        if options.write:
            put_section(kind, _page(kind, options.seed, counts), options.write, "# Damaged files\n")
    sys.exit(0 if is_good else 1)


def _run(kind: str, first: int, count: int, out: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    at, start = first, time.monotonic()
    while at < first + count:
        results, note = _batch(kind, at, min(_BATCH, first + count - at))
        if note:  # the seed behind the last one ended the child
            results.append((at + len(results), note, ""))
        for seed, end, detail in results:
            counts[end] += 1
            if end in _FAILURES:
                out.mkdir(parents=True, exist_ok=True)
                (out / f"{kind}{seed}{KINDS[kind].suffix}").write_bytes(mutant(kind, seed))
                print(f"{kind} {seed}: {end} {detail}", flush=True)
        at += len(results)
    print(f"{kind}: {dict(counts)}, {time.monotonic() - start:.0f} s", flush=True)
    return counts


def _batch(kind: str, first: int, count: int) -> tuple[list[tuple[int, str, str]], str]:
    """What became of seeds, and what ended the child before its time."""
    arguments = ["--child", "--kinds", kind, "--seed", str(first), "--mutants", str(count)]
    command = [sys.executable, "-m", "benchmarks.hostile", *arguments]
    results: list[tuple[int, str, str]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        pending, watch, note = b"", Stopwatch(child.pid, _SECONDS), ""
        while True:
            ready, _, _ = select.select([child.stdout], [], [], _LOOK_SECONDS)
            if ready:
                data = os.read(child.stdout.fileno(), 1 << 16)
                if not data:
                    break
                pending += data
                *lines, pending = pending.split(b"\n")
                results += [tuple(json.loads(line)) for line in lines if line.startswith(b"[")]
                watch.restart()
            elif watch.is_over():
                note = "hang"
            elif _resident_kb(child.pid) > _MEMORY_KB:
                note = "large" if KINDS[kind].is_model else "memory"
            if note:
                child.kill()
                break
    if not note and child.returncode:
        note = "signal"
    return results, note


def _resident_kb(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    rows = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return int(rows.get("VmRSS", "0").split()[0])


def _child(kind: str, first: int, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        for seed in range(first, first + count):
            end, detail = try_mutant(kind, mutant(kind, seed), Path(folder))
            print(json.dumps([seed, end, detail]), flush=True)


def _page(kind: str, first: int, counts: Counter[str]) -> str:
    total = counts.total()
    rows = "\n".join(f"| {name} | {count} |" for name, count in counts.most_common())
    head = f"## .{kind}\n\nSeeds {first} to {first + total - 1}, {version()}:\n\n"
    head += "| end | mutants |\n| --- | ---: |\n"
    return head + rows


if __name__ == "__main__":
    main()
