"""The opcode table: every opcode of XLA's HLO, with its arity and traits.

Shape inference, verifier, parser, printer and evaluator are keyed by this table. Passes ask
for traits (`ELEMENTWISE in OPCODES[op].traits`) and do not list opcodes themselves.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Trait(enum.Flag):
    """What passes need to know about an opcode, whatever its operands."""

    NONE = 0
    ELEMENTWISE = enum.auto()
    """Each result element depends on the same element of each operand (and nothing else)."""
    COMMUTATIVE = enum.auto()
    """``op(a, b) == op(b, a)``."""
    ASSOCIATIVE = enum.auto()
    """``op(op(a, b), c) == op(a, op(b, c))`` in exact arithmetic."""
    IDEMPOTENT = enum.auto()
    """``op(a, a) == a``."""
    DATA_MOVEMENT = enum.auto()
    """Result elements are copies of operand elements (or of a padding value)."""
    CALLS = enum.auto()
    """Names one or more computations in its attributes."""
    CONTROL_FLOW = enum.auto()
    """Runs its computations as part of the program's control flow (may allocate buffers)."""
    SIDE_EFFECT = enum.auto()
    """Must not be removed, duplicated or reordered against other side effects."""
    NONDETERMINISTIC = enum.auto()
    """Two instances with equal operands may differ, so they must not be merged."""
    COLLECTIVE = enum.auto()
    """Communicates between devices."""
    ASYNC = enum.auto()
    """A start, update or done half of an asynchronous operation."""
    CONTRACTION = enum.auto()
    """Multiplies and sums over contracted dimensions: MXU work."""
    REDUCTION = enum.auto()
    """Combines many operand elements into one with `to_apply`."""
    TRANSCENDENTAL = enum.auto()
    """Needs the EUP or a polynomial rather than a VALU instruction."""
    TUPLE_ONLY = enum.auto()
    """Moves no data: builds, takes apart or orders tuples and tokens."""


NONE = Trait.NONE
ELEMENTWISE = Trait.ELEMENTWISE
COMMUTATIVE = Trait.COMMUTATIVE
ASSOCIATIVE = Trait.ASSOCIATIVE
IDEMPOTENT = Trait.IDEMPOTENT
DATA_MOVEMENT = Trait.DATA_MOVEMENT
CALLS = Trait.CALLS
CONTROL_FLOW = Trait.CONTROL_FLOW
SIDE_EFFECT = Trait.SIDE_EFFECT
NONDETERMINISTIC = Trait.NONDETERMINISTIC
COLLECTIVE = Trait.COLLECTIVE
ASYNC = Trait.ASYNC
CONTRACTION = Trait.CONTRACTION
REDUCTION = Trait.REDUCTION
TRANSCENDENTAL = Trait.TRANSCENDENTAL
TUPLE_ONLY = Trait.TUPLE_ONLY

VARIADIC = -1


@dataclass(frozen=True)
class OpcodeInfo:
    """One row: `arity` is the operand count, or `VARIADIC` with at least `min_arity`."""

    name: str
    arity: int
    traits: Trait = NONE
    min_arity: int = 0
    max_arity: int | None = None

    def has(self, trait: Trait) -> bool:
        """Whether the opcode has all the given traits."""
        wanted = trait._value_
        return self.traits._value_ & wanted == wanted  # a tenth of what Flag's `in` takes

    def accepts(self, operand_count: int) -> bool:
        """Whether an instruction of this opcode may have so many operands."""
        if self.arity != VARIADIC:
            return operand_count == self.arity
        most = operand_count if self.max_arity is None else self.max_arity
        return self.min_arity <= operand_count <= most

    def arity_text(self) -> str:
        """The operand count in words, for messages."""
        if self.arity != VARIADIC:
            return f"{self.arity} operand{'' if self.arity == 1 else 's'}"
        if self.max_arity is not None:
            return f"{self.min_arity} to {self.max_arity} operands"
        return f"at least {self.min_arity} operand{'' if self.min_arity == 1 else 's'}"


def _variadic(name: str, traits: Trait, least: int, most: int | None = None) -> OpcodeInfo:
    return OpcodeInfo(name, VARIADIC, traits, least, most)


_EUP = ELEMENTWISE | TRANSCENDENTAL
_AC = ELEMENTWISE | COMMUTATIVE | ASSOCIATIVE
_ACI = _AC | IDEMPOTENT
_COMM = COLLECTIVE  # all devices run the same program, so what none of them needs may go
_COMM_ASYNC = _COMM | ASYNC

