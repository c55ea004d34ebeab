"""Estimate each model of a folder from every form it is there in, and compare the forms.

    python -m benchmarks.forms FOLDER [--match GLOB] [--target v5e] [--most 0.02] [--timeout 600]

NAME.hlo and NAME.mlir are two forms of one program: what one frontend accepts the other must
accept, and what differs only in how it was written may cost no other cycles. The exit code is 1
where a form is refused or the forms differ by more than the share `--most`. Each model is
estimated in a process of its own, cold.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".hlo", ".mlir")
TITLES = ("model", "cycles", "ratio", "HBM bytes", "ratio", "compile s")


@dataclass(frozen=True)
class Form:
    """The estimate of one file; `error` is empty when there is one."""

    cycles: int = 0
    hbm_bytes: int = 0
    seconds: float = 0.0
    error: str = ""


def estimate(path: Path, target: str, timeout: float) -> Form:
    """The estimate of a model, made in a process of its own."""
    words = ["estimate", str(path), "--target", target, "--json", "--no-cache"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tpuc", *words],
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Form(seconds=timeout, error=f"not done in {timeout:g} s")
    if done.returncode:
        return Form(error=(done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0])
    record = json.loads(done.stdout)
    return Form(record["cycles"], record["hbm_bytes"], record["compile_seconds"])


def models(folder: Path, match: str) -> Iterator[list[Path]]:
    """The files of each model that is there in several forms."""
    for first in sorted(folder.glob(match + SUFFIXES[0])):
        forms = [path for s in SUFFIXES if (path := first.with_suffix(s)).exists()]
        if len(forms) > 1:
            yield forms


def distance(forms: list[Form]) -> float:
    """How far the forms are apart in cycles, as a share of the cheapest."""
    cycles = [form.cycles for form in forms]
    return max(cycles) / max(min(cycles), 1) - 1


def row(name: str, forms: list[Form]) -> tuple[str, ...]:
    """What is printed of a model."""
    failed = [f"{s}: {f.error}" for s, f in zip(SUFFIXES, forms, strict=True) if f.error]
    if failed:
        return (name, *failed)
    first = forms[0]
    cycles, nbytes = ([getattr(f, what) for f in forms] for what in ("cycles", "hbm_bytes"))
    return (
        name,
        " ".join(f"{n:,}" for n in cycles),
        " ".join(f"{f.cycles / max(first.cycles, 1):.3f}" for f in forms[1:]),
        " ".join(f"{n:,}" for n in nbytes),
        " ".join(f"{f.hbm_bytes / max(first.hbm_bytes, 1):.3f}" for f in forms[1:]),
        " ".join(f"{f.seconds:.1f}" for f in forms),
    )


def main() -> int:
    """Print a line a model; 1 if forms differ or one is refused, 2 if there are none."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where NAME.hlo and NAME.mlir lie")
    parser.add_argument("--match", default="*", metavar="GLOB", help="names without suffix")
    parser.add_argument("--target", default="v5e", help="chip to estimate for (default: v5e)")
    parser.add_argument("--most", type=float, default=0.02, help="share (default: 0.02)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for each form")
    args = parser.parse_args()
    print("  ".join(TITLES))
    count, apart = 0, []
    for paths in models(args.folder, args.match):
        forms = [estimate(path, args.target, args.timeout) for path in paths]
        count += 1
        if any(form.error for form in forms) or distance(forms) > args.most:
            apart.append(paths[0].stem)
        print("  ".join(row(paths[0].stem, forms)), flush=True)
    print(f"{count - len(apart)} of {count} models cost the same in each form")
    if apart:
        print("apart: " + ", ".join(apart))
    return 2 if not count else 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
