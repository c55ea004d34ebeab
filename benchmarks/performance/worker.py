"""The process of one side: JSON requests on stdin, an answer to each on stdout.

    python -m benchmarks.performance.worker ours|xla THREADS

It does nothing between an answer and the next request.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.performance.agreement import stored
from benchmarks.performance.inputs import random_input
from benchmarks.performance.protocol import Side, peak_resident_bytes, timed_calls


def make_side(name: str, threads: int) -> Side:
    """The side of that name; only its own libraries are imported."""
    if name == "ours":
        side: Side = import_module("benchmarks.performance.ours").Ours(threads)
        return side
    side = import_module("benchmarks.performance.xla").XlaCpu()
    return side


def answer(side: Side, request: Mapping[str, Any]) -> dict[str, object]:
    """Do what a request asks."""
    match request["do"]:
        case "compile":
            compiled = side.compile(Path(request["path"]).read_text())
            return asdict(compiled)
        case "place":
            seed, limit, positive = request["seed"], request["integer_limit"], request["positive"]
            side.place(lambda shape, n: random_input(shape, seed, n, limit, positive=n in positive))
            return {}
        case "execute":
            return {"times": timed_calls(side, request["budget"], request["most"])}
        case "facts":
            return {**side.facts(), "peak_resident_bytes": peak_resident_bytes()}
        case "outputs":
            return {"count": len(side.outputs())}
        case "save":
            output = np.asarray(side.outputs()[request["number"]])
            np.save(request["path"], stored(output))
            return {}
        case other:
            message = f"unknown request {other!r}"
            raise ValueError(message)


def serve(side: Side) -> None:
    """Answer until stdin ends. Only answers go to stdout: what libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    say = partial(print, file=answers, flush=True)
    side.warm_up()
    say("{}")
    for line in sys.stdin:
        try:
            say(json.dumps(answer(side, json.loads(line))))
        except Exception as error:
            first = (str(error).strip() or "no message").splitlines()[0]
            say(json.dumps({"error": f"{type(error).__name__}: {first}"}))


def main() -> None:
    """Limit the process to THREADS processors and serve."""
    name, threads = sys.argv[1], int(sys.argv[2])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    serve(make_side(name, threads))


if __name__ == "__main__":
    main()
