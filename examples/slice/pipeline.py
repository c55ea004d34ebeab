"""Pipeline parallel: each chip has the layers of one stage; microbatches go from chip to chip.

    python examples/slice/pipeline.py               # on a v5e:4x2

All stages work at the same time, each on another microbatch: an array ``[stage, ..]`` that is cut over
the stages holds what they work on, a batched dot is every stage's layer, and the shift by one stage is a
collective-permute (as in GSPMD's paper, section 3.3).
"""

import numpy as np

import tpuc
from tpuc import NamedSharding
from tpuc import PartitionSpec as P


def pipelined(microbatches, weights, stages):
    """Results of all microbatches ``[count, rows, width]`` after all stages, ``[stage, width, width]``."""
    count, depth = microbatches.shape[0], weights.shape[0]
    is_last = (np.arange(depth) == depth - 1).astype(np.float32)[:, None, None]
    state = np.zeros((depth, *microbatches.shape[1:]), np.float32)
    results = []
    for tick in range(count + depth - 1):
        entering = microbatches[min(tick, count - 1)][
            None
        ]  # the last again, while stages run empty
        state = stages(np.concatenate([entering, state[:-1]]))
        state = stages(np.tanh(np.einsum("srw,swv->srv", state, weights)))
        if tick >= depth - 1:
            results.append(np.sum(state * is_last, axis=0))  # from the last stage to all
    return np.stack(results)


def main(target="v5e:4x2"):
    """Run all microbatches through the slice; return what came out, what NumPy says, and the program."""
    count = len(tpuc.devices(target))
    mesh = tpuc.make_mesh((count,), ("stage",), target)
    by_stage, whole = NamedSharding(mesh, P("stage")), NamedSharding(mesh, P())
    rng = np.random.default_rng(0)
    microbatches = rng.standard_normal((6, 64, 128)).astype(np.float32)
    weights = rng.standard_normal((count, 128, 128)).astype(np.float32) * np.float32(0.1)

    def on_slice(microbatches, weights):
        stages = lambda x: tpuc.with_sharding_constraint(x, by_stage)  # noqa: E731
        return pipelined(microbatches, weights, stages)

    sharded = tpuc.jit(
        on_slice, in_shardings=(whole, by_stage), out_shardings=whole, precision="highest"
    )
    found = sharded(tpuc.device_put(microbatches, whole), tpuc.device_put(weights, by_stage))
    want = microbatches
    for weight in weights:
        want = np.tanh(want @ weight)
    return [found], [want], sharded.executable


if __name__ == "__main__":
    (one,), (right,), program = main()
    print(one, "largest error", np.abs(np.asarray(one) - right).max())
    print(*program.collectives, sep="\n")
    print(f"{program.report.cycles:,} cycles")
