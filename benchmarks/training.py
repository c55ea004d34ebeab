"""Train the examples of `examples/training` and draw their losses: ``python -m benchmarks.training``.

Writes the table of docs/training.md and docs/images/training.svg. `--steps` is for all (200).
"""

from __future__ import annotations

import argparse
import math
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import svg
from benchmarks.sections import put_section, version

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "training"
PAGE, PICTURE = ROOT / "docs" / "training.md", ROOT / "docs" / "images" / "training.svg"
NAMES = {"mlp": "#1b6ca8", "transformer": "#c1440e"}
_LEFT, _TOP, _WIDTH, _HEIGHT = 60.0, 30.0, 560.0, 300.0


def main() -> int:
    """Train all, write the page and the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    sys.path.insert(0, str(FOLDER))  # the examples share adam.py
    curves, rows = {}, []
    for name in NAMES:
        losses, cycles = runpy.run_path(str(FOLDER / f"{name}.py"))["main"](steps)
        curves[name] = losses
        rows.append(
            f"| `{name}.py` | {steps} | {losses[0]:.2g} | {losses[steps // 4]:.2g} | "
            f"{losses[-1]:.2g} | {cycles:,} |"
        )
    PICTURE.write_text(picture(curves), encoding="utf-8")
    head = [
        f"{version()}, by `python -m benchmarks.training`:", "",
        "| example | steps | first loss | after a quarter | last loss | cycles a step (v5e) |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    text = "\n".join([*head, *rows, "", "![losses](images/training.svg)"])
    put_section("losses", text, PAGE, "# Training on the emulated chip\n")
    return 0


def picture(curves: dict[str, Sequence[float]]) -> str:
    """Losses over steps, by a logarithm."""
    every = [value for losses in curves.values() for value in losses]
    low, high = math.floor(math.log10(min(every))), math.ceil(math.log10(max(every)))
    longest = max(len(losses) for losses in curves.values())

    def at(step: int, loss: float) -> tuple[float, float]:
        up = (math.log10(loss) - low) / (high - low)
        return _LEFT + _WIDTH * step / max(1, longest - 1), _TOP + _HEIGHT * (1 - up)

    parts: list[str] = []
    for power in range(low, high + 1):
        x, y = at(0, 10.0**power)
        parts += [svg.line(x, y, x + _WIDTH, y, "#dddddd"),
                  svg.text(x - 6, y + 4, f"{10.0**power:g}", "end")]  # fmt: skip
    for step in range(0, longest, max(1, longest // 4)):
        x, _ = at(step, 10.0**low)
        parts.append(svg.text(x, _TOP + _HEIGHT + 16, str(step), "middle"))
    for row, (name, losses) in enumerate(curves.items()):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(i, v) for i, v in enumerate(losses)))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{NAMES[name]}" stroke-width="1.5"/>'
        )
        y = _TOP + 16 + 18 * row
        parts += [svg.line(_LEFT + _WIDTH - 130, y, _LEFT + _WIDTH - 110, y, NAMES[name]),
                  svg.text(_LEFT + _WIDTH - 104, y + 4, name)]  # fmt: skip
    parts += [svg.text(_LEFT, _TOP - 10, "loss"),
              svg.text(_LEFT + _WIDTH / 2, _TOP + _HEIGHT + 34, "step", "middle", 12)]  # fmt: skip
    return svg.page(round(_LEFT + _WIDTH + 20), round(_TOP + _HEIGHT + 50), parts)


if __name__ == "__main__":
    raise SystemExit(main())
