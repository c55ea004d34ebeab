"""Compile models for v5e, each in a process of its own, and write docs/compile-times.md.

    python -m benchmarks.compile_all [MODEL | FOLDER | ZIP ...] [--set TITLE=PATH ...]
        [--skip GLOB] [--write]

Nothing is executed. The table gets a row for each model of the positional arguments (default: the
examples), and each ``--set`` one line: how many of its one-device files compile, and what stops the
others. A module of several partitions or replicas is counted apart; so are the files that
``--skip`` names.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import multiprocessing
import multiprocessing.connection
import platform
import shlex
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from compiler.diagnostics import CompileError
from compiler.driver import compile_module
from compiler.frontends.models import parse_model
from compiler.hlo.ir import HloModule
from runtime.api import read_source
from tpu_sim.isa.chips import load_chip

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "compile-times.md"
TARGET = "v5e"
SUFFIXES = (".hlo", ".mlir")
TITLES = (
    "model", "instructions", "kernels", "parse s", "passes s", "backend s", "total s", "result",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One model. Times are seconds of processor time; `error` is empty when it compiles."""

    name: str
    instructions: int = 0
    kernels: int = 0
    parse: float = 0.0
    passes: float = 0.0
    backend: float = 0.0
    total: float = 0.0
    error: str = ""
    devices: int = 1

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        if self.error:
            return (self.name, *[""] * 5, f"{self.total:.2f}", self.error.replace("|", "\\|"))
        times = (self.parse, self.passes, self.backend, self.total)
        counts = (f"{self.instructions:,}", f"{self.kernels:,}")
        return (self.name, *counts, *(f"{t:.2f}" for t in times), "ok")


def measure(path: Path) -> Row:
    """Compile one model in this process.

    Processor time is what an idle computer takes, since compiling uses one thread; the driver tells
    its stages by the clock, so these have their share of it.
    """
    started = time.process_time()
    try:
        source, name = read_source(path)
        if source is None:
            return Row(path.name, error="a compiled program, not a model")
        module = parse_model(source, name)
        devices = device_count(module)
        if devices > 1:
            return Row(path.name, devices=devices)
        parsed = time.process_time() - started
        count = sum(len(list(computation)) for computation in module.computations.values())
        clock, before = time.perf_counter(), time.process_time()
        compiled = compile_module(module, load_chip(TARGET))
        share = (time.process_time() - before) / max(time.perf_counter() - clock, 1e-9)
    except CompileError as error:
        return Row(path.name, total=time.process_time() - started, error=one_line(error))
    times = {stage: seconds * share for stage, seconds in compiled.timings.items()}
    return Row(
        path.name,
        count,
        len(compiled.program.kernels),
        parsed,
        times["verify"] + times["passes"],
        times["buffers"] + times["lower"],
        time.process_time() - started,
    )


def device_count(module: HloModule) -> int:
    """Partitions times replicas."""
    counts = (module.attrs.get(name, 1) for name in ("num_partitions", "replica_count"))
    total = 1
    for count in counts:
        assert isinstance(count, int)
        total *= count
    return total


def one_line(error: BaseException) -> str:
    """The message without its place; an error that is not the user's says what it is."""
    message = (str(error).strip() or type(error).__name__).splitlines()[0]
    return message if isinstance(error, CompileError) else f"bug: {type(error).__name__}: {message}"


def _child(path: Path, pipe: multiprocessing.connection.Connection) -> None:
    try:
        pipe.send(measure(path))
    except BaseException as error:
        pipe.send(Row(path.name, error=one_line(error)))


def measure_apart(path: Path, timeout: float) -> Row:
    """Compile one model in a process that is ended after `timeout` seconds."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(path, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(timeout):
            return Row(path.name, total=timeout, error=f"not done in {timeout:g} s")
        row = ours.recv()
        assert isinstance(row, Row)
        return row
    except EOFError:
        process.join()
        return Row(path.name, error=f"bug: the compiler ended with code {process.exitcode}")
    finally:
        process.kill()
        process.join()
        ours.close()


def measure_all(paths: Sequence[Path], timeout: float, jobs: int) -> Iterator[Row]:
    """The rows in the order of the paths; `jobs` processes at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        for row in pool.map(lambda path: measure_apart(path, timeout), paths):
            print("  ".join(row.cells), file=sys.stderr, flush=True)
            yield row


