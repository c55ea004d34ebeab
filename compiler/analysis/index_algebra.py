"""The normal form of index expressions: atoms, `Expr`, and their sums, products and divisions.

`compiler.analysis.indexing` says what they are and has what is made of them; import from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from threading import Lock
from typing import Self, final
from weakref import WeakValueDictionary

from compiler.hlo.ir import HloInstruction


@final
class Var:
    """An integer variable in the inclusive range low..high.

    `start_of`/`dim`: for the start index of a dynamic-slice (or dynamic-update-slice), which
    instruction and dimension it is; its value is the start operand clamped into the range.

    Equal atoms (`Var`, `Quotient`, `Remainder`) are one object: they are the keys of every table of
    a kernel, and objects compare by themselves. None is ever changed. `key` orders the terms of an
    expression.
    """

    __slots__ = ("__weakref__", "dim", "high", "key", "low", "name", "start_of")
    name: str
    low: int
    high: int
    start_of: HloInstruction | None
    dim: int
    key: str

    def __new__(
        cls,
        name: str,
        low: int,
        high: int,
        start_of: HloInstruction | None = None,
        dim: int = -1,
    ) -> Var:
        """The variable with these properties."""
        identity = (name, low, high, start_of, dim)
        found = _ATOMS.get(identity)
        if found is None:
            made = object.__new__(cls)
            made.name, made.low, made.high = name, low, high
            made.start_of, made.dim = start_of, dim
            made.key = f"{name}:{low}:{high}"
            found = _entered(identity, made)
        assert isinstance(found, Var)
        return found

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


class _Division:
    """What a division of `body` by `divisor` > 1 leaves; equal ones are one object."""

    __slots__ = ("__weakref__", "body", "divisor", "high", "key", "low")
    symbol = ""
    body: Expr
    divisor: int
    low: int
    high: int
    key: str

    def __new__(cls, body: Expr, divisor: int) -> Self:
        """The one of these."""
        identity = (cls.symbol, body, divisor)
        found = _ATOMS.get(identity)
        if found is None:
            made = object.__new__(cls)
            made.body, made.divisor = body, divisor
            made.low, made.high = cls._bounds(body, divisor)
            made.key = f"~{made}"
            found = _entered(identity, made)
        assert isinstance(found, cls)
        return found

    @staticmethod
    def _bounds(body: Expr, divisor: int) -> tuple[int, int]:
        raise NotImplementedError

    def __str__(self) -> str:
        return f"({self.body}){self.symbol}{self.divisor}"

    __repr__ = __str__


class Quotient(_Division):
    """``body // divisor``, floor."""

    __slots__ = ()
    symbol = "//"

    @staticmethod
    def _bounds(body: Expr, divisor: int) -> tuple[int, int]:
        return body.low // divisor, body.high // divisor


class Remainder(_Division):
    """``body % divisor``, never negative."""

    __slots__ = ()
    symbol = "%"

    @staticmethod
    def _bounds(body: Expr, divisor: int) -> tuple[int, int]:
        top = divisor - 1
        return 0, min(top, body.high) if body.low >= 0 else top


Atom = Var | Quotient | Remainder
Term = tuple[Atom, int]

_ATOMS: WeakValueDictionary[tuple[object, ...], Var | _Division] = WeakValueDictionary()
_ENTERING = Lock()


def _entered(identity: tuple[object, ...], made: Var | _Division) -> Var | _Division:
    """`made`, or what another thread has entered for `identity` meanwhile."""
    with _ENTERING:
        return _ATOMS.setdefault(identity, made)


class Expr:
    """``constant + sum(coefficient * atom for atom, coefficient in terms)``.

    Build with `var`, `const` and the operators + - * // % (a factor or divisor is an int). Never
    changed. `low` and `high` are inclusive bounds of the value, tight when no variable occurs in
    two terms; `has_quotient` says whether some term is one of a `Quotient`.
    """

    __slots__ = ("_hash", "_variables", "constant", "has_quotient", "high", "low", "terms")
    terms: tuple[Term, ...]
    constant: int
    low: int
    high: int
    has_quotient: bool
    _hash: int | None
    _variables: frozenset[Var] | None

    def __new__(cls, terms: tuple[Term, ...], constant: int) -> Expr:
        """The expression of terms that are already normal."""
        return normal(terms, constant)

    def __hash__(self) -> int:
        found = self._hash
        if found is None:
            found = self._hash = hash((self.terms, self.constant))
        return found

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Expr):
            return NotImplemented
        return self.constant == other.constant and self.terms == other.terms

    def range(self) -> tuple[int, int]:
        """Inclusive bounds of the value; tight when no variable occurs in two terms."""
        return self.low, self.high

    @property
    def is_constant(self) -> bool:
        """Whether it has no variable."""
        return not self.terms

    def __add__(self, other: Expr | int) -> Expr:
        if isinstance(other, int):
            return shifted(self, other)
        if not other.terms:
            return shifted(self, other.constant)
        if not self.terms:
            return shifted(other, self.constant)
        return _sum_of_two(self, other)

    def __radd__(self, other: int) -> Expr:
        return self + other

    def __sub__(self, other: Expr | int) -> Expr:
        if isinstance(other, int):
            return shifted(self, -other)
        if not other.terms:
            return shifted(self, -other.constant)
        if not self.terms:
            return shifted(other * -1, self.constant)
        return _sum_of_two(self, other * -1)

    def __rsub__(self, other: int) -> Expr:
        return self * -1 + other

    def __neg__(self) -> Expr:
        return self * -1

    def __mul__(self, factor: int) -> Expr:
        terms = self.terms
        if factor == 1:
            return self
        if not terms or factor == 0:
            return const(self.constant * factor)
        if len(terms) == 1:
            ((atom, own),) = terms
            terms = ((atom, own * factor),)
        else:
            terms = tuple([(atom, own * factor) for atom, own in terms])
        low, high = self.low * factor, self.high * factor
        if factor < 0:
            low, high = high, low
        made = _built(terms, self.constant * factor, low, high, self.has_quotient)
        made._variables = self._variables
        return made

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

    __repr__ = __str__


