"""What the child processes do; each function is one life of a process, run by name."""

from __future__ import annotations

import gc
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np

import tpuc
from benchmarks.faults.programs import KnownProgram, loop, product

_KB = 1024
_MOST_GROWTH_KB = 16 * _KB
_WARM_RUNS = 2000


class Stop(BaseException):
    """What the signal's handler raises, like KeyboardInterrupt."""


def interrupts(times: int, seed: int) -> str:
    """Signals at random moments of compiling, loading and running; then everything still works."""
    rng = random.Random(seed)
    kept = loop(80)
    executable = tpuc.compile(kept.text)
    kept.check(executable)
    works: list[Callable[[int], None]] = [
        lambda k: product(k).check(tpuc.compile(product(k).text)),
        lambda k: kept.check(executable),
        lambda k: kept.check(tpuc.compile(kept.text)),
    ]
    spans = [_span(work, 0) for work in works]

    def handler(number: int, frame: FrameType | None) -> None:
        raise Stop

    signal.signal(signal.SIGALRM, handler)
    caught = 0
    for k in range(times):
        which = rng.randrange(len(works))
        again = spans[which] / 5 if rng.random() < 0.3 else 0.0
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.random() * spans[which] + 1e-5, again)
                works[which](k + 1)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Stop:
            caught += 1
        _settle()
        if k % 10 == 0:
            kept.check(executable)
    product(times + 1).check(tpuc.compile(product(times + 1).text))
    assert threading.active_count() < 10, f"{threading.active_count()} threads are left"
    return f"{caught} interrupted"


def _settle() -> None:
    """A signal that was on its way when the timer stopped arrives here."""
    for _ in range(3):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            time.sleep(0)
            return
        except Stop:
            continue


def _span(work: Callable[[int], None], number: int) -> float:
    start = time.perf_counter()
    work(number)
    return 1.1 * (time.perf_counter() - start)


def threads(times: int, seed: int) -> str:
    """Eight threads compile and run at once, some programs in common."""
    failures: list[str] = []
    shared = loop(40)
    common = tpuc.compile(shared.text)

    def work(thread: int) -> None:
        try:
            for k in range(times):
                known = product(k % 7 if thread % 2 else 1000 * thread + k)
                known.check(tpuc.compile(known.text))
                shared.check(common)
        except BaseException as error:  # of any kind: it is what is looked for
            failures.append(f"{type(error).__name__}: {error}")

    started = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not failures, failures[0]
    return f"8 threads, {8 * times} programs"


def growth(times: int, seed: int) -> str:
    """Many executions: memory, descriptors and threads stay as they are."""
    known: KnownProgram = product(seed)
    executable = tpuc.compile(known.text)
    for _ in range(min(times, _WARM_RUNS)):
        executable(*known.arguments)
    before = _resident_kb(), len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(times):
        executable(*known.arguments)
    gc.collect()
    known.check(executable)
    after = _resident_kb(), len(os.listdir("/proc/self/fd")), threading.active_count()
    grown = after[0] - before[0]
    assert grown < _MOST_GROWTH_KB and after[1:] == before[1:], f"from {before} to {after}"
    return f"{grown} kB more"


def _resident_kb() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() // _KB


def compile_and_save(times: int, seed: int) -> str:
    """Compile, keep in the cache and write outputs, on and on; meant to be killed."""
    folder = Path(os.environ["TPUC_FAULTS_FOLDER"])
    for k in range(times):
        known = product(k % 12)
        executable = tpuc.compile(known.text)
        known.check(executable)
        executable.save(folder / f"{k % 12}.tpux")
    return f"{times} programs"


def find_everything(times: int, seed: int) -> str:
    """What was left by a killed process: whole or not there."""
    folder = Path(os.environ["TPUC_FAULTS_FOLDER"])
    for number in range(12):
        known = product(number)
        known.check(tpuc.compile(known.text))
        path = folder / f"{number}.tpux"
        if path.exists():
            known.check(tpuc.compile(str(path)))
    return "whole"


def limited_files(times: int, seed: int) -> str:
    """No file may grow beyond 1 kB, as on a full disk: runs go on, saving fails with a reason."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (_KB, _KB))
    folder = Path(os.environ["TPUC_FAULTS_FOLDER"])
    for k in range(times):
        known = product(k)
        executable = tpuc.compile(known.text)
        known.check(executable)
        target = folder / f"full_{k}.tpux"
        try:
            executable.save(target)
        except OSError:
            assert not target.exists(), "a file was left in part"
        else:
            raise AssertionError("a file beyond the limit was written")
    assert not [f for f in folder.iterdir() if f.name.startswith("full_")]
    return f"{times} programs"


def limited_memory(times: int, seed: int) -> str:
    """An address space of `seed` MB: an answer or an exception, never the end of the process."""
    limit = seed * _KB * _KB
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    known = product(times)
    try:
        known.check(tpuc.compile(known.text))
        big = loop(3)
        text = big.text.replace("256", "8192")
        tpuc.compile(text)(np.ones((8192, 8192), np.float32))
    except (MemoryError, OSError, RuntimeError, ValueError) as error:
        return f"{type(error).__name__}"
    return "ran"


CHILDREN: dict[str, Callable[[int, int], str]] = {
    function.__name__: function
    for function in (
        interrupts, threads, growth, compile_and_save, find_everything, limited_files, limited_memory,
    )
}  # fmt: skip
