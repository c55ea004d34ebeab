"""A small transformer learns the letters of a poem on the emulated chip.

    python examples/training/transformer.py [STEPS]

Two layers run as a scan over stacked weights; types are those of `mlp.py`, normalisation and softmax f32.
The poem is Blake's "The Tyger" (1794).
"""

import sys

import adam
import ml_dtypes
import numpy as np

import tpuc

POEM = """tyger tyger, burning bright, in the forests of the night; what immortal hand or eye,
could frame thy fearful symmetry? in what distant deeps or skies, burnt the fire of thine eyes?
on what wings dare he aspire? what the hand, dare seize the fire?"""
LETTERS = sorted(set(POEM))
LAYERS, HEADS, WIDTH, LENGTH, BATCH, RATE = 2, 4, 64, 32, 16, 3e-3
BF16 = ml_dtypes.bfloat16
MASK = np.where(np.tri(LENGTH, dtype=bool), np.float32(0), np.float32(-1e9))


def batches(seed=0):
    """Pieces of the poem, and the same pieces one letter on, for ever."""
    rng = np.random.default_rng(seed)
    numbers = np.array([LETTERS.index(c) for c in POEM], np.int32)
    while True:
        starts = rng.integers(0, len(numbers) - LENGTH - 1, BATCH)
        places = starts[:, None] + np.arange(LENGTH)
        yield numbers[places], numbers[places + 1]


def parameters(seed=0):
    """The weights; those of layers are stacked along a first axis."""
    rng = np.random.default_rng(seed)

    def weight(*shape):
        return (rng.standard_normal(shape) / np.sqrt(shape[-2])).astype(np.float32)

    return {
        "letters": weight(WIDTH, len(LETTERS)).T.copy(),
        "places": weight(WIDTH, LENGTH).T.copy(),
        "qkv": weight(LAYERS, WIDTH, 3 * WIDTH),
        "out": weight(LAYERS, WIDTH, WIDTH),
        "up": weight(LAYERS, WIDTH, 4 * WIDTH),
        "down": weight(LAYERS, 4 * WIDTH, WIDTH),
        "scale1": np.ones((LAYERS, WIDTH), np.float32),
        "scale2": np.ones((LAYERS, WIDTH), np.float32),
    }


def normal(x, scale):
    """Each row over its root mean square."""
    wide = x.astype(np.float32)
    size = np.sqrt((wide * wide).mean(-1, keepdims=True) + np.float32(1e-6))
    return (wide / size * scale).astype(BF16)


def layer(x, w):
    """Attention and a rectifier network, each added to what came in."""
    qkv = normal(x, w["scale1"]) @ w["qkv"].astype(BF16)
    q, k, v = qkv.reshape(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS).transpose(2, 0, 3, 1, 4)
    score = np.einsum("bhqd,bhkd->bhqk", q, k).astype(np.float32)
    score = score / np.float32(np.sqrt(WIDTH // HEADS)) + MASK
    share = np.exp(score - score.max(-1, keepdims=True))
    share = (share / share.sum(-1, keepdims=True)).astype(BF16)
    mixed = np.einsum("bhqk,bhkd->bqhd", share, v).reshape(BATCH, LENGTH, WIDTH)
    x = x + mixed @ w["out"].astype(BF16)
    hidden = np.maximum(normal(x, w["scale2"]) @ w["up"].astype(BF16), 0)
    return x + hidden @ w["down"].astype(BF16)


def loss(params, letters, following):
    """The mean cross entropy of the next letter."""
    x = (params["letters"][letters] + params["places"]).astype(BF16)
    layers = {name: params[name] for name in ("qkv", "out", "up", "down", "scale1", "scale2")}
    x, _ = tpuc.lax.scan(lambda x, w: (layer(x, w), None), x, layers)
    z = (x @ params["letters"].T.astype(BF16)).astype(np.float32)
    z = z - z.max(-1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(-1, keepdims=True))
    return -np.take_along_axis(log_p, following[..., None], -1).mean()


@tpuc.jit(donate_argnums=(0, 1))
def step(params, state, letters, following):
    """One update of all weights."""
    value, gradients = tpuc.value_and_grad(loss)(params, letters, following)
    params, state = adam.update(params, gradients, state, RATE)
    return params, state, value


def main(steps=150):
    """Train; return the loss before each step, and the cycles of a step."""
    params = adam.on_chip(parameters())
    state = adam.on_chip(adam.start(parameters()))
    losses = []
    for _, (letters, following) in zip(range(steps), batches(), strict=False):
        pieces = tpuc.device_put(letters), tpuc.device_put(following)
        params, state, value = step(params, state, *pieces)
        losses.append(float(np.asarray(value)))
    return losses, step.executable.report.cycles


if __name__ == "__main__":
    losses, cycles = main(*map(int, sys.argv[1:]))
    for i, value in list(enumerate(losses))[:: max(1, len(losses) // 10)]:
        print(f"step {i:4d}  loss {value:.4f}")
    print(f"last loss {losses[-1]:.4f}, {cycles:,} cycles a step")
