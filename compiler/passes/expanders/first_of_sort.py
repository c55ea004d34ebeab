"""Sorts of which only the first elements are read: a `topk`, where that is cheaper than to sort.

    s = sort(x, places), by > of x, stable          t = topk(x), k=16
    slice(s.0, [0:16]), slice(s.1, [0:16])     =>   t.0, t.1

Frontends write `top_k` so where they spell out what it does. Any one key will do: it is searched as integers
that ascend in the order of the sort, the greatest of what they are not.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape, TupleShape, leaves
from compiler.passes.sort_kernels.kernels import is_place
from compiler.passes.sort_kernels.keys import Key, keys_of
from compiler.rewrite.emitter import Emitter, result_of
from compiler.rewrite.graph import remove_dead

Instr = HloInstruction


def first_of_sort(sort: Instr, is_cheaper: Callable[[Instr], bool]) -> Instr | None:
    """What replaces the sort; None where more of it is read, or `is_cheaper` says so of the `topk`."""
    (dim,) = sort.dimensions
    shape = sort.operands[0].array
    if dim != shape.rank - 1 or not shape.element_count:
        return None
    keys = keys_of(sort.to_apply)
    read = _read(sort)
    if keys is None or len(keys) != 1 or read is None or not read:
        return None
    (key,), count = keys, max(read.values())
    others = [n for n in read if n != key.operand]
    if 2 * count > shape.dims[-1] or any(not is_place(sort.operands[n], dim) for n in others):
        return None
    return _made(sort, key, count, is_cheaper)


def _read(sort: Instr) -> dict[int, int] | None:
    """How many of each result are read, the first ones; None where it may be all."""
    parts = [(0, sort)]
    if isinstance(sort.shape, TupleShape):
        if any(user.opcode != "get-tuple-element" for user in sort.users):
            return None
        parts = [(user.index, user) for user in sort.users]
    found: dict[int, int] = {}
    for number, part in parts:
        if part.computation is None or part is part.computation.root:
            return None
        for user in part.users:
            if user.opcode != "slice" or not _is_first(user, part.array):
                return None
            found[number] = max(found.get(number, 0), user.array.dims[-1])
    return found


def _is_first(cut: Instr, whole: ArrayShape) -> bool:
    *_, (start, _limit, stride) = cut.slice
    return start == 0 and stride == 1 and cut.array.dims[:-1] == whole.dims[:-1]


def _made(sort: Instr, key: Key, count: int, is_cheaper: Callable[[Instr], bool]) -> Instr | None:
    e = Emitter.at(sort)
    words = e.not_(key.words(e, sort.to_apply, sort.operands))
    cut = words.array.with_dims((*words.array.dims[:-1], count))
    shape = TupleShape((cut, cut.with_dtype(S32)))
    attrs: dict[str, object] = {"k": count, "largest": True}
    found = e.instruction("topk", (words,), attrs, shape)
    if not is_cheaper(found):
        remove_dead(found)
        return None
    best, place = e.get_tuple_element(found, 0), e.get_tuple_element(found, 1)
    values: list[Instr] = []
    for number, result in enumerate(leaves(sort.shape)):
        is_key = number == key.operand
        value = key.values(e, e.not_(best)) if is_key else e.cast(place, result.dtype)
        rest = result.dims[-1] - count  # nobody reads it
        values.append(e.pad_dim(value, len(result.dims) - 1, 0, rest))
    return result_of(e, sort, values)
