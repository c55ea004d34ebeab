"""FSDP: weights, too, lie in pieces on the chips of the batch; each is gathered when it is used.

    python examples/slice/fsdp.py                   # on a v5e:4x2

The constraint to the whole weight is an all-gather, and the gradient's sum over the batch, wanted in
pieces, a reduce-scatter: a chip never holds more than its piece and the layer that it works on.
"""

import numpy as np

import tpuc
from tpuc import NamedSharding
from tpuc import PartitionSpec as P

RATE = np.float32(0.1)


def step(x, y, weights, gathered):
    """One step of gradient descent through layers ``tanh(x @ w)``; `gathered` brings a weight whole."""
    whole = [gathered(w) for w in weights]
    values = [x]
    for w in whole:
        values.append(np.tanh(values[-1] @ w))
    d, new = (values[-1] - y) * np.float32(2 / y.size), []
    for w, own, after, before in reversed(
        list(zip(whole, weights, values[1:], values, strict=False))
    ):
        d = d * (1 - after * after)
        new.insert(0, own - RATE * (before.T @ d))
        d = d @ w.T
    return new


def main(target="v5e:4x2"):
    """Run a step on the slice; return what came out, what NumPy says, and the program."""
    mesh = tpuc.make_mesh((len(tpuc.devices(target)),), ("data",), target)
    rows, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((256, 256)).astype(np.float32) for _ in range(2))
    weights = [
        rng.standard_normal((256, 256)).astype(np.float32) * np.float32(0.05) for _ in range(3)
    ]

    def on_slice(x, y, weights):
        return step(x, y, weights, lambda w: tpuc.with_sharding_constraint(w, whole))

    sharded = tpuc.jit(on_slice, in_shardings=rows, out_shardings=rows, precision="highest")
    found = sharded(
        tpuc.device_put(x, rows),
        tpuc.device_put(y, rows),
        [tpuc.device_put(w, rows) for w in weights],
    )
    return found, step(x, y, weights, lambda w: w), sharded.executable


if __name__ == "__main__":
    found, want, program = main()
    for one, right in zip(found, want, strict=True):
        print(one, "largest error", np.abs(np.asarray(one) - right).max())
    print(*program.collectives, sep="\n")
    print(f"{program.report.cycles:,} cycles")
