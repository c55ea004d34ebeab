"""Loops and branches that the chip runs, for functions under `tpuc.jit`.

    @tpuc.jit
    def cumulative(xs):
        return tpuc.lax.scan(lambda total, x: (total + x, total + x), np.zeros_like(xs[0]), xs)[1]

They are named and called as in ``jax.lax``.
"""

from runtime.control import cond, fori_loop, map, scan, switch, while_loop
from runtime.transforms import stop_gradient

__all__ = ["cond", "fori_loop", "map", "scan", "stop_gradient", "switch", "while_loop"]
