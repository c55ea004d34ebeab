"""Index expressions on the scalar unit: an `Expr` over sregs becomes an sreg."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.analysis.indexing import Expr, Quotient, Remainder, Var
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg
from tpu_sim.isa.geometry import SUBLANES


def emit_index(builder: LloBuilder, expr: Expr, sregs: Mapping[Var, SReg]) -> SReg:
    """The value of `expr`; `sregs` holds its variables. Division and remainder are floor's."""
    total: SReg | None = None
    for atom, factor in expr.terms:
        if isinstance(atom, Var):
            value = sregs[atom]
        elif isinstance(atom, Quotient):
            value = _floor_divide(builder, atom, sregs)
        else:
            value = _remainder(builder, atom, sregs)
        term = value if factor == 1 else builder.smuli(value, factor)
        total = term if total is None else builder.sadd(total, term)
    if total is None:
        return builder.sconst(expr.constant)
    return builder.saddi(total, expr.constant) if expr.constant else total


def emit_clamp(builder: LloBuilder, value: SReg, low: int, high: int) -> SReg:
    """`value` limited to low..high."""
    raised = builder.smax(value, builder.sconst(low))
    return builder.smin(raised, builder.sconst(high))


def row_of_words(builder: LloBuilder, row: SReg, columns: int) -> SReg:
    """Where the first of a row's `columns` registers lies, in rows of words from its matrix's start."""
    if columns == 1:
        return row
    tile_row = builder.sandi(row, -SUBLANES)
    return builder.sadd(builder.smuli(tile_row, columns - 1), row)


def _floor_divide(builder: LloBuilder, atom: Quotient, sregs: Mapping[Var, SReg]) -> SReg:
    body = emit_index(builder, atom.body, sregs)
    low, _ = atom.body.range()
    if low >= 0:
        return builder.sdivi(body, atom.divisor)
    if atom.divisor & (atom.divisor - 1) == 0:
        return builder.ssrai(body, atom.divisor.bit_length() - 1)
    shift = -(low // atom.divisor)  # blocks to add so that the dividend is not negative
    quotient = builder.sdivi(builder.saddi(body, shift * atom.divisor), atom.divisor)
    return builder.saddi(quotient, -shift)


def _remainder(builder: LloBuilder, atom: Remainder, sregs: Mapping[Var, SReg]) -> SReg:
    body = emit_index(builder, atom.body, sregs)
    low, _ = atom.body.range()
    if low < 0:
        body = builder.saddi(body, -(low // atom.divisor) * atom.divisor)
    return builder.sremi(body, atom.divisor)
