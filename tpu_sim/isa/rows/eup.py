"""EUP: transcendental functions and long integer operations, through a result queue.

A push names no destination; results are popped in order by ``vpop.eup``. Integer division has no
public place in the hardware; giving it to the EUP at a long latency is our assumption. A NaN that a
function gives is 0x7FC00000.
"""

from __future__ import annotations

from typing import Any

from tpu_sim.isa.instruction import Crossing, Does, Row, Slot, define
from tpu_sim.isa.resources import EUP
from tpu_sim.isa.rows.mxu import CANONICAL_NAN, canonical
from tpu_sim.isa.semantics import calls


def _eup(name: str, opcode: int, spec: str, doc: str, does: Does, latency: str = "eup") -> Row:
    return define(name, opcode, Slot.EUP, spec, latency, doc, does, defines=(EUP,))


def _polynomial(m: Any, x: Any, coefficients: tuple[float, ...]) -> Any:
    """Horner's scheme with fused multiply-adds, highest coefficient first."""
    result = m.const_f(coefficients[0])
    for coefficient in coefficients[1:]:
        result = m.fma(result, x, m.const_f(coefficient))
    return result


_EXP2 = (1.5353362e-4, 1.3398874e-3, 9.6184373e-3, 5.5503324e-2, 2.4022648e-1, 6.9314720e-1, 1.0)
"""2**r on [-0.5, 0.5]: Cephes exp2f's minimax coefficients, 1 appended."""


def power_of_two_lanes(m: Any, a: Any) -> Any:
    """2 ** a on f32 bits; any NaN gives the one that the other functions give."""
    x = m.as_f(a)
    clamped = m.fmaximum(m.fminimum(x, m.const_f(129.0)), m.const_f(-151.0))
    whole = m.fround_even(clamped)
    mantissa = _polynomial(m, m.fsub(clamped, whole), _EXP2)
    exponent = m.f_to_s(whole)  # in two halves, so that denormal results are reached
    half = m.ashr(exponent, m.const_i(1))
    rest = m.isub(exponent, half)
    scaled = m.fmul(mantissa, _power_of_two(m, half))
    result = m.as_i(m.fmul(scaled, _power_of_two(m, rest)))
    return m.select(m.fcmp("ne", x, x), m.const_i(CANONICAL_NAN), result)


def _power_of_two(m: Any, exponent: Any) -> Any:
    """2.0 ** exponent for exponents of normal floats."""
    return m.as_f(m.shl(m.iadd(exponent, m.const_i(127)), m.const_i(23)))


_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
"""(log(1+f) - f + f*f/2) / f**3 on [sqrt(1/2)-1, sqrt(2)-1]: Cephes logf's coefficients."""
_LOG2E_HIGH = 1.4426950216293335
_LOG2E_LOW = 1.9259629911266175e-8


def _log2(m: Any, a: Any) -> Any:
    x = m.as_f(a)
    is_denormal = m.fcmp("lt", x, m.const_f(1.1754943508222875e-38))
    bits = m.select(is_denormal, m.as_i(m.fmul(x, m.const_f(8388608.0))), a)
    bias = m.select(is_denormal, m.const_i(127 + 23), m.const_i(127))
    # split x = 2**e * (1+f) with 1+f in [sqrt(1/2), sqrt(2)): 0x3504f3 is sqrt(2)'s mantissa
    shifted = m.iadd(bits, m.const_i(0x3F800000 - 0x3F3504F3))
    exponent = m.isub(m.lshr(shifted, m.const_i(23)), bias)
    mantissa = m.iadd(m.iand(shifted, m.const_i(0x7FFFFF)), m.const_i(0x3F3504F3))
    f = m.fsub(m.as_f(mantissa), m.const_f(1.0))
    square = m.fmul(f, f)
    tail = m.fmul(m.fmul(_polynomial(m, f, _LOG), f), square)
    tail = m.fma(square, m.const_f(-0.5), tail)
    # log2(1+f) = (f + tail) * log2(e), summed small to large
    result = m.fma(f, m.const_f(_LOG2E_LOW), m.fmul(tail, m.const_f(_LOG2E_HIGH)))
    high = m.fmul(f, m.const_f(_LOG2E_HIGH))
    error = m.fma(f, m.const_f(_LOG2E_HIGH), m.fsub(m.const_f(-0.0), high))
    result = m.fadd(m.fadd(result, error), high)
    value = m.as_i(m.fadd(m.s_to_f(exponent), result))
    return _log_specials(m, a, value)


