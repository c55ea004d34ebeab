"""Operations that StableHLO keeps for old programs: einsum, torch_index_select, cross-replica-sum."""

from __future__ import annotations

from compiler.frontends.stablehlo.body import Body, Instr, Lowering
from compiler.frontends.stablehlo.contraction import precision_attrs
from compiler.frontends.stablehlo.elementwise import take
from compiler.frontends.stablehlo.syntax import Operation
from compiler.hlo.dtypes import DType
from compiler.hlo.shape import ArrayShape

_FIRST_OF_ELLIPSIS = 0xE000  # dimensions that `...` stands for get letters nobody writes


def _labels(b: Body, operands: list[Instr]) -> tuple[list[str], str]:
    """The letters of each operand's dimensions and of the result's."""
    config = b.attributes().string("einsum_config").replace(" ", "")
    left, arrow, result = config.partition("->")
    parts = left.split(",")
    if not arrow or len(parts) != len(operands):
        b.op.fail(f"einsum_config {config!r}: want {len(operands)} operands and `->`")
    longest = 0
    found = []
    for part, operand in zip(parts, operands, strict=True):
        extra = operand.array.rank - len(part.replace("...", ""))
        if extra < 0 or (extra > 0 and "..." not in part):
            b.op.fail(f"einsum_config {config!r}: {part!r} does not fit rank {operand.array.rank}")
        longest = max(longest, extra)
        found.append(part.replace("...", _ellipsis(extra)))
    result = result.replace("...", _ellipsis(longest))
    for letters in (*found, result):
        if len(set(letters)) != len(letters):
            b.op.fail(f"einsum_config {config!r}: a letter appears twice in one operand")
    return found, result


def _ellipsis(count: int) -> str:
    """Letters for `count` dimensions, the last always the same one."""
    return "".join(chr(_FIRST_OF_ELLIPSIS + i) for i in reversed(range(count)))


def _summed(b: Body, operand: Instr, letters: str, kept: str, dtype: DType) -> tuple[Instr, str]:
    """The operand with the dimensions that nobody else names summed up."""
    gone = [i for i, letter in enumerate(letters) if letter not in kept]
    if not gone:
        return operand, letters
    wide = b.convert(operand, dtype) if operand.array.dtype != dtype else operand
    total = b.reduce(wide, b.constant(dtype, 0), gone, b.scalar("add", dtype))
    return total, "".join(letter for letter in letters if letter in kept)


def _ordered(b: Body, value: Instr, letters: str, wanted: str) -> Instr:
    if sorted(letters) != sorted(wanted):
        b.op.fail(f"the result names {wanted!r}, the operands have {letters!r}")
    if letters == wanted:
        return value
    return b.transpose(value, [letters.index(letter) for letter in wanted])


def _einsum(b: Body, op: Operation) -> Instr:
    operands = take(b, op, 2)
    (left, right), result = _labels(b, list(operands))
    dtype = b.result_array().dtype
    lhs, left = _summed(b, operands[0], left, right + result, dtype)
    rhs, right = _summed(b, operands[1], right, left + result, dtype)
    shared = [letter for letter in left if letter in right]
    batch = [letter for letter in shared if letter in result]
    contracted = [letter for letter in shared if letter not in result]
    attrs: dict[str, object] = {}
    for side, letters in (("lhs", left), ("rhs", right)):
        if batch:
            attrs[f"{side}_batch_dims"] = tuple(letters.index(letter) for letter in batch)
        attrs[f"{side}_contracting_dims"] = tuple(letters.index(letter) for letter in contracted)
    declared = ArrayShape(dtype, ())
    product = b.instruction("dot", (lhs, rhs), attrs | precision_attrs(b), declared)
    free = [letter for letter in left + right if letter not in shared]
    return _ordered(b, product, "".join([*batch, *free]), result)


def _unary_einsum(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    (letters,), result = _labels(b, [operand])
    total, letters = _summed(b, operand, letters, result, operand.array.dtype)
    return _ordered(b, total, letters, result)


def _torch_index_select(b: Body, op: Operation) -> Instr:
    """Whole slices of dimension `dim`, one for each index; the first dimensions may be batches."""
    operand, index = take(b, op, 2)
    a = b.attributes()
    dim, batches = a.integer("dim"), a.integer("batch_dims", 0)
    rank, index_rank = operand.array.rank, index.array.rank
    if not (0 <= batches <= dim < rank and batches <= index_rank):
        op.fail(f"dim = {dim} and batch_dims = {batches} do not fit rank {rank}")
    chosen = range(dim, dim + index_rank - batches)
    result_rank = rank - 1 + index_rank - batches
    places = tuple(d for d in range(batches, result_rank) if d not in chosen)
    attrs: dict[str, object] = {
        "offset_dims": places,
        "collapsed_slice_dims": (dim,),
        "start_index_map": (dim,),
        "index_vector_dim": index_rank,
        "slice_sizes": tuple(
            1 if d == dim or d < batches else size for d, size in enumerate(operand.array.dims)
        ),
    }
    if batches:
        attrs["operand_batching_dims"] = tuple(range(batches))
        attrs["start_indices_batching_dims"] = tuple(range(batches))
    return b.instruction("gather", (operand, index), attrs)


def _cross_replica_sum(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    rows = b.attributes().pairs("replica_groups") or ()
    attrs: dict[str, object] = {
        "replica_groups": tuple(tuple(i for i in row if i >= 0) for row in rows),
        "to_apply": b.scalar("add", operand.array.dtype),
    }
    return b.instruction("all-reduce", (operand,), attrs)


TABLE: dict[str, Lowering] = {
    "stablehlo.cross-replica-sum": _cross_replica_sum,
    "stablehlo.einsum": _einsum,
    "stablehlo.torch_index_select": _torch_index_select,
    "stablehlo.unary_einsum": _unary_einsum,
}
