"""Calls of a function that need nothing of each other, each a task of a Ray cluster (docs/workers.md)."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from compiler.diagnostics import CompileError
from runtime.workers import WorkerChoice, WorkerLostError, connect, import_ray
from tpu_sim.isa.source_digest import source_digest

Given = TypeVar("Given")
Result = TypeVar("Result")

_RETRIES = 3
_WAITING_FOR_EACH = 2
"""Tasks that are given out for each processor: one runs, the next is there when it ends."""
_PATIENCE_SECONDS = 60.0
"""How long a cluster may have no processor at all: one that grows when it is asked takes its time."""
_LOOK_EVERY_SECONDS = 5.0


def call_on_workers(
    function: Callable[..., Result], calls: Sequence[tuple[Any, ...]], choice: WorkerChoice
) -> Iterator[Result]:
    """Results of `function` for each tuple of arguments, as they come.

    Texts and bytes that several calls share are sent once. Ray runs as many calls at once as its cluster
    has processors, at most the count of `choice`, and makes a call again whose worker was lost. Raises
    what a call raises, `WorkerLostError` if a call loses worker after worker, and `CompileError` where a
    host has another tpuc, there is no cluster, or it has no processor.
    """
    ray = import_ray()
    connect(ray, choice)
    errors = importlib.import_module("ray.exceptions")
    task = ray.remote(_called).options(num_cpus=1, max_retries=_RETRIES)
    version = source_digest("compiler", "runtime", "tpu_sim")
    stored: dict[int, Any] = {}
    waiting = list(reversed(calls))
    running: list[Any] = []
    try:
        while waiting or running:
            while waiting and len(running) < _most_at_once(ray, choice):
                sent = [_sent(ray, stored, value) for value in waiting.pop()]
                running.append(task.remote(version, function, *sent))
            ended, running = _first_ended(ray, running)
            yield ray.get(ended)
    except errors.RayError as error:
        cause = getattr(error, "cause", None)
        raise (cause if isinstance(cause, Exception) else _lost(error)) from error
    finally:
        for left in running:
            ray.cancel(left, force=True)


def _first_ended(ray: Any, running: list[Any]) -> tuple[Any, list[Any]]:
    """A call that ended, and the others. Raises `CompileError` if nobody is there to run them."""
    last_seen = time.monotonic()
    while True:
        ended, others = ray.wait(running, num_returns=1, timeout=_LOOK_EVERY_SECONDS)
        if ended:
            return ended[0], others
        if ray.cluster_resources().get("CPU", 0) >= 1:
            last_seen = time.monotonic()
        elif time.monotonic() - last_seen >= _PATIENCE_SECONDS:
            raise CompileError(
                f"the Ray cluster has had no processor for {_PATIENCE_SECONDS:.0f} seconds: "
                "start a node that has some (ray start --address=HEAD:6379)"
            )


def _called(version: str, function: Callable[..., Result], *arguments: Any) -> Result:
    """What a worker runs."""
    if version != source_digest("compiler", "runtime", "tpu_sim"):
        raise CompileError("a host of the Ray cluster has another version of tpuc than this one")
    return function(*arguments)


def _sent(ray: Any, stored: dict[int, Any], value: Any) -> Any:
    """The value, or a reference to it in Ray's store, from where each host gets it once."""
    if not isinstance(value, str | bytes):
        return value
    if id(value) not in stored:
        stored[id(value)] = ray.put(value)
    return stored[id(value)]


def _most_at_once(ray: Any, choice: WorkerChoice) -> int:
    """A cluster may grow, so without a count it is asked each time."""
    if choice.count is not None:
        return choice.count
    return max(1, int(_WAITING_FOR_EACH * ray.cluster_resources().get("CPU", 1)))


def _lost(error: Exception) -> WorkerLostError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return WorkerLostError(
        f"{_RETRIES + 1} workers were lost over the same call, the last one so: {reason}"
    )
