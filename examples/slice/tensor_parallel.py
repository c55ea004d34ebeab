"""Tensor parallel, Megatron's way: attention heads and hidden units are cut over the chips.

    python examples/slice/tensor_parallel.py        # on a v5e:4x2

Each chip has a quarter of the heads and of the hidden units, and half of the sequences. Two all-reduces
a layer, one after the attention, one after the MLP; all else is local.
"""

import numpy as np

import tpuc
from tpuc import NamedSharding
from tpuc import PartitionSpec as P

HEADS, WIDTH = 8, 32


def layer(x, wq, wk, wv, wo, w1, w2):
    """A transformer layer without norms: x is [batch, position, model], wq [model, head, width]."""
    q, k, v = (np.einsum("bpm,mhw->bhpw", x, w) for w in (wq, wk, wv))
    scores = np.einsum("bhpw,bhtw->bhpt", q, k) * np.float32(WIDTH**-0.5)
    weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = weights / np.sum(weights, axis=-1, keepdims=True)
    mixed = np.einsum("bhpt,bhtw->bhpw", weights, v)
    x = x + np.einsum("bhpw,hwm->bpm", mixed, wo)
    return x + np.maximum(x @ w1, 0) @ w2


def main(target="v5e:4x2"):
    """Run a layer on the slice; return what came out, what NumPy says, and the program."""
    mesh = tpuc.make_mesh((len(tpuc.devices(target)) // 4, 4), ("data", "model"), target)

    def lies(*parts):
        return NamedSharding(mesh, P(*parts))

    model = HEADS * WIDTH
    shapes = [
        (4, 64, model),
        *[(model, HEADS, WIDTH)] * 3,
        (HEADS, WIDTH, model),
        (model, 1024),
        (1024, model),
    ]
    by_heads, by_units = lies(None, "model"), lies(None, "model")
    shardings = (lies("data"), by_heads, by_heads, by_heads, lies("model"), by_units, lies("model"))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) * np.float32(0.1) for s in shapes]
    sharded = tpuc.jit(
        layer, in_shardings=shardings, out_shardings=lies("data"), precision="highest"
    )
    found = sharded(*(tpuc.device_put(a, s) for a, s in zip(arrays, shardings, strict=True)))
    return [found], [layer(*arrays)], sharded.executable


if __name__ == "__main__":
    (one,), (right,), program = main()
    print(one, "largest error", np.abs(np.asarray(one) - right).max())
    print(*program.collectives, sep="\n")
    print(f"{program.report.cycles:,} cycles")
