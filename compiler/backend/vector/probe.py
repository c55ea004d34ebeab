"""How many operations a tile takes: emit one into a builder that is thrown away, and count."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from compiler.analysis.indexing import Expr, Var, const, var
from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.index_values import LANE, SUBLANE
from compiler.backend.vector.tile_loops import TilePoint, TileSpace
from compiler.hlo.ir import HloInstruction
from compiler.llo.builder import LloBuilder
from tpu_sim.isa.timing import occupancy_cycles


class _Probe(ElementEmitter):
    """Takes leaves that no window holds for zero: at a real place their branch is not taken."""

    def unbound(self, node: HloInstruction) -> int:
        return self.nothing(node)


def probe_emitter(emitter: ElementEmitter) -> ElementEmitter:
    """An emitter with the same leaves and variables, into a builder of its own."""
    builder = LloBuilder("probe", emitter.builder.chip)
    next_sreg = emitter.builder.new_sreg()
    while builder.new_sreg() < next_sreg:  # so that the sregs of the real builder have numbers
        pass
    return _Probe(builder, emitter.bindings, dict(emitter.sregs), emitter.scalars)


def inner_point(emitter: ElementEmitter, space: TileSpace) -> TilePoint:
    """A tile somewhere in the middle of loops over the space."""
    majors = tuple(axis(emitter, f"m{d}", n) for d, n in enumerate(space.majors))
    row, col = axis(emitter, "row", space.row_tiles), axis(emitter, "col", space.col_tiles)
    return TilePoint(majors, row, col, var(SUBLANE), var(LANE))


def axis(emitter: ElementEmitter, name: str, count: int) -> Expr:
    """Some place of a loop over `count` places."""
    if count <= 1:
        return const(0)
    variable = Var(f"probe.{name}", 0, count - 1)
    emitter.sregs[variable] = emitter.builder.new_sreg()
    return var(variable)


class Work(NamedTuple):
    """What a tile takes: how many operations, and for how many cycles they hold issue slots."""

    operations: int
    issue_cycles: int


def work(emitter: ElementEmitter, emit: Callable[[], object]) -> Work:
    """What `emit` appends to the probe's block; an indexed load alone holds its slot for many cycles."""
    before = len(emitter.builder.block.ops)
    emit()
    added = emitter.builder.block.ops[before:]
    chip = emitter.builder.chip
    return Work(len(added), sum(occupancy_cycles(op.row, chip) for op in added))


def operations(emitter: ElementEmitter, emit: Callable[[], object]) -> int:
    """Operations that `emit` appends to the probe's block."""
    return work(emitter, emit).operations
