"""topk of long rows: the groups that may hold it are found first, and only these are searched.

    [rows, n] as groups of 128        the greatest of each group (`rows_in_groups`)
    topk of these                     k groups: in no other one is an element of the result
    their elements, in order          k * 128 of n
    topk of these; sorted and cut where k is too large for rounds of maximum

Were an element of the result in another group, the greatest of k groups would come before it. Groups
are of neighbours and are taken in order of position, so that equal elements come as in a stable sort.
"""

from __future__ import annotations

import math

from compiler.analysis.code_costs import KernelCosts, TopkCosts
from compiler.hlo.dtypes import S32
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloInstruction
from compiler.hlo.scalar_computations import key_order
from compiler.hlo.shape import TupleShape
from compiler.passes.expanders.rows_in_groups import GROUP, come_from_product, in_groups
from compiler.passes.expanders.topk_expander import MAX_K, of_order_key, order_key
from compiler.passes.expanders.topk_halving import halving_cycles
from compiler.passes.sort_kernels.shapes import KERNELS, SortArrays, best_form, network_cycles
from compiler.rewrite.emitter import Emitter
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import SUBLANES

Instr = HloInstruction
_LEAST_GAIN = 2
"""Times as many groups as are taken."""
_VREG = 1024


def can_group(instr: Instr) -> bool:
    """Whether rows are so long that most groups hold nothing of the result."""
    array = instr.operands[0].array
    is_real = array.dtype.is_float or array.dtype.is_integer
    if not instr.largest or not is_real or array.dtype.bits > S32.bits:
        return False
    return instr.k > 0 and _LEAST_GAIN * instr.k * GROUP <= array.dims[-1]


def saves_rounds(instr: Instr, chip: Chip) -> bool:
    """Whether groups are estimated to be cheaper than rounds of maximum over the whole of the rows."""
    *major, size = instr.operands[0].array.dims
    rows, k = math.prod(major), instr.k
    costs = TopkCosts.of(chip)
    searched = rounds_cycles(rows, size / GROUP + k * GROUP, k, chip)
    first = rows * size * costs.greatest / _VREG
    by_groups = KernelCosts.of(chip).topk_groups + first + searched + rows * k * costs.group
    return by_groups < rounds_cycles(rows, size, k, chip)


def rounds_cycles(rows: int, size: float, k: int, chip: Chip) -> float:
    """What k rounds of maximum over rows are estimated to take."""
    return rows * size * k * TopkCosts.of(chip).round / _VREG


def groups_cycles(rows: int, size: int, k: int, chip: Chip) -> float:
    """What groups are estimated to take where k is too large for rounds."""
    costs = TopkCosts.of(chip)
    count = -(-size // GROUP)
    which = min(sort_cycles(rows, count, chip), halving_cycles(rows, count, k, chip))
    last = sort_cycles(rows, k * GROUP, chip, carried=1)
    first = rows * size * costs.greatest / _VREG + rows * k * costs.group
    return KernelCosts.of(chip).topk_groups + first + which + last


def sort_cycles(rows: int, size: int, chip: Chip, carried: int = 0) -> float:
    """What sorting rows with their places, and other operands, is estimated to take."""
    arrays = SortArrays(1 + carried, 1, 2, is_stable=True)
    kernel = best_form(rows, size, 1, arrays, chip)
    if kernel is not None:
        return kernel[0] + KERNELS * KernelCosts.of(chip).launch
    return network_cycles(rows, size, 1, arrays, chip)


def topk_by_groups(instr: Instr) -> Instr:
    """The tuple of the k greatest elements of each row and their places."""
    e = Emitter.at(instr)
    operand, k = instr.operands[0], instr.k
    *major, size = operand.array.dims
    is_float = operand.array.dtype.is_float
    key = order_key(instr, operand) if is_float else operand
    rows, count = math.prod(major), -(-size // GROUP)
    least = identity("maximum", key.array.dtype)
    assert least is not None
    flat_key = e.shaped(key, (rows, size))
    if rows >= SUBLANES and come_from_product(flat_key, instr):
        groups, at = in_groups(e, flat_key, least), 0
    else:
        padded = e.pad_dim(flat_key, 1, 0, count * GROUP - size, least)
        groups, at = e.shaped(padded, (rows, count, GROUP)), 1
    best_of = e.total(groups, 2, kind="maximum")
    order = _groups_in_order(e, best_of if at else e.transpose(best_of, (1, 0)), k)
    taken = e.gather(
        groups,
        order,
        offset_dims=(2,),
        collapsed_slice_dims=(at,),
        start_index_map=(at,),
        operand_batching_dims=(1 - at,),
        start_indices_batching_dims=(0,),
        index_vector_dim=2,
        slice_sizes=(1, 1, GROUP),
    )
    flat = e.shaped(taken, (rows, k * GROUP))
    found = _by_rounds(e, flat, order, k) if k <= MAX_K else _by_sort(e, flat, order, k)
    best, where = (e.shaped(value, (*major, k)) for value in found)
    if is_float:
        best = of_order_key(instr, best, operand.array.dtype)
    return e.tuple([best, where])


def _by_rounds(e: Emitter, flat: Instr, order: Instr, k: int) -> tuple[Instr, Instr]:
    """The k greatest of `flat` and their places in the rows, which group `order` names."""
    best, at = _topk(e, flat, k)
    rows = flat.array.dims[0]
    dims = (rows, k, k)
    slot = e.divide(at, e.like(at, GROUP))
    is_it = e.compare(e.broadcast(slot, dims, (0, 1)), e.positions(dims, 2), "EQ")
    named = e.broadcast(order, dims, (0, 2))
    group = e.total(e.select(is_it, named, e.like(named, 0)), 2)
    inside = e.subtract(at, e.multiply(slot, e.like(slot, GROUP)))
    return best, e.add(e.multiply(group, e.like(group, GROUP)), inside)


def _by_sort(e: Emitter, flat: Instr, order: Instr, k: int) -> tuple[Instr, Instr]:
    """The same of many: all that is left is sorted, and cut."""
    dims = (flat.array.dims[0], k, GROUP)
    first = e.multiply(order, e.like(order, GROUP))
    place = e.add(e.broadcast(first, dims, (0, 1)), e.positions(dims, 2))
    comparator = key_order(e.module, "by_key", (flat.array.dtype, S32), "GT")
    found = e.sort((flat, e.shaped(place, flat.array.dims)), 1, comparator, stable=True)
    best, where = (e.part(e.get_tuple_element(found, i), 1, 0, k) for i in (0, 1))
    return best, where


def _topk(e: Emitter, rows: Instr, k: int) -> tuple[Instr, Instr]:
    shape = rows.array.with_dims((rows.array.dims[0], k))
    result = TupleShape((shape, shape.with_dtype(S32)))
    attrs: dict[str, object] = {"k": k, "largest": True}
    found = e.instruction("topk", (rows,), attrs, result)
    return e.get_tuple_element(found, 0), e.get_tuple_element(found, 1)


def _groups_in_order(e: Emitter, best: Instr, k: int) -> Instr:
    """The k groups of the greatest elements, in order of position: [rows, k]."""
    found = _topk(e, best, k)[1]
    return e.sort((found,), 1, key_order(e.module, "by_place", (S32,), "LT"), stable=False)
