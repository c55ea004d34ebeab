"""A multilayer perceptron learns three spirals on the emulated chip.

    python examples/training/mlp.py [STEPS]

Weights are f32 and stay in the chip's memory; layers compute in bf16, as they would on a TPU, and the
loss in f32. `tpuc.value_and_grad` differentiates, `adam` updates, and one program does it all.
"""

import itertools
import sys

import adam
import ml_dtypes
import numpy as np

import tpuc

POINTS, CLASSES, HIDDEN, RATE = 384, 3, 128, 1e-2
BF16 = ml_dtypes.bfloat16


def spirals(seed=0):
    """Points of the plane on three arms, and which arm each is on."""
    rng = np.random.default_rng(seed)
    arm = np.arange(POINTS) % CLASSES
    radius = rng.uniform(0.1, 1, POINTS)
    angle = arm * 2 * np.pi / CLASSES + 4 * radius + 0.1 * rng.standard_normal(POINTS)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return points.astype(np.float32), arm.astype(np.int32)


def parameters(seed=0):
    """Weights of three layers, scaled for rectifiers, and biases."""
    rng = np.random.default_rng(seed)
    sizes = (2, HIDDEN, HIDDEN, CLASSES)
    params = {}
    for i, (n, m) in enumerate(itertools.pairwise(sizes)):
        params[f"w{i}"] = (rng.standard_normal((n, m)) * np.sqrt(2 / n)).astype(np.float32)
        params[f"b{i}"] = np.zeros(m, np.float32)
    return params


def scores(params, x):
    """One number for each class."""
    h = x.astype(BF16)
    for i in range(3):
        h = h @ params[f"w{i}"].astype(BF16) + params[f"b{i}"].astype(BF16)
        h = np.maximum(h, 0) if i < 2 else h
    return h.astype(np.float32)


def loss(params, x, arm):
    """The mean cross entropy."""
    z = scores(params, x)
    z = z - z.max(1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
    return -np.take_along_axis(log_p, arm[:, None], 1).mean()


@tpuc.jit(donate_argnums=(0, 1))
def step(params, state, x, arm):
    """One update of all weights."""
    value, gradients = tpuc.value_and_grad(loss)(params, x, arm)
    params, state = adam.update(params, gradients, state, RATE)
    return params, state, value


def main(steps=150):
    """Train; return the loss before each step, and the cycles of a step."""
    x, arm = (tpuc.device_put(a) for a in spirals())
    params = adam.on_chip(parameters())
    state = adam.on_chip(adam.start(parameters()))
    losses = []
    for _ in range(steps):
        params, state, value = step(params, state, x, arm)
        losses.append(float(np.asarray(value)))
    return losses, step.executable.report.cycles


if __name__ == "__main__":
    losses, cycles = main(*map(int, sys.argv[1:]))
    for i, value in list(enumerate(losses))[:: max(1, len(losses) // 10)]:
        print(f"step {i:4d}  loss {value:.4f}")
    print(f"last loss {losses[-1]:.4f}, {cycles:,} cycles a step")
