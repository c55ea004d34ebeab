"""Index expressions as vectors: the value of an `Expr` at every (sublane, lane) of a vreg.

Sublane and lane are the variables named ``s`` and ``l`` (`SUBLANE`, `LANE`, or the same with a
smaller range where a stage's box is narrower than a vreg). All else is uniform: held in sregs.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from compiler.analysis.indexing import (
    Atom,
    Expr,
    Quotient,
    Var,
    const,
    split_terms,
    var,
    variables,
)
from compiler.backend.index_scalars import emit_index
from compiler.backend.vector.ops import Ops
from compiler.llo.ir import MReg, SReg, VReg

SUBLANE = Var("s", 0, 7)
LANE = Var("l", 0, 127)

Grid = npt.NDArray[np.int64]
"""Integers by [sublane, lane]."""


def is_position(variable: Var) -> bool:
    """Whether a variable is the sublane or the lane number."""
    return variable.name in ("s", "l")


def positions(expr: Expr) -> frozenset[str]:
    """Which of "s" and "l" occur in `expr`."""
    return _position_names(variables(expr))


@lru_cache(maxsize=4096)
def _position_names(found: frozenset[Var]) -> frozenset[str]:
    return frozenset(v.name for v in found if is_position(v))


def is_uniform(expr: Expr) -> bool:
    """Whether all lanes have the same value."""
    return not positions(expr)


def split_uniform(expr: Expr) -> tuple[Expr, Expr]:
    """`expr` as (terms that vary over the vreg, uniform rest with the constant)."""
    return split_terms(expr, _varies)


def is_static(expr: Expr) -> bool:
    """Whether only sublane and lane occur: its values are known now."""
    return all(is_position(v) for v in variables(expr))


@lru_cache(maxsize=1024)
def static_values(expr: Expr) -> Grid:
    """The values of a static expression as an array [8, 128], not to be changed."""
    total = np.full((8, 128), expr.constant, np.int64)
    for atom, factor in expr.terms:
        total += factor * _static_atom(atom)
    total.flags.writeable = False
    return total


def _static_atom(atom: Atom) -> Grid:
    if isinstance(atom, Var):
        axis = np.arange(8)[:, None] if atom.name == "s" else np.arange(128)[None, :]
        return np.broadcast_to(axis, (8, 128)).astype(np.int64)
    body = static_values(atom.body)
    return body // atom.divisor if isinstance(atom, Quotient) else body % atom.divisor


def _is_inside(atom: Atom) -> bool:
    return isinstance(atom, Var) and atom.name.startswith("inside.")


def _varies(atom: Atom) -> bool:
    return is_position(atom) if isinstance(atom, Var) else bool(positions(atom.body))


class IndexValues:
    """Puts index expressions into sregs and vregs of the current block."""

    def __init__(self, ops: Ops, sregs: dict[Var, SReg]) -> None:
        self._ops = ops
        self.sregs = sregs
        self._numbers = itertools.count()
        self._block, self._assignments = ops.builder.block, 0
        self._scalars: dict[Expr, tuple[SReg, list[tuple[Var, SReg]]]] = {}

    def scalar(self, expr: Expr) -> SReg:
        """A uniform expression in a sreg, in a block the same one while its variables lie where they did."""
        builder, sregs = self._ops.builder, self.sregs
        if builder.block is not self._block or builder.assignments != self._assignments:
            self._block, self._assignments = builder.block, builder.assignments
            self._scalars.clear()
        found = self._scalars.get(expr)
        if found is None or [v for v, sreg in found[1] if sregs[v] != sreg]:
            held = [(v, sregs[v]) for v in variables(expr)]
            found = self._scalars[expr] = emit_index(builder, expr, sregs), held
        return found[0]

    def row_address(self, base: SReg, row: Expr) -> tuple[SReg, int]:
        """A sreg and a constant whose sum is `base` plus a uniform expression.

        The constant goes into the instruction, so that rows a known distance apart share the sreg.
        What was brought inside bounds is added last: tiles of one load differ in that only.
        """
        builder = self._ops.builder
        late, early = split_terms(row - row.constant, _is_inside)
        total = builder.sadd(base, self.scalar(early))
        for atom, factor in sorted(late.terms, key=lambda term: -term[1]):
            assert isinstance(atom, Var)
            total = builder.sadd(total, builder.smuli(self.sregs[atom], factor))
        return total, row.constant

    def clamped(self, expr: Expr, high: int) -> Expr:
        """A uniform expression brought into 0..high where it does not matter what it becomes.

        It is itself if its range says so. One unsigned minimum does for both ends.
        """
        first, last = expr.range()
        if first >= 0 and last <= high:
            return expr
        if expr.is_constant:
            return const(high)
        builder = self._ops.builder
        sreg = builder.sbinary("smin.u32", self.scalar(expr), builder.sconst(high))
        variable = Var(f"inside.s{sreg}", 0, high)
        self.sregs[variable] = sreg
        return var(variable)

    def bind(self, prefix: str, low: int, high: int, sreg: SReg) -> Expr:
        """A fresh variable for a value that is in a sreg."""
        variable = Var(f"{prefix}{next(self._numbers)}", low, high)
        self.sregs[variable] = sreg
        return var(variable)

    def vector(self, expr: Expr) -> VReg:
        """Any expression as a vector of s32."""
        ops = self._ops
        varying, uniform = split_uniform(expr)
        total: VReg | None = None
        for atom, factor in varying.terms:
            term = ops.imul_constant(self._atom(atom), factor)
            total = term if total is None else ops.iadd(total, term)
        if total is None:
            return ops.splat(self.scalar(uniform))
        if uniform.is_constant:
            return ops.iadd_constant(total, uniform.constant)
        return ops.iadd(total, ops.splat(self.scalar(uniform)))

    def _atom(self, atom: Atom) -> VReg:
        if isinstance(atom, Var):
            return self._ops.sublane() if atom.name == "s" else self._ops.lane()
        if isinstance(atom, Quotient):
            return self._quotient(atom.body, atom.divisor)
        return self._remainder(atom.body, atom.divisor)

    def _quotient(self, body: Expr, divisor: int) -> VReg:
        """Floor division by a constant: a shift, or a multiplication by the reciprocal.

        For 0 <= x < 2**31 and 2**(n-1) < d < 2**n, x div d is the high word of x * m shifted right
        by n-1 more, with m = ceil(2**(31+n) / d) < 2**32 (Granlund and Montgomery, 1994).
        """
        ops = self._ops
        if divisor & (divisor - 1) == 0:
            return ops.emit("vsrai", self.vector(body), divisor.bit_length() - 1)
        low, _ = body.range()
        blocks = max(0, -(low // divisor))  # added so that the dividend is not negative
        dividend = self.vector(body + blocks * divisor)
        n = divisor.bit_length()
        magic = -(-(1 << (31 + n)) // divisor)
        signed = magic - (1 << 32) if magic >= 1 << 31 else magic
        high = ops.emit("vmulhi.u32", dividend, ops.integer(signed))
        quotient = ops.emit("vshri", high, n - 1) if n > 1 else high
        return ops.iadd_constant(quotient, -blocks)

    def _remainder(self, body: Expr, divisor: int) -> VReg:
        ops = self._ops
        dividend = self.vector(body)
        if divisor & (divisor - 1) == 0:
            return ops.emit("vandi", dividend, divisor - 1)
        return ops.isub(dividend, ops.imul_constant(self._quotient(body, divisor), divisor))

    def within(self, expr: Expr, low: int, high: int) -> MReg:
        """Mask of the lanes where low <= expr <= high."""
        ops = self._ops
        first, last = expr.range()
        if low <= first and last <= high:
            return ops.flag(True)
        value = self.vector(expr)
        if low == high:
            return ops.compare_integer("eq", value, low)
        checks = []
        if first < low:
            checks.append(ops.compare_integer("ge", value, low))
        if last > high:
            checks.append(ops.compare_integer("le", value, high))
        return checks[0] if len(checks) == 1 else ops.both(*checks)
