"""Special functions (`tpuc.special`), named as in ``scipy.special``; accurate to f32."""

from __future__ import annotations

from typing import Any

from compiler.frontends.numpy import special as rules
from compiler.hlo import special_functions as formulas
from runtime.rules import apply_rule


def erf(x: Any) -> Any:
    """The error function."""
    return apply_rule("special", rules.apply_opcode, ("erf",), (x,))


def erfc(x: Any) -> Any:
    """``1 - erf(x)``, without cancellation for large x."""
    return _apply(formulas.erfc, x)


def erfinv(x: Any) -> Any:
    """The inverse of `erf` on [-1, 1]."""
    return _apply(formulas.erf_inv, x)


def expit(x: Any) -> Any:
    """The logistic function ``1 / (1 + exp(-x))``."""
    return apply_rule("special", rules.apply_opcode, ("logistic",), (x,))


def gammaln(x: Any) -> Any:
    """``log(abs(gamma(x)))``."""
    return _apply(formulas.lgamma, x)


def digamma(x: Any) -> Any:
    """The derivative of `gammaln`."""
    return _apply(formulas.digamma, x)


def polygamma(n: Any, x: Any) -> Any:
    """The derivative of `digamma` of order `n`."""
    return _apply(formulas.polygamma, n, x)


def zeta(x: Any, q: Any) -> Any:
    """The Hurwitz zeta function."""
    return _apply(formulas.zeta, x, q)


def i1e(x: Any) -> Any:
    """The modified Bessel function of order 1, times ``exp(-abs(x))``."""
    return _apply(formulas.bessel_i1e, x)


def _apply(formula: rules.Formula, *values: Any) -> Any:
    return apply_rule("special", rules.apply_special, (formula,), values)
