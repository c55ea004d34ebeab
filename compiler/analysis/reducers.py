"""What a reduction's computation does: which binary operation, and whether it starts neutrally."""

from __future__ import annotations

import numpy as np

from compiler.hlo.evaluator import EvaluationOptions, evaluate_computation
from compiler.hlo.identities import MONOIDS, Number, identity, is_identity
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.representability import holds
from compiler.rewrite.pattern import Op, Var, match, splat_value

_KINDS = MONOIDS - {"xor"}


def reducer_kind(computation: object, kinds: frozenset[str] = _KINDS) -> str | None:
    """The opcode of a two-parameter computation that is one commutative operation, or None.

    `kinds`: the opcodes that are of interest.
    """
    if not isinstance(computation, HloComputation) or len(computation.parameters) != 2:
        return None
    root = computation.root_instruction
    if root.opcode not in kinds or set(root.operands) != set(computation.parameters):
        return None
    return root.opcode


def widened_kind(computation: HloComputation, kinds: frozenset[str] = _KINDS) -> str | None:
    """The same, also where the parameters are widened first and what comes out is narrowed again.

    Anything narrower than the reduction's own type in between is part of what it computes.
    """
    root = _unconverted(computation.root_instruction, is_narrowing=True)
    operands = {_unconverted(operand, is_narrowing=False) for operand in root.operands}
    is_plain = root.opcode in kinds and operands == set(computation.parameters)
    return root.opcode if is_plain else None


def _unconverted(node: HloInstruction, *, is_narrowing: bool) -> HloInstruction:
    """Through copies and conversions that lose nothing, as a sum of bf16 in f32 has them."""
    while node.opcode in ("convert", "copy"):
        (operand,) = node.operands
        source, target = operand.array.dtype, node.array.dtype
        narrow, wide = (target, source) if is_narrowing else (source, target)
        if source.kind != target.kind or not holds(wide, narrow):
            return node
        node = operand
    return node


_A, _B, _I, _J = (Var(name) for name in "abij")
_BETTER, _SAME = (Op("compare", _A, _B, name=name) for name in ("better", "same"))
_NAN, _OTHER_NAN = Op("compare", _A, _A, name="nan"), Op("compare", _B, _B, name="nan_too")
_FIRST = Op("or", _BETTER, _NAN)
_OF_FLOATS = Op(
    "tuple",
    Op("select", _FIRST, _A, _B),
    Op(
        "select",
        Op("or", _SAME, Op("and", _NAN, _OTHER_NAN)),
        Op("minimum", _I, _J),
        Op("select", _FIRST, _I, _J),
    ),
)
_OF_INTEGERS = Op(
    "tuple",
    Op("select", _BETTER, _A, _B),
    Op("select", _SAME, Op("minimum", _I, _J), Op("select", _BETTER, _I, _J)),
)
_OF_INTEGERS_IN_TURN = Op(
    "tuple",
    Op("select", _BETTER, _A, _B),
    Op(
        "select",
        Op("or", _BETTER, Op("and", _SAME, Op("compare", _I, _J, name="earlier"))),
        _I,
        _J,
    ),
)
_DIRECTIONS = {"same": "EQ", "nan": "NE", "nan_too": "NE", "earlier": "LT"}


def position_kind(computation: HloComputation) -> str | None:
    """What the reducer of an argmax or argmin takes of two values, "maximum" or "minimum"; None of others.

    Its parameters are a value and a position, twice. NaN wins; of equals, or of several NaN, it takes the
    least position.

    See `compiler.hlo.scalar_computations.position_reducer`; integers also as JAX writes it.
    """
    if len(computation.parameters) != 4:
        return None
    is_float = computation.parameters[0].array.dtype.is_float
    for pattern in (_OF_FLOATS,) if is_float else (_OF_INTEGERS, _OF_INTEGERS_IN_TURN):
        found = match(pattern, computation.root_instruction)
        if found is None or [found[name] for name in "aibj"] != list(computation.parameters):
            continue
        told = {n: d for n, d in _DIRECTIONS.items() if n in found}
        if all(found[name].attrs["direction"] == direction for name, direction in told.items()):
            return {"GT": "maximum", "LT": "minimum"}.get(str(found["better"].attrs["direction"]))
    return None


def has_identity_init(reduce: HloInstruction) -> bool:
    """Whether a one-operand reduce starts from its operation's identity."""
    kind = reducer_kind(reduce.attrs.get("to_apply"))
    value = splat_value(reduce.operands[-1])
    return (
        kind is not None
        and value is not None
        and is_identity(kind, reduce.operands[-1].array.dtype, value)
    )


def neutral_starts(reduce: HloInstruction) -> tuple[Number, ...] | None:
    """A start for each array that changes no result; None where one array's is not known.

    Every result must be one operation of the two values of its own array.
    """
    kinds = _kinds(reduce)
    starts = reduce.operands[len(reduce.operands) // 2 :]
    found = [
        None if kind is None else identity(kind, start.array.dtype)
        for kind, start in zip(kinds, starts, strict=True)
    ]
    return None if None in found else tuple(n for n in found if n is not None)


def has_neutral_start(reduce: HloInstruction, neutral: tuple[Number, ...]) -> bool:
    """Whether a reduce starts from what changes nothing; either zero does in a sum."""
    starts = map(splat_value, reduce.operands[len(neutral) :])
    return all(
        value is not None
        and bool(np.asarray(value) == np.asarray(wanted).astype(start.array.dtype.numpy))
        for value, wanted, start in zip(
            starts, neutral, reduce.operands[len(neutral) :], strict=True
        )
    )


def is_idempotent_start(reduce: HloInstruction) -> bool:
    """Whether constant starts combined with themselves stay what they are.

    As reducers are associative and commutative, such a start may be met any number of times, but
    never: ``f(e, f(e, x)) = f(f(e, e), x) = f(e, x)``.
    """
    body = reduce.attrs["to_apply"]
    assert isinstance(body, HloComputation)
    operands = reduce.operands[len(reduce.operands) // 2 :]
    values = [splat_value(start) for start in operands]
    if any(value is None for value in values):
        return False
    taken = body.parameters[: len(operands)]  # may be wider than what is reduced
    starts = [np.asarray(v).astype(p.array.dtype.numpy) for v, p in zip(values, taken, strict=True)]
    made = evaluate_computation(body, [*starts, *starts], EvaluationOptions())
    with np.errstate(invalid="ignore"):  # of every type with a NaN: only that differs from itself
        return all(
            bool(np.all((a == b) | ((a != a) & (b != b))))
            for a, b in zip(made, starts, strict=True)
        )


def _kinds(reduce: HloInstruction) -> list[str | None]:
    """For each array the operation that alone makes its result, or None."""
    body, count = reduce.attrs["to_apply"], len(reduce.operands) // 2
    assert isinstance(body, HloComputation)
    given = body.parameters
    return [
        made.opcode
        if made.opcode in MONOIDS and set(made.operands) == {given[k], given[count + k]}
        else None
        for k, made in enumerate(body.results)
    ]
