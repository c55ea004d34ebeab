"""How a slice that a gather reads, or an update that a scatter writes, goes through VMEM.

slice     its sizes, along every dimension of the operand
piece     what one grid step handles; the grid dimension `p<dim>` counts them
part      what VMEM holds of a piece at once; loops within the step go over them
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from compiler.analysis.indexing import Expr, Var, const, var
from compiler.analysis.windows import GridDim
from compiler.backend.index_scalars import emit_index
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.llo.builder import LloBuilder

Dims = tuple[int, ...]


def step_origin(grid: Sequence[GridDim], name: str) -> Expr:
    """The first element of the step along a grid dimension; 0 where it is not cut."""
    return next((d.origin for d in grid if d.variable.name == name), const(0))


class SliceParts:
    """Loops over the parts of a piece and over the rows of a part.

    Public: `pieces`, `parts`, and `origin`, where in the slice the part at hand starts.
    """

    def __init__(
        self,
        builder: LloBuilder,
        grid: Sequence[GridDim],
        sizes: Dims,
        pieces: Dims,
        parts: Dims,
    ) -> None:
        self._builder = builder
        self._sizes = sizes
        self.pieces = pieces
        self.parts = parts
        self._first = [step_origin(grid, f"p{dim}") for dim in range(len(pieces))]
        self.origin = list(self._first)

    @contextmanager
    def part_loops(self, emitter: VectorEmitter) -> Iterator[None]:
        """Loops over the parts of a piece, which set `origin`."""
        with ExitStack() as loops:
            sides = zip(self._first, self.pieces, self.parts, strict=True)
            for dim, (origin, piece, part) in enumerate(sides):
                if part < piece:
                    count = piece // part
                    counter = loops.enter_context(self._builder.loop(count, f"part{dim}"))
                    variable = Var(f"part{dim}", 0, count - 1)
                    emitter.sregs[variable] = counter
                    origin = origin + var(variable) * part
                self.origin[dim] = origin
            yield

    @contextmanager
    def row_loops(self, emitter: VectorEmitter, rank: int) -> Iterator[dict[int, Expr]]:
        """Loops over the first `rank` dimensions of a part; yields the position in it of each.

        A last piece that reaches beyond the slice has fewer.
        """
        b = self._builder
        offsets: dict[int, Expr] = {}
        counters: dict[Var, int] = {}
        with ExitStack() as loops:
            for dim in range(rank):
                most, size = self.parts[dim], self._sizes[dim]
                offsets[dim] = const(0)
                if most == 1 and size % self.pieces[dim] == 0:
                    continue
                origin = emit_index(b, self.origin[dim], emitter.sregs)
                trips = b.smin(b.ssub(b.sconst(size), origin), b.sconst(most))
                counter = loops.enter_context(b.loop_dynamic(trips, f"window{dim}"))
                variable = Var(f"window{dim}", 0, most - 1)
                counters[variable] = counter
                offsets[dim] = var(variable)
            emitter.sregs.update(counters)
            yield offsets
