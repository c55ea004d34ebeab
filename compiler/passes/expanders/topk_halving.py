"""topk of many elements: sorted groups as large as the result, halved in number until one is left.

    [rows, n] transposed, as [size, groups, rows]     size: the power of two from k on
    each group sorted along the first dimension
    the better of element i of one group and element size-1-i of another: the best of both, which
        first fall and then rise; merged, they are sorted. Half as many groups are left.

Elements are ordered by key, then by place, so that equal ones come as in a stable sort. Rows lie along
the lanes and groups along sublanes, so partners are elements of the same lane of two registers.
"""

from __future__ import annotations

import math

import numpy as np

from compiler.analysis.code_costs import KernelCosts, TopkCosts
from compiler.hlo.dtypes import S32
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloInstruction
from compiler.passes.expanders.sort_parts import SortStage, merge_stages, partner, stages
from compiler.passes.expanders.topk_expander import of_order_key, order_key
from compiler.rewrite.emitter import Emitter
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, SUBLANES

Instr = HloInstruction
_LAST_PLACE = int(np.iinfo(np.int32).max)
_FUSED_STAGES = 2
"""Of one kernel: each more computes all before it for twice as many elements."""
_ARRAYS = 2
"""Keys and places."""


def can_halve(instr: Instr, room: int) -> bool:
    """Whether there are several groups, and a register's lanes of rows take at most `room` bytes."""
    array = instr.operands[0].array
    is_real = array.dtype.is_float or array.dtype.is_integer
    if not instr.largest or not is_real or array.dtype.bits > S32.bits or instr.k < 2:
        return False
    size = array.dims[-1]
    if 0 in array.dims or 2 * _group(instr.k) > size:
        return False
    return _bytes(size, LANES) <= room


def halving_cycles(rows: int, size: int, k: int, chip: Chip) -> float:
    """What sorted groups and halving them are estimated to take."""
    group = _group(k)
    depth = group.bit_length() - 1
    groups = _even(-(-size // group))
    sorting = depth * (depth + 1) // 2
    exchanges, kernels = groups * sorting, sorting / _FUSED_STAGES
    while groups > 1:
        groups = _even(groups) // 2
        exchanges += groups * (depth + 1)
        kernels += (depth + 1) / _FUSED_STAGES
    registers = exchanges * group * -(-rows // LANES) / SUBLANES
    launches = kernels * KernelCosts.of(chip).launch
    return registers * TopkCosts.of(chip).exchange + launches


def topk_by_halving(instr: Instr, room: int) -> Instr:
    """The tuple of the k greatest elements of each row and their places."""
    e = Emitter.at(instr)
    operand, k = instr.operands[0], instr.k
    *major, size = operand.array.dims
    rows = math.prod(major)
    flat = e.shaped(operand, (rows, size))
    most = room // _bytes(size, LANES) * LANES
    block = -(-rows // (-(-rows // most) * LANES)) * LANES
    found = _greatest(e, instr, flat, k) if rows <= block else _by_blocks(e, flat, k, block)
    return e.tuple([e.shaped(value, (*major, k)) for value in found])


def _by_blocks(e: Emitter, flat: Instr, k: int, block: int) -> list[Instr]:
    """Blocks of rows one after another; the last one begins earlier where they do not divide."""
    rows, size = flat.array.dims
    empty = [e.full(dtype, (rows, k), 0) for dtype in (flat.array.dtype, S32)]

    def step(b: Emitter, i: Instr, values: list[Instr]) -> list[Instr]:
        operand, *results = values
        start = (b.multiply(i, b.constant(S32, block)), b.constant(S32, 0))
        rows_of_turn = b.dynamic_slice(operand, start, (block, size))
        found = _greatest(b, rows_of_turn, rows_of_turn, k)
        made = [
            b.dynamic_update_slice(value, new, start)
            for value, new in zip(results, found, strict=True)
        ]
        return [operand, *made]

    return e.loop(-(-rows // block), [flat, *empty], step)[1:]


def _greatest(e: Emitter, near: Instr, flat: Instr, k: int) -> list[Instr]:
    """Values and places, [rows, k]; `near` is an instruction of the same computation."""
    dtype = flat.array.dtype
    size, count = _group(k), flat.array.dims[1]
    groups = _even(-(-count // size))
    key = order_key(near, flat) if dtype.is_float else flat
    box = (size, groups, flat.array.dims[0])
    across = e.pad_dim(e.swap_last(key), 0, 0, size * groups - count, _least(key))
    place = e.positions((size * groups, box[2]), 0)
    state = [e.reshape(across, box), e.reshape(place, box)]
    state = _staged(e, state, stages(size))
    while groups > 1:
        groups = _even(groups)
        state = _halved(e, state, groups)
        groups //= 2
        state = _staged(e, state, merge_stages(2 * size)[1:])
    best, where = (
        e.swap_last(e.part(e.reshape(value, (size, box[2])), 0, 0, k)) for value in state
    )
    return [of_order_key(near, best, dtype) if dtype.is_float else best, where]


def _halved(e: Emitter, state: list[Instr], groups: int) -> list[Instr]:
    """The best of the groups of either half, each in an order that falls and then rises."""
    more = groups - state[0].array.dims[1]
    ends = (_least(state[0]), _LAST_PLACE)
    state = [e.pad_dim(v, 1, 0, more, end) for v, end in zip(state, ends, strict=True)]
    half = groups // 2
    mine = [e.part(value, 1, 0, half) for value in state]
    others = [e.reverse(e.part(value, 1, half, groups), (0,)) for value in state]
    return _chosen(e, _is_before(e, others, mine), others, mine)


def _staged(e: Emitter, state: list[Instr], plan: list[SortStage]) -> list[Instr]:
    """All stages, few of which are one kernel."""
    for number, stage in enumerate(plan, 1):
        state = _exchanged(e, state, stage)
        if number % _FUSED_STAGES == 0:
            state = [e.apart(value) for value in state]
    return state


def _exchanged(e: Emitter, state: list[Instr], stage: SortStage) -> list[Instr]:
    """Every element takes its partner's place or keeps its own."""
    others = [partner(e, value, 0, stage) for value in state]
    place = e.positions(state[0].array.dims, 0)
    is_lower = e.compare_to(e.and_(place, e.like(place, stage.distance)), 0, "EQ")
    return _chosen(e, e.compare(_is_before(e, others, state), is_lower, "EQ"), others, state)


def _chosen(e: Emitter, takes: Instr, others: list[Instr], mine: list[Instr]) -> list[Instr]:
    return [e.select(takes, other, own) for other, own in zip(others, mine, strict=True)]


def _is_before(e: Emitter, others: list[Instr], mine: list[Instr]) -> Instr:
    is_greater = e.compare(others[0], mine[0], "GT")
    is_tie = e.compare(others[0], mine[0], "EQ")
    return e.or_(is_greater, e.and_(is_tie, e.compare(others[1], mine[1], "LT")))


def _least(key: Instr) -> float:
    least = identity("maximum", key.array.dtype)
    assert least is not None
    return least


def _group(k: int) -> int:
    return 1 << (k - 1).bit_length()


def _even(groups: int) -> int:
    """Rounded up, so that half of them begin at a tile."""
    granule = 2 * SUBLANES if groups > SUBLANES else 2
    return -(-groups // granule) * granule if groups > 1 else 1


def _bytes(size: int, rows: int) -> int:
    return size * rows * _ARRAYS * S32.bits // 8
