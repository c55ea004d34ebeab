"""Shapes of reductions, windows, sorts and linear algebra."""

from __future__ import annotations

from compiler.hlo.dtypes import BY_NAME, C64, F32, F64, S32, U32, real_type
from compiler.hlo.fourier import has_kernel, root_rows
from compiler.hlo.identities import MONOIDS, identity
from compiler.hlo.network import may_sort
from compiler.hlo.ops.declaration import (
    APPLY,
    DIMENSIONS,
    WINDOW,
    AttributeRow,
    Op,
    flags,
    variadic,
    words,
)
from compiler.hlo.ops.declaration import Trait as T
from compiler.hlo.ops.inference import (
    Inference,
    applied,
    declared,
    dims_text,
    one_or_tuple,
    plain,
    predicate,
    window_of,
)
from compiler.hlo.shape import ArrayShape, Shape, TupleShape, is_compatible, leaves
from compiler.hlo.shape_text import print_shape
from tpu_sim.isa.geometry import LANES


def _operands_and_inits(q: Inference) -> tuple[list[ArrayShape], list[ArrayShape]]:
    """N arrays of equal dimensions and their N scalar initial values."""
    shapes = q.arrays()
    q.require(len(shapes) % 2 == 0, "want N operands and N initial values")
    count = len(shapes) // 2
    operands, inits = shapes[:count], shapes[count:]
    for operand, init in zip(operands, inits, strict=True):
        if operand.dims != operands[0].dims:
            q.fail(f"operands {dims_text(operands[0])} and {dims_text(operand)} differ")
        q.require(init.rank == 0, f"initial value is {dims_text(init)}, want a scalar")
    return operands, inits


def _reduce(q: Inference) -> Shape:
    operands, inits = _operands_and_inits(q)
    reduced = q.dims_in_range("dimensions", operands[0].rank)
    kept = [size for dim, size in enumerate(operands[0].dims) if dim not in reduced]
    return one_or_tuple(
        [plain(r.dtype, kept) for r in applied(q, "to_apply", 2 * len(inits), len(inits))]
    )


def _windowed_dims(q: Inference, operand: ArrayShape) -> list[int]:
    window = window_of(q, operand.rank)
    return [w.output_size(size) for w, size in zip(window.dims, operand.dims, strict=True)]


def _reduce_window(q: Inference) -> Shape:
    operands, inits = _operands_and_inits(q)
    dims = _windowed_dims(q, operands[0])
    return one_or_tuple(
        [plain(r.dtype, dims) for r in applied(q, "to_apply", 2 * len(inits), len(inits))]
    )


def _select_and_scatter(q: Inference) -> Shape:
    operand, source, init = q.arrays()
    want = _windowed_dims(q, operand)
    if list(source.dims) != want:
        q.fail(f"source is {dims_text(source)}, the window takes {want} positions")
    q.require(init.rank == 0, f"initial value is {dims_text(init)}, want a scalar")
    if any(d.base_dilation != 1 or d.reversal for d in window_of(q, operand.rank).dims):
        q.fail("a window that selects is neither reversed nor over a dilated operand")
    predicate(q, "select", 2)
    applied(q, "scatter", 2)
    return operand


def _sort(q: Inference) -> Shape:
    operands = q.arrays()
    dims = q.dims_in_range("dimensions", operands[0].rank)
    q.require(len(dims) == 1, "want exactly one dimension")
    for operand in operands:
        if operand.dims != operands[0].dims:
            q.fail(f"operands {dims_text(operands[0])} and {dims_text(operand)} differ")
    predicate(q, "to_apply", 2 * len(operands))
    return one_or_tuple([plain(o.dtype, o.dims) for o in operands])


