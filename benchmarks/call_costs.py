"""What calls of small JAX programs cost the host: processor time, JAX on the CPU beside tpuc.

    python -m benchmarks.call_costs

Each platform is measured in a process of its own; of five runs the shortest counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

PLATFORMS = ("cpu", "tpuc")
_RUNS, _CALLS = 5, 2000


def shortest_seconds(function: Callable[[], object]) -> float:
    """Processor time of one call."""
    found = []
    for _ in range(_RUNS):
        start = time.process_time()
        for _ in range(_CALLS):
            function()
        found.append((time.process_time() - start) / _CALLS)
    return min(found)


def measured() -> dict[str, float]:
    """Seconds of each kind of call, on the platform of this process."""
    import jax
    import numpy as np

    start = time.process_time()
    jax.devices()
    client = time.process_time() - start
    host = np.arange(8, dtype=np.float32)
    x, y = jax.device_put(host), jax.device_put(host)
    add = jax.jit(lambda x, y: x + y)
    for _ in range(_CALLS):
        add(x, y)
    return {
        "client": client,
        "call": shortest_seconds(lambda: add(x, y)),
        "call and wait": shortest_seconds(lambda: add(x, y).block_until_ready()),
        "call and read": shortest_seconds(lambda: np.asarray(add(x, y))),
        "device_put": shortest_seconds(lambda: jax.device_put(host)),
    }


def main() -> None:
    """Print microseconds of each platform, and their ratio."""
    found: dict[str, dict[str, float]] = {}
    for platform in PLATFORMS:
        command = [sys.executable, "-m", "benchmarks.call_costs", "--here"]
        environment = {**os.environ, "JAX_PLATFORMS": platform}
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        found[platform] = json.loads(done.stdout.splitlines()[-1])
    print("| 8 floats | JAX on the CPU, us | tpuc, us | ratio |\n|---|---|---|---|")
    for kind, cpu in found["cpu"].items():
        ours = found["tpuc"][kind]
        print(f"| {kind} | {cpu * 1e6:.1f} | {ours * 1e6:.1f} | {ours / cpu:.2f} |")


if __name__ == "__main__":
    if sys.argv[1:] == ["--here"]:
        print(json.dumps(measured()))
    else:
        main()
