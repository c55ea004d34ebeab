"""Chooses an order of dimensions for every array of a program, by estimated cycles.

The arrays that waste most are looked at one after another: two of their dimensions are tried as the
minor ones, here and in all arrays where these dimensions appear (`Arrays.dim`). The move that saves most
is taken if it saves anything, after the reorderings it needs at the edges of that region. Then
every array of the region is asked once more whether it had rather stay.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache

from compiler.analysis.code_costs import KernelCosts, OrderCosts
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.dimension_order.arrays import HANDED_ON, Arrays, array_leaves
from compiler.passes.dimension_order.dots import (
    Form,
    is_in_lanes,
    is_row_dot,
    may_be_in_lanes,
    row_cycles,
)
from compiler.passes.dimension_order.forms import (
    across_reshape,
    form,
    is_elementwise,
    is_fused,
    is_movable,
    lane_cut_cycles,
    result_shape,
)
from compiler.passes.dimension_order.indexed import indexed_cycles, is_indexed, is_of_slices
from compiler.passes.dimension_order.orders import (
    TILE_BYTES,
    Order,
    descending,
    physical,
    regroup_cycles,
    reorder_cycles,
    transfer_cycles,
    vregs,
)
from compiler.passes.dimension_order.slabs import (
    is_in_place,
    slab_cycles,
    slab_transfer_cycles,
)
from compiler.passes.dimension_order.weights import invariant_turns, weights
from compiler.passes.dot_canonicalizer import dot_sides
from compiler.rewrite.dims import without_ones
from tpu_sim.isa.chips import Chip

Instr = HloInstruction
Orders = dict[int, Order]
_LEAST_WASTE = 3.0
"""How many times the bytes of its best order an array must take to be looked at."""
_LEAST_ROW_WASTE = 1.9
"""The same for what a product of many rows and few features reads and gives."""
_LEAST_PROGRAM_SHARE = 0.01
"""What share of the program's cycles a move must save."""
_ROOM_SHARE = 8
"""An array larger than this part of the memory is stored compactly wherever it can be."""
_LEAST_GAIN = 1.5
"""How many times smaller an array must become to be among those a move is for."""
_LEAST_SHARE = 0.3
"""What share of the cycles around it a move must save: estimates are not better."""
_MOST_MOVES = 3
"""Moves of one array of which the best is taken, the most promising ones."""
_ROUNDS = 2
"""Arrays are looked at once more after a move: what it saved hides no other move any longer."""
_MOST_ARRAYS = 64
"""Arrays that are looked at."""
_STORED_FOR = HANDED_ON | {"dot"}
_ROW_TURN = 2.0
"""How many times dearer a reordering is beside a product of few features, whose windows are small."""
_SPLAT = frozenset({"constant", "iota"})
_NO_ROOM = 1000.0


