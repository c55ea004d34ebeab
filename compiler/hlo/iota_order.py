"""Device numbers in the order of a reshaped, transposed iota, brought into XLA's normal form."""

from __future__ import annotations

Ints = tuple[int, ...]


def canonical_iota(reshape: Ints, perm: Ints) -> tuple[Ints, Ints]:
    """Drop dimensions of one and merge those that stay next to each other.

    >>> canonical_iota((2, 1, 4, 2), (3, 0, 1, 2))
    ((8, 2), (1, 0))
    """
    while True:
        kept = [d for d in range(len(reshape)) if reshape[d] != 1]
        renumbered = {d: i for i, d in enumerate(kept)}
        order = [renumbered[d] for d in perm if d in renumbered]
        sizes = [reshape[d] for d in kept]
        base, changed = 0, False
        for i in range(1, len(sizes)):
            if order[base] + i - base == order[i]:
                sizes[order[base]] *= sizes[order[i]]
                sizes[order[i]] = 1
                changed = True
            else:
                base = i
        reshape, perm = tuple(sizes), tuple(order)
        if not changed:
            return (reshape, perm) if reshape else ((1,), (0,))