def _built(terms: tuple[Term, ...], constant: int, low: int, high: int, has_quotient: bool) -> Expr:
    """An expression of which all is known."""
    expr = _new(Expr)
    expr.terms = terms
    expr.constant = constant
    expr.low = low
    expr.high = high
    expr.has_quotient = has_quotient
    expr._hash = expr._variables = None
    return expr


_new = object.__new__


def shifted(expr: Expr, amount: int) -> Expr:
    """`expr + amount`."""
    if not amount:
        return expr
    made = _new(Expr)
    made.terms = expr.terms
    made.constant = expr.constant + amount
    made.low = expr.low + amount
    made.high = expr.high + amount
    made.has_quotient = expr.has_quotient
    made._hash = None
    made._variables = expr._variables
    return made


@lru_cache(maxsize=4096)
def const(value: int) -> Expr:
    """The constant expression `value`."""
    return _built((), value, value, value, False)


def var(variable: Var) -> Expr:
    """The expression of one variable; a variable of one value is that constant."""
    if variable.low == variable.high:
        return const(variable.low)
    return normal(((variable, 1),), 0)


def multiple(atom: Atom, factor: int) -> Expr:
    """The expression of one term, `factor * atom`."""
    return normal(((atom, factor),), 0)


def normal(terms: tuple[Term, ...], constant: int) -> Expr:
    """An expression of terms that are already normal; computes the bounds."""
    low = high = constant
    has_quotient = False
    for atom, factor in terms:
        if factor > 0:
            low += factor * atom.low
            high += factor * atom.high
        else:
            low += factor * atom.high
            high += factor * atom.low
        if type(atom) is Quotient:
            has_quotient = True
    return _built(terms, constant, low, high, has_quotient)


def _collect(totals: dict[Atom, int], constant: int) -> Expr:
    terms = [term for term in totals.items() if term[1]]
    if len(terms) > 1:
        terms.sort(key=_term_key)
    return normal(tuple(terms), constant)


def _term_key(term: Term) -> str:
    return term[0].key


def _sum_of_two(a: Expr, b: Expr) -> Expr:
    """`a + b` of two that are not constant; terms of the one that all come first stay apart."""
    first, second = a.terms, b.terms
    if first[-1][0].key < second[0][0].key:
        terms = first + second
    elif second[-1][0].key < first[0][0].key:
        terms = second + first
    else:
        totals = dict(first)
        for atom, factor in second:
            totals[atom] = totals.get(atom, 0) + factor
        return _rejoined(_collect(totals, a.constant + b.constant))
    has_quotient = a.has_quotient or b.has_quotient
    total = _built(terms, a.constant + b.constant, a.low + b.low, a.high + b.high, has_quotient)
    return _rejoined(total) if has_quotient else total


def _plain_sum(parts: Iterable[tuple[Expr, int]]) -> Expr:
    totals: dict[Atom, int] = {}
    constant = 0
    for expr, factor in parts:
        constant += factor * expr.constant
        for atom, c in expr.terms:
            totals[atom] = totals.get(atom, 0) + factor * c
    return _collect(totals, constant)


def sum_of(parts: Iterable[tuple[Expr, int]]) -> Expr:
    """The sum of expressions times factors."""
    return _rejoined(_plain_sum(parts))


def _rejoined(total: Expr) -> Expr:
    while total.has_quotient and (joined := _rejoin(total)) is not None:
        total = joined
    return total


def _rejoin(total: Expr) -> Expr | None:
    """One step of k*(e//k) + e%k -> e, or of e - k*(e//k) -> e%k; None when neither applies."""
    terms = total.terms
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
            return _plain_sum(((rest, 1), (normal(((partner, 1),), 0), -scale)))
    return None


def _drop(total: Expr, *atoms: Atom) -> Expr:
    return normal(tuple(t for t in total.terms if t[0] not in atoms), total.constant)


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
        normal(tuple(whole), expr.constant // divisor),
        normal(tuple(rest), expr.constant % divisor),
    )


def _split_digits(expr: Expr, divisor: int) -> tuple[int, Expr, Expr] | None:
    """(g, high, low) with expr = g*high + low, g a divisor of `divisor` and low in 0..g-1."""
    candidates = {math.gcd(factor, divisor) for _, factor in expr.terms} - {1}
    for g in sorted(candidates, reverse=True):
        high = tuple((a, c // g) for a, c in expr.terms if c % g == 0)
        low = normal(tuple((a, c) for a, c in expr.terms if c % g), expr.constant % g)
        if low.low >= 0 and low.high < g:
            return g, normal(high, expr.constant // g), low
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
    return sum_of(((whole, 1), (normal(((Quotient(rest, divisor), 1),), 0), 1)))


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
            flat = sum_of(((_drop(rest, atom), 1), (atom.body, factor)))
            return flat % divisor
    if (digits := _split_digits(rest, divisor)) is not None:
        g, high, low = digits
        return (high % (divisor // g)) * g + low
    return normal(((Remainder(rest, divisor), 1),), 0)