_ELEMENTWISE_ROWS = (
    OpcodeInfo("abs", 1, ELEMENTWISE),
    OpcodeInfo("acos", 1, _EUP),
    OpcodeInfo("acosh", 1, _EUP),
    OpcodeInfo("add", 2, _AC),
    OpcodeInfo("and", 2, _ACI),
    OpcodeInfo("asin", 1, _EUP),
    OpcodeInfo("asinh", 1, _EUP),
    OpcodeInfo("atan", 1, _EUP),
    OpcodeInfo("atan2", 2, _EUP),
    OpcodeInfo("atanh", 1, _EUP),
    OpcodeInfo("cbrt", 1, _EUP),
    OpcodeInfo("ceil", 1, ELEMENTWISE),
    OpcodeInfo("clamp", 3, ELEMENTWISE),
    OpcodeInfo("compare", 2, ELEMENTWISE),
    OpcodeInfo("complex", 2, ELEMENTWISE),
    OpcodeInfo("convert", 1, ELEMENTWISE),
    OpcodeInfo("cosh", 1, _EUP),
    OpcodeInfo("cosine", 1, _EUP),
    OpcodeInfo("count-leading-zeros", 1, ELEMENTWISE),
    OpcodeInfo("divide", 2, ELEMENTWISE),
    OpcodeInfo("erf", 1, _EUP),
    OpcodeInfo("exponential", 1, _EUP),
    OpcodeInfo("exponential-minus-one", 1, _EUP),
    OpcodeInfo("floor", 1, ELEMENTWISE),
    OpcodeInfo("imag", 1, ELEMENTWISE),
    OpcodeInfo("is-finite", 1, ELEMENTWISE),
    OpcodeInfo("log", 1, _EUP),
    OpcodeInfo("log-plus-one", 1, _EUP),
    OpcodeInfo("logistic", 1, _EUP),
    OpcodeInfo("maximum", 2, _ACI),
    OpcodeInfo("minimum", 2, _ACI),
    OpcodeInfo("mulhi", 2, ELEMENTWISE | COMMUTATIVE),
    OpcodeInfo("multiply", 2, _AC),
    OpcodeInfo("negate", 1, ELEMENTWISE),
    OpcodeInfo("not", 1, ELEMENTWISE),
    OpcodeInfo("or", 2, _ACI),
    OpcodeInfo("popcnt", 1, ELEMENTWISE),
    OpcodeInfo("power", 2, _EUP),
    OpcodeInfo("real", 1, ELEMENTWISE),
    OpcodeInfo("reduce-precision", 1, ELEMENTWISE),
    OpcodeInfo("remainder", 2, ELEMENTWISE),
    OpcodeInfo("round-nearest-afz", 1, ELEMENTWISE),
    OpcodeInfo("round-nearest-even", 1, ELEMENTWISE),
    OpcodeInfo("rsqrt", 1, _EUP),
    OpcodeInfo("select", 3, ELEMENTWISE),
    OpcodeInfo("shift-left", 2, ELEMENTWISE),
    OpcodeInfo("shift-right-arithmetic", 2, ELEMENTWISE),
    OpcodeInfo("shift-right-logical", 2, ELEMENTWISE),
    OpcodeInfo("sign", 1, ELEMENTWISE),
    OpcodeInfo("sine", 1, _EUP),
    OpcodeInfo("sinh", 1, _EUP),
    OpcodeInfo("sqrt", 1, _EUP),
    OpcodeInfo("stochastic-convert", 2, ELEMENTWISE),
    OpcodeInfo("subtract", 2, ELEMENTWISE),
    OpcodeInfo("tan", 1, _EUP),
    OpcodeInfo("tanh", 1, _EUP),
    OpcodeInfo("xor", 2, _AC),
)

_MACHINE_ROWS = (
    OpcodeInfo("multiply-add", 3, ELEMENTWISE),
    _variadic("pair-fft", NONE, 2, 3),
)
"""Not XLA's: passes make them.

    multiply-add  ``a * b + c`` of f32 with one rounding
    pair-fft      (roots, re[, im]): the transform of f32[a, b, c] along dimension 1 or 2, as (re, im)
                  or as re alone;
                  `roots` is the constant `compiler.hlo.fourier.roots` of its length.
"""

_ARRAY_ROWS = (
    OpcodeInfo("bitcast", 1, DATA_MOVEMENT),
    OpcodeInfo("bitcast-convert", 1),
    OpcodeInfo("broadcast", 1, DATA_MOVEMENT),
    _variadic("concatenate", DATA_MOVEMENT, 1),
    OpcodeInfo("constant", 0),
    OpcodeInfo("copy", 1, DATA_MOVEMENT),
    _variadic("dynamic-reshape", DATA_MOVEMENT, 1),
    _variadic("dynamic-slice", DATA_MOVEMENT, 1),
    _variadic("dynamic-update-slice", DATA_MOVEMENT, 2),
    OpcodeInfo("gather", 2, DATA_MOVEMENT),
    OpcodeInfo("get-dimension-size", 1),
    OpcodeInfo("iota", 0),
    OpcodeInfo("pad", 2, DATA_MOVEMENT),
    OpcodeInfo("parameter", 0),
    OpcodeInfo("reshape", 1, DATA_MOVEMENT),
    OpcodeInfo("reverse", 1, DATA_MOVEMENT),
    OpcodeInfo("set-dimension-size", 2, DATA_MOVEMENT),
    OpcodeInfo("shuffle", 1, DATA_MOVEMENT),
    OpcodeInfo("slice", 1, DATA_MOVEMENT),
    OpcodeInfo("transpose", 1, DATA_MOVEMENT),
)