def _network_sort(q: Inference) -> Shape:
    """Not XLA's, but made by passes: s32[a, n, c] in ascending order of the first `num_keys` operands along
    dimension 1 and then `line_lanes` neighbours of dimension 2. Those of `results` are wanted, of which one
    after the operands is the place each element had; with `is_stable` equal ones keep their order."""
    operands = q.arrays()
    keys, lanes = q.integer("num_keys", 1), q.integer("line_lanes", 1)
    results, is_stable = q.ints("results"), q.attrs.get("is_stable", False)
    for operand in operands:
        if operand.dtype != S32 or operand.rank != 3 or operand.dims != operands[0].dims:
            q.fail(f"operand is {dims_text(operand)}, want equal s32 arrays of rank 3")
    major, rows, columns = operands[0].dims
    q.require(0 < keys <= len(operands), f"{keys} keys of {len(operands)} operands")
    last = len(operands) if is_stable else len(operands) - 1
    in_range = bool(results) and all(0 <= result <= last for result in results)
    q.require(in_range, f"results {list(results)} are not of 0 to {last}")
    q.require(len(set(results)) == len(results), "a result is named twice")
    q.require(
        may_sort(major, rows, columns, lanes), f"{dims_text(operands[0])}, {lanes} lanes a line"
    )
    return one_or_tuple([plain(S32, (major, rows, columns))] * len(results))


def _running_total(q: Inference) -> Shape:
    """Not XLA's, but made by passes: each element combined, by the binary operation `kind`, with all before
    it along a dimension, or behind it with `is_reverse`. s32, u32 or f32, of rank 1 or more."""
    operand = q.array(0)
    q.require(operand.dtype in (F32, S32, U32), f"{operand.dtype}, want f32, s32 or u32")
    dims = q.dims_in_range("dimensions", operand.rank)
    q.require(len(dims) == 1, "want one dimension")
    q.require(0 not in operand.dims, f"{dims_text(operand)} has no elements")
    kind = q.attrs.get("kind")
    q.require(kind in MONOIDS, f"kind={kind}, want one of {', '.join(sorted(MONOIDS))}")
    q.require(identity(str(kind), operand.dtype) is not None, f"no {kind} of {operand.dtype}")
    return plain(operand.dtype, operand.dims)


def _topk(q: Inference) -> Shape:
    operand = q.array(0)
    count = q.integer("k")
    q.require(operand.rank >= 1 and 0 <= count <= operand.dims[-1], f"k={count} is out of range")
    dims = (*operand.dims[:-1], count)
    return TupleShape((plain(operand.dtype, dims), plain(S32, dims)))


def _map(q: Inference) -> Shape:
    operands = q.arrays()
    (root,) = applied(q, "to_apply", len(operands))
    dims = operands[0].dims if operands else q.declared_array().dims
    q.require(all(o.dims == dims for o in operands), "operands differ in dimensions")
    return plain(root.dtype, dims)


def _feature_shape(q: Inference) -> ArrayShape:
    operand = q.array(0)
    dim = q.integer("feature_index")
    q.require(0 <= dim < operand.rank, f"feature_index={dim} is out of range")
    for i, shape in enumerate(q.arrays()[1:], 1):
        if q.opcode == "batch-norm-grad" and i == 4:
            q.require(shape.dims == operand.dims, "grad_output differs from the operand")
        elif shape.dims != (operand.dims[dim],):
            q.fail(f"operand {i} is {dims_text(shape)}, want [{operand.dims[dim]}]")
    return plain(q.array(1).dtype, (operand.dims[dim],))


def _batch_norm(q: Inference) -> Shape:
    operand, feature = plain(q.array(0).dtype, q.array(0).dims), _feature_shape(q)
    return (
        operand if q.opcode == "batch-norm-inference" else TupleShape((operand, feature, feature))
    )


def _cholesky(q: Inference) -> Shape:
    operand = q.array(0)
    square = operand.rank >= 2 and operand.dims[-1] == operand.dims[-2]
    q.require(square, f"operand is {dims_text(operand)}, want square matrices")
    return operand


def _triangular_solve(q: Inference) -> Shape:
    a, b = q.array(0), q.array(1)
    q.same_dtype(a, b)
    square = a.rank >= 2 and a.dims[-1] == a.dims[-2]
    q.require(square, f"operand 0 is {dims_text(a)}, want square matrices")
    q.require(a.rank == b.rank and a.dims[:-2] == b.dims[:-2], "batch dimensions differ")
    shared = b.dims[-2] if q.flag("left_side") else b.dims[-1]
    q.require(shared == a.dims[-1], f"{dims_text(a)} does not fit {dims_text(b)}")
    return b


