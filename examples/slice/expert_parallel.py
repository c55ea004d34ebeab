"""Expert parallel: each chip has one expert of a mixture; tokens travel to the expert that they choose.

    python examples/slice/expert_parallel.py        # on a v5e:4x2

As in GShard: a one-hot array says which place of which expert a token takes. What the chips dispatch is
``[group, expert, place, model]`` cut over the groups of tokens; the expert's dot wants it cut over the
experts, so there is an all-to-all before it, and one back after it.
"""

import numpy as np

import tpuc
from tpuc import NamedSharding
from tpuc import PartitionSpec as P


def mixture(x, router, w1, w2, by_group, by_expert):
    """x is [group, token, model], router [model, expert], w1 [expert, model, hidden], w2 back."""
    experts, places = router.shape[1], 2 * x.shape[1] // router.shape[1]
    scores = x @ router
    chosen = (np.argmax(scores, axis=-1)[..., None] == np.arange(experts)).astype(np.float32)
    place = np.cumsum(chosen, axis=1) * chosen - 1  # in the order of the tokens, -1: not there
    takes = (place[..., None] == np.arange(places, dtype=np.float32)).astype(np.float32)
    sent = by_group(np.einsum("gtep,gtm->gepm", takes, x))
    there = by_expert(sent)
    hidden = np.maximum(np.einsum("gepm,emh->geph", there, w1), 0)
    done = by_expert(np.einsum("geph,ehm->gepm", hidden, w2))
    return np.einsum("gtep,gepm->gtm", takes, by_group(done))


def main(target="v5e:4x2"):
    """Run a layer on the slice; return what came out, what NumPy says, and the program."""
    count = len(tpuc.devices(target))
    mesh = tpuc.make_mesh((count,), ("chip",), target)
    first, second = NamedSharding(mesh, P("chip")), NamedSharding(mesh, P(None, "chip"))
    whole = NamedSharding(mesh, P())
    rng = np.random.default_rng(0)
    shapes = [(count, 64, 128), (128, count), (count, 128, 256), (count, 256, 128)]
    arrays = [rng.standard_normal(s).astype(np.float32) * np.float32(0.1) for s in shapes]
    shardings = (first, whole, first, first)

    def on_slice(x, router, w1, w2):
        lies = [lambda x, s=s: tpuc.with_sharding_constraint(x, s) for s in (first, second)]
        return mixture(x, router, w1, w2, *lies)

    sharded = tpuc.jit(on_slice, in_shardings=shardings, out_shardings=first, precision="highest")
    found = sharded(*(tpuc.device_put(a, s) for a, s in zip(arrays, shardings, strict=True)))
    want = mixture(*arrays, lambda x: x, lambda x: x)
    return [found], [want], sharded.executable


if __name__ == "__main__":
    (one,), (right,), program = main()
    print(one, "largest error", np.abs(np.asarray(one) - right).max())
    print(*program.collectives, sep="\n")
    print(f"{program.report.cycles:,} cycles")
