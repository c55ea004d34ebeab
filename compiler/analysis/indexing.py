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

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from compiler.hlo.ir import HloInstruction


def _identity(item: Var | Quotient | Remainder | Expr) -> int:
    """The hash of a value, computed once: these are the keys of every table of a kernel."""
    fields = item.__dict__
    found: int | None = fields.get("_hash")
    if found is None:
        found = fields["_hash"] = hash(item.compared())
    return found


@dataclass(frozen=True)
class Var:
    """An integer variable in the inclusive range low..high.

    `start_of`/`dim`: for the start index of a dynamic-slice (or dynamic-update-slice), which
    instruction and dimension it is; its value is the start operand clamped into the range.
    """

    name: str
    low: int
    high: int
    start_of: HloInstruction | None = None
    dim: int = -1

    __hash__ = _identity

    def compared(self) -> tuple[object, ...]:
        """What makes two of them equal."""
        return self.name, self.low, self.high, self.start_of, self.dim

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Quotient:
    """``body // divisor``, floor; divisor > 1."""

    body: Expr
    divisor: int

    __hash__ = _identity

    def compared(self) -> tuple[object, ...]:
        """What makes two of them equal."""
        return "//", self.body, self.divisor

    @cached_property
    def low(self) -> int:
        """The least value."""
        return self.body.low // self.divisor

    @cached_property
    def high(self) -> int:
        """The greatest value."""
        return self.body.high // self.divisor

    def __str__(self) -> str:
        return f"({self.body})//{self.divisor}"


@dataclass(frozen=True)
class Remainder:
    """``body % divisor``, never negative; divisor > 1."""

    body: Expr
    divisor: int

    __hash__ = _identity

    def compared(self) -> tuple[object, ...]:
        """What makes two of them equal."""
        return "%", self.body, self.divisor

    @property
    def low(self) -> int:
        """A lower bound of the value."""
        return 0

    @cached_property
    def high(self) -> int:
        """An upper bound of the value."""
        top = self.divisor - 1
        return min(top, self.body.high) if self.body.low >= 0 else top

    def __str__(self) -> str:
        return f"({self.body})%{self.divisor}"


Atom = Var | Quotient | Remainder
Term = tuple[Atom, int]


