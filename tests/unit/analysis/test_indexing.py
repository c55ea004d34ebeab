"""Simplified index expressions equal the functions they were built from."""

from __future__ import annotations

import gc
import itertools
import random
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.analysis.indexing import (
    Expr,
    Var,
    coefficient,
    const,
    delinearize,
    evaluate,
    linearize,
    ranged,
    substitute,
    var,
    variables,
)

ROW, S, T = Var("i", 0, 3), Var("s", 0, 7), Var("t", -2, 5)
POINTS = [
    dict(zip((ROW, S, T), p, strict=True))
    for p in itertools.product(range(4), range(8), range(-2, 6))
]


def _leaf() -> st.SearchStrategy[tuple[object, ...]]:
    return st.one_of(
        st.sampled_from([("var", ROW), ("var", S), ("var", T)]),
        st.integers(-20, 20).map(lambda k: ("const", k)),
    )


def _node(
    inner: st.SearchStrategy[tuple[object, ...]],
) -> st.SearchStrategy[tuple[object, ...]]:
    divisor = st.sampled_from([1, 2, 3, 4, 5, 8, 12, 16, 128])
    return st.one_of(
        st.tuples(st.just("add"), inner, inner),
        st.tuples(st.just("sub"), inner, inner),
        st.tuples(st.just("mul"), inner, st.integers(-9, 16)),
        st.tuples(st.just("div"), inner, divisor),
        st.tuples(st.just("mod"), inner, divisor),
    )


def _build(tree: tuple[object, ...]) -> Expr:
    match tree:
        case ("var", Var() as v):
            return var(v)
        case ("const", int(k)):
            return const(k)
        case ("add", tuple(a), tuple(b)):
            return _build(a) + _build(b)
        case ("sub", tuple(a), tuple(b)):
            return _build(a) - _build(b)
        case ("mul", tuple(a), int(k)):
            return _build(a) * k
        case ("div", tuple(a), int(k)):
            return _build(a) // k
        case ("mod", tuple(a), int(k)):
            return _build(a) % k
    raise AssertionError(tree)


def _value(tree: tuple[object, ...], point: dict[Var, int]) -> int:
    match tree:
        case ("var", Var() as v):
            return point[v]
        case ("const", int(k)):
            return k
        case ("add", tuple(a), tuple(b)):
            return _value(a, point) + _value(b, point)
        case ("sub", tuple(a), tuple(b)):
            return _value(a, point) - _value(b, point)
        case ("mul", tuple(a), int(k)):
            return _value(a, point) * k
        case ("div", tuple(a), int(k)):
            return _value(a, point) // k
        case ("mod", tuple(a), int(k)):
            return _value(a, point) % k
    raise AssertionError(tree)


@settings(max_examples=400, deadline=None)
@given(st.recursive(_leaf(), _node, max_leaves=8))
def test_simplified_expression_is_the_same_function(tree: tuple[object, ...]) -> None:
    expr = _build(tree)
    low, high = expr.range()
    for point in POINTS[:: max(1, len(POINTS) // 64)]:
        value = _value(tree, point)
        assert evaluate(expr, point) == value
        assert low <= value <= high


def test_division_drops_what_stays_below_the_divisor() -> None:
    i, s = var(ROW), var(S)
    assert (8 * i + s) // 8 == i
    assert (8 * i + s) % 8 == s
    assert (16 * i + 2 * s + 1) // 2 == 8 * i + s
    assert (16 * i + 2 * s + 1) % 2 == const(1)
    assert (31 - (8 * i + s)) // 8 == 3 - i


def test_quotient_and_remainder_join_again() -> None:
    x = 3 * var(ROW) + var(S)
    assert x // 5 * 5 + x % 5 == x
    assert x - x // 5 * 5 == x % 5


def test_reshape_there_and_back_is_the_identity() -> None:
    position = linearize((ranged("a", 4), ranged("b", 8), ranged("c", 128)), (4, 8, 128))
    for dims in ((3, 7, 200), (4096,), (2, 2, 1024), (5, 9, 13, 8)):
        assert linearize(delinearize(position, dims), dims) == position


def test_delinearize_by_brute_force() -> None:
    rng = random.Random(1)
    for _ in range(30):
        dims = tuple(rng.choice([1, 2, 3, 5, 8]) for _ in range(rng.randint(1, 4)))
        size = 1
        for d in dims:
            size *= d
        p = Var("p", 0, size - 1)
        index = delinearize(var(p), dims)
        for k in range(size):
            at = [evaluate(e, {p: k}) for e in index]
            assert all(0 <= a < d for a, d in zip(at, dims, strict=True))
            position = 0
            for a, d in zip(at, dims, strict=True):
                position = position * d + a
            assert position == k


def test_substitution_simplifies() -> None:
    i, s = var(ROW), var(S)
    nested = (12 * i + s) // 5
    assert substitute(nested, {ROW: const(1), S: const(4)}) == const(3)
    assert variables(substitute(nested, {ROW: 5 * s})) == {S}


def test_coefficient_is_none_inside_a_division() -> None:
    i, s = var(ROW), var(S)
    assert coefficient(3 * i + s, ROW) == 3
    assert coefficient(s, ROW) == 0
    assert coefficient((3 * i + s) // 4, ROW) is None


def test_bounds_are_those_of_the_terms_however_an_expression_is_made() -> None:
    i = Var("i", 0, 7)
    made = Expr(((i, -3),), 1)
    assert made.range() == (-20, 1)
    assert (made + 5).range() == (-15, 6)
    assert (const(2) + made).range() == (-18, 3)
    assert hash(made) == hash(Expr(((i, -3),), 1))
    assert hash(made // 2) != hash(made % 2)


def test_equal_atoms_are_one_object_for_as_long_as_anybody_has_it() -> None:
    i = Var("atom", 0, 7)
    assert Var("atom", 0, 7) is i and Var("atom", 0, 8) is not i
    quotient, remainder = (3 * var(i) + 1) // 5, (3 * var(i) + 1) % 5
    assert quotient.terms[0][0] is ((var(i) * 3 + 1) // 5).terms[0][0]
    assert remainder.terms[0][0] is ((var(i) * 3 + 1) % 5).terms[0][0]
    assert variables(quotient + remainder) == {i}
    gone = weakref.ref(Var("atom", 0, 9))
    gc.collect()
    assert gone() is None


def test_atoms_made_by_several_threads_at_once_are_one_object() -> None:
    barrier = threading.Barrier(4)

    def made() -> list[Var]:
        barrier.wait()
        return [Var("shared", 0, n) for n in range(300)]

    with ThreadPoolExecutor(4) as pool:
        found = [f.result() for f in [pool.submit(made) for _ in range(4)]]
    assert all(a is b for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_sums_have_their_terms_in_order_and_exact_bounds() -> None:
    a, b, c = (var(Var(name, -1, 4)) for name in "abc")
    for total in (a + b + c, c + b + a, b + (c + a), (a - b * -1) + c, (a + c) - (c - b) + c):
        assert total == a + b + c
        assert str(total) == "a + b + c"
        assert total.range() == (-3, 12)
    assert (a + b - a).range() == (-1, 4)
    assert (a - b * 2).range() == (-9, 6)
    assert (a + b) * 0 == const(0) and (a + b) * -3 == -(a + b) * 3
