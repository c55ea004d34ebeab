"""Draw a trace of ``tpuc run|estimate --trace`` as an SVG picture.

    python docs/trace_picture.py TRACE.json PICTURE.svg [--top 10]

What is in the picture is read from the trace file alone: its tracks, its slices in their places and
its counters. Slices narrower than a pixel are joined with their neighbours; the kernels that take
the most time are numbered and listed.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

WIDTH, LEFT, RIGHT = 1280, 170, 20
ROW, GAP, COUNTER, TOP, HEADING = 22, 6, 56, 54, 26
COLOURS = ("#455a64", "#1565c0", "#64b5f6", "#2e7d32", "#8d6e63", "#ef6c00", "#fbc02d", "#6a1b9a")
MARKS = ("#ff8a65", "#ffd54f", "#aed581", "#4dd0e1", "#ba68c8", "#f06292", "#7986cb", "#dce775")
FONT = "font-family='Helvetica,Arial,sans-serif'"


@dataclass(frozen=True)
class Slice:
    """A slice of a track. Times are microseconds."""

    start: float
    length: float
    name: str
    kernel: str
    what: str


@dataclass(frozen=True)
class Trace:
    """Slices by track and values (time, value) by counter, in the order of the file.

    A track is a group (a process of the trace, whose name the first one's is `title`) and a name.
    """

    title: str
    tracks: dict[tuple[str, str], list[Slice]]
    counters: dict[str, list[tuple[float, float]]]

    @property
    def end(self) -> float:
        """When the last slice ends."""
        return max((s.start + s.length for t in self.tracks.values() for s in t), default=1.0)


def read_trace(path: Path) -> Trace:
    """The trace in a file."""
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    groups = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    names = {
        (e["pid"], e["tid"]): (groups[e["pid"]], e["args"]["name"])
        for e in events
        if e["name"] == "thread_name"
    }
    title = next(iter(groups.values()))
    tracks: dict[tuple[str, str], list[Slice]] = {place: [] for place in names.values()}
    counters: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            about = event["args"]
            kernel, what = str(about.get("kernel", "")), str(about.get("what", ""))
            found = Slice(event["ts"], event["dur"], event["name"], kernel, what)
            tracks[names[event["pid"], event["tid"]]].append(found)
        elif event["ph"] == "C":
            ((unit, value),) = event["args"].items()
            counters[f"{event['name']}, {unit}"].append((event["ts"], float(value)))
    return Trace(title, tracks, dict(counters))


def top_kernels(slices: Sequence[Slice], count: int) -> list[tuple[str, str, float, int]]:
    """Name, what it is, time and calls of the kernels that take the most time.

    Calls from several places, of equal layers, are calls of one kernel.
    """
    times: dict[str, list[float]] = defaultdict(list)
    notes = {s.kernel: s.what for s in slices}
    for s in slices:
        times[s.kernel].append(s.length)
    ranked = sorted(times, key=lambda name: -sum(times[name]))[:count]
    return [(name, notes[name], sum(times[name]), len(times[name])) for name in ranked]


class Picture:
    """The drawing of one trace."""

    def __init__(self, trace: Trace, name: str, top: int) -> None:
        self.trace = trace
        self.name = name
        self.program = next(iter(trace.tracks.values()))
        self.top = top_kernels(self.program, top)
        self.scale = (WIDTH - LEFT - RIGHT) / trace.end

    def svg(self) -> str:
        """The whole picture."""
        body = list(self._body())
        height = TOP + len(self.trace.tracks) * (ROW + GAP)
        height += (len({group for group, _ in self.trace.tracks}) - 1) * HEADING
        height += len(self.trace.counters) * (COUNTER + GAP) + 50 + 17 * len(self.top)
        head = (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' "
            f"width='{WIDTH}' height='{height}' {FONT} font-size='12'>"
        )
        return "\n".join(
            [head, f"<rect width='{WIDTH}' height='{height}' fill='#fff'/>", *body, "</svg>\n"]
        )

    def _body(self) -> Iterator[str]:
        yield _text(LEFT, 20, f"{self.name}: {self.trace.title}, {self.trace.end:,.1f} us", size=15)
        yield _text(
            LEFT, 38, f"{len(self.program):,} kernel calls, drawn from the trace file", "#666"
        )
        y = TOP
        before = self.trace.title
        for number, ((group, track), slices) in enumerate(self.trace.tracks.items()):
            if group != before:
                y += HEADING
                yield _text(LEFT, y - GAP, group, "#444")
                before = group
            yield _text(LEFT - 8, y + 15, track, anchor="end")
            yield f"<rect x='{LEFT}' y='{y}' width='{WIDTH - LEFT - RIGHT}' height='{ROW}' fill='#f3f4f6'/>"
            yield self._bars(slices, y, COLOURS[number % len(COLOURS)])
            if number == 0:
                yield from self._numbers(y)
            y += ROW + GAP
        for number, (counter, values) in enumerate(self.trace.counters.items()):
            yield from self._counter(counter, values, y, COLOURS[-1 - number])
            y += COUNTER + GAP
        yield from self._axis(y)
        yield from self._legend(y + 44)

    def _bars(self, slices: Sequence[Slice], y: int, colour: str) -> str:
        """Slices as one path; the gap between two is kept where it can be seen."""
        parts: list[str] = []
        for start, end in _joined(slices, 0.5 / self.scale):
            x, width = LEFT + start * self.scale, max(0.3, (end - start) * self.scale)
            parts.append(f"M{x:.1f} {y}h{width:.1f}v{ROW}h-{width:.1f}z")
        return f"<path d='{''.join(parts)}' fill='{colour}'/>"

    def _numbers(self, y: int) -> Iterator[str]:
        """The places of the top kernels on the program's track, numbered where there is room."""
        for number, (name, _, _, _) in enumerate(self.top, 1):
            for s in (s for s in self.program if s.kernel == name):
                x, width = LEFT + s.start * self.scale, s.length * self.scale
                if width >= 1:
                    colour = MARKS[(number - 1) % len(MARKS)]
                    yield (
                        f"<rect x='{x:.1f}' y='{y}' width='{width:.1f}' height='{ROW}' fill='{colour}'>"
                        f"<title>{escape(s.name)}: {s.length:.2f} us</title></rect>"
                    )
                if width >= 9:
                    yield _text(x + width / 2, y + 15, str(number), "#000", anchor="middle")

    def _counter(
        self, name: str, values: Sequence[tuple[float, float]], y: int, colour: str
    ) -> Iterator[str]:
        most = max((v for _, v in values), default=0.0) or 1.0
        base = y + COUNTER
        path = [f"M{LEFT} {base}"]
        for time, value in values:
            path.append(f"H{LEFT + time * self.scale:.1f}V{base - value / most * COUNTER:.1f}")
        yield f"<path d='{''.join(path)}V{base}z' fill='{colour}' fill-opacity='0.7'/>"
        yield _text(LEFT - 8, y + 14, name, anchor="end")
        yield _text(LEFT - 8, y + 30, f"up to {most:,.0f}", "#666", anchor="end")

    def _axis(self, y: int) -> Iterator[str]:
        step = _round_step(self.trace.end / 8)
        count = int(self.trace.end / step)
        for k in range(count + 1):
            x = LEFT + k * step * self.scale
            yield f"<path d='M{x:.1f} {TOP}V{y}' stroke='#000' stroke-opacity='0.12'/>"
            yield _text(x, y + 14, f"{k * step:,g} us", "#444", anchor="middle")

    def _legend(self, y: int) -> Iterator[str]:
        total = sum(s.length for s in self.program) or 1.0
        for number, (name, note, time, calls) in enumerate(self.top, 1):
            times = f"{calls} calls" if calls > 1 else "1 call"
            text = f"{number}. {name}: {time:,.1f} us, {time / total:.1%}, {times}; {note}"
            yield _text(LEFT, y + 17 * (number - 1), text)


def _joined(slices: Sequence[Slice], least_gap: float) -> Iterator[tuple[float, float]]:
    start = end = None
    for s in slices:
        if end is not None and start is not None and s.start - end < least_gap:
            end = s.start + s.length
            continue
        if end is not None and start is not None:
            yield start, end
        start, end = s.start, s.start + s.length
    if start is not None and end is not None:
        yield start, end


def _round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten, at least so much."""
    power = 1.0
    while power * 10 <= least:
        power *= 10
    while power > least:
        power /= 10
    return next(power * k for k in (1, 2, 5, 10) if power * k >= least)


def _text(
    x: float, y: float, text: str, fill: str = "#111", anchor: str = "start", size: int = 12
) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' fill='{fill}' text-anchor='{anchor}' font-size='{size}'>"
        f"{escape(text)}</text>"
    )


def main() -> None:
    """Read a trace, write a picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--top", type=int, default=10)
    args = parser.parse_args()
    picture = Picture(read_trace(args.trace), args.picture.stem, args.top)
    args.picture.parent.mkdir(parents=True, exist_ok=True)
    args.picture.write_text(picture.svg())


if __name__ == "__main__":
    main()
