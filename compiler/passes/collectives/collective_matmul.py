"""Collective matmul: products piece by piece, while the pieces of an operand or of a sum are on the links.

    g = all-gather(x)      =>    p0 = dot(x, w)                    x1 = permute(x)
    dot(g, w)                    p1 = dot(x1, w)                   x2 = permute(x1)  ..

    y = dot(x, w)          =>    s0 = dot(x[piece], w)             s1 = permute(s0)
    reduce-scatter(y)            s1 + dot(x[another piece], w)  ..

A gather along rows of a product, or along its batch, is a piece from each device, which are multiplied
as they come round the ring, both ways where these have no link in common. A scattered sum goes round the
ring likewise: each device adds its product's piece to what has come. Pieces of it go in streams, so that
one is computed while others are on the links. `latency_hiding` makes starts and dones of the permutes.

That is done where it is quicker by the cost of the products and of the exchange (`ring_cost`), less what
other products of the computation hide of that anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.backend.exchange.cost import exchange_cost, network_of
from compiler.hlo.call_graph import control_computations, loop_bodies
from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule, depends_on
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.replica_groups import device_counts
from compiler.hlo.shape import ArrayShape
from compiler.passes.collectives.expander import Collective
from compiler.passes.collectives.hidden import Hidden
from compiler.passes.collectives.ring_cost import (
    Ring,
    can_estimate,
    dot_cycles,
    gather_in_parts,
    scatter_in_parts,
)
from compiler.passes.context import PassContext
from compiler.passes.dimension_order.dots import dot_places
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.graph import replace
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.torus import Slice

Instr = HloInstruction

_MOST_DEVICES = 32
"""Of a ring: each has a piece, and each piece its kernels."""
_ROWS = 16
"""Rows of a piece are a multiple of it: whole tiles of any type of 16 bits or more."""
_WORTH = 0.95
"""The time in pieces must be at most this part of the time before."""


def overlap_products(module: HloModule, context: PassContext) -> bool:
    """Make loops of pieces of products and exchanges where that is quicker."""
    if device_counts(module).devices == 1:
        return False
    chip, precision = context.planner.chip, context.planner.precision
    cores, bodies = network_of(module, context.cores), loop_bodies(module)
    for computation in control_computations(module):
        hidden = Hidden(computation, chip, precision, is_body=computation in bodies)
        for instr in list(computation):
            product = _product_of(instr, cores, chip, precision)
            if product is None or not product.pays(hidden):
                continue
            before = list(computation)
            product.rewrite()
            _put_in_order(computation, before, instr)
            context.counts[instr.opcode] += 1
    return bool(context.counts)


def _put_in_order(computation: HloComputation, before: Sequence[Instr], at: Instr) -> None:
    """Put what was made where the last of what it replaces stood, in the order in which it was made: pieces
    of all streams by turns."""
    known = set(before)
    made = [i for i in computation if i not in known]
    place = before.index(at)
    order = [*before[:place], *made, *before[place:]]
    computation.instructions = dict.fromkeys(i for i in order if i in computation.instructions)
    computation.sort()


def _product_of(
    instr: Instr, cores: Slice, chip: Chip, precision: str
) -> _Gathered | _Scattered | None:
    """The products that a collective feeds or is fed by; None where there are none in pieces."""
    form = _FORMS.get(instr.opcode)
    groups = instr.attrs.get("replica_groups", ())
    if form is None or len(instr.operands) != 1 or not isinstance(instr.shape, ArrayShape):
        return None
    if not isinstance(groups, tuple) or not groups or len(set(map(len, groups))) > 1:
        return None
    ring = Ring(groups, cores, chip)
    (dim,) = instr.dimensions
    shape = instr.array if instr.opcode == "reduce-scatter" else instr.operands[0].array
    is_cut = shape.rank > dim + 1 and shape.dims[dim] % _ROWS == 0 and 0 not in shape.dims
    if not 2 <= ring.size <= _MOST_DEVICES or not is_cut or shape.dtype.bits > 32:
        return None
    product = form(instr, ring, precision)
    return product if product.dots else None


def _place(dot: Instr, operand: int, dim: int) -> int | None:
    """The dimension of a product that a dimension of an operand becomes; None for one that is summed, and
    for the last one, whose pieces are no whole tiles."""
    place = dot_places(dot)[operand].get(dim)
    return None if place is None or place == dot.array.rank - 1 else place


class _Gathered:
    """An all-gather, and the products that read it in pieces."""

    def __init__(self, gather: Instr, ring: Ring, precision: str) -> None:
        self.gather, self.ring, self.precision = gather, ring, precision
        (self.dim,) = gather.dimensions
        self.dots = [user for user in gather.users if self._is_cut(user)]

    def _is_cut(self, user: Instr) -> bool:
        if user.opcode != "dot" or not can_estimate(user):
            return False
        places = [n for n, operand in enumerate(user.operands) if operand is self.gather]
        if len(places) != 1 or _place(user, places[0], self.dim) is None:
            return False
        other = user.operands[1 - places[0]]
        return not depends_on(other, self.gather)

    def pays(self, hidden: Hidden) -> bool:
        """Whether pieces are quicker. A gather that others read, too, would be done beside them."""
        root = None if self.gather.computation is None else self.gather.computation.root
        if len(self.dots) < len(self.gather.users) or root is self.gather:
            return False
        ring = self.ring
        cost = exchange_cost(self.gather, ring.cores, ring.chip)
        exchange = hidden.left_of(self.gather, cost.ready + cost.transfer)
        dots = sum(dot_cycles(dot, ring.chip, self.precision) for dot in self.dots)
        piece = self.gather.operands[0].array
        parts = gather_in_parts(self.dots, (piece,), ring, self.precision)
        return parts < _WORTH * (exchange + dots)

    def rewrite(self) -> None:
        """Put products of pieces in the place of products."""
        c, ring = Collective(self.gather), self.ring
        piece = self.gather.operands[0]
        results = [_Result(c.e, dot, self._place(dot), ring.size) for dot in self.dots]
        pieces = dict.fromkeys(ring.ways, piece)
        self._multiply(c, piece, ring.ranks(ring.ways[0], 0), results)
        for number in range(ring.size - 1):
            way = ring.ways[number % len(ring.ways)]
            pieces[way] = c.permuted(pieces[way], ring.pairs(way))
            ranks = ring.ranks(way, number // len(ring.ways) + 1)
            self._multiply(c, pieces[way], ranks, results)
        for dot, result in zip(self.dots, results, strict=True):
            replace(dot, result.whole())

    def _place(self, dot: Instr) -> int:
        place = _place(dot, self._side(dot), self.dim)
        assert place is not None
        return place

    def _side(self, dot: Instr) -> int:
        return 0 if dot.operands[0] is self.gather else 1

    def _multiply(
        self, c: Collective, piece: Instr, ranks: Sequence[int], results: Sequence[_Result]
    ) -> None:
        rank = c.looked_up(S32, ranks)
        for result in results:
            side = self._side(result.dot)
            operands = list(result.dot.operands)
            operands[side] = piece
            other = _dim_of(result.dot, 1 - side, result.dim)
            if other is not None:  # a batch: both sides are cut
                operands[1 - side] = _piece(c.e, operands[1 - side], other, rank, self.ring.size)
            result.put(_dot(c.e, result.dot, operands, result.dim), rank)


def _dim_of(dot: Instr, operand: int, place: int) -> int | None:
    """The dimension of an operand that becomes this one of the product."""
    return next((d for d, p in dot_places(dot)[operand].items() if p == place), None)


def _dot(e: Emitter, dot: Instr, operands: Sequence[Instr], dim: int) -> Instr:
    """The product of pieces, which is a piece of `dot`."""
    side = next(n for n in (0, 1) if _dim_of(dot, n, dim) is not None)
    size = operands[side].array.dims[_dim_of(dot, side, dim) or 0]
    dims = tuple(size if d == dim else n for d, n in enumerate(dot.array.dims))
    return e.instruction("dot", operands, dict(dot.attrs), ArrayShape(dot.array.dtype, dims))


def _piece(e: Emitter, whole: Instr, dim: int, number: Instr, count: int) -> Instr:
    """Piece `number` of `count` of a dimension, all of whole tiles."""
    dims = whole.array.dims
    rows = dims[dim] // count
    pieces = e.reshape(whole, (*dims[:dim], count, rows, *dims[dim + 1 :]))
    zero = e.constant(S32, 0)
    starts = [number if d == dim else zero for d in range(len(dims) + 1)]
    sizes = (*dims[:dim], 1, rows, *dims[dim + 1 :])
    return e.reshape(e.dynamic_slice(pieces, starts, sizes), (*dims[:dim], rows, *dims[dim + 1 :]))


class _Result:
    """A product that pieces are put into."""

    def __init__(self, e: Emitter, dot: Instr, dim: int, count: int) -> None:
        self.e, self.dot, self.dim = e, dot, dim
        dims = dot.array.dims
        self.lead, self.rest = dims[:dim], dims[dim + 1 :]
        self.rows = dims[dim] // count
        zero = e.constant(dot.array.dtype, 0)
        self.pieces = e.broadcast(zero, (*self.lead, count, self.rows, *self.rest))

    def put(self, piece: Instr, number: Instr) -> None:
        """Bring a piece to its place."""
        e = self.e
        zero = e.constant(S32, 0)
        starts = [number if d == self.dim else zero for d in range(self.pieces.array.rank)]
        update = e.reshape(piece, (*self.lead, 1, self.rows, *self.rest))
        self.pieces = e.instruction("dynamic-update-slice", (self.pieces, update, *starts))

    def whole(self) -> Instr:
        """All of them as the product was."""
        return self.e.reshape(self.pieces, self.dot.array.dims)


class _Scattered:
    """A reduce-scatter of sums, and the products that make what it adds up."""

    def __init__(self, scatter: Instr, ring: Ring, precision: str) -> None:
        self.scatter, self.ring, self.precision = scatter, ring, precision
        (self.dim,) = scatter.dimensions
        self.rows = scatter.array.dims[self.dim]
        wanted = 2 * len(ring.ways) if ring.size > 2 else 2
        fits = [n for n in (wanted, 2) if self.rows % (n * _ROWS) == 0]
        self.streams = fits[0] if fits else 0
        self.cone: set[Instr] = set()
        self.dots: list[Instr] = []
        body = scatter.attrs["to_apply"]
        assert isinstance(body, HloComputation)
        root = body.root_instruction
        is_sum = root.opcode == "add" and set(root.operands) == set(body.parameters)
        if is_sum and self.streams:
            self._look(scatter.operands[0], scatter)

    def _look(self, instr: Instr, user: Instr) -> None:
        """Find the products that are only wanted here, and what is done with them, element by element."""
        if set(instr.users) != {user} or instr.computation is None:
            return
        if (
            instr is instr.computation.root
            or instr.array.dims != self.scatter.operands[0].array.dims
        ):
            return
        if instr.opcode == "dot":
            if can_estimate(instr) and self.dim < instr.array.rank - 1:
                self.cone.add(instr)
                self.dots.append(instr)
        elif OPCODES[instr.opcode].has(Trait.ELEMENTWISE):
            self.cone.add(instr)
            for operand in dict.fromkeys(instr.operands):
                if isinstance(operand.shape, ArrayShape):
                    self._look(operand, instr)

    def pays(self, hidden: Hidden) -> bool:
        """Whether pieces are quicker."""
        ring, shape = self.ring, self.scatter.array
        cost = exchange_cost(self.scatter, ring.cores, ring.chip)
        exchange = hidden.left_of(self.scatter, cost.ready + cost.transfer)
        dots = sum(dot_cycles(dot, ring.chip, self.precision) for dot in self.dots)
        rows = self.rows // self.streams
        sent = tuple(rows if d == self.dim else n for d, n in enumerate(shape.dims))
        piece = ArrayShape(shape.dtype, sent)
        parts = scatter_in_parts(self.dots, piece, ring, self.precision, self.streams)
        return parts < _WORTH * (exchange + dots)

    def rewrite(self) -> None:
        """Let sums go round the ring."""
        c, ring = Collective(self.scatter), self.ring
        sums: list[Instr | None] = [None] * self.streams
        for step in range(ring.size):
            for stream in range(self.streams):
                way = ring.ways[stream % len(ring.ways)]
                ranks = ring.ranks(way, step + 1)
                number = c.looked_up(S32, [rank * self.streams + stream for rank in ranks])
                made = self._made(c.e, self.scatter.operands[0], number)
                before = sums[stream]
                if before is not None:
                    made = c.e.add(made, c.permuted(before, ring.pairs(way)))
                sums[stream] = made
        parts = [one for one in sums if one is not None]
        replace(self.scatter, c.e.join(parts, self.dim))

    def _made(self, e: Emitter, instr: Instr, number: Instr) -> Instr:
        """A piece of what is scattered."""
        count = self.ring.size * self.streams
        if not instr.array.dims:
            return instr
        if instr not in self.cone:
            if instr.opcode == "broadcast" and not instr.operands[0].array.dims:
                rows = instr.array.dims[self.dim] // count
                dims = instr.array.dims
                return e.broadcast(
                    instr.operands[0], (*dims[: self.dim], rows, *dims[self.dim + 1 :])
                )
            return _piece(e, instr, self.dim, number, count)
        if instr.opcode != "dot":
            made = {o: self._made(e, o, number) for o in dict.fromkeys(instr.operands)}
            operands = [made[o] for o in instr.operands]
            dims = next(o.array.dims for o in operands if o.array.dims)
            shape = ArrayShape(instr.array.dtype, dims)
            return e.instruction(instr.opcode, operands, dict(instr.attrs), shape)
        operands = list(instr.operands)
        for side in (0, 1):
            dim = _dim_of(instr, side, self.dim)
            if dim is not None:
                operands[side] = _piece(e, operands[side], dim, number, count)
        return _dot(e, instr, operands, self.dim)


_FORMS: dict[str, type[_Gathered] | type[_Scattered]] = {
    "all-gather": _Gathered,
    "reduce-scatter": _Scattered,
}
