"""Dots that the vector unit does: outer products, and small dots of high precision.

A dot that sums nothing, with one contracted element or none, is a product of each pair: in f32, and
one operation that fuses with others. XLA does the same.

The matrix unit makes an f32 product of three or six bf16 passes: what is left when large products
cancel is theirs, and each pass loads weights anew. Up to 32 vregs of products are multiplied and
added in f32 instead: rounded like plain f32 arithmetic, and no slower, since so small a kernel
mostly waits for its operands. Larger ones are no faster, as what makes their operands may be
fused into the products and so repeated.

A dot of few results that sums along a long dimension (the normal equations of a regression) loads
weights for every 128 elements and uses a few columns of them. Its products are summed along the lanes,
of operands rounded as for the matrix unit. Likewise a product of a long, narrow matrix with a vector or
a matrix of a few numbers (colours of pixels, rotations of points, the spins of a lattice).

A product with a vector reads each number of its matrix once: whoever computes it, memory bounds it. Where
the matrix is a stack of images (a Krylov basis over a grid) the matrix unit would want each image as one
row, which is a copy of all of them; as arithmetic its dimensions stay apart.

Nor does the matrix unit help where each batch has one row and one column (the gradient of a scaling, the
energies of pairs), or one row and a small matrix that lies along the lanes (``tec,te->tc``, what a mixture of
experts adds up): it would load weights for one row. There and in outer products every dimension
stays apart too (`_elementwise`): states ``[4,16,24,64,128]`` scaled by ``[4,16,24]`` are moved nowhere.
"""

from __future__ import annotations

from compiler.analysis.dot_parts import dot_parts
from compiler.analysis.tiled_layout import is_bitcast
from compiler.hlo.dtypes import BF16, F32
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.dot_canonicalizer import DotSide, dot_sides
from compiler.passes.expanders.driver import expand
from compiler.rewrite.emitter import Emitter
from tpu_sim.isa.geometry import LANES, SUBLANES

Instr = HloInstruction
MAX_CONTRACTED = 32
MAX_LANES = 1 << 15  # of products, padded to whole vregs: 32 vregs
MAX_RESULTS = 16
MAX_BATCH_REGISTERS = 16
"""Registers of a matrix in each batch that one row is multiplied with: with a hundred cycles for the
weights of a batch the matrix unit is slower up to there."""
MAX_NUMBERS = 32
"""Numbers of a matrix that a long one is multiplied with row by row."""
LONG = 8192
"""Contracted elements of a dot of so few results."""
LARGE = 1 << 17
"""Elements of a stack that is not copied for a product with a vector."""


def expand_small_dots(module: HloModule, context: PassContext) -> bool:
    """Expand outer products, small dots of more than one pass, and those of few results of long sums."""
    precision = context.planner.precision
    return expand(module, context, {"dot": lambda instr: expand_small_dot(instr, precision)})


def expand_small_dot(instr: Instr, precision: str) -> Instr | None:
    """The dot as products ``[K, B, M, N]`` summed over the first dimension, or None."""
    if not _is_float(instr):
        return None
    left, right = dot_sides(instr)
    batch, k = left.size(left.batch), left.size(left.contracting)
    m, n = left.size(left.free), right.size(right.free)
    is_rounded = k > 1 and dot_parts(instr, precision).passes == 1
    if batch == 1 and k >= LONG and m * n <= MAX_RESULTS:
        return _summed_in_lanes(instr, left, right, is_rounded=is_rounded)
    few = min(m, n)
    is_small = k <= MAX_RESULTS and k * few <= MAX_NUMBERS and (k > 1 or few == 1)
    long, short = (left, right) if m > n else (right, left)
    if batch == 1 and is_small and max(m, n) >= LONG:
        return _summed_over_rows(instr, long, short, is_rounded=is_rounded)
    if batch == 1 and few == 1 and _moves_when_merged(long):
        if len(long.contracting) > 1:
            return _summed_in_lanes(instr, left, right, is_rounded=is_rounded)
        return _summed_over_rows(instr, long, short, is_rounded=is_rounded)
    if k == 1 or (m == n == 1 < batch) or _is_row_by_wide_matrix(left, right):
        return _elementwise(instr, left, right, is_rounded=is_rounded)
    if is_rounded:
        return None
    is_swapped = n == 1
    if is_swapped:
        left, right, m, n = right, left, n, m
    lanes = k * batch * _rounded(m, SUBLANES) * _rounded(n, LANES)
    if lanes == 0 or k > MAX_CONTRACTED or lanes > MAX_LANES:
        return None
    e = Emitter.at(instr)
    full = (k, batch, m, n)
    rows = e.broadcast(_matrix(e, left), full, (0, 1, 2))
    columns = e.broadcast(_matrix(e, right), full, (0, 1, 3))
    products = e.multiply(rows, columns)
    return e.cast(e.shaped(e.total(products, 0), instr.array.dims), instr.array.dtype)


