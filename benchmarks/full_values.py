"""Values of whole models at their real size: the emulated chip beside XLA's CPU backend.

    python -m benchmarks.full_values FOLDER [--match "*_full"] [--tolerance 0.05] [--positive WORD]

Every ``.hlo`` file of the folder whose name matches is compiled, called once on both sides with the
same random inputs and compared output by output (`benchmarks.performance.agreement`). What goes
wrong only where arrays are large (what stays in VMEM, what is cut into windows, streamed or
fetched ahead) shows here and in no tiny model. Needs jax. Exits with 1 if a model is beyond the
tolerance or failed on the chip; one that XLA:CPU cannot run is listed and does not count.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.performance.measure import Options, Row, measure
from benchmarks.performance.workloads import WORKLOADS, Workload

_INTEGER_LIMIT = 64
_KNOWN = {workload.name: workload for workload in WORKLOADS}


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--match", default="*_full", help="names of files, without their suffix")
    parser.add_argument("--tolerance", type=float, default=0.05, help="norm over norm")
    parser.add_argument(
        "--positive",
        default="var",
        help="parameters with this word in their names are not negative; densities and variances "
        "are not, and XLA:CPU's maximum drops the NaN that comes of one",
    )
    parser.add_argument("--timeout", type=float, default=600, help="seconds for a step")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args(given)


def workload_of(path: Path, tolerance: float, positive: str) -> Workload:
    """What is known of the model under its name, or a workload with plain random inputs."""
    name = path.stem.removesuffix("_full")
    plain = Workload(name, integer_limit=_INTEGER_LIMIT, tolerance=tolerance, positive=positive)
    return _KNOWN.get(name, plain)


def line(row: Row) -> str:
    """What became of one model, on one line."""
    if row.ours.error:
        return f"{row.name}: FAILED: {row.ours.error}"
    if row.xla.error:
        return f"{row.name}: not compared, XLA:CPU: {row.xla.error}"
    wrong = "; ".join(row.problems)
    return f"{row.name}: differs by {row.difference:.1e}" + (f": WRONG: {wrong}" if wrong else "")


def main() -> None:
    """Compare all that match; exit with 1 if one is wrong."""
    given = arguments()
    paths = sorted(given.folder.glob(f"{given.match}.hlo"))
    if not paths:
        sys.exit(f"no {given.match}.hlo in {given.folder}")
    options = Options(given.threads, turns=1, budget=0, timeout=given.timeout)
    bad = 0
    for path in paths:
        row = measure(workload_of(path, given.tolerance, given.positive), path, options)
        bad += bool(row.ours.error or (row.problems and not row.xla.error))
        print(line(row), flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