def measure_set(title: str, paths: Sequence[Path], args: argparse.Namespace) -> tuple[bool, str]:
    """Whether a set compiles, and its line of the page."""
    kept = [p for p in paths if not (args.skip and fnmatch.fnmatch(p.name, args.skip))]
    rows = list(measure_all(kept, args.timeout, args.jobs))
    return not any(row.error for row in rows), summary(title, rows, len(paths) - len(kept))


def models_of(path: Path, scratch: Path) -> list[Path]:
    """The models a path stands for: itself, those of a folder, or those of a zip file."""
    if path.suffix == ".zip":
        folder = scratch / path.stem
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
        path = folder
    if path.is_dir():
        return sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES)
    return [path]


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown."""
    right = ["---", *["---:"] * (len(TITLES) - 2), "---"]
    cells = [TITLES, tuple(right), *(row.cells for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def summary(title: str, rows: Sequence[Row], skipped: int) -> str:
    """How many of a set compile; what does not, by name and reason."""
    skipped += sum(row.devices > 1 for row in rows)
    ours = [row for row in rows if row.devices == 1]
    failed = [row for row in ours if row.error]
    seconds = sorted(row.total for row in ours)
    text = f"{title}: {len(ours) - len(failed)} of {len(ours)} one-device files compile"
    if seconds:
        text += f", median {seconds[len(seconds) // 2]:.2f} s, longest {seconds[-1]:.1f} s"
    if skipped:
        text += f"; {skipped} files for several devices are not counted"
    return "\n".join([text + ".", *(f"- {row.name}: {row.error}" for row in failed)])


def command(args: argparse.Namespace) -> str:
    """What was asked for, without the folders of this computer."""
    words = ["python", "-m", "benchmarks.compile_all", *(["MODELS"] if args.models else [])]
    for text in args.set:
        words += ["--set", f"TITLE={Path(text.partition('=')[2]).name}"]
    words += ["--skip", args.skip] if args.skip else []
    return shlex.join([*words, "--write"])


def page(rows: Sequence[Row], sets: Sequence[str], asked: str) -> str:
    """The whole page; `asked` is the command that makes it."""
    head = (
        "# Compile times\n\n"
        f"Written by `{asked}` on {datetime.date.today()}: Python "
        f"{platform.python_version()}, {platform.machine()}, target {TARGET}, one thread a model, "
        "processor time.\nparse: text to HLO. passes: verifier and HLO passes. backend: buffer "
        "assignment, kernels to LLO, scheduling, registers, bundles.\n\n"
    )
    return head + table(rows) + "\n" + "".join(f"\n{text}\n" for text in sets)


def main() -> int:
    """Compile, print, and with --write rewrite the page. The exit code is 1 if anything fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", type=Path, help="files, folders or zips: a row each")
    parser.add_argument(
        "--set", action="append", default=[], metavar="TITLE=PATH", help="a line for all of it"
    )
    parser.add_argument("--skip", default="", metavar="GLOB", help="files for several devices")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for a model")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--write", action="store_true", help="write the page")
    args = parser.parse_args()
    paths = args.models or [ROOT / "examples"]
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        models = [m for path in paths for m in models_of(path, scratch)]
        rows = list(measure_all(models, args.timeout, args.jobs))
        failed = any(row.error for row in rows)
        sets = []
        for text in args.set:
            title, _, path = text.partition("=")
            compiles, line = measure_set(title, models_of(Path(path), scratch), args)
            failed |= not compiles
            sets.append(line)
    text = page(rows, sets, command(args))
    print(text)
    if args.write:
        PAGE.write_text(text)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
