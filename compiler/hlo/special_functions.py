"""Special functions (those of chlo, of SciPy) as formulas of elementwise HLO, accurate to f32.

Narrower types are computed in f32 and rounded once. Sources: M. Giles, "Approximating the erfinv
function" (2010); C. Lanczos (1964) with g = 7 and nine terms; the Euler-Maclaurin sum of the
Hurwitz zeta function; Chebyshev series of the Bessel functions as in Cephes (S. Moshier).
"""

from __future__ import annotations

import math

from compiler.hlo.dtypes import BF16, BY_NAME, F16, F32
from compiler.hlo.expression import INFINITY, NAN, Expr, chebyshev, polynomial

_ERF_INV_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_ERF_INV_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip
_ERFC_NEAR = (
    2.326819970068386e-2, -1.387039388740657e-1, 3.687424674597105e-1, -5.824733027278666e-1,
    6.210004621745983e-1, -4.944515323274145e-1, 3.404879937665872e-1, -2.741127028184656e-1,
    5.638259427386472e-1,
)  # fmt: skip
_ERFC_FAR = (
    -1.047766399936249e1, 1.297719955372516e1, -7.495518717768503, 2.921019019210786,
    -1.015265279202700, 4.218463358204948e-1, -2.820767439740514e-1, 5.641895067754075e-1,
)  # fmt: skip
_LANCZOS_G = 7.0
_LANCZOS_BASE = 0.99999999999980993227684700473478
_LANCZOS = (
    676.520368121885098567009190444019, -1259.13921672240287047156078755283,
    771.3234287776530788486528258894, -176.61502916214059906584551354,
    12.507343278686904814458936853, -0.13857109526572011689554707,
    9.984369578019570859563e-6, 1.50563273514931155834e-7,
)  # fmt: skip
_I0E_NEAR = (
    2.65982282077551e-09, -1.300024952294489e-08, 6.046994956736765e-08, -2.670793850183038e-07,
    1.117387538683344e-06, -4.416738358115606e-06, 1.644844807025294e-05, -5.754195010048048e-05,
    0.0001885028850954348, -0.0005763755745383327, 0.001639475616941116, -0.004324309995050414,
    0.01054646039459483, -0.02373741480589935, 0.04930528423967059, -0.09490109704804753,
    0.1716209015222087, -0.3046826723431983, 0.676795274409476,
)  # fmt: skip
_I0E_FAR = (
    3.396231926513433e-09, 2.266668990137352e-08, 2.04891858877137e-07, 2.891370520828562e-06,
    6.889758346912035e-05, 0.003369116478255734, 0.8044904110141087,
)  # fmt: skip
_I1E_NEAR = (
    9.38153738649577178388e-9, -4.44505912879632808065e-8, 2.00329475355213526229e-7,
    -8.56872026469545474066e-7, 3.47025130813767847674e-6, -1.32731636560394358279e-5,
    4.78156510755005422638e-5, -1.61760815825896745588e-4, 5.12285956168575772895e-4,
    -1.51357245063125314899e-3, 4.15642294431288815669e-3, -1.05640848946261981558e-2,
    2.47264490306265168283e-2, -5.29459812080949914269e-2, 1.02643658689847095384e-1,
    -1.76416518357834055153e-1, 2.52587186443633654823e-1,
)  # fmt: skip
_I1E_FAR = (
    -3.83538038596423702205e-9, -2.63146884688951950684e-8, -2.51223623787020892529e-7,
    -3.88256480887769039346e-6, -1.10588938762623716291e-4, -9.76109749136146840777e-3,
    7.78576235018280120474e-1,
)  # fmt: skip
_ZETA_TERMS = 10
_ZETA_CORRECTIONS = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10,
    -2.950130727918164224e12, 1.1646782814350067249e14, -4.5979787224074726105e15,
    1.8152105401943546773e17, -7.1661652561756670113e18,
)  # fmt: skip
"""``(2j)! / B_2j``, B being Bernoulli numbers."""


def wide(x: Expr) -> Expr:
    """16-bit floats as f32."""
    return x.convert(F32) if x.dtype in (BF16, F16) or x.dtype.bits < F32.bits else x


def erf_inv(x: Expr) -> Expr:
    """The inverse error function on [-1, 1]."""
    # (1 - x) * (1 + x) keeps the bits near 1 that 1 - x * x loses.
    w = -((1.0 - x) * (x + 1.0)).of("log")
    centre = polynomial(w - 2.5, _ERF_INV_CENTRE)
    tail = polynomial(w.of("sqrt") - 3.0, _ERF_INV_TAIL)
    inside = (w < 5.0).where(centre, tail) * x
    return abs(x).equals(1.0).where(x * INFINITY, inside)


def erfc(x: Expr) -> Expr:
    """``1 - erf(x)``, without cancellation for large x."""
    size = abs(x)
    inverse = 1.0 / size
    y = inverse * inverse
    series = (size < 2.0).where(polynomial(y, _ERFC_NEAR), polynomial(y, _ERFC_FAR))
    tail = (-(x * x)).of("exponential") * inverse * series
    tail = size.equals(INFINITY).where(x.like(0.0), tail)
    far = (x < 0.0).where(2.0 - tail, tail)
    return (size < 1.0).where(1.0 - x.of("erf"), far)


