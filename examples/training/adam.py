"""Adam (Kingma and Ba, 2015) for parameters in a dict, in NumPy: traced with the step that uses it."""

import numpy as np

import tpuc

FIRST, SECOND, TINY = np.float32(0.9), np.float32(0.999), np.float32(1e-8)


def start(params):
    """The state before the first update: running means of gradients and of their squares."""
    zeros = {name: np.zeros_like(p) for name, p in params.items()}
    return {"mean": zeros, "square": zeros, "count": np.float32(0)}


def update(params, gradients, state, rate):
    """The parameters and the state after one update."""
    count = state["count"] + 1
    mean, square, moved = {}, {}, {}
    for name, g in gradients.items():
        mean[name] = FIRST * state["mean"][name] + (1 - FIRST) * g
        square[name] = SECOND * state["square"][name] + (1 - SECOND) * g * g
        step = mean[name] / (1 - FIRST**count)
        spread = np.sqrt(square[name] / (1 - SECOND**count)) + TINY
        moved[name] = params[name] - np.float32(rate) * step / spread
    return moved, {"mean": mean, "square": square, "count": count}


def on_chip(tree):
    """Dicts of arrays, with the arrays in the chip's memory."""
    if isinstance(tree, dict):
        return {name: on_chip(value) for name, value in tree.items()}
    return tpuc.device_put(tree)
