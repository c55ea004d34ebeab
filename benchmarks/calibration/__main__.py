"""Calibrate the timing model, or report how far it is off.

python -m benchmarks.calibration fit [--write]     fit, print proposed chip-file values
python -m benchmarks.calibration report         write its part of docs/accuracy.md, and the plots
python -m benchmarks.calibration table          print every point
"""

from __future__ import annotations

import argparse
import difflib

from benchmarks.calibration.fit import Fit, outcomes, proposals
from benchmarks.calibration.points import Point, load_points
from benchmarks.calibration.report import write_report
from benchmarks.calibration.simulate import Outcome


def main() -> None:
    """Parse the command line and do it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True)
    fit = commands.add_parser("fit", help="rerun the fit")
    fit.add_argument("--write", action="store_true", help="write the values into the chip files")
    commands.add_parser("report", help="write docs/accuracy.md")
    commands.add_parser("table", help="print every point")
    arguments = parser.parse_args()
    points, _ = load_points()
    if arguments.command == "fit":
        _fit(points, write=arguments.write)
    elif arguments.command == "report":
        write_report()
    else:
        print_outcomes(outcomes(points))


def _fit(points: list[Point], *, write: bool) -> None:
    best = Fit(points, print).run()
    for path, text in proposals(best, points).items():
        old = path.read_text(encoding="utf-8")
        sides = (old.splitlines(), text.splitlines(), path.name, "proposed")
        changed = difflib.unified_diff(*sides, n=0, lineterm="")
        print("\n".join(changed))
        if write:
            path.write_text(text, encoding="utf-8")


def print_outcomes(found: list[Outcome]) -> None:
    """One line for each point."""
    for o in found:
        p = o.point
        print(
            f"{p.chip:4} {p.name:30} {p.use:8} {p.seconds * 1e6:12.2f} {o.seconds * 1e6:12.2f} us "
            f"{o.error:+7.1%}  {o.bound_by:12} {o.note.split(' grid ')[-1]:12} "
            f"{o.cycles / 1e6 / max(o.cpu_seconds, 1e-9):8.1f} Mcycles/s"
        )


if __name__ == "__main__":
    main()
