"""Data parallel: every chip has all weights and a part of the batch; gradients are summed over all.

    python examples/slice/data_parallel.py          # on a v5e:4x2

The sum over the batch in ``x.T @ d`` is over what is cut, so the partitioner adds an all-reduce for
each weight. It is what a step costs beside a single chip's.
"""

import numpy as np

import tpuc
from tpuc import NamedSharding
from tpuc import PartitionSpec as P

RATE = np.float32(0.1)


def step(x, y, w, v):
    """One step of gradient descent on the mean square error of two layers."""
    h = np.maximum(x @ w, 0)
    error = (h @ v - y) * np.float32(2 / y.size)
    d = (error @ v.T) * (h > 0)
    return w - RATE * (x.T @ d), v - RATE * (h.T @ error)


def main(target="v5e:4x2"):
    """Run a step on the slice; return what came out, what NumPy says, and the program."""
    devices = tpuc.devices(target)
    mesh = tpuc.make_mesh((len(devices),), ("data",), target)
    rows, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    rng = np.random.default_rng(0)
    x, y, w, v = (
        rng.standard_normal(s).astype(np.float32)
        for s in ((512, 128), (512, 64), (128, 256), (256, 64))
    )
    sharded = tpuc.jit(
        step, in_shardings=(rows, rows, whole, whole), out_shardings=whole, precision="highest"
    )
    w_new, v_new = sharded(
        *(tpuc.device_put(a, s) for a, s in ((x, rows), (y, rows), (w, whole), (v, whole)))
    )
    return [w_new, v_new], list(step(x, y, w, v)), sharded.executable


if __name__ == "__main__":
    found, want, program = main()
    for one, right in zip(found, want, strict=True):
        print(one, "largest error", np.abs(np.asarray(one) - right).max())
    print(*program.collectives, sep="\n")
    print(f"{program.report.cycles:,} cycles")
