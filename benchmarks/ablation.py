"""What each HLO pass is worth: cycles and HBM bytes of models with every one left out in turn.

    python -m benchmarks.ablation FOLDER [--only GLOB,..] [--skip GLOB,..] [--target v5e] [--out FILE]

A pass is left out of the models that it changes (``tpuc passes MODEL``, ``--skip PASS``), wherever the
pipeline has it. Each compile and estimate is a process of its own; what was estimated before is
not again (`benchmarks.distance`). A model that does not compile without a pass needs it.
"""

from __future__ import annotations

import fnmatch
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.distance.__main__ import estimating_parser, models_of
from benchmarks.distance.models import Estimator, Model
from benchmarks.distance.page import geomean
from benchmarks.sections import version

_REFUSALS = (" requires ", " cannot be left out")


@dataclass
class Effect:
    """What leaving out a pass did: models without it over models with all, and those that need it."""

    name: str
    cycles: dict[str, float] = field(default_factory=dict)
    hbm_bytes: dict[str, float] = field(default_factory=dict)
    needed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def row(self) -> str:
        """A line of the table."""
        moved = {model: ratio for model, ratio in self.cycles.items() if abs(ratio - 1) > 1e-3}
        worst = sorted(moved, key=lambda model: -moved[model])[:3]
        listed = ", ".join(f"{model} {moved[model]:.2f}" for model in worst)
        better = sum(ratio < 0.999 for ratio in moved.values())
        if not self.cycles:
            return f"| {self.name} | {len(self.needed)} | {len(self.needed)} | | | | |"
        return (
            f"| {self.name} | {len(self.cycles) + len(self.needed)} | {len(self.needed)} "
            f"| {geomean(self.cycles.values()):.3f} | {geomean(self.hbm_bytes.values()):.3f} "
            f"| {listed} | {better or ''} |"
        )


def changing_passes(path: Path, target: str) -> list[str]:
    """The passes that change a model, by name."""
    command = [sys.executable, "-m", "tpuc", "passes", str(path), "--target", target, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return []
    return list(dict.fromkeys(p["name"] for p in json.loads(done.stdout) if p["changed"]))


def leave_out(
    name: str, paths: Sequence[Path], whole: Mapping[Path, Model], estimator: Estimator
) -> Effect:
    """Estimate those models without a pass."""
    effect = Effect(name)
    for path in paths:
        full, without = whole[path], estimator.estimate(path, {}, ("--skip", name))
        if without.error:
            is_refused = any(words in without.error for words in _REFUSALS)
            (effect.needed if is_refused else effect.errors).append(full.name)
            continue
        effect.cycles[full.name] = without.cycles / max(1, full.cycles)
        effect.hbm_bytes[full.name] = without.hbm_bytes / max(1, full.hbm_bytes)
    return effect


def page(effects: Sequence[Effect], models: Sequence[Model], target: str) -> str:
    """The page as Markdown; what is worth most comes first."""
    lines = [
        "# What each pass is worth",
        "",
        f"Written by `python -m benchmarks.ablation FOLDER` for {target}: {version()}. Each pass is left "
        f"out in turn (`--skip PASS`) of those of {len(models)} models that it changes: cycles and HBM "
        "bytes without it over those with all passes, geometric means over these models. A model *needs* "
        "a pass without which it is refused: a later pass counts on what it does. *Better without* "
        "counts models that take fewer cycles without it.",
        "",
        "Models: " + ", ".join(sorted(model.name for model in models)) + ".",
        "",
        "| without | changes | needed by | cycles | HBM bytes | most cycles | better without |",
        "|---|---|---|---|---|---|---|",
    ]
    ranked = sorted(effects, key=lambda effect: -geomean(effect.cycles.values()))
    lines += [effect.row for effect in ranked]
    failed = [f"{e.name}: {', '.join(e.errors)}" for e in ranked if e.errors]
    if failed:
        lines += ["", "Not refused by name, but an error: " + "; ".join(failed) + "."]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Estimate, then print or write the page."""
    parser = estimating_parser(__doc__)
    parser.add_argument("--only", default="*", metavar="GLOB[,GLOB]", help="names of models")
    parser.add_argument("--skip", default="*", metavar="GLOB[,GLOB]", help="names of passes")
    args = parser.parse_args()
    estimator = Estimator(args.target, args.cache, args.timeout)
    globs = args.only.split(",")
    paths = list(dict.fromkeys(p for glob in globs for p in models_of(args.folder, glob)))
    whole = {path: estimator.estimate(path, {}) for path in paths}
    paths = [path for path in paths if not whole[path].error]
    changed = {path: changing_passes(path, args.target) for path in paths}
    names = dict.fromkeys(name for path in paths for name in changed[path])
    effects = []
    for name in names:
        if not any(fnmatch.fnmatch(name, glob) for glob in args.skip.split(",")):
            continue
        found = leave_out(name, [p for p in paths if name in changed[p]], whole, estimator)
        effects.append(found)
        print(found.row, file=sys.stderr, flush=True)
    text = page(effects, [whole[path] for path in paths], args.target)
    if args.out is None:
        print(text)
    else:
        args.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
