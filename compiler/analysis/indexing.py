"""Index expressions: integer sums of products, floor divisions and remainders of variables.

    e = 8*i + s                  i in 0..3, s in 0..7
    e // 8  ->  i                (8*i + s) div 8 is i because s lies in 0..7
    e % 8   ->  s

An `Expr` is kept in normal form: ``constant + sum(coefficient * atom)`` with sorted distinct atoms;
an atom is a `Var`, a floor division or a remainder of an Expr by a positive constant. Division and
remainder are Python's (floor), so every rewrite holds for negative values too. Equal normal forms
compare equal; unequal ones may still be equal functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from compiler.analysis.index_algebra import (
    Atom,
    Expr,
    Quotient,
    Remainder,
    Term,
    Var,
    const,
    multiple,
    normal,
    shifted,
    sum_of,
    var,
)

__all__ = [
    "Atom",
    "Expr",
    "Quotient",
    "Remainder",
    "Term",
    "Var",
    "coefficient",
    "const",
    "delinearize",
    "evaluate",
    "linearize",
    "multiple",
    "ranged",
    "replace_atoms",
    "split_terms",
    "substitute",
    "var",
    "variables",
]


def ranged(name: str, count: int) -> Expr:
    """A fresh variable over 0 .. count-1, as an expression."""
    return var(Var(name, 0, count - 1))


def variables(expr: Expr) -> frozenset[Var]:
    """All variables that occur in `expr`, nested ones included."""
    found = expr._variables
    if found is None:
        terms = expr.terms
        if len(terms) == 1:
            found = _atom_variables(terms[0][0])
        else:
            found = frozenset().union(*[_atom_variables(atom) for atom, _ in terms])
        expr._variables = found
    return found


def _atom_variables(atom: Atom) -> frozenset[Var]:
    return frozenset((atom,)) if type(atom) is Var else variables(atom.body)


def substitute(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """Replace variables by expressions, simplifying anew."""
    if values.keys().isdisjoint(variables(expr)):
        return expr
    return sum_of(
        [(const(expr.constant), 1), *((_replace(atom, values), c) for atom, c in expr.terms)]
    )


def _replace(atom: Atom, values: Mapping[Var, Expr]) -> Expr:
    if isinstance(atom, Var):
        return values.get(atom, normal(((atom, 1),), 0))
    body = substitute(atom.body, values)
    return body // atom.divisor if isinstance(atom, Quotient) else body % atom.divisor


def replace_atoms(expr: Expr, known: Mapping[Atom, Expr]) -> Expr:
    """Replace atoms, nested ones included, by expressions known to equal them."""
    parts = [(const(expr.constant), 1)]
    for atom, factor in expr.terms:
        if atom in known:
            parts.append((known[atom], factor))
        elif isinstance(atom, Var):
            parts.append((normal(((atom, 1),), 0), factor))
        else:
            body = replace_atoms(atom.body, known)
            is_quotient = isinstance(atom, Quotient)
            parts.append((body // atom.divisor if is_quotient else body % atom.divisor, factor))
    return sum_of(parts)


def evaluate(expr: Expr, values: Mapping[Var, int]) -> int:
    """The value at a point; KeyError when a variable has no value."""
    total = expr.constant
    for atom, coefficient in expr.terms:
        if isinstance(atom, Var):
            total += coefficient * values[atom]
        elif isinstance(atom, Quotient):
            total += coefficient * (evaluate(atom.body, values) // atom.divisor)
        else:
            total += coefficient * (evaluate(atom.body, values) % atom.divisor)
    return total


def split_terms(expr: Expr, keep: Callable[[Atom], bool]) -> tuple[Expr, Expr]:
    """`expr` as (sum of the terms whose atom satisfies `keep`, the rest and the constant)."""
    kept: list[Term] = []
    rest: list[Term] = []
    for term in expr.terms:
        (kept if keep(term[0]) else rest).append(term)
    if not kept:
        return const(0), expr
    if not rest:
        return shifted(expr, -expr.constant), const(expr.constant)
    return normal(tuple(kept), 0), normal(tuple(rest), expr.constant)


def coefficient(expr: Expr, variable: Var) -> int | None:
    """The factor of `variable` when it occurs only linearly (0: not at all), else None."""
    factor = 0
    for atom, c in expr.terms:
        if atom == variable:
            factor = c
        elif not isinstance(atom, Var) and variable in _atom_variables(atom):
            return None
    return factor


def linearize(index: Iterable[Expr], dims: Iterable[int]) -> Expr:
    """The row-major position of `index` in an array of `dims`."""
    position: Expr | None = None
    for expr, size in zip(index, dims, strict=True):
        position = expr if position is None else position * size + expr
    return const(0) if position is None else position


def delinearize(position: Expr, dims: tuple[int, ...]) -> tuple[Expr, ...]:
    """The index in an array of `dims` of a row-major position within it.

    The outermost dimension of more than one element takes what is left: no remainder stands where
    the position is inside the array anyhow.
    """
    first = next((d for d, size in enumerate(dims) if size > 1), 0)
    index: list[Expr] = []
    for number in reversed(range(first + 1, len(dims))):
        index.append(position % dims[number])
        position = position // dims[number]
    if not dims:
        return ()
    index.append(position if dims[first] > 1 else const(0))
    return (*(const(0) for _ in range(first)), *reversed(index))