def _is_row_by_wide_matrix(left: DotSide, right: DotSide) -> bool:
    """Whether each batch has one row, and a matrix of few registers whose own rows lie along the lanes."""
    if left.size(left.batch) == 1 or min(left.size(left.free), right.size(right.free)) != 1:
        return False
    wide = left if left.size(left.free) > 1 else right
    k, lanes = wide.size(wide.contracting), wide.operand.array.dims[-1]
    if wide.operand.array.rank - 1 not in wide.free or lanes < LANES or k > MAX_CONTRACTED:
        return False
    rows = wide.size(wide.free) // lanes * _rounded(k, SUBLANES) // SUBLANES
    return rows * -(-lanes // LANES) <= MAX_BATCH_REGISTERS


def _elementwise(instr: Instr, left: DotSide, right: DotSide, *, is_rounded: bool) -> Instr:
    """Products of each pair of elements, and their sums: no dimension is merged with another.

    What a dimension stands for is its number in ``batch, left's free, right's free, contracted``. An outer
    product is made in that order, which is the result's. Where a sum is taken, products lie as one of the
    operands does, preferably one whose lanes are not summed.
    """
    e = Emitter.at(instr)
    batch, summed = len(left.batch), len(left.contracting)
    kept = batch + len(left.free) + len(right.free)
    sizes: dict[int, int] = {}
    places: list[dict[int, int]] = []
    for side, start in ((left, batch), (right, batch + len(left.free))):
        free = range(start, start + len(side.free))
        numbers = (*range(batch), *free, *range(kept, kept + summed))
        dims = (*side.batch, *side.free, *side.contracting)
        found = sorted(zip(dims, numbers, strict=True))
        sizes.update({n: side.operand.array.dims[d] for d, n in found})
        places.append({d: n for d, n in found if sizes[n] != 1})
    order = [n for n in range(kept) if sizes[n] != 1]
    lies = order
    if any(sizes[n] != 1 for n in range(kept, kept + summed)):
        last = next(reversed(places[0].values()))
        lies = list(places[last >= kept].values())
    factors = [
        _placed(e, side, at, lies, sizes, is_rounded=is_rounded)
        for side, at in zip((left, right), places, strict=True)
    ]
    product = e.multiply(*factors)
    sums = [i for i, n in enumerate(lies) if n >= kept]
    total = e.total(product, *sums) if sums else product
    left_over = [n for n in lies if n < kept]
    if left_over != order:
        total = e.transpose(total, tuple(left_over.index(n) for n in order))
    return e.cast(e.shaped(total, instr.array.dims), instr.array.dtype)


def _placed(
    e: Emitter,
    side: DotSide,
    places: dict[int, int],
    lies: list[int],
    sizes: dict[int, int],
    *,
    is_rounded: bool,
) -> Instr:
    """The operand in f32, without dimensions of one, broadcast to the dimensions of numbers `lies`.

    `places` has the number of each of its dimensions that are longer than one, in their order.
    """
    operand = e.cast(e.cast(side.operand, BF16) if is_rounded else side.operand, F32)
    operand = e.shaped(operand, tuple(sizes[n] for n in places.values()))
    numbers = list(places.values())
    wanted = sorted(numbers, key=lies.index)
    if wanted != numbers:
        operand = e.transpose(operand, tuple(numbers.index(n) for n in wanted))
    full = tuple(sizes[n] for n in lies)
    if len(wanted) == len(lies):
        return operand
    return e.broadcast(operand, full, tuple(lies.index(n) for n in wanted))


def _moves_when_merged(side: DotSide) -> bool:
    """Whether the trailing dimensions of a large stack would have to be one row for the matrix unit."""
    shape = side.operand.array
    lies = tuple(range(shape.rank))
    sizes = {
        (*side.free, *side.contracting): (side.size(side.free), side.size(side.contracting)),
        (*side.contracting, *side.free): (side.size(side.contracting), side.size(side.free)),
    }
    if shape.element_count < LARGE or lies not in sizes or shape.dims[-1] < LANES:
        return False
    return not is_bitcast(shape.with_layout(None), shape.with_layout(None).with_dims(sizes[lies]))


def _summed_over_rows(instr: Instr, long: DotSide, short: DotSide, *, is_rounded: bool) -> Instr:
    """A long, narrow matrix times a few columns: its rows, each times a number, added up for each.

    The free dimensions of the matrix stay apart: merged, they would lie otherwise. Batches are of one.
    """
    e = Emitter.at(instr)
    order = (*long.contracting, *long.batch, *long.free)
    turned = _ordered(e, long, order, is_rounded=is_rounded)
    free = turned.array.dims[len(order) - len(long.free) :]
    k, columns = long.size(long.contracting), short.size(short.free)
    few = (columns,) if columns > 1 else ()
    order = (*short.contracting, *short.batch, *short.free)
    numbers = _ordered(e, short, order, is_rounded=is_rounded)
    full = (k, *few, *free)
    places = (0, *range(1 + len(few), len(full)))
    rows = e.broadcast(e.shaped(turned, (k, *free)), full, places)
    factors = e.broadcast(e.shaped(numbers, (k, *few)), full, tuple(range(1 + len(few))))
    total = e.total(e.multiply(rows, factors), 0)
    if few and long.operand is instr.operands[0]:
        total = e.transpose(total, (*range(1, 1 + len(free)), 0))
    return e.cast(e.shaped(total, instr.array.dims), instr.array.dtype)


def _summed_in_lanes(instr: Instr, left: DotSide, right: DotSide, *, is_rounded: bool) -> Instr:
    """The dot as products ``[M, N, K..]`` summed over the last dimensions, which stay apart as rows do."""
    e = Emitter.at(instr)
    summed = tuple(left.operand.array.dims[d] for d in left.contracting)
    full = (left.size(left.free), right.size(right.free), *summed)
    places = tuple(range(2, len(full)))
    factors = []
    for number, side in enumerate((left, right)):
        order = (*side.free, *side.batch, *side.contracting)
        turned = _ordered(e, side, order, is_rounded=is_rounded)
        matrix = e.shaped(turned, (side.size(side.free), *summed))
        factors.append(e.broadcast(matrix, full, (number, *places)))
    total = e.total(e.multiply(*factors), *places)
    return e.cast(e.shaped(total, instr.array.dims), instr.array.dtype)


def _is_float(instr: Instr) -> bool:
    dtypes = (instr.array.dtype, *(operand.array.dtype for operand in instr.operands))
    return all(dtype.is_float and dtype.bits <= F32.bits for dtype in dtypes)


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _matrix(e: Emitter, side: DotSide) -> Instr:
    """The operand in f32 as ``[contracted, batch, free]``, contracted dimensions in one order."""
    turned = _ordered(e, side, (*side.contracting, *side.batch, *side.free), is_rounded=False)
    return e.shaped(turned, tuple(side.size(d) for d in (side.contracting, side.batch, side.free)))


def _ordered(e: Emitter, side: DotSide, order: tuple[int, ...], *, is_rounded: bool) -> Instr:
    """The operand in f32 with its dimensions in `order`; rounded to bf16 first where the matrix unit
    rounds it."""
    operand = e.cast(e.cast(side.operand, BF16) if is_rounded else side.operand, F32)
    return operand if order == tuple(range(len(order))) else e.transpose(operand, order)