_COMPUTE_ROWS = (
    OpcodeInfo("batch-norm-grad", 5),
    OpcodeInfo("batch-norm-inference", 5),
    OpcodeInfo("batch-norm-training", 3),
    OpcodeInfo("cholesky", 1),
    _variadic("convolution", CONTRACTION, 2, 2),
    OpcodeInfo("dot", 2, CONTRACTION),
    OpcodeInfo("fft", 1),
    _variadic("map", CALLS, 0),
    OpcodeInfo("ragged-dot", 3, CONTRACTION),
    _variadic("reduce", REDUCTION | CALLS, 2),
    _variadic("reduce-window", REDUCTION | CALLS, 2),
    _variadic("rng", NONDETERMINISTIC, 2),
    OpcodeInfo("rng-bit-generator", 1),
    OpcodeInfo("rng-get-and-update-state", 0, SIDE_EFFECT | NONDETERMINISTIC),
    OpcodeInfo("scaled-dot", 4, CONTRACTION),
    _variadic("scan", CALLS, 0),
    _variadic("scatter", CALLS, 3),
    OpcodeInfo("select-and-scatter", 3, CALLS),
    _variadic("sort", CALLS, 1),
    OpcodeInfo("topk", 1),
    OpcodeInfo("triangular-solve", 2),
)

_CONTROL_ROWS = (
    OpcodeInfo("add-dependency", 2, TUPLE_ONLY),
    _variadic("after-all", TUPLE_ONLY, 0),
    _variadic("async-done", ASYNC | CALLS, 1, 1),
    _variadic("async-start", ASYNC | CALLS, 0),
    _variadic("async-update", ASYNC | CALLS, 1, 1),
    _variadic("call", CALLS | CONTROL_FLOW, 0),
    _variadic("conditional", CALLS | CONTROL_FLOW, 1),
    OpcodeInfo("copy-done", 1, ASYNC),
    OpcodeInfo("copy-start", 1, ASYNC),
    _variadic("custom-call", CALLS, 0),
    OpcodeInfo("domain", 1, TUPLE_ONLY),
    _variadic("fusion", CALLS, 0),
    OpcodeInfo("get-tuple-element", 1, TUPLE_ONLY),
    OpcodeInfo("infeed", 1, SIDE_EFFECT),
    OpcodeInfo("opt-barrier", 1, TUPLE_ONLY),
    OpcodeInfo("outfeed", 2, SIDE_EFFECT),
    OpcodeInfo("recv", 1, SIDE_EFFECT | ASYNC),
    OpcodeInfo("recv-done", 1, SIDE_EFFECT | ASYNC),
    OpcodeInfo("send", 2, SIDE_EFFECT | ASYNC),
    OpcodeInfo("send-done", 1, SIDE_EFFECT | ASYNC),
    _variadic("tuple", TUPLE_ONLY, 0),
    OpcodeInfo("while", 1, CALLS | CONTROL_FLOW),
)

_COLLECTIVE_ROWS = (
    _variadic("all-gather", _COMM, 1),
    OpcodeInfo("all-gather-done", 1, _COMM_ASYNC),
    _variadic("all-gather-start", _COMM_ASYNC, 1),
    _variadic("all-reduce", _COMM | CALLS, 1),
    OpcodeInfo("all-reduce-done", 1, _COMM_ASYNC),
    _variadic("all-reduce-start", _COMM_ASYNC | CALLS, 1),
    _variadic("all-to-all", _COMM, 1),
    _variadic("collective-broadcast", _COMM, 1),
    _variadic("collective-permute", _COMM, 1),
    OpcodeInfo("collective-permute-done", 1, _COMM_ASYNC),
    _variadic("collective-permute-start", _COMM_ASYNC, 1),
    _variadic("collective-reduce", _COMM | CALLS, 1),
    OpcodeInfo("partition-id", 0, COLLECTIVE),
    OpcodeInfo("ragged-all-to-all", 6, _COMM),
    _variadic("reduce-scatter", _COMM | CALLS, 1),
    OpcodeInfo("replica-id", 0, COLLECTIVE),
)

_GROUPS = (
    _ELEMENTWISE_ROWS,
    _MACHINE_ROWS,
    _ARRAY_ROWS,
    _COMPUTE_ROWS,
    _CONTROL_ROWS,
    _COLLECTIVE_ROWS,
)

OPCODES: dict[str, OpcodeInfo] = {row.name: row for group in _GROUPS for row in group}


def with_trait(trait: Trait) -> frozenset[str]:
    """The names of all opcodes that have the given traits."""
    return frozenset(row.name for row in OPCODES.values() if trait in row.traits)


ELEMENTWISE_UNARY = frozenset(r.name for r in _ELEMENTWISE_ROWS if r.arity == 1)
ELEMENTWISE_BINARY = frozenset(r.name for r in _ELEMENTWISE_ROWS if r.arity == 2)