@dataclass(frozen=True)
class Expr:
    """``constant + sum(coefficient * atom for atom, coefficient in terms)``.

    Build with `var`, `const` and the operators + - * // % (a factor or divisor is an int).
    """

    terms: tuple[Term, ...]
    constant: int
    low: int = field(compare=False, repr=False, default=0)
    high: int = field(compare=False, repr=False, default=0)

    def __post_init__(self) -> None:
        """Work out the bounds, whatever is given; `_built` is the way past this."""
        self.__dict__["low"], self.__dict__["high"] = _bounds(self.terms, self.constant)

    __hash__ = _identity

    def compared(self) -> tuple[object, ...]:
        """What makes two of them equal."""
        return self.terms, self.constant

    def range(self) -> tuple[int, int]:
        """Inclusive bounds of the value; tight when no variable occurs in two terms."""
        return self.low, self.high

    @property
    def is_constant(self) -> bool:
        """Whether it has no variable."""
        return not self.terms

    def __add__(self, other: Expr | int) -> Expr:
        if isinstance(other, int):
            return _shifted(self, other)
        if not other.terms:
            return _shifted(self, other.constant)
        if not self.terms:
            return _shifted(other, self.constant)
        return _sum(((self, 1), (other, 1)))

    def __radd__(self, other: int) -> Expr:
        return self + other

    def __sub__(self, other: Expr | int) -> Expr:
        if isinstance(other, int):
            return _shifted(self, -other)
        if not other.terms:
            return _shifted(self, -other.constant)
        return _sum(((self, 1), (other, -1)))

    def __rsub__(self, other: int) -> Expr:
        return self * -1 + other

    def __neg__(self) -> Expr:
        return self * -1

    def __mul__(self, factor: int) -> Expr:
        if factor == 0:
            return const(0)
        if factor == 1:
            return self
        return _make(tuple((a, c * factor) for a, c in self.terms), self.constant * factor)

    def __rmul__(self, factor: int) -> Expr:
        return self * factor

    def __floordiv__(self, divisor: int) -> Expr:
        return _floor_divide(self, divisor)

    def __mod__(self, divisor: int) -> Expr:
        return _remainder(self, divisor)

    def __str__(self) -> str:
        parts = [f"{c}*{a}" if c != 1 else str(a) for a, c in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


def _built(terms: tuple[Term, ...], constant: int, low: int, high: int) -> Expr:
    """`Expr(...)`, several times faster than the constructor of a frozen dataclass."""
    expr = object.__new__(Expr)
    fields = expr.__dict__
    fields["terms"] = terms
    fields["constant"] = constant
    fields["low"] = low
    fields["high"] = high
    return expr


def _shifted(expr: Expr, amount: int) -> Expr:
    """`expr + amount`."""
    if not amount:
        return expr
    return _built(expr.terms, expr.constant + amount, expr.low + amount, expr.high + amount)


@lru_cache(maxsize=4096)
def const(value: int) -> Expr:
    """The constant expression `value`."""
    return _built((), value, value, value)


def var(variable: Var) -> Expr:
    """The expression of one variable; a variable of one value is that constant."""
    if variable.low == variable.high:
        return const(variable.low)
    return _make(((variable, 1),), 0)


def multiple(atom: Atom, factor: int) -> Expr:
    """The expression of one term, `factor * atom`."""
    return _make(((atom, factor),), 0)


def ranged(name: str, count: int) -> Expr:
    """A fresh variable over 0 .. count-1, as an expression."""
    return var(Var(name, 0, count - 1))


def variables(expr: Expr) -> frozenset[Var]:
    """All variables that occur in `expr`, nested ones included."""
    terms = expr.terms
    if len(terms) == 1:
        return _atom_variables(terms[0][0])
    return frozenset().union(*[_atom_variables(atom) for atom, _ in terms])


@lru_cache(maxsize=65536)
def _atom_variables(atom: Atom) -> frozenset[Var]:
    return frozenset((atom,)) if isinstance(atom, Var) else variables(atom.body)


def substitute(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """Replace variables by expressions, simplifying anew."""
    if not any(v in values for v in variables(expr)):
        return expr
    return _sum(
        [(const(expr.constant), 1), *((_replace(atom, values), c) for atom, c in expr.terms)]
    )


def _replace(atom: Atom, values: Mapping[Var, Expr]) -> Expr:
    if isinstance(atom, Var):
        return values.get(atom, _make(((atom, 1),), 0))
    body = substitute(atom.body, values)
    return body // atom.divisor if isinstance(atom, Quotient) else body % atom.divisor


def replace_atoms(expr: Expr, known: Mapping[Atom, Expr]) -> Expr:
    """Replace atoms, nested ones included, by expressions known to equal them."""
    parts = [(const(expr.constant), 1)]
    for atom, factor in expr.terms:
        if atom in known:
            parts.append((known[atom], factor))
        elif isinstance(atom, Var):
            parts.append((_make(((atom, 1),), 0), factor))
        else:
            body = replace_atoms(atom.body, known)
            is_quotient = isinstance(atom, Quotient)
            parts.append((body // atom.divisor if is_quotient else body % atom.divisor, factor))
    return _sum(parts)


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
    return _make(tuple(kept), 0), _make(tuple(rest), expr.constant)


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
    position = const(0)
    for expr, size in zip(index, dims, strict=True):
        position = position * size + expr
    return position


def delinearize(position: Expr, dims: tuple[int, ...]) -> tuple[Expr, ...]:
    """The index in an array of `dims` of a row-major position within it."""
    index: list[Expr] = []
    for number in reversed(range(1, len(dims))):
        index.append(position % dims[number])
        position = position // dims[number]
    if not dims:
        return ()
    return (position if dims[0] > 1 else const(0), *reversed(index))


@lru_cache(maxsize=65536)
def _sort_key(atom: Atom) -> str:
    if isinstance(atom, Var):
        return f"{atom.name}:{atom.low}:{atom.high}"
    return f"~{atom}"


def _bounds(terms: tuple[Term, ...], constant: int) -> tuple[int, int]:
    low = high = constant
    for atom, factor in terms:
        if factor > 0:
            low += factor * atom.low
            high += factor * atom.high
        else:
            low += factor * atom.high
            high += factor * atom.low
    return low, high


def _make(terms: tuple[Term, ...], constant: int) -> Expr:
    """An expression of terms that are already normal; computes the bounds."""
    return _built(terms, constant, *_bounds(terms, constant))


def _collect(totals: dict[Atom, int], constant: int) -> Expr:
    terms = [(atom, factor) for atom, factor in totals.items() if factor]
    if len(terms) > 1:
        terms.sort(key=_term_key)
    return _make(tuple(terms), constant)


def _term_key(term: Term) -> str:
    return _sort_key(term[0])


def _plain_sum(parts: Iterable[tuple[Expr, int]]) -> Expr:
    totals: dict[Atom, int] = {}
    constant = 0
    for expr, factor in parts:
        constant += factor * expr.constant
        for atom, c in expr.terms:
            totals[atom] = totals.get(atom, 0) + factor * c
    return _collect(totals, constant)


def _sum(parts: Iterable[tuple[Expr, int]]) -> Expr:
    total = _plain_sum(parts)
    while (joined := _rejoin(total)) is not None:
        total = joined
    return total


def _rejoin(total: Expr) -> Expr | None:
    """One step of k*(e//k) + e%k -> e, or of e - k*(e//k) -> e%k; None when neither applies."""
    terms = total.terms
    if all(type(atom) is not Quotient for atom, _ in terms):
        return None
    factors = dict(terms)
    for atom, factor in terms:
        if not isinstance(atom, Quotient) or factor % atom.divisor:
            continue
        scale = factor // atom.divisor
        partner = Remainder(atom.body, atom.divisor)
        if factors.get(partner) == scale:
            without = _drop(total, atom, partner)
            return _plain_sum(((without, 1), (atom.body, scale)))
        if all(factors.get(a) == -scale * c for a, c in atom.body.terms):
            without = _drop(total, atom, *(a for a, _ in atom.body.terms))
            rest = without + scale * atom.body.constant
            return _plain_sum(((rest, 1), (_make(((partner, 1),), 0), -scale)))
    return None


def _drop(total: Expr, *atoms: Atom) -> Expr:
    return _make(tuple(t for t in total.terms if t[0] not in atoms), total.constant)


def _split_multiples(expr: Expr, divisor: int) -> tuple[Expr, Expr]:
    """(q, r) with expr = divisor*q + r; factors of r keep their sign and are below the divisor."""
    whole: list[Term] = []
    rest: list[Term] = []
    for atom, factor in expr.terms:
        quotient = abs(factor) // divisor * (1 if factor > 0 else -1)
        if quotient:
            whole.append((atom, quotient))
        if factor - quotient * divisor:
            rest.append((atom, factor - quotient * divisor))
    return (
        _make(tuple(whole), expr.constant // divisor),
        _make(tuple(rest), expr.constant % divisor),
    )


def _split_digits(expr: Expr, divisor: int) -> tuple[int, Expr, Expr] | None:
    """(g, high, low) with expr = g*high + low, g a divisor of `divisor` and low in 0..g-1."""
    candidates = {math.gcd(factor, divisor) for _, factor in expr.terms} - {1}
    for g in sorted(candidates, reverse=True):
        high = tuple((a, c // g) for a, c in expr.terms if c % g == 0)
        low = _make(tuple((a, c) for a, c in expr.terms if c % g), expr.constant % g)
        if low.low >= 0 and low.high < g:
            return g, _make(high, expr.constant // g), low
    return None


@lru_cache(maxsize=65536)
def _floor_divide(expr: Expr, divisor: int) -> Expr:
    assert divisor > 0, f"division of {expr} by {divisor}"
    if divisor == 1 or expr.is_constant:
        return expr if divisor == 1 else const(expr.constant // divisor)
    whole, rest = _split_multiples(expr, divisor)
    if rest.low // divisor == rest.high // divisor:
        return whole + rest.low // divisor
    if (digits := _split_digits(rest, divisor)) is not None:
        g, high, _ = digits
        return whole + high // (divisor // g)
    if len(rest.terms) == 1 and rest.terms[0][1] == 1:
        atom = rest.terms[0][0]
        if isinstance(atom, Quotient):
            body = atom.body + rest.constant * atom.divisor
            return whole + body // (atom.divisor * divisor)
        if isinstance(atom, Remainder) and not rest.constant and atom.divisor % divisor == 0:
            return whole + (atom.body // divisor) % (atom.divisor // divisor)
    return _sum(((whole, 1), (_make(((Quotient(rest, divisor), 1),), 0), 1)))


@lru_cache(maxsize=65536)
def _remainder(expr: Expr, divisor: int) -> Expr:
    assert divisor > 0, f"remainder of {expr} by {divisor}"
    if expr.low // divisor == expr.high // divisor:
        return expr - divisor * (expr.low // divisor)
    _, rest = _split_multiples(expr, divisor)
    if rest.low // divisor == rest.high // divisor:
        return rest - divisor * (rest.low // divisor)
    for atom, factor in rest.terms:
        if isinstance(atom, Remainder) and factor * atom.divisor % divisor == 0:
            flat = _sum(((_drop(rest, atom), 1), (atom.body, factor)))
            return flat % divisor
    if (digits := _split_digits(rest, divisor)) is not None:
        g, high, low = digits
        return (high % (divisor // g)) * g + low
    return _make(((Remainder(rest, divisor), 1),), 0)
