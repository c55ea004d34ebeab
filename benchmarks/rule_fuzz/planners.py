"""How each opcode can give an array of a wanted type and dimensions: one planner an opcode."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.coverage_cases import types_of
from benchmarks.rule_fuzz.generator import Generator, Impossible, Plan, Planner, Wanted
from benchmarks.rule_fuzz.values import (
    ALL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    NUMBERS,
    REALS,
    Dims,
    edge_values,
)
from compiler.hlo.dtypes import BY_NAME, C64, F32, PRED, DType, integer_limits
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_trait
from compiler.hlo.shape import ArrayShape

_SPECIAL = frozenset(
    {"abs", "clamp", "compare", "complex", "convert", "imag", "is-finite", "mulhi", "multiply-add",
     "real", "reduce-precision", "stochastic-convert"}
)  # fmt: skip
"""Elementwise opcodes whose operands are of other types than the result, or of one type alone."""
_LESS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("add", "multiply"), NUMBERS),
    "power": REALS,
}
"""Of types that rules are not asked about: sums and products of flags, complex powers."""
_KINDS = {
    opcode: types_of(opcode, _LESS.get(opcode, ALL))
    for opcode in sorted(with_trait(Trait.ELEMENTWISE) - _SPECIAL)
}


def _need(wanted: Wanted, names: tuple[str, ...]) -> None:
    if wanted.dtype.name not in names:
        raise Impossible


def _same_type(opcode: str, names: tuple[str, ...]) -> Planner:
    arity = OPCODES[opcode].arity

    def plan(g: Generator, wanted: Wanted) -> Plan:
        _need(wanted, names)
        return Plan((wanted,) * arity)

    return plan


def _select(g: Generator, wanted: Wanted) -> Plan:
    mask = Wanted(PRED, () if g.chance(0.2) else wanted.dims)
    return Plan((mask, wanted, wanted))


def _clamp(g: Generator, wanted: Wanted) -> Plan:
    _need(wanted, REALS)
    low, high = (wanted.like(()) if g.chance(0.5) else wanted for _ in range(2))
    return Plan((low, wanted, high))


def _compare(g: Generator, wanted: Wanted) -> Plan:
    _need(wanted, ("pred",))
    direction = g.choose(("EQ", "NE", "LT", "LE", "GT", "GE"))
    names = NUMBERS if direction in ("EQ", "NE") else REALS
    operand = Wanted(g.dtype(("pred", *names)), wanted.dims)
    return Plan((operand, operand), {"direction": direction})


def _convert(g: Generator, wanted: Wanted) -> Plan:
    names = ALL if wanted.dtype.is_complex else ("pred", *REALS)
    return Plan((Wanted(g.dtype(names), wanted.dims),))


def _abs(g: Generator, wanted: Wanted) -> Plan:
    _need(wanted, REALS)
    is_modulus = wanted.dtype is F32 and g.chance(0.3)
    return Plan((Wanted(C64, wanted.dims) if is_modulus else wanted,))


def _part(g: Generator, wanted: Wanted) -> Plan:
    _need(wanted, ("f32",))
    return Plan((Wanted(C64, wanted.dims),))


def _complex(g: Generator, wanted: Wanted) -> Plan:
    _need(wanted, COMPLEX)
    return Plan((Wanted(F32, wanted.dims),) * 2)


def _is_finite(g: Generator, wanted: Wanted) -> Plan:
    _need(wanted, ("pred",))
    return Plan((Wanted(g.dtype(FLOATS), wanted.dims),))


def _reduce_precision(g: Generator, wanted: Wanted) -> Plan:
    _need(wanted, ("f32", "bf16", "f16"))
    return Plan((wanted,), {"exponent_bits": g.integer(2, 8), "mantissa_bits": g.integer(1, 23)})


# Movement.


def _iota(g: Generator, wanted: Wanted) -> Plan:
    _need(wanted, NUMBERS)
    if not wanted.dims:
        raise Impossible
    return Plan((), {"iota_dimension": g.integer(0, len(wanted.dims) - 1)})


def _reshape(g: Generator, wanted: Wanted) -> Plan:
    return Plan((wanted.like(other_dims(g, wanted.dims)),))


def other_dims(g: Generator, dims: Dims) -> Dims:
    """Dimensions of the same number of elements: merged, split, with ones, in another order."""
    found = list(dims)
    for _ in range(g.integer(1, 2)):
        change = g.integer(0, 4)
        at = g.integer(0, len(found))
        if change == 0 and len(found) > 1:
            at = g.integer(0, len(found) - 2)
            found[at : at + 2] = [found[at] * found[at + 1]]
        elif change == 1 and at < len(found):
            factor = g.choose([f for f in (1, 2, 3, 8, 43) if found[at] % f == 0])
            found[at : at + 1] = [factor, found[at] // factor]
        elif change == 2:
            found.insert(at, 1)
        elif change == 3:
            found = [n for n in found if n != 1]
        else:
            found = [found[d] for d in g.permutation(len(found))]
    return tuple(found)


def _same_shape(g: Generator, wanted: Wanted) -> Plan:
    return Plan((wanted,))


def _transpose(g: Generator, wanted: Wanted) -> Plan:
    order = g.permutation(len(wanted.dims))
    source = [0] * len(order)
    for position, dim in enumerate(order):
        source[dim] = wanted.dims[position]
    return Plan((wanted.like(tuple(source)),), {"dimensions": order})


def _broadcast(g: Generator, wanted: Wanted) -> Plan:
    mapping = [d for d in range(len(wanted.dims)) if g.chance(0.5)]
    if g.chance(0.15):
        mapping = [mapping[i] for i in g.permutation(len(mapping))]
    source = tuple(wanted.dims[d] for d in mapping)
    return Plan((wanted.like(source),), {"dimensions": tuple(mapping)})


def _slice(g: Generator, wanted: Wanted) -> Plan:
    bounds, source = [], []
    for size in wanted.dims:
        start = g.choose((0, 0, 0, 1, 5))
        stride = g.choose((1, 1, 1, 2, 3))
        limit = start + (max(size - 1, 0) * stride + 1 if size else 0)
        limit += g.integer(0, stride - 1) if size else 0
        bounds.append((start, limit, stride))
        source.append(limit + g.choose((0, 0, 0, 1, 4)))
    return Plan((wanted.like(tuple(source)),), {"slice": tuple(bounds)})


def _reverse(g: Generator, wanted: Wanted) -> Plan:
    dims = tuple(d for d in range(len(wanted.dims)) if g.chance(0.5))
    return Plan((wanted,), {"dimensions": dims})


def _pad(g: Generator, wanted: Wanted) -> Plan:
    padding, source = [], []
    is_identity = g.chance(0.2)
    for size in wanted.dims:
        inner = size if is_identity or g.chance(0.3) else g.integer(0, size + 2)
        interior = 0 if is_identity else g.choose((0, 0, 0, 1, 2))
        spread = inner + max(inner - 1, 0) * interior
        low = 0 if is_identity else g.integer(-min(2, spread), max(0, size - spread))
        padding.append((low, size - spread - low, interior))
        source.append(inner)
    return Plan((wanted.like(tuple(source)), wanted.like(())), {"padding": tuple(padding)})


def _concatenate(g: Generator, wanted: Wanted) -> Plan:
    if not wanted.dims:
        raise Impossible
    dim = g.integer(0, len(wanted.dims) - 1)
    size = wanted.dims[dim]
    cuts = sorted(g.integer(0, size) for _ in range(g.choose((0, 1, 1, 1, 2))))
    ends = [*cuts, size]
    parts = tuple(
        wanted.like((*wanted.dims[:dim], end - start, *wanted.dims[dim + 1 :]))
        for start, end in zip([0, *cuts], ends, strict=True)
    )
    return Plan(parts, {"dimensions": (dim,)})


def _get_tuple_element(g: Generator, wanted: Wanted) -> Plan:
    others = [Wanted(g.dtype(), g.dims(0, 2, 64)) for _ in range(g.integer(0, 2))]
    at = g.integer(0, len(others))
    members = [*others[:at], wanted, *others[at:]]
    parts = [g.value(m, 0) for m in members]
    return Plan((g.emit("tuple", parts),), {"index": at})


# Reductions and contractions.

REDUCERS = ("add", "multiply", "maximum", "minimum", "and", "or")


def reducer(g: Generator, kind: str, dtype: DType) -> HloComputation:
    """A computation ``kind(a, b)`` or ``kind(b, a)``; "second" gives b."""
    computation = HloComputation(f"{kind}_{dtype.name}")
    scalar = ArrayShape(dtype, ())
    a, b = (
        computation.add(HloInstruction("parameter", n, scalar, (), {"parameter_number": i}))
        for i, n in enumerate("ab")
    )
    operands = (b, a) if kind != "subtract" and g.chance(0.3) else (a, b)
    computation.root = b
    if kind != "second":
        computation.root = computation.add(HloInstruction(kind, kind, scalar, operands))
    return g.module.add_computation(computation)


def reducer_kinds(dtype: DType) -> tuple[str, ...]:
    """The operations that combine values of a type."""
    if dtype.kind == "pred":
        return ("maximum", "minimum", "and", "or")
    if dtype.is_complex:
        return ("add", "multiply")
    return REDUCERS if dtype.is_integer else REDUCERS[:4]


def identity(kind: str, dtype: DType) -> object:
    """What leaves every value as it is."""
    if kind in ("add", "or"):
        return False if dtype.kind == "pred" else 0
    if kind == "multiply":
        return 1
    if kind == "and":
        return True if dtype.kind == "pred" else (-1 if dtype.is_signed else 2**dtype.bits - 1)
    if not dtype.is_float:
        low, high = integer_limits(dtype) if dtype.is_integer else (0, 1)
        value = low if kind == "maximum" else high
        return value if dtype.is_integer else bool(value)
    values = edge_values(dtype).astype(np.float64)
    return float(np.nanmin(values) if kind == "maximum" else np.nanmax(values))


def _reduce(g: Generator, wanted: Wanted) -> Plan:
    source = list(wanted.dims)
    kept = list(range(len(source)))
    reduced: list[int] = []
    for _ in range(g.integer(0 if g.chance(0.1) else 1, 2)):
        at = g.integer(0, len(source))
        room = 4000 // max(1, math.prod(source))
        size = g.choose([n for n in (0, 1, 1, 2, 7, 8, 129) if n <= max(room, 1)])
        source.insert(at, size)
        kept = [k + (k >= at) for k in kept]
        reduced = [*(r + (r >= at) for r in reduced), at]
    kind = g.choose(reducer_kinds(wanted.dtype))
    scalar = wanted.like(())
    init = g.splat(scalar, identity(kind, wanted.dtype)) if g.chance(0.6) else g.value(scalar, 0)
    attrs = {"dimensions": tuple(sorted(reduced)), "to_apply": reducer(g, kind, wanted.dtype)}
    return Plan((wanted.like(tuple(source)), init), attrs)


def _dot(g: Generator, wanted: Wanted) -> Plan:
    _need(wanted, NUMBERS)
    rank = len(wanted.dims)
    batch = g.integer(0, rank) if g.chance(0.5) else 0
    split = g.integer(batch, rank)
    sizes = (0, 1, 2, 7, 8, 128) if g.chance(0.3) else (1, 2, 7, 8)
    k = tuple(g.choose(sizes) for _ in range(g.choose((1, 1, 1, 2, 0))))
    lead = wanted.dims[:batch]
    sides = []
    attrs: dict[str, object] = {}
    for name, free in (("lhs", wanted.dims[batch:split]), ("rhs", wanted.dims[split:])):
        dims, batch_dims, contracting = _dot_side(g, lead, free, k)
        if math.prod(dims) > 4000:
            raise Impossible
        sides.append(Wanted(wanted.dtype, dims))
        if batch:
            attrs[f"{name}_batch_dims"] = batch_dims
        attrs[f"{name}_contracting_dims"] = contracting
    if wanted.dtype.name == "s32" and g.chance(0.3):
        sides = [Wanted(BY_NAME["s8"], s.dims) for s in sides]
    return Plan(tuple(sides), attrs)


def _dot_side(g: Generator, batch: Dims, free: Dims, k: Dims) -> tuple[Dims, Dims, Dims]:
    """Dimensions of an operand, which of them are batch and which are contracted."""
    sizes = (*batch, *free, *k)
    count = len(sizes)
    is_canonical = g.chance(0.4)
    order = tuple(range(count)) if is_canonical else _free_in_order(g, len(batch), len(free), count)
    place = {role: position for position, role in enumerate(order)}
    dims = tuple(sizes[role] for role in order)
    batch_dims = tuple(place[i] for i in range(len(batch)))
    return dims, batch_dims, tuple(place[i] for i in range(len(batch) + len(free), count))


def _free_in_order(g: Generator, batch: int, free: int, count: int) -> Dims:
    """A random order in which the free dimensions follow each other (as the result has them)."""
    order = list(g.permutation(count))
    places = sorted(i for i, role in enumerate(order) if batch <= role < batch + free)
    for role, place in enumerate(places, start=batch):
        order[place] = role
    return tuple(order)


PLANNERS: dict[str, Planner] = {
    **{opcode: _same_type(opcode, names) for opcode, names in _KINDS.items()},
    "select": _select,
    "clamp": _clamp,
    "compare": _compare,
    "convert": _convert,
    "abs": _abs,
    "real": _part,
    "imag": _part,
    "complex": _complex,
    "is-finite": _is_finite,
    "reduce-precision": _reduce_precision,
    "iota": _iota,
    "reshape": _reshape,
    "bitcast": _reshape,
    "copy": _same_shape,
    "transpose": _transpose,
    "broadcast": _broadcast,
    "slice": _slice,
    "reverse": _reverse,
    "pad": _pad,
    "concatenate": _concatenate,
    "get-tuple-element": _get_tuple_element,
    "reduce": _reduce,
    "dot": _dot,
}
FLOATS_ONLY = frozenset(
    {opcode for opcode, names in _KINDS.items() if not {*names} & {"pred", *INTEGERS}}
    | {"complex", "imag", "is-finite", "real", "reduce-precision"}
)
"""Opcodes that never have an integer operand or result."""
