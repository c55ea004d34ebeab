"""A sweep as a picture: a panel for each parameter, a point for each variant, the front joined by a line."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler.diagnostics import UnsupportedError
from tpuc.sweep import Point, SweptValues
from tpuc.sweep_costs import LISTS, Judged
from tpuc.tables import shown_name

_KINDS = (".svg", ".png", ".pdf")
_PANEL_INCHES = (4.2, 3.4)


def check_plot(path: str) -> None:
    """Refuse before any work what cannot be drawn: ValueError for the name, `UnsupportedError` here."""
    if Path(path).suffix not in _KINDS:
        message = f"--plot {path}: want a name that ends in {', '.join(_KINDS)}"
        raise ValueError(message)
    if importlib.util.find_spec("matplotlib") is None:
        raise UnsupportedError("--plot needs matplotlib: pip install tpuc[plots]")


def write_plot(path: str, judged: Judged) -> None:
    """Draw times by that of the chip as it is, over each parameter's values and what a step costs."""
    from matplotlib.figure import Figure

    panels = len(judged.parameters) + (judged.axis != LISTS)
    width, height = _PANEL_INCHES
    figure = Figure(figsize=(width * panels, height), layout="constrained")
    names = ", ".join(shown_name(m) if m == "-" else Path(m).stem for m in judged.models)
    figure.suptitle(f"time on the chip by that of the chip as it is: {names}")
    for number, parameter in enumerate(judged.parameters):
        axes = figure.add_subplot(1, panels, number + 1)
        _panel(axes, number, parameter, judged.times, judged.best)
    if judged.axis != LISTS:
        _cost_panel(figure.add_subplot(1, panels, panels), judged)
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def _cost_panel(axes: Any, judged: Judged) -> None:  # of a library without types
    """Every variant by what a step costs; the best joined by a line."""
    known = [p for p in judged.points if math.isfinite(judged.times[p] + judged.costs[p])]
    places = {point: (judged.costs[point], judged.times[point]) for point in known}
    others = [place for point, place in places.items() if point not in judged.best]
    front = sorted(place for point, place in places.items() if point in judged.best)
    axes.plot([x for x, _ in others], [y for _, y in others], "o", color="0.6", label="variant")
    axes.plot([x for x, _ in front], [y for _, y in front], "o-", color="C0", label="best")
    axes.set_xlabel(f"{judged.axis} of a step, by that of the chip as it is")
    axes.set_ylabel("time")
    axes.legend(fontsize="small")


def _panel(
    axes: Any,  # of a library without types
    number: int,
    parameter: SweptValues,
    times: Mapping[Point, float],
    best: set[Point],
) -> None:
    places = {value: at for at, value in enumerate(parameter.values)}
    rows = [(p, places[p[number].value], t) for p, t in times.items() if p and math.isfinite(t)]
    axes.axhline(1.0, color="0.7", linewidth=0.8)
    others = [(x, y) for point, x, y in rows if point not in best]
    front = sorted((x, y) for point, x, y in rows if point in best)
    axes.plot([x for x, _ in others], [y for _, y in others], "o", color="0.6", label="variant")
    axes.plot(
        [x for x, _ in front], [y for _, y in front], "o", color="C0", label="best for its cost"
    )
    least = [min((y for _, x, y in rows if x == at), default=math.nan) for at in places.values()]
    axes.plot(list(places.values()), least, "-", color="C0", linewidth=1, label="least")
    axes.set_xticks(list(places.values()), list(places))
    axes.set_xlabel(parameter.key)
    axes.set_ylabel("time")
    axes.legend(fontsize="small")
