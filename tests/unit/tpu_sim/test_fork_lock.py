"""What a process has one of is made once, however many threads ask for it at the same time."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tpu_sim.machine.fork_lock import Once

ROOT = Path(__file__).resolve().parents[3]


def test_threads_that_ask_at_the_same_time_get_the_same() -> None:
    made = []

    @Once
    def thing(name: str, *, size: int = 1) -> object:
        time.sleep(0.05)
        made.append((name, size))
        return object()

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: thing("ab"[n % 2], size=2), range(8)))
    assert sorted(made) == [("a", 2), ("b", 2)]
    assert len({id(one) for one in found}) == 2
    assert thing("a") is not thing("a", size=2)
    first = thing("a")
    thing.clear()
    assert thing("a") is not first


FIRST_USES = """
import sys, threading
import numpy as np
from runtime.transfer_kernels import kernels
import tpuc
sys.setswitchinterval(1e-6)
start, seen = threading.Barrier(8), []
def use(number):
    start.wait()
    x = tpuc.device_put(np.full((9, 130), number, np.float32))
    seen.append((x.device, kernels(4, is_dense=True, use_cache=True), (x.numpy() == number).all()))
threads = [threading.Thread(target=use, args=(n,)) for n in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
devices, loops, are_right = zip(*seen)
print(len(seen), len({id(d) for d in devices}), len({id(k) for k in loops}), all(are_right))
"""


def test_the_first_arrays_of_a_process_may_be_placed_by_several_threads() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USES], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["8", "1", "1", "True"], (done.returncode, done.stderr)
