"""Rank the kernels of the models of a folder by the cycles they lose to their rooflines.

    python -m benchmarks.distance FOLDER [--reference models.json] [--only GLOB] [--worst N]
        [--target v5e] [--cache FOLDER] [--out docs/distance.md]

Models are ``*_full.hlo`` of the folder, or every ``*.hlo`` where there is none. Each is compiled and
estimated in a process of its own; nothing is executed. Results are kept in the cache folder under a
digest of our sources, so that a second run costs nothing. The reference has ``estimated_cycles``
and ``hbm_bytes`` by the model's name.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.distance.models import Estimator, Model
from benchmarks.distance.page import page


def models_of(folder: Path, pattern: str) -> list[Path]:
    """The models of a folder whose name matches."""
    found = sorted(folder.glob("*_full.hlo")) or sorted(folder.glob("*.hlo"))
    return [path for path in found if fnmatch.fnmatch(path.stem.removesuffix("_full"), pattern)]


def estimating_parser(description: str | None) -> argparse.ArgumentParser:
    """The options of a command that estimates the models of a folder and writes a page."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="v5e")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--out", type=Path)
    cache = Path(tempfile.gettempdir()) / "tpuc-distance"
    parser.add_argument("--cache", type=Path, default=cache, metavar="FOLDER")
    return parser


def main() -> int:
    """Estimate, then print or write the page. The exit code is 1 if a model does not compile."""
    parser = estimating_parser(__doc__)
    parser.add_argument("--reference", type=Path, help="cycles and bytes of another compiler")
    parser.add_argument("--only", default="*", metavar="GLOB", help="names of models")
    parser.add_argument("--worst", type=int, default=40, help="kernels listed")
    args = parser.parse_args()
    reference = json.loads(args.reference.read_text()) if args.reference else {}
    estimator = Estimator(args.target, args.cache, args.timeout)
    models: list[Model] = []
    for path in models_of(args.folder, args.only):
        models.append(estimator.estimate(path, reference))
        print(models[-1].line, file=sys.stderr, flush=True)
    text = page(models, args.target, args.worst)
    if args.out is None:
        print(text)
    else:
        args.out.write_text(text, encoding="utf-8")
    return int(any(model.error for model in models))


if __name__ == "__main__":
    sys.exit(main())