def _fft(q: Inference) -> Shape:
    operand = q.array(0)
    lengths = q.ints("fft_length")
    count = len(lengths)
    q.require(0 < count <= operand.rank, f"fft_length {list(lengths)} does not fit")
    kind = q.attrs.get("fft_type", "FFT")
    c128 = BY_NAME["c128"]
    dims = list(operand.dims)
    wanted = (*lengths[:-1], lengths[-1] // 2 + 1) if kind == "IRFFT" else lengths
    fits = 0 in dims or tuple(dims[-count:]) == wanted
    q.require(fits, f"{kind} of {dims_text(operand)}, fft_length wants {list(wanted)}")
    if kind == "RFFT":
        q.require(operand.dtype in (F32, F64), f"RFFT of {operand.dtype}, want f32 or f64")
        dims[-1] = lengths[-1] // 2 + 1 if dims[-1] else 0
        return plain(C64 if operand.dtype == F32 else c128, dims)
    q.require(operand.dtype.is_complex, f"{kind} of {operand.dtype}, want a complex type")
    if kind == "IRFFT":
        dims[-1] = lengths[-1]
        return plain(real_type(operand.dtype), dims)
    return operand


def _pair_fft(q: Inference) -> Shape:
    """Not XLA's, but made by passes. (roots, re[, im]): the transform of f32[a, b, c] along dimension
    1 or 2, as (re, im) or as re alone; `roots` is the constant `compiler.hlo.fourier.roots`."""
    roots, *parts = q.arrays()
    lengths, kind = q.ints("fft_length"), q.attrs.get("fft_type", "FFT")
    q.require(kind in ("FFT", "IFFT"), f"fft_type={kind}, want FFT or IFFT")
    for part in parts:
        if part.dtype != F32 or part.rank != 3 or part.dims != parts[0].dims:
            q.fail(f"operand is {dims_text(part)}, want equal f32 arrays of rank 3")
    (dim,) = q.dims_in_range("dimensions", 3) or (0,)
    q.require(dim > 0, "want dimensions={1} or {2}")
    n = parts[0].dims[dim]
    q.require(lengths == (n,), f"fft_length {list(lengths)} does not fit {dims_text(parts[0])}")
    q.require(has_kernel(n), f"{n} points are many, and no product of small primes")
    q.require(roots.dims == (root_rows(n), LANES), f"{dims_text(roots)} are not the roots of {n}")
    result = plain(F32, parts[0].dims)
    return result if isinstance(q.declared, ArrayShape) else TupleShape((result, result))


def _rng(q: Inference) -> Shape:
    q.require(len(q.shapes) == 2, f"takes 2 operands, found {len(q.shapes)}")
    q.require(all(s.rank == 0 for s in q.arrays()), "operands must be scalars")
    return q.declared_shape()


def _rng_bit_generator(q: Inference) -> Shape:
    """Either (new state, bits) or, in the older form, the bits alone."""
    result = q.declared_shape()
    if isinstance(result, TupleShape):
        state_kept = len(result.elements) == 2 and is_compatible(result.elements[0], q.shapes[0])
        q.require(state_kept, f"result is {print_shape(result, False)}, want (state, bits)")
    bits = leaves(result)[-1].dtype
    q.require(bits.bits >= 8, f"random bits of {bits.name}; want elements of whole bytes")
    return result


def _scan(q: Inference) -> Shape:
    """Outputs, which are results of the computation with the scanned dimension, then carries."""
    operands = q.arrays()
    count = q.integer("num_carries", 0)
    q.require(0 <= count <= len(operands), f"{count} carries of {len(operands)} operands")
    dims = q.ints("dimensions")
    q.require(len(dims) == 1, "want exactly one dimension")
    inputs, carries = operands[: len(operands) - count], operands[len(operands) - count :]
    size = _scanned_size(q, inputs, dims[0])
    body = q.computation("to_apply")
    slices = [plain(o.dtype, _without(o.dims, dims[0])) for o in inputs]
    wanted = [*slices, *carries]
    q.require(len(body.parameters) == len(wanted), f"%{body.name} takes another number")
    for parameter, shape in zip(body.parameters, wanted, strict=True):
        if not is_compatible(parameter.shape, shape):
            found = print_shape(parameter.shape, False)
            q.fail(f"parameter %{parameter.name} is {found}, want {dims_text(shape)}")
    results = leaves(body.root_instruction.shape)
    split = len(results) - count
    q.require(split >= 0, f"%{body.name} returns {len(results)} values, want {count} carries")
    for result, carry in zip(results[split:], carries, strict=True):
        if not is_compatible(result, carry):
            q.fail(f"carry {dims_text(carry)} becomes {dims_text(result)}")
    at = dims[0]
    q.require(all(at <= r.rank for r in results[:split]), f"outputs have no dimension {at}")
    stacked = [plain(r.dtype, (*r.dims[:at], size, *r.dims[at:])) for r in results[:split]]
    return one_or_tuple([*stacked, *(plain(c.dtype, c.dims) for c in carries)])


def _scanned_size(q: Inference, inputs: list[ArrayShape], dim: int) -> int:
    """The number of steps: the inputs' size, of the declared outputs where there are none."""
    shapes = inputs or leaves(q.declared_shape())[:1]
    q.require(all(0 <= dim < s.rank for s in shapes), f"no dimension {dim} to scan")
    sizes = {s.dims[dim] for s in shapes}
    q.require(len(sizes) == 1, f"inputs of {len(sizes)} sizes along dimension {dim}")
    return sizes.pop()


def _without(dims: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return (*dims[:dim], *dims[dim + 1 :])


_BATCH_NORM = words("epsilon feature_index")

OPS = (
    Op("batch-norm-grad", 5, _batch_norm, T.NONE, _BATCH_NORM),
    Op("batch-norm-inference", 5, _batch_norm, T.NONE, _BATCH_NORM),
    Op("batch-norm-training", 3, _batch_norm, T.NONE, _BATCH_NORM),
    Op("cholesky", 1, _cholesky, T.NONE, words("lower")),
    Op("fft", 1, _fft, T.NONE, words("fft_type fft_length")),
    variadic(
        "pair-fft", 2, _pair_fft, T.UNREAD, (*words("fft_type fft_length"), *DIMENSIONS), most=3
    ),
    variadic("map", 0, _map, T.CALLS, (*DIMENSIONS, *APPLY)),
    variadic(
        "reduce", 2, _reduce, T.REDUCTION | T.CALLS | T.COMBINES | T.STAGE, (*DIMENSIONS, *APPLY)
    ),
    variadic(
        "reduce-window", 2, _reduce_window, T.REDUCTION | T.CALLS | T.COMBINES, (*WINDOW, *APPLY)
    ),
    variadic("rng", 2, _rng, T.NONDETERMINISTIC, words("distribution")),
    Op("rng-bit-generator", 1, _rng_bit_generator, T.NONE, words("algorithm")),
    Op("rng-get-and-update-state", 0, declared, T.SIDE_EFFECT | T.NONDETERMINISTIC, words("delta")),
    variadic(
        "scan",
        0,
        _scan,
        T.CALLS,
        (
            *DIMENSIONS,
            *words("num_carries"),
            *flags("is_reverse"),
            AttributeRow("is_associative", filled="false"),
            *APPLY,
        ),
    ),
    Op(
        "running-total",
        1,
        _running_total,
        T.UNREAD,
        (*DIMENSIONS, *words("kind"), *flags("is_reverse")),
    ),
    Op(
        "select-and-scatter",
        3,
        _select_and_scatter,
        T.CALLS | T.COMBINES,
        (*WINDOW, *words("select scatter")),
    ),
    variadic(
        "network-sort",
        1,
        _network_sort,
        T.UNREAD,
        (*words("num_keys line_lanes results"), *flags("is_stable")),
    ),
    variadic("sort", 1, _sort, T.CALLS | T.ORDERS, (*DIMENSIONS, *flags("is_stable"), *APPLY)),
    Op(
        "topk",
        1,
        _topk,
        T.ORDERS,
        (*words("k"), AttributeRow("largest", filled=True), *words("is_stable")),
    ),
    Op(
        "triangular-solve",
        2,
        _triangular_solve,
        T.NONE,
        words("left_side lower unit_diagonal transpose_a"),
    ),
)
