"""Arithmetic on dimension lists: how a reshape groups dimensions.

>>> reshape_groups((8, 1024, 768), (8192, 12, 64))
[((0, 1), (0,)), ((2,), (1, 2))]
>>> reshape_groups((8, 5), (8, 1, 5))
[((0,), (0,)), ((), (1,)), ((1,), (2,))]
"""

from __future__ import annotations

Dims = tuple[int, ...]
Group = tuple[Dims, Dims]


def reshape_groups(source: Dims, target: Dims) -> list[Group]:
    """Split a reshape into smallest groups (source dims, target dims) of equal element count.

    A dimension of size 1 that faces none gets a group with an empty other side. Arrays
    without elements are one single group.
    """
    if 0 in source or 0 in target:
        return [(tuple(range(len(source))), tuple(range(len(target))))]
    groups: list[Group] = []
    i = j = 0
    while i < len(source) or j < len(target):
        left_one = i < len(source) and source[i] == 1
        right_one = j < len(target) and target[j] == 1
        if left_one != right_one:
            groups.append(((i,), ()) if left_one else ((), (j,)))
            i, j = i + left_one, j + right_one
            continue
        start_i, start_j = i, j
        left, right = source[i], target[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left, i = left * source[i], i + 1
            else:
                right, j = right * target[j], j + 1
        groups.append((tuple(range(start_i, i)), tuple(range(start_j, j))))
    return groups


def is_refinement(source: Dims, target: Dims) -> bool:
    """Whether `target` only splits dimensions of `source` or adds ones."""
    if 0 in source or 0 in target:
        return False
    return all(len(group[0]) <= 1 for group in reshape_groups(source, target)) and not any(
        group[0] and not group[1] for group in reshape_groups(source, target)
    )


def without_ones(dims: Dims) -> Dims:
    """The dimensions that are not 1."""
    return tuple(d for d in dims if d != 1)


def inverse(permutation: Dims) -> Dims:
    """The permutation that undoes `permutation`."""
    result = [0] * len(permutation)
    for position, value in enumerate(permutation):
        result[value] = position
    return tuple(result)