def _log_specials(m: Any, a: Any, value: Any) -> Any:
    """log of 0 is -inf, of +inf is +inf, of a negative number or NaN is NaN."""
    x = m.as_f(a)
    value = m.select(m.icmp_s("eq", a, m.const_i(0x7F800000)), a, value)
    value = m.select(m.fcmp("eq", x, m.const_f(0.0)), m.const_i(-0x00800000), value)
    bad = m.mor(m.fcmp("lt", x, m.const_f(0.0)), m.fcmp("ne", x, x))
    return m.select(bad, m.const_i(CANONICAL_NAN), value)


_TANH_SMALL = (
    -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1,
)  # fmt: skip
"""(tanh(x) - x) / x**3 in x*x for |x| < 0.625: Cephes tanhf's coefficients."""


def _tanh(m: Any, a: Any) -> Any:
    x = m.as_f(a)
    magnitude = m.as_f(m.iand(a, m.const_i(0x7FFFFFFF)))
    square = m.fmul(x, x)
    cubic = m.fmul(m.fmul(_polynomial(m, square, _TANH_SMALL), square), x)
    small = m.as_i(m.fadd(cubic, x))
    # tanh|x| = 1 - 2 / (exp(2|x|) + 1), beyond 9.02 it is 1 in f32
    doubled = m.fmul(m.fminimum(magnitude, m.const_f(10.0)), m.const_f(2.885390081777927))
    power = power_of_two_lanes(m, m.as_i(doubled))
    quotient = m.fdiv(m.const_f(2.0), m.fadd(m.as_f(power), m.const_f(1.0)))
    large = m.as_i(m.fsub(m.const_f(1.0), quotient))
    result = m.select(m.fcmp("lt", magnitude, m.const_f(0.625)), small, large)
    result = m.ior(result, m.iand(a, m.const_i(-0x80000000)))  # tanh(-0) is -0, too
    return m.select(m.fcmp("ne", x, x), m.const_i(CANONICAL_NAN), result)


VPOW2 = _eup("vpow2.f32", 1, "a:vs", "push 2 ** a", power_of_two_lanes)
VLOG2 = _eup("vlog2.f32", 2, "a:vs", "push log2(a); NaN below 0, -inf at 0", _log2)
VRCP = _eup(
    "vrcp.f32", 3, "a:vs", "push 1 / a, correctly rounded",
    lambda m, a: canonical(m, m.fdiv(m.const_f(1.0), m.as_f(a))),
)  # fmt: skip
VRSQRT = _eup(
    "vrsqrt.f32", 4, "a:vs", "push 1 / sqrt(a)",
    lambda m, a: canonical(m, m.fdiv(m.const_f(1.0), m.fsqrt(m.as_f(a)))),
)  # fmt: skip
VSQRT = _eup(
    "vsqrt.f32", 5, "a:vs", "push sqrt(a), correctly rounded",
    lambda m, a: canonical(m, m.fsqrt(m.as_f(a))),
)  # fmt: skip
VTANH = _eup("vtanh.f32", 6, "a:vs", "push tanh(a)", _tanh)
VDIV_S32 = _eup(
    "vdiv.s32", 7, "a:vs b:vs", "push a / b toward zero; x/0 = -1", calls("idiv_s"), "idiv"
)
VREM_S32 = _eup(
    "vrem.s32", 8, "a:vs b:vs", "push remainder with the sign of a; x%0 = x",
    calls("irem_s"), "idiv",
)  # fmt: skip
VDIV_U32 = _eup(
    "vdiv.u32", 9, "a:vs b:vs", "push unsigned a / b; x/0 = all ones", calls("idiv_u"), "idiv"
)
VREM_U32 = _eup(
    "vrem.u32", 10, "a:vs b:vs", "push unsigned a % b; x%0 = x", calls("irem_u"), "idiv"
)

VPOP_EUP = define(
    "vpop.eup", 1, Slot.POP, "d:vd", "pop", "d = oldest result of the EUP queue",
    lambda core: core.pop(EUP, 0), crossing=Crossing.STATE, uses=(EUP,),
)  # fmt: skip
