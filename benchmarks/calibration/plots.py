"""The plots of the accuracy page, as SVG text: no library needed, the same bytes on every run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.calibration.simulate import Outcome
from benchmarks.svg import line as _line
from benchmarks.svg import page as _page
from benchmarks.svg import text as _text

_COLOURS = {"wall": "#1b6ca8", "slope": "#c1440e", "device": "#3a7d44"}
_MEASURED, _MODEL = "#c1440e", "#1b6ca8"


def _dot(x: float, y: float, colour: str, *, filled: bool) -> str:
    fill = colour if filled else "white"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{fill}" stroke="{colour}" stroke-width="1.8"/>'


@dataclass(frozen=True)
class _LogAxes:
    """Axes with a decade grid; `x` and `y` are ranges of powers of ten."""

    x: tuple[int, int]
    y: tuple[int, int]
    left: float = 70
    top: float = 20
    width: float = 470
    height: float = 400

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a pair of values lies."""
        across = (math.log10(x) - self.x[0]) / (self.x[1] - self.x[0])
        up = (math.log10(y) - self.y[0]) / (self.y[1] - self.y[0])
        return self.left + across * self.width, self.top + (1 - up) * self.height

    def grid(self, x_label: str, y_label: str) -> list[str]:
        """Lines and labels."""
        bottom, right = self.top + self.height, self.left + self.width
        parts: list[str] = []
        for power in range(self.x[0], self.x[1] + 1):
            x, _ = self.at(10.0**power, 10.0 ** self.y[0])
            parts += [_line(x, self.top, x, bottom, "#dddddd"),
                      _text(x, bottom + 16, f"{10.0**power:g}", "middle")]  # fmt: skip
        for power in range(self.y[0], self.y[1] + 1):
            _, y = self.at(10.0 ** self.x[0], 10.0**power)
            parts += [_line(self.left, y, right, y, "#dddddd"),
                      _text(self.left - 6, y + 4, f"{10.0**power:g}", "end")]  # fmt: skip
        parts.append(_text(self.left + self.width / 2, bottom + 36, x_label, "middle", 12))
        parts.append(_text(self.left, self.top - 6, y_label, "start", 12))
        return parts


def scatter(outcomes: Sequence[Outcome]) -> str:
    """Simulated against measured microseconds; filled: fitted."""
    axes = _LogAxes((0, 6), (0, 6))
    parts = axes.grid("measured, microseconds", "simulated, microseconds")
    for factor, dash in ((1.0, ""), (1.12, "4 3"), (1 / 1.12, "4 3")):
        low = axes.at(max(1.0, 1 / factor), max(1.0, factor))
        high = axes.at(1e6 / max(1.0, factor), 1e6 * min(1.0, factor))
        parts.append(_line(*low, *high, "#888888", dash))
    for o in outcomes:
        x, y = axes.at(o.point.seconds * 1e6, o.seconds * 1e6)
        parts.append(_dot(x, y, _COLOURS[o.point.kind], filled=o.point.is_fitted))
    for row, (kind, colour) in enumerate(_COLOURS.items()):
        parts += [_dot(90, 40 + 18 * row, colour, filled=True), _text(102, 44 + 18 * row, kind)]
    parts += [_dot(90, 94, "#555555", filled=False), _text(102, 98, "predicted (hollow)"),
              _text(84, 116, "dashed: 12 % off")]  # fmt: skip
    return _page(570, 470, parts)


def error_bars(outcomes: Sequence[Outcome]) -> str:
    """Each point's error as a bar, fitted ones first."""
    ordered = sorted(outcomes, key=lambda o: (not o.point.is_fitted, o.point.chip, o.point.name))
    middle, scale, row_height = 430.0, 8.0, 20.0
    height = 60 + row_height * len(ordered)
    parts: list[str] = []
    for percent in (-30, -20, -12, 0, 12, 20, 30):
        x = middle + percent * scale
        parts += [_line(x, 28, x, height - 20, "#dddddd" if percent else "#888888"),
                  _text(x, 20, f"{percent:+d} %", "middle")]  # fmt: skip
    for row, o in enumerate(ordered):
        y = 36.0 + row * row_height
        error = 100 * o.error
        shown = max(-33.0, min(33.0, error))
        x = middle + min(0.0, shown) * scale
        colour = _COLOURS[o.point.kind]
        fill = colour if o.point.is_fitted else "white"
        parts.append(f'<rect x="{x:.1f}" y="{y:g}" width="{abs(shown) * scale:.1f}" height="12" '
                     f'fill="{fill}" stroke="{colour}"/>')  # fmt: skip
        parts.append(_text(8, y + 10, f"{o.point.chip}  {o.point.name}"))
        parts.append(_text(middle + 34 * scale, y + 10, f"{error:+.1f} %"))
    return _page(770, round(height), parts)


def copy_curve(model: Sequence[tuple[int, float]], measured: Sequence[tuple[int, float]]) -> str:
    """GB/s of copies by the array's bytes: the model's curve and measured points."""
    axes = _LogAxes((5, 10), (1, 4))
    parts = axes.grid("bytes of the array", "GB/s, read and written")
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (axes.at(s, rate) for s, rate in model))
    parts.append(f'<polyline points="{places}" fill="none" stroke="{_MODEL}" stroke-width="2"/>')
    for size, rate in measured:
        parts.append(_dot(*axes.at(size, rate), _MEASURED, filled=True))
    parts += [_dot(90, 40, _MEASURED, filled=True), _text(102, 44, "measured"),
              _line(80, 58, 96, 58, _MODEL), _text(102, 62, "model")]  # fmt: skip
    return _page(570, 470, parts)
