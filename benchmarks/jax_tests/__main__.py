"""JAX's own tests on the emulated chip, compared with JAX on the CPU.

    git clone --depth 1 --branch jax-v0.10.2 https://github.com/jax-ml/jax
    python -m benchmarks.jax_tests jax --out results --sample 100

Nothing of JAX is kept here: its tests are read from a checkout. Each file runs in a process of its own, once
on the CPU and once on tpuc; of the tests that pass on the CPU it is counted how many pass on tpuc. A process
that dies is started again behind the test that it died in. What has an outcome in `--out` is not run again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

FILES = (
    "lax_test", "lax_numpy_test", "lax_numpy_operators_test", "lax_numpy_reducers_test",
    "lax_numpy_indexing_test", "lax_numpy_einsum_test", "lax_control_flow_test", "lax_autodiff_test",
    "lax_vmap_test", "lax_vmap_op_test", "nn_test", "random_test", "random_lax_test", "fft_test",
    "linalg_test", "lax_scipy_test", "api_test", "pjit_test", "shard_map_test", "pmap_test",
)  # fmt: skip
_SLICES = frozenset({
    "array_test", "debugging_primitives_test", "layout_test", "linalg_sharding_test", "memories_test",
    "multi_device_test", "pjit_test", "pmap_test", "python_callback_test", "ragged_collective_test",
    "shard_alike_test", "shard_map_test",
})  # fmt: skip
_HOST_DEVICES = "--xla_force_host_platform_device_count=8"
_MOST_DEATHS = 20


@dataclass(frozen=True)
class Outcome:
    """What came of a test."""

    outcome: str
    message: str
    seconds: float
    processor_seconds: float = 0.0
    """Of all threads of the process; it does not depend on what else the host does."""


def read_outcomes(path: Path) -> dict[str, Outcome]:
    """The last outcome of each test; one that only started died."""
    found: dict[str, Outcome] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        row = json.loads(line)
        outcome = "died" if row["outcome"] == "started" else row["outcome"]
        worked = row.get("processor_seconds", 0.0)
        found[row["test"]] = Outcome(outcome, row["message"], row["seconds"], worked)
    return found


def environment(platform: str, file: str, cases: int) -> dict[str, str]:
    """The variables for a platform: "cpu", or "tpuc" with a slice where the tests want devices."""
    chosen = "tpuc,cpu" if platform == "tpuc" else platform
    variables = {**os.environ, "JAX_NUM_GENERATED_CASES": str(cases), "JAX_PLATFORMS": chosen}
    if file in _SLICES:
        variables["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_HOST_DEVICES}".strip()
        variables["TPUC_TARGET"] = "v5e:4x2"
    return variables


def run_file(
    file: Path, platform: str, out: Path, cases: int, sample: tuple[int, str], seconds: float
) -> None:
    """Run a file's tests that have no outcome yet, however often the process dies."""
    configuration = file.parents[1] / "pyproject.toml"
    module = "benchmarks.jax_tests.worker"
    chosen = [str(sample[0]), sample[1], str(seconds)]
    command = [sys.executable, "-m", module, file, configuration, out, *chosen]
    log = out.with_suffix(".log").open("a")
    for _ in range(_MOST_DEATHS):
        variables = environment(platform, file.stem, cases)
        code = subprocess.run(
            command, env=variables, stdout=log, stderr=log, check=False
        ).returncode
        if code == 0:
            return


_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\d+(\.\d+)?(e[-+]?\d+)?|0x[0-9a-f]+")


def reason(outcome: Outcome) -> str:
    """What stands for a failure among others: its message without numbers and names."""
    if outcome.outcome == "died":
        return "the process died"
    lines = [line.strip() for line in outcome.message.splitlines() if line.strip()]
    if lines and lines[0] == "AssertionError:" and len(lines) > 1:
        lines[0] = f"AssertionError: {lines[1]}"
    return _QUOTED.sub("_", lines[0])[:110] if lines else outcome.outcome


def rows(out: Path, files: Sequence[str]) -> Iterator[tuple[str, int, dict[str, Outcome]]]:
    """Of each file: its name, how many tests pass on the CPU, those of them that do not on tpuc."""
    for file in files:
        cpu, ours = (read_outcomes(out / f"{file}.{p}.jsonl") for p in ("cpu", "tpuc"))
        wanted = [test for test, found in cpu.items() if found.outcome == "passed" and test in ours]
        failed = {test: ours[test] for test in wanted if ours[test].outcome != "passed"}
        if wanted:
            yield file, len(wanted), failed


def times(out: Path, files: Sequence[str]) -> str:
    """A sentence: what the tests that pass on both platforms took of a processor."""
    both = [[read_outcomes(out / f"{file}.{p}.jsonl") for p in ("cpu", "tpuc")] for file in files]
    pairs = [
        (cpu[test].processor_seconds, ours[test].processor_seconds)
        for cpu, ours in both
        for test in cpu.keys() & ours.keys()
        if cpu[test].outcome == ours[test].outcome == "passed"
    ]
    cpu_seconds, our_seconds = (
        (sum(column) for column in zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
    )
    ratio = f", {our_seconds / cpu_seconds:.2f} times as much" if cpu_seconds else ""
    took = f"{cpu_seconds:.1f} s of a processor, {our_seconds:.1f} s on tpuc"
    return f"{len(pairs)} pass on both: {took}{ratio}."


def table(out: Path, files: Sequence[str]) -> str:
    """Markdown: a row for each file, then the reasons."""
    lines = [
        "| file | pass on CPU | of these on tpuc | skipped there | share |",
        "|---|---|---|---|---|",
    ]
    reasons: Counter[str] = Counter()
    total = passed = 0
    for file, count, failed in rows(out, files):
        skipped = sum(f.outcome == "skipped" for f in failed.values())
        good = count - len(failed)
        total, passed = total + count - skipped, passed + good
        share = good / max(1, count - skipped)
        lines.append(f"| {file} | {count} | {good} | {skipped} | {share:.1%} |")
        reasons.update(reason(f) for f in failed.values() if f.outcome != "skipped")
    lines.append(f"| all | {total} | {passed} | | {passed / max(1, total):.1%} |")
    lines += ["", times(out, files), "", "| tests | reason |", "|---|---|"]
    lines += [f"| {count} | {text.replace('|', '/')} |" for text, count in reasons.most_common()]
    return "\n".join(lines)


@click.command()
@click.argument("checkout", type=click.Path(exists=True, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="folder of outcomes")
@click.option("--files", default=",".join(FILES), help="any test files of the checkout")
@click.option("--platforms", default="cpu,tpuc")
@click.option("--cases", default=10, help="JAX_NUM_GENERATED_CASES")
@click.option("--sample", default=0, help="tests of a file, chosen at random; 0 for all")
@click.option("--seed", default="", help="for another sample")
@click.option("--seconds", default=60.0, help="the most a test may take")
def main(
    checkout: Path,
    out: Path,
    files: str,
    platforms: str,
    cases: int,
    sample: int,
    seed: str,
    seconds: float,
) -> None:
    """Run JAX's tests and print the table."""
    out.mkdir(parents=True, exist_ok=True)
    for name in files.split(","):
        for platform in platforms.split(","):
            file = (checkout / "tests" / f"{name}.py").resolve()
            if file.exists():
                target = (out / f"{name}.{platform}.jsonl").resolve()
                run_file(file, platform, target, cases, (sample, seed), seconds)
    click.echo(table(out, files.split(",")))


if __name__ == "__main__":
    main()