class OrderPlan:
    """The order of each array, and what the program costs with it."""

    def __init__(self, module: HloModule, chip: Chip) -> None:
        self.arrays = Arrays(module)
        self.computations = self.arrays.computations
        self.orders: Orders = {}
        self.module = module
        self._weights = weights(module)
        self._turns = invariant_turns(self.computations)
        self._costs = costs = OrderCosts.of(chip)
        self._room_cycles = chip.hbm_bytes / _ROOM_SHARE / TILE_BYTES * costs.tile_transfer
        self._least_move = self._least_saved = KernelCosts.of(chip).order_move
        self._is_stored, self._is_row_dot = cache(_is_stored), cache(is_row_dot)
        self._homes: dict[Instr, tuple[int, ...]] = {}
        self._known: dict[tuple[Instr, tuple[Order | None, ...]], float] = {}
        """Cycles by the orders of all that an instruction takes and gives."""
        self._having: dict[int, list[int]] = {}
        """Arrays that may be moved, by the classes of their dimensions."""
        for home, members in self.arrays.members.items():
            instr, index = members[0]
            if home not in self.arrays.fixed:
                rank = _leaf(instr, index).rank
                for found in dict.fromkeys(self.arrays.dim(instr, d, index) for d in range(rank)):
                    self._having.setdefault(found, []).append(home)

    def order(self, instr: Instr, index: int = 0) -> Order:
        """The order of an array."""
        shape = instr.shape.elements[index] if isinstance(instr.shape, TupleShape) else instr.shape
        assert isinstance(shape, ArrayShape)
        return self.orders.get(self.arrays.home(instr, index)) or descending(shape.rank)

    def operand_orders(self, instr: Instr) -> list[Order]:
        """The orders of an instruction's operands; empty for what is no array."""
        return [self.order(o) if isinstance(o.shape, ArrayShape) else () for o in instr.operands]

    def form(self, instr: Instr) -> Form:
        """How an operation takes its operands and gives its result."""
        orders = self.operand_orders(instr)
        return form(instr, orders, self.order(instr), self._costs)

    def improve(self) -> bool:
        """Look at the arrays that waste most; return whether any got another order."""
        room, self._room_cycles = self._room_cycles, math.inf
        total = sum(self._total(computation) for computation in self.arrays.computations)
        self._room_cycles = room
        self._known.clear()
        self._least_saved = max(self._least_move, _LEAST_PROGRAM_SHARE * total)
        for _ in range(_ROUNDS):
            if not self._improve_most_wasteful():
                break
        return bool(self.orders)

    def _improve_most_wasteful(self) -> bool:
        """Try moves of the arrays that waste most; return whether any is taken.

        An array that moves of others have brought into a good order is not one of those looked at.
        """
        tried: set[tuple[int, int]] = set()
        looked_at = 0
        is_any = False
        for home in self._wasteful():
            before = len(tried)
            is_any |= self._improve(home, tried)
            looked_at += len(tried) > before
            if looked_at == _MOST_ARRAYS:
                break
        return is_any

    # Costs.

    def cycles(self, instr: Instr) -> float:
        """Estimated cycles of an operation with the reorderings of its operands and its result."""
        homes = self._homes.get(instr)
        if homes is None:
            homes = self._homes[instr] = self.arrays.homes_around(instr)
        key = (instr, tuple(map(self.orders.get, homes)))
        total = self._known.get(key)
        if total is None:
            total = self._cycles(instr) * self._weights.get(instr.computation, 1.0)
            self._known[key] = total
        return total

    def _cycles(self, instr: Instr) -> float:
        costs = self._costs
        if instr.opcode in HANDED_ON:
            return self._handing_on(instr)
        if not any(True for _ in array_leaves(instr.shape)):
            return 0.0
        given, wanted = self.operand_orders(instr), self.order(instr)
        taken = form(instr, given, wanted, costs)
        shape = result_shape(instr)
        own = self._own_cycles(instr, taken)
        breaks_lanes = instr.opcode == "reshape" and own > 0
        is_moved = instr.opcode == "transpose" or instr.opcode == "reshape"
        total = reorder_cycles(shape, taken.result, wanted, costs, breaks_lanes, is_moved)
        if total and not (
            is_movable(instr) and is_fused(instr)
        ):  # it is stored as it comes out, too
            total += 2 * transfer_cycles(shape, taken.result, costs)
        for operand, order, lies in zip(instr.operands, taken.operands, given, strict=True):
            if order != lies and isinstance(operand.shape, ArrayShape):
                turned = reorder_cycles(operand.array, lies, order, costs, breaks_lanes, is_moved)
                total += turned / self._turns.get(operand, 1.0)
        if instr.opcode == "dot" and self._is_row_dot(instr):
            total *= _ROW_TURN
        if total and instr.opcode == "reshape" and _is_for_matrix_unit(instr):
            total += costs.merged * vregs(instr.operands[0].array.dims)
        if instr is self.module.entry.root:
            total += reorder_cycles(shape, wanted, descending(shape.rank), costs)
        return total + own + self._storage(instr, shape, wanted)

    def _handing_on(self, instr: Instr) -> float:
        if instr.opcode != "tuple":
            return 0.0
        return sum(
            reorder_cycles(o.array, self.order(o), self.order(instr, i), self._costs)
            for i, o in enumerate(instr.operands)
            if isinstance(o.shape, ArrayShape)
        )

    def _storage(self, instr: Instr, shape: ArrayShape, order: Order) -> float:
        cycles = transfer_cycles(shape, order, self._costs)
        if cycles > self._room_cycles and _takes_room(instr):
            return _NO_ROOM * cycles
        if instr.opcode == "dynamic-slice":
            return slab_transfer_cycles(instr, order, self._costs)
        if not self._is_stored(instr):
            return 0.0
        if is_in_place(instr):
            return 2 * slab_transfer_cycles(instr, order, self._costs)
        if _is_for_products(instr):
            cycles /= len(instr.operands)
        return 2 * cycles

    def _own_cycles(self, instr: Instr, taken: Form) -> float:
        costs = self._costs
        shape = result_shape(instr)
        count = vregs(physical(shape.dims, taken.result))
        if instr.opcode == "dot":
            return self._dot_cycles(instr, taken)
        if is_indexed(instr):
            return indexed_cycles(instr, taken.operands, taken.result, costs)
        if instr.opcode == "dynamic-slice" or is_in_place(instr):
            return slab_cycles(instr, taken.result, costs)
        if instr.opcode in ("reduce", "reshape", "broadcast"):
            operand, order = instr.operands[0].array, taken.operands[0]
            lies = physical(operand.dims, order)
            if instr.opcode == "reduce":
                is_lane = order[-1] in instr.dimensions if order else False
                sums = vregs((*lies[:-1], 1)) * costs.lane_sum if is_lane else 0.0
                return vregs(lies) + sums
            if instr.opcode == "reshape":
                return regroup_cycles(
                    operand.with_dims(lies), physical(shape.dims, taken.result), costs
                )
            large = [d for d in order if operand.dims[d] != 1]
            is_along = not large or instr.dimensions[large[-1]] == taken.result[-1]
            return count if is_along else count + vregs(lies) * costs.lane_sum
        return count + count * lane_cut_cycles(instr, taken, costs)

    def _dot_cycles(self, dot: Instr, taken: Form) -> float:
        left, right = dot_sides(dot)
        k, costs = left.size(left.contracting), self._costs
        if is_in_lanes(dot, taken.result):
            return 2.0 * k * vregs(physical(dot.array.dims, taken.result))
        if self._is_row_dot(dot):
            return costs.matrix + row_cycles(dot, taken, costs)
        m, n = left.size(left.free), right.size(right.free)
        blocks = -(-m // 8) * -(-k // 128) * -(-n // 128)
        return left.size(left.batch) * (costs.matrix + costs.weights_pass * blocks)

    # Moves.

    def _wasteful(self) -> list[int]:
        found: dict[int, float] = {}
        for home, members in self.arrays.members.items():
            instr, index = members[0]
            shape = _leaf(instr, index)
            if home in self.arrays.fixed or shape.rank < 2 or shape.element_count < 2:
                continue
            before = transfer_cycles(shape, descending(shape.rank), self._costs)
            is_large = before > self._room_cycles and any(_takes_room(i) for i, _ in members)
            is_computed = any(self._is_stored(i) or is_elementwise(i) for i, _ in members)
            if not is_computed and not is_large:
                continue  # index arithmetic of what is computed of it
            orders = (_with_minor(shape, *pair) for pair in _pairs(shape))
            best = min(transfer_cycles(shape, order, self._costs) for order in orders)
            least = _LEAST_ROW_WASTE if any(_is_row_array(i) for i, _ in members) else _LEAST_WASTE
            if before >= (_LEAST_GAIN if is_large else least) * best:
                weight = max(self._weights.get(i.computation, 1.0) for i, _ in members)
                dots = [i for i, _ in members if i.opcode == "dot" and may_be_in_lanes(i)]
                found[home] = (before - best) * weight + self._total(dots)
        most = sorted(found, key=lambda h: -found[h])
        return [h for h in most if found[h] >= self._least_move]

    def _improve(self, home: int, tried: set[tuple[int, int]]) -> bool:
        """Try moves of an array; return whether one is taken."""
        instr, index = self.arrays.members[home][0]
        shape = _leaf(instr, index)
        now = transfer_cycles(shape, self.order(instr, index), self._costs)
        found: list[tuple[float, Orders]] = []
        for pair in _pairs(shape):
            order = _with_minor(shape, *pair)
            if _LEAST_GAIN * transfer_cycles(shape, order, self._costs) > now:
                continue
            second, minor = (self.arrays.dim(instr, d, index) if d >= 0 else -1 for d in pair)
            if (second, minor) in tried:
                continue
            tried.add((second, minor))
            everywhere = self._moved(second, minor)
            saved = max(self._saved(m) for m in (everywhere, self._gaining(everywhere)))
            found.append((saved, everywhere))
        best = sorted(found, key=lambda pair: -pair[0])[:_MOST_MOVES]
        settled = [self._settled(moved) for _, moved in best]
        return bool(settled) and self._take(*max(settled, key=lambda r: r[0]))

    def _settled(self, moved: Orders) -> tuple[float, dict[int, Order | None]]:
        """What new orders save once every array has chosen by itself, and the orders then."""
        kept = {home: self.orders.get(home) for home in moved}
        gaining = self._gaining(moved)
        results: list[tuple[float, dict[int, Order | None]]] = []
        for start in (gaining, moved):
            around = self._around(moved)
            before = self._total(around)
            self._set(start)
            self._settle(moved, kept)
            results.append((before - self._total(around), {h: self.orders.get(h) for h in moved}))
            self._set(kept)
        return max(results, key=lambda r: r[0])

    def _take(self, saved: float, orders: Mapping[int, Order | None]) -> bool:
        """Give arrays new orders where that saves enough; return whether it does."""
        changed = [h for h, order in orders.items() if order != self.orders.get(h)]
        cost = self._total(self._around(changed))
        is_enough = saved > self._least_saved and saved > _LEAST_SHARE * cost
        if is_enough:
            self._set(orders)
        return is_enough

    def _moved(self, second: int, minor: int) -> Orders:
        """New orders of all arrays that have a dimension of class `minor`."""
        moved: Orders = {}
        for home in self._having.get(minor, ()):
            instr, index = self.arrays.members[home][0]
            shape = _leaf(instr, index)
            classes = [self.arrays.dim(instr, d, index) for d in range(shape.rank)]
            key = [
                0 if size == 1 else 3 if c == minor else 2 if c == second else 1
                for size, c in zip(shape.dims, classes, strict=True)
            ]
            now = self.order(instr, index)
            order = tuple(sorted(now, key=lambda d: key[d]))
            if order != now:
                moved[home] = order
        return self._beside_reshapes(moved) | moved

    def _beside_reshapes(self, moved: Orders) -> Orders:
        """New orders of what gathers give and scatters take, where a reshape that merges or splits the
        minor dimension is between."""
        found: Orders = {}
        for home, order in moved.items():
            for instr, _ in self.arrays.members[home]:
                others = [u for u in instr.users if u.opcode == "reshape"]
                others += instr.operands if instr.opcode == "reshape" else []
                for other in others:
                    beside = self.arrays.home(other)
                    if beside in moved or beside in self.arrays.fixed or not is_of_slices(other):
                        continue
                    dims, now = instr.array.dims, self.order(other)
                    turned = across_reshape(dims, other.array.dims, order[-1], now)
                    if turned != now:
                        found[beside] = turned
        return found

    def _gaining(self, moved: Orders) -> Orders:
        """Those of the new orders that make their array itself smaller."""
        gaining: Orders = {}
        for home, order in moved.items():
            instr, index = self.arrays.members[home][0]
            shape = _leaf(instr, index)
            now = transfer_cycles(shape, self.order(instr, index), self._costs)
            if now > _LEAST_GAIN * transfer_cycles(shape, order, self._costs):
                gaining[home] = order
        return gaining

    def _saved(self, moved: Mapping[int, Order | None]) -> float:
        """Cycles that new orders save."""
        around = self._around(moved)
        before = self._total(around)
        kept = {home: self.orders.get(home) for home in moved}
        self._set(moved)
        after = self._total(around)
        self._set(kept)
        return before - after

    def _total(self, instructions: Iterable[Instr]) -> float:
        return sum(self.cycles(i) for i in instructions)

    def _set(self, orders: Mapping[int, Order | None]) -> None:
        for home, order in orders.items():
            if order is None:
                self.orders.pop(home, None)
            else:
                self.orders[home] = order

    def _around(self, homes: Collection[int]) -> Iterable[Instr]:
        """The operations that give or take these arrays."""
        found: dict[Instr, None] = {}
        for home in homes:
            for instr, index in self.arrays.members[home]:
                found[instr] = None
                if isinstance(instr.shape, TupleShape) and index:
                    continue
                found.update(dict.fromkeys(instr.users))
        return found

    def _settle(self, moved: Orders, kept: Mapping[int, Order | None]) -> None:
        """Let every array of a region choose by itself; twice, as one choice asks for another."""
        for _ in range(2):
            for home, order in moved.items():
                other = kept[home] if self.orders.get(home) == order else order
                choice = {home: other}
                if self._saved(choice) > 0:
                    self._set(choice)


def _is_for_matrix_unit(reshape: Instr) -> bool:
    before, after = reshape.operands[0].array.dims, reshape.array.dims
    is_merging = without_ones(before)[-1:] != without_ones(after)[-1:]
    return is_merging and any(u.opcode == "dot" for u in reshape.users)


def _is_row_array(instr: Instr) -> bool:
    """Whether a product of many rows and few features reads or gives an array."""
    return any(i.opcode == "dot" and is_row_dot(i) for i in (instr, *instr.users))


def _leaf(instr: Instr, index: int) -> ArrayShape:
    shape = instr.shape.elements[index] if isinstance(instr.shape, TupleShape) else instr.shape
    assert isinstance(shape, ArrayShape)
    return shape


def _is_stored(instr: Instr) -> bool:
    """Whether a result likely goes through memory: fusion keeps the others in registers."""
    if instr.opcode in _SPLAT:
        return False
    if not is_movable(instr) or not is_fused(instr) or instr.opcode == "dot" or not instr.users:
        return True
    if instr.opcode == "dynamic-update-slice":  # in the place of its operand
        return True
    if instr.opcode == "pad" and sum(u.opcode == "slice" for u in instr.users) > 1:
        return True  # what slices of several places read is made once
    sums = sum(u.opcode == "reduce" for u in instr.users)
    if 0 < sums < len(instr.users):  # it is read again once the sum is known
        return True
    return any(not is_movable(u) or not is_fused(u) or u.opcode in _STORED_FOR for u in instr.users)


def _takes_room(instr: Instr) -> bool:
    """Whether a result may be stored, at worst."""
    return (_is_stored(instr) or instr.opcode == "concatenate") and not _is_for_products(instr)


def _is_for_products(instr: Instr) -> bool:
    """Whether arrays are put side by side for products alone: as they are read, a window at a time."""
    return instr.opcode == "concatenate" and all(u.opcode == "dot" for u in instr.users)


def _pairs(shape: ArrayShape) -> Iterator[tuple[int, int]]:
    """Dimensions to try as second-minor and minor; -1 for whichever comes."""
    large = [d for d in range(shape.rank) if shape.dims[d] != 1]
    for minor in large:
        yield -1, minor
        yield from ((second, minor) for second in large if second != minor)


def _with_minor(shape: ArrayShape, second: int, minor: int) -> Order:
    """The descending order but for the minor dimensions, and for those of size 1, which go first."""
    ones = [d for d in range(shape.rank) if shape.dims[d] == 1]
    rest = [d for d in range(shape.rank) if d not in (second, minor) and d not in ones]
    return (*ones, *rest, *((second,) if second >= 0 else ()), minor)
