"""Rows that depend on the sublane in a way known only at run time.

Let a row or major index contain (c*s + U) div d and (c*s + U) mod d with U uniform (a reshape whose
blocks do not fall on tiles, a slice with a dynamic start). With u = U mod d and j = U div d, the
sublanes with k*d <= c*s + u < (k+1)*d have

    quotient = j + k        remainder = c*s + u - k*d

so the load falls into a few pieces, each without that division, joined by masks. Tiles are the last
division, by 8: a piece then lies in one aligned tile, whose sublanes a permutation puts in place.
"""

from __future__ import annotations

from compiler.analysis.indexing import (
    Atom,
    Expr,
    Quotient,
    Remainder,
    Var,
    coefficient,
    replace_atoms,
    variables,
)
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.index_values import IndexValues, positions, split_uniform
from compiler.backend.vector.ops import Ops
from compiler.backend.vector.row_loads import RowLoader
from compiler.llo.ir import VReg
from tpu_sim.isa.geometry import SUBLANES

_MOST_PIECES = 4
"""That the rows of a tile are read in; from so many on they are looked up one by one (assumed)."""


class DynamicRows:
    """Emits such loads."""

    def __init__(self, ops: Ops, values: IndexValues, rows: RowLoader) -> None:
        self._ops = ops
        self._values = values
        self._rows = rows

    def load(self, array: VmemArray, major: Expr, word: Expr, col_rows: Expr) -> VReg | None:
        """Sublane s gets row `word` (of words) of `major`, in the column tile at `col_rows`.

        None when the pieces would be too many, or majors differ between sublanes.
        """
        if positions(col_rows):
            return None
        atom = _innermost(major) or _innermost(word)
        if atom is not None:
            return self._pieces(array, major, word, col_rows, atom)
        if positions(major):
            return None
        return self._tiles(array, major, word, col_rows)

    def _pieces(
        self, array: VmemArray, major: Expr, word: Expr, col_rows: Expr, atom: Quotient | Remainder
    ) -> VReg | None:
        body, divisor = atom.body, atom.divisor
        step, start, last = _linear(body)
        if step <= 0 or (divisor - 1 + step * last) // divisor >= _MOST_PIECES:
            return None
        block, phase = _split(start, divisor, step)
        place = body - start + phase
        count = place.range()[1] // divisor + 1
        result = -1
        for k in range(count):
            known: dict[Atom, Expr] = {
                Quotient(body, divisor): block + k,
                Remainder(body, divisor): place - k * divisor,
            }
            moved = replace_atoms(major, known)
            piece = self.load(array, moved, replace_atoms(word, known), col_rows)
            if piece is None:
                return None
            result = self._join(result, piece, place, k * divisor)
        return result

    def _join(self, result: int, piece: VReg, place: Expr, first: int) -> VReg:
        if result < 0 or piece == result:
            return piece
        is_piece = self._values.within(place, first, max(first, place.range()[1]))
        return self._ops.select(is_piece, piece, result)

    def _tiles(self, array: VmemArray, major: Expr, word: Expr, col_rows: Expr) -> VReg | None:
        """Rows c*s + U of one major, or of all counted on: each tile that they touch, permuted."""
        values = self._values
        varying, start = split_uniform(word)
        inside = values.clamped(major, array.last_major)
        first = inside * (array.row_pitch * array.col_pitch * SUBLANES) + col_rows
        if varying.is_constant:
            row = first + start // SUBLANES * (array.col_pitch * SUBLANES) + start % SUBLANES
            return self._rows.strided(array, values.clamped(row, array.word_rows - 1), 0)
        step, _, last = _linear(word)
        if step <= 0 or (SUBLANES - 1 + step * last) // SUBLANES >= _MOST_PIECES:
            return None
        tile, phase = _split(start, SUBLANES, step)
        place = varying + phase
        count = place.range()[1] // SUBLANES + 1
        result = -1
        for k in range(count):
            held = values.clamped(tile + k, array.tiles_down - 1)
            row = first + held * (array.col_pitch * SUBLANES)
            whole = self._rows.strided(array, values.clamped(row, array.word_rows - SUBLANES), 1)
            turned = self._ops.emit("vperm.slane", whole, values.vector(place))
            result = self._join(result, turned, place, k * SUBLANES)
        return result


def _split(start: Expr, divisor: int, step: int) -> tuple[Expr, Expr]:
    """(j, u) with start = j*divisor + u, 0 <= u < divisor + step - 1.

    The last few of the constant are left out of the division: then the phases of a packed stage,
    which differ in them alone, have the same j and load the same tiles.
    """
    left = start.constant % step
    whole = start - left
    return whole // divisor, whole % divisor + left


def _linear(body: Expr) -> tuple[int, Expr, int]:
    """`body` as (c, U, greatest s) of c*s + U; c is 0 when it is not of that form."""
    varying, start = split_uniform(body)
    found = [v for v in variables(varying) if v.name == "s"]
    if len(found) != 1:
        return 0, start, 0
    return coefficient(varying, found[0]) or 0, start, found[0].high


def _innermost(expr: Expr) -> Quotient | Remainder | None:
    """A division that contains the sublane, but not inside another division in it."""
    for atom, _ in expr.terms:
        if isinstance(atom, Var) or "s" not in positions(atom.body):
            continue
        return _innermost(atom.body) or atom
    return None