def lgamma(x: Expr) -> Expr:
    """``log(abs(gamma(x)))``, by Lanczos' series and the reflection formula below 1/2."""
    reflects = x < 0.5
    z = reflects.where(-x, x - 1.0)
    total = z.like(_LANCZOS_BASE)
    for i, coefficient in enumerate(_LANCZOS):
        total = total + z.like(coefficient) / (z + float(i + 1))
    t = z + (_LANCZOS_G + 0.5)
    # log1p keeps the bits of a small z that a plain log of the sum loses.
    log_t = (z / (_LANCZOS_G + 0.5)).of("log-plus-one") + math.log(_LANCZOS_G + 0.5)
    log_y = (z + 0.5 - t / log_t) * log_t + 0.5 * math.log(2 * math.pi) + total.of("log")
    size = abs(x)
    fraction = size - size.of("floor")
    reduced = (fraction > 0.5).where(1.0 - fraction, fraction)
    denominator = (reduced * math.pi).of("sine").of("log")
    reflected = (math.log(math.pi) - denominator) - log_y
    reflected = denominator.of("is-finite").where(reflected, -denominator)
    result = reflects.where(reflected, log_y)
    return size.equals(INFINITY).where(x.like(INFINITY), result)


def digamma(x: Expr) -> Expr:
    """The derivative of `lgamma`; NaN at the poles."""
    reflects = x < 0.5
    z = reflects.where(-x, x - 1.0)
    numerator, denominator = z.like(0.0), z.like(_LANCZOS_BASE)
    for i, coefficient in enumerate(_LANCZOS):
        term = z + float(i + 1)
        numerator = numerator - z.like(coefficient) / (term * term)
        denominator = denominator + z.like(coefficient) / term
    t = z + (_LANCZOS_G + 0.5)
    log_t = (z / (_LANCZOS_G + 0.5)).of("log-plus-one") + math.log(_LANCZOS_G + 0.5)
    y = log_t + numerator / denominator - _LANCZOS_G / t
    reduced = x + (x + 0.5).of("floor").of("abs")
    angle = reduced * math.pi
    reflected = y - angle.of("cosine") * math.pi / angle.of("sine")
    is_pole = (x <= 0.0) & x.equals(x.of("floor"))
    return is_pole.where(x.like(NAN), reflects.where(reflected, y))


def zeta(x: Expr, q: Expr) -> Expr:
    """Hurwitz' ``sum of (q + k) ** -x`` over k = 0, 1, ...: N terms, the integral, corrections."""
    a = q
    total = q.of("power", -x)
    for _ in range(1, _ZETA_TERMS):
        a = a + 1.0
        total = total + a.of("power", -x)
    a = a + 1.0
    power = a.of("power", -x)
    squared, corrections = 1.0 / (a * a), x.like(0.0)
    for i, divisor in reversed(list(enumerate(_ZETA_CORRECTIONS))):
        corrections = corrections + 1.0 / divisor
        if i > 0:
            step = x + float(2 * i - 1)
            corrections = step * (step + 1.0) * (squared * corrections)
    behind = total + power * a / (x - 1.0) + power * (x / a * corrections + 0.5)
    total = (power.equals(0.0) & ~total.equals(0.0)).where(total, behind)
    is_outside = (x < 1.0) | ((q <= 0.0) & ~x.equals(x.of("floor")))
    is_pole = (q <= 0.0) & q.equals(q.of("floor"))
    is_even = x.of("remainder", 2.0).equals(0.0)
    at_pole = is_even.where(x.like(INFINITY), NAN)
    result = is_pole.where(at_pole, is_outside.where(x.like(NAN), total))
    return x.equals(1.0).where(x.like(INFINITY), result)


def polygamma(n: Expr, x: Expr) -> Expr:
    """The n-th derivative of `digamma`: ``(-1) ** (n + 1) * n! * zeta(n + 1, x)``."""
    half = n * 0.5
    is_even = half.equals(half.of("floor"))
    sign = is_even.where(n.like(-1.0), 1.0)
    value = sign * lgamma(n + 1.0).of("exponential") * zeta(n + 1.0, x)
    result = n.equals(0.0).where(digamma(x), value)
    is_order = (n >= 0.0) & n.equals(n.of("floor"))
    return is_order.where(result, NAN)


def bessel_i0(x: Expr) -> Expr:
    """``I0(x)``; the exponential is multiplied in by halves, since it overflows before the product."""
    size = abs(x)
    near = chebyshev(size * 0.5 - 2.0, _I0E_NEAR)
    far = chebyshev(32.0 / size - 2.0, _I0E_FAR) / size.of("sqrt")
    half = (size * 0.5).of("exponential")
    return (size <= 8.0).where(near, far) * half * half


def bessel_i1e(x: Expr) -> Expr:
    """``exp(-abs(x)) * I1(x)``."""
    size = abs(x)
    near = chebyshev(size * 0.5 - 2.0, _I1E_NEAR) * size
    far = chebyshev(32.0 / size - 2.0, _I1E_FAR) / size.of("sqrt")
    result = (size <= 8.0).where(near, far)
    return (x < 0.0).where(-result, result)


def next_after(x: Expr, y: Expr) -> Expr:
    """The neighbour of x in the direction of y, by counting bit patterns."""
    unsigned = BY_NAME[f"u{x.dtype.bits}"]
    sign = 1 << (x.dtype.bits - 1)
    x_bits, y_bits = x.bits(unsigned), y.bits(unsigned)
    x_sign, y_sign = x_bits & x_bits.like(sign), y_bits & y_bits.like(sign)
    x_size = x_bits & x_bits.like(sign - 1)
    y_size = y_bits & y_bits.like(sign - 1)
    smallest = y_sign | y_sign.like(1)  # next to a zero: the least denormal towards y
    shrinks = (x_size > y_size) | x_sign.differs(y_sign)
    step = shrinks.where(x_bits.like(-1 % (1 << x.dtype.bits)), 1)
    moved = x_size.equals(0).where(smallest, x_bits + step)
    same = x.equals(y).where(y_bits, moved)
    result = same.bits(x.dtype)
    is_nan = x.differs(x) | y.differs(y)
    return is_nan.where(x.like(NAN), result)
