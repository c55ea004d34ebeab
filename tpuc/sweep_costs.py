"""What the variants of a sweep cost, and which are the best for it: the front of time and cost.

lists    steps along the lists of values from their first ones: lists are meant to be given from the
         cheapest value to the dearest. The chip as it is stands beside them, not among them
energy   of a step, by that of the chip as it is
price    of a step, by that of the chip as it is, with what an hour of each chip costs
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from runtime.energy import price_of
from runtime.topology import parse_target
from tpu_sim.isa.chip_settings import Setting, unit_of
from tpuc.sweep import Point, Result, SweptValues

LISTS, ENERGY, PRICE = "lists", "energy", "price"
_RULES = {
    LISTS: "the fastest of those as many steps along the lists, or fewer",
    ENERGY: "the fastest of those whose step takes no more energy",
    PRICE: "the fastest of those whose step costs no more",
}
_AS_MUCH = 1e-3
"""Times, and costs, that differ by less are the same to who chooses."""

_HARMLESS = frozenset(
    {"hbm", "hbm_bandwidth", "ici_bandwidth", "mxu_count", "smem", "vmem", "vregs"}
)
"""Parameters of which more slows no program down."""

Results = Mapping[tuple[str, Point], Result]
Figure = Callable[[Result], float]


@dataclass(frozen=True)
class Judged:
    """A sweep with the times of its points by that of the first, what they cost on an axis, the best of them
    for it, and the price of a result where prices are known."""

    results: Results
    models: Sequence[str]
    parameters: Sequence[SweptValues]
    points: Sequence[Point]
    axis: str
    times: dict[Point, float]
    costs: dict[Point, float]
    best: set[Point]
    price: Figure | None
    slower: dict[Point, list[str]]
    """By point the parameters of which less, all else being equal, is faster, where more does no harm."""

    @property
    def rule(self) -> str:
        """What the best are."""
        return _RULES[self.axis]


def judge(
    results: Results,
    models: Sequence[str],
    parameters: Sequence[SweptValues],
    points: Sequence[Point],
    axis: str,
    prices: Mapping[str, float] | None,
) -> Judged:
    """Find the best on an axis; `prices` are of an hour of each chip."""
    price = None if prices is None else price_by(prices)
    times = relative(results, models, points)
    if axis == LISTS:
        costs = list_costs(points, parameters)
    else:
        figure = joules_of if axis == ENERGY else price
        assert figure is not None, "the command wants prices for this axis"
        costs = relative(results, models, points, figure)
    best = front(times, costs)
    slower = slower_with_more(times, parameters)
    return Judged(results, models, parameters, points, axis, times, costs, best, price, slower)


def slower_with_more(
    times: Mapping[Point, float], parameters: Sequence[SweptValues]
) -> dict[Point, list[str]]:
    """The points that are slower than with less of a rate or a size, all else being equal.

    The same program would run there as fast: the compiler chose another one, by estimates.
    """
    found: dict[Point, list[str]] = {}
    for point, time in times.items():
        for number, (setting, parameter) in enumerate(zip(point, parameters, strict=False)):
            if parameter.key not in _HARMLESS:
                continue
            less = parameter.values[: parameter.values.index(setting.value)]
            others = [
                times[(*point[:number], Setting(parameter.key, value), *point[number + 1 :])]
                for value in less
                if _is_less(value, setting.value)
            ]
            if others and math.isfinite(time) and min(others) < time * (1 - _AS_MUCH):
                found.setdefault(point, []).append(parameter.key)
    return found


def _is_less(value: str, other: str) -> bool:
    """Whether one value is below another; those of another unit are not compared."""
    unit = unit_of(value)
    if unit != unit_of(other):
        return False
    return float(value.removesuffix(unit)) < float(other.removesuffix(unit))


def seconds_of(result: Result) -> float:
    """Of a step."""
    return result.seconds


def joules_of(result: Result) -> float:
    """Of a step, on all devices that ran it."""
    return result.joules * result.devices


def price_by(prices: Mapping[str, float]) -> Figure:
    """The price of a step, with what an hour of a chip costs: of the variant by its whole name, else of its
    family. Raises CompileError for a chip without a price."""

    def price(result: Result) -> float:
        if result.error:
            return 0.0
        return price_of(prices, parse_target(result.target).chip, result.seconds, result.devices)

    return price


def relative(
    results: Results, models: Sequence[str], points: Sequence[Point], figure: Figure = seconds_of
) -> dict[Point, float]:
    """For each point the geometric mean over the models of a figure by that of the first point; inf
    where a model has none."""
    known = {key: figure(result) for key, result in results.items()}
    found = {}
    for point in points:
        pairs = [(known[model, point], known[model, points[0]]) for model in models]
        logs = [math.log(own / base) for own, base in pairs if own and base]
        is_whole = len(logs) == len(pairs)
        found[point] = math.exp(sum(logs) / len(logs)) if logs and is_whole else math.inf
    return found


def list_costs(points: Sequence[Point], parameters: Sequence[SweptValues]) -> dict[Point, float]:
    """Steps along the lists of each combination."""
    return {
        point: float(sum(p.values.index(s.value) for p, s in zip(parameters, point, strict=True)))
        for point in points
        if point
    }


def front(times: Mapping[Point, float], costs: Mapping[Point, float]) -> set[Point]:
    """The points that are the fastest for what they cost, of those with a time and a cost.

    None that costs less is as fast, to a part in a thousand, and none that costs as much is faster.
    """
    found: set[Point] = set()
    least = math.inf
    known = [p for p in costs if math.isfinite(times[p]) and math.isfinite(costs[p])]
    known.sort(key=lambda point: (costs[point], times[point]))
    at = 0
    while at < len(known):
        cost = costs[known[at]]
        row = [p for p in known[at:] if costs[p] <= cost * (1 + _AS_MUCH)]
        fastest = min(times[p] for p in row)
        if fastest < least * (1 - _AS_MUCH):
            found.update(p for p in row if times[p] == fastest)
            least = fastest
        at += len(row)
    return found
