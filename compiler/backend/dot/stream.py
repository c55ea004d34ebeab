"""The instruction stream of one region: weights pushed a pass ahead, pops a skew behind.

An MXU's results come long after its matmuls. Instead of waiting, the stream pops the results of
matmuls issued `Skew` steps earlier; the result queue holds what is in flight, over block and loop
boundaries. The weights of the next pass go into the shadow latch during the current one.

    short passes   slot i: matmuls of pass i, weights of pass i+1, results of pass i - lag
    long passes    fill, then per pass: loop over its steps, seam into the next pass; drain
"""

from __future__ import annotations

from compiler.backend.dot.plan import Region, Skew, choose_skew
from compiler.backend.dot.results import Accumulate, ResultWriter
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
    region: Region,
    lhs: TileGrid,
    weights: WeightGrid,
    out: TileGrid,
    accumulate: Accumulate,
) -> None:
    """Emit the whole computation of a region; MXU queues are empty before and after."""
    _Stream(b, region, choose_skew(region, chip), lhs, weights, out, accumulate).emit()


class _Stream:
    def __init__(
        self,
        b: LloBuilder,
        region: Region,
        skew: Skew,
        lhs: TileGrid,
        weights: WeightGrid,
        out: TileGrid,
        accumulate: Accumulate,
    ) -> None:
        self.b = b
        self.region = region
        self.skew = skew
        self.lhs = lhs
        self.weights = weights
        self.results = ResultWriter(b, region, out, accumulate)
        self.lhs_at = lhs_cursor(b, region, lhs)
        self.weights_at = weight_cursor(b, region, weights)
        self.out_at = output_cursor(b, region, out)

    def emit(self) -> None:
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
        for push in range(part * count // parts, (part + 1) * count // parts):
            for ku in range(region.kw):
                for nu in range(region.nw):
                    row = grid.row(ku, nu, push)
                    tile = self.b.emit("vld", grid.tiles.window, self.weights_at.address, row, 1)
                    for mu in range(region.mw):
                        self.b.emit(push_row, region.unit(mu, ku, nu), tile, push)

    def _matmuls(self, pointer: SReg, step: int) -> None:
        region = self.region
        for mu in range(region.mw):
            for ku in range(region.kw):
                row = self.lhs.row(step * region.mw + mu, ku)
                tile = self.b.emit("vld", self.lhs.window, pointer, row, 1)
                for nu in range(region.nw):
                    self.b.emit("vmatmul.bf16", region.unit(mu, ku, nu), tile)

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
                for _ in range(unroll):
                    self._slot(True, True, True)
                self._save()
            self._load()
            done += trips * unroll
        self._slots(range(done, passes + lag))

    def _slots(self, numbers: range) -> None:
        """Slots by their number, a few in a block."""
        for position, number in enumerate(numbers):
            if position % max(4, self.skew.unroll) == 0:
                self.b.new_block()
            self._slot(
                number < self.region.passes,
                number + 1 < self.region.passes,
                number >= self.skew.lag_passes,
            )

    def _slot(self, has_matmuls: bool, has_pushes: bool, has_pops: bool) -> None:
        steps = self.region.steps
        if has_matmuls:
            self._swap()
        for step in range(steps):
            if has_matmuls:
                self._matmuls(self.lhs_at.address, step)
            if has_pushes:
                self._pushes(step, steps)
            if has_pops:
                self.results.pops(self.out_at.address, step, step, self.out_at.k_group)
        if has_matmuls:
            self.lhs_at.advance()
        if has_pushes:
            self.weights_at.advance()
        if has_pops:
            self.out_at.advance()

    def _save(self) -> None:
        for cursor in (self.lhs_at, self.weights_at, self.out_at):
            cursor.save()

    def _load(self) -> None:
        for cursor in (self.lhs_at, self.weights_at, self.out_at):
            cursor.load()

    # long passes: a loop over steps, popped `lag_steps` later

    def _emit_long_passes(self) -> None:
        b, passes, lag = self.b, self.region.passes, self.skew.lag_steps
        b.new_block("fill")
        self._swap()
        for step in range(lag):
            self._matmuls(self.lhs_at.address, step)
            if passes > 1:
                self._pushes(step, lag)
        lhs_pointer = b.variable(sreg=self.lhs_at.address)
        out_pointer = b.variable(sreg=self.out_at.address)
        self.lhs_at.advance()
        self.weights_at.advance()
        if passes > 1:
            self._save()
            with b.loop(passes - 1, "passes"):
                self._load()
                self._steps(lhs_pointer, out_pointer)
                self._seam(lhs_pointer, out_pointer)
            self._load()
        self._steps(lhs_pointer, out_pointer)
        b.new_block("drain")
        for step in range(lag):
            number = self.region.steps - lag + step
            self.results.pops(out_pointer, step, number, self.out_at.k_group)

    def _steps(self, lhs_pointer: SReg, out_pointer: SReg) -> None:
        """The steps of a pass that do not touch its neighbours."""
        b, lag, unroll = self.b, self.skew.lag_steps, self.skew.unroll
        with b.loop((self.region.steps - lag) // unroll, "steps"):
            for step in range(unroll):
                self._matmuls(lhs_pointer, lag + step)
                self.results.pops(out_pointer, step, -1, self.out_at.k_group)
            b.assign_add(lhs_pointer, unroll * self.lhs.row(self.region.mw, 0))
            b.assign_add(out_pointer, unroll * self.results.step_rows)

    def _seam(self, lhs_pointer: SReg, out_pointer: SReg) -> None:
        """First steps of the next pass with the last results of this one."""
        b, lag = self.b, self.skew.lag_steps
        self._swap()
        for step in range(lag):
            self._matmuls(self.lhs_at.address, step)
            self._pushes(step, lag)
            number = self.region.steps - lag + step
            self.results.pops(out_pointer, step, number, self.out_at.k_group)
        b.assign(lhs_pointer, self.lhs_at.address)
        self.lhs_at.advance()
        self.weights_at.advance()
        self.out_at.advance()
        b.assign(out_pointer, self.out_at.address)
        self._save()
