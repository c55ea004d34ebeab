"""The instruction stream of one region: weights pushed a pass ahead, pops a skew behind.

An MXU's results come long after its matmuls. Instead of waiting, the stream pops the results of
matmuls issued `Skew` steps earlier; the result queue holds what is in flight, over block and loop
boundaries. The weights of the next pass go into the shadow latch during the current one.

    short passes   slot i: matmuls of pass i, weights of pass i+1, results of pass i - lag
    long passes    fill, then per pass: loop over its steps, seam into the next pass; drain
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from compiler.backend.dot.plan import ProductRegion, Skew, choose_skew
from compiler.backend.dot.results import (
    FLOATS,
    Accumulate,
    Affine,
    Arithmetic,
    Epilogue,
    ResultWriter,
    StepPlace,
)
from compiler.backend.dot.tiles import (
    TileGrid,
    WeightGrid,
    lhs_cursor,
    output_cursor,
    weight_cursor,
)
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg
from tpu_sim.isa.chips import Chip


def emit_region(
    b: LloBuilder,
    chip: Chip,
    region: ProductRegion,
    lhs: TileGrid,
    weights: WeightGrid,
    out: TileGrid,
    accumulate: Accumulate,
    epilogue: Epilogue | None = None,
    arithmetic: Arithmetic = FLOATS,
    first_batch: int = 0,
) -> None:
    """Emit the whole computation of a region; MXU queues are empty before and after.

    With an epilogue (see `is_fusable`) finished sums go to it and not to `out`. `first_batch` is
    the number of the first matrix of `lhs`, `weights` and `out`.
    """
    skew = choose_skew(region, chip, epilogue.ops if epilogue is not None else 0)
    results = ResultWriter(b, region, out, accumulate, epilogue, arithmetic, first_batch)
    stream = _Stream(b, region, skew, lhs, weights, out, results, arithmetic.matmul)
    stream.emit()


class _Stream:
    def __init__(
        self,
        b: LloBuilder,
        region: ProductRegion,
        skew: Skew,
        lhs: TileGrid,
        weights: WeightGrid,
        out: TileGrid,
        results: ResultWriter,
        matmul: str,
    ) -> None:
        self.b = b
        self.matmul = matmul
        self.region = region
        self.skew = skew
        self.lhs = lhs
        self.weights = weights
        self.results = results
        self.lhs_at = lhs_cursor(b, region, lhs, skew.static_k)
        self.weights_at = weight_cursor(b, region, weights, skew.static_k)
        self.out_at = output_cursor(b, region, out, skew.static_k)
        self.lhs_pointer = self.out_pointer = 0

    def emit(self) -> None:
        """The whole stream."""
        if self.skew.lag_passes and self.out_at.is_first_k is None:
            self.results.clear_where_unknown()
        self.b.new_block("latch")
        self._swap()  # clears the shadow: pushes may leave rows out
        self._pushes(0, 1)
        self.weights_at.advance()
        if self.skew.lag_passes:
            self._emit_short_passes()
        else:
            self._emit_long_passes()
        self.b.new_block()

    # one step of each of the three streams

    def _swap(self) -> None:
        for unit in range(self.region.units):
            self.b.emit("vmatswap", unit)

    def _pushes(self, part: int, parts: int) -> None:
        """Weights of the pass under the weight cursor: the `part`-th of `parts` equal shares."""
        region, grid = self.region, self.weights
        count = grid.pushes
        push_row = "vmatpush.t.bf16" if grid.transposed else "vmatpush.bf16"
        shares = range(part * count // parts, (part + 1) * count // parts)
        places = product(shares, range(region.bw), range(region.kw), range(region.nw))
        for push, bu, ku, nu in places:
            row = bu * grid.tiles.matrix_rows + grid.row(ku, nu, push)
            tile = self.b.emit("vld", grid.tiles.window, self.weights_at.address, row, 1)
            for mu in range(region.mw):
                self.b.emit(push_row, region.unit(bu, mu, ku, nu), tile, push)

    def _matmuls(self, pointer: SReg, step: int) -> None:
        region = self.region
        for bu, mu, ku in product(range(region.bw), range(region.mw), range(region.kw)):
            row = bu * self.lhs.matrix_rows + self.lhs.row(step * region.mw + mu, ku)
            tile = self.b.emit("vld", self.lhs.window, pointer, row, 1)
            for nu in range(region.nw):
                self.b.emit(self.matmul, region.unit(bu, mu, ku, nu), tile)

    # short passes: unrolled whole, popped `lag_passes` later

    def _emit_short_passes(self) -> None:
        passes, lag = self.region.passes, self.skew.lag_passes
        unroll = self.skew.unroll
        trips = (passes - lag) // unroll if passes > lag else 0
        self._slots(range(min(lag, passes)))
        done = min(lag, passes)
        if trips > 1:
            self._save()
            with self.b.loop(trips, "passes"):
                self._load()
                for slot in range(unroll):
                    self._slot(True, True, slot)
                self._save()
            self._load()
            done += trips * unroll
        self._slots(range(done, passes + lag))

    def _slots(self, numbers: range) -> None:
        """Slots by their number, a few in a block; carried sums end with their block."""
        in_block = -(-4 // self.skew.carried_passes) * self.skew.carried_passes
        in_block = max(in_block, self.skew.unroll)
        for number in numbers:
            popped = number - self.skew.lag_passes
            if number == numbers[0] or popped % in_block == 0:
                self.b.new_block()
            self._slot(number < self.region.passes, number + 1 < self.region.passes, popped)

    def _slot(self, has_matmuls: bool, has_pushes: bool, popped: int) -> None:
        """One pass's matmuls, the next one's pushes, the pops of pass `popped` (none if < 0)."""
        steps = self.region.steps
        if has_matmuls:
            self._swap()
        for step in range(steps):
            if has_matmuls:
                self._matmuls(self.lhs_at.address, step)
            if has_pushes:
                self._pushes(step, steps)
            if popped >= 0:
                self._short_pops(step, popped % self.skew.carried_passes)
        if has_matmuls:
            self.lhs_at.advance()
        if has_pushes:
            self.weights_at.advance()
        if popped >= 0:
            self.out_at.advance()

    def _short_pops(self, step: int, position: int) -> None:
        """Pops of a step of the `position`-th of the passes that are added up in vregs."""
        at = self.out_at
        place = StepPlace(
            step,
            Affine(0, 0, step),
            at.is_first_k,
            at.is_last_k,
            starts=position == 0,
            ends=position == self.skew.carried_passes - 1,
        )
        self.results.pops(at.address, place, at)

    def _save(self) -> None:
        for cursor in (self.lhs_at, self.weights_at, self.out_at):
            cursor.save()

    def _load(self) -> None:
        for cursor in (self.lhs_at, self.weights_at, self.out_at):
            cursor.load()

    # long passes: a loop over steps, popped `lag_steps` later

    def _emit_long_passes(self) -> None:
        b, lag = self.b, self.skew.lag_steps
        b.new_block("fill")
        self._swap()
        for step in range(lag):
            self._matmuls(self.lhs_at.address, step)
            if self.region.passes > 1:
                self._pushes(step, lag)
        self.lhs_pointer = b.variable(sreg=self.lhs_at.address)
        self.out_pointer = b.variable(sreg=self.out_at.address)
        self.lhs_at.advance()
        self.weights_at.advance()
        self._save()
        kinds = _sum_kinds(self.region.k_groups)
        if self.region.sums > 1:
            with b.loop(self.region.sums - 1, "sums"):
                self._long_sum(kinds)
        count, last = kinds[-1]
        self._long_sum([*kinds[:-1], (count - 1, last)])
        self._load()
        self._steps(last)
        b.new_block("drain")
        for step in range(lag):
            self._pops_of_last(step, last)

    def _long_sum(self, kinds: list[tuple[int, _Kind]]) -> None:
        """Passes by kind: the rest of each one's steps, and the first of the next."""
        for count, kind in kinds:
            with self.b.loop(count, "passes"):
                self._load()
                self._steps(kind)
                self._seam(kind)

    def _pops_of_last(self, step: int, kind: _Kind) -> None:
        """Pops of the `step`-th of the pass's last `lag_steps` steps."""
        number = self.region.steps - self.skew.lag_steps + step
        place = StepPlace(step, Affine(0, 0, number), kind.is_first, kind.is_last)
        self.results.pops(self.out_pointer, place, self.out_at)

    def _steps(self, kind: _Kind) -> None:
        """The steps of a pass that do not touch its neighbours."""
        b, lag, unroll = self.b, self.skew.lag_steps, self.skew.unroll
        trips = (self.region.steps - lag) // unroll
        with b.loop(trips, "steps") as index:
            for step in range(unroll):
                self._matmuls(self.lhs_pointer, lag + step)
                number = Affine(index, unroll, step, trips)
                place = StepPlace(step, number, kind.is_first, kind.is_last)
                self.results.pops(self.out_pointer, place, self.out_at)
            b.assign_add(self.lhs_pointer, unroll * self.lhs.row(self.region.mw, 0))
            b.assign_add(self.out_pointer, unroll * self.results.step_rows)

    def _seam(self, kind: _Kind) -> None:
        """First steps of the next pass with the last results of this one."""
        b, lag = self.b, self.skew.lag_steps
        self._swap()
        for step in range(lag):
            self._matmuls(self.lhs_at.address, step)
            self._pushes(step, lag)
            self._pops_of_last(step, kind)
        b.assign(self.lhs_pointer, self.lhs_at.address)
        self.lhs_at.advance()
        self.weights_at.advance()
        self.out_at.advance()
        b.assign(self.out_pointer, self.out_at.address)
        self._save()


@dataclass(frozen=True)
class _Kind:
    """A pass's place in its sum over K."""

    is_first: bool
    is_last: bool


def _sum_kinds(k_groups: int) -> list[tuple[int, _Kind]]:
    """The passes of one sum as runs of passes with the same code."""
    first, middle, last = _Kind(True, False), _Kind(False, False), _Kind(False, True)
    if k_groups == 1:
        return [(1, _Kind(True, True))]
    return [(1, first), (k_groups - 2, middle), (1, last)]
