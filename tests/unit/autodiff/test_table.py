"""The table of derivatives has a rule, or a reason, for every opcode."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from benchmarks import derivatives
from compiler.autodiff.modules import grad_module, jvp_module, vjp_module
from compiler.autodiff.rule import Constant, Refused
from compiler.autodiff.table import DERIVATIVES
from compiler.diagnostics import CompileError, UnsupportedError
from compiler.frontends.numpy.tracing import trace
from compiler.hlo.evaluator import evaluate
from compiler.hlo.opcodes import OPCODES
from compiler.hlo.parser import parse_module


def test_every_opcode_has_a_rule() -> None:
    assert DERIVATIVES.keys() == OPCODES.keys()


def test_what_has_no_derivative_says_why() -> None:
    for name, rule in DERIVATIVES.items():
        if isinstance(rule, Constant | Refused):
            assert len(rule.reason) > 10, name


def test_the_page_lists_what_has_no_derivative() -> None:
    is_listed = derivatives.section() in derivatives.PAGE.read_text(encoding="utf-8")
    assert is_listed, "run: python -m benchmarks.derivatives"


def test_a_refusal_names_the_line_of_a_traced_program() -> None:
    with pytest.raises(UnsupportedError, match=r"trip count is not known.*test_table\.py:\d+\)"):
        trace(
            tpuc.grad(lambda x: tpuc.lax.while_loop(lambda s: s < 9, lambda s: s * s, x)),
            (np.float32(2),),
        )


def test_an_operation_without_derivative_is_refused_by_name() -> None:
    module = parse_module("""HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  ROOT y = f32[4] custom-call(x), custom_call_target="mystery"
}""")
    for mode in (vjp_module, jvp_module):
        with pytest.raises(UnsupportedError, match="%y: custom-call has no derivative"):
            mode(module)


def test_the_gradient_of_a_module() -> None:
    module = parse_module("""HloModule m
ENTRY e {
  x = f32[] parameter(0)
  n = s32[] parameter(1)
  ROOT y = f32[] multiply(x, x)
}""")
    value, gradient = evaluate(grad_module(module), [np.float32(3), np.int32(1)])
    assert (value, gradient) == (9, 6)
    with pytest.raises(CompileError, match="returns no single real scalar"):
        grad_module(grad_module(module))


def test_what_does_not_depend_on_the_arguments_needs_no_derivative() -> None:
    module = parse_module("""HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  n = s32[] parameter(1)
  y = f32[4] custom-call(n), custom_call_target="mystery"
  ROOT z = f32[4] multiply(x, y)
}""")
    assert "custom-call" in {i.opcode for i in vjp_module(module).entry}


def test_a_broadcast_may_permute() -> None:
    module = parse_module("""HloModule m
ENTRY e {
  x = f32[3,4] parameter(0)
  ROOT y = f32[2,4,6,3] broadcast(x), dimensions={3,1}
}""")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    seed = np.arange(144, dtype=np.float32).reshape(2, 4, 6, 3)
    _, cotangent = evaluate(vjp_module(module), [x, seed])
    np.testing.assert_array_equal(cotangent, seed.sum((0, 2)).T)


def test_power_is_flat_where_its_exponent_is_zero() -> None:
    """JAX has NaN for the base 0."""
    module = parse_module("""HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  n = f32[2] parameter(1)
  ROOT y = f32[2] power(x, n)
}""")
    one = np.ones(2, np.float32)
    with np.errstate(all="ignore"):
        found = evaluate(vjp_module(module), [np.array([0, 2], np.float32), one * 0, one])
    np.testing.assert_allclose(found[1], 0)
    np.testing.assert_allclose(found[2], [0, np.log(2)], rtol=1e-6)


LOOP = """HloModule m
condition {
  s = (s32[], s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT t = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  x = f32[3] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[3] sine(x)
  ROOT r = (s32[], s32[], f32[3]) tuple(next, n, y)
}
ENTRY e {
  x = f32[3] parameter(0)
  n = s32[] parameter(1)
  zero = s32[] constant(0)
  init = (s32[], s32[], f32[3]) tuple(zero, n, x)
  loop = (s32[], s32[], f32[3]) while(init), condition=condition, body=body
  ROOT y = f32[3] get-tuple-element(loop), index=2
}"""


def test_a_loop_of_unknown_length_has_forward_mode_only() -> None:
    module = parse_module(LOOP)
    with pytest.raises(UnsupportedError, match="%loop: reverse mode through a loop whose trip"):
        vjp_module(module)
    x, t = np.array([0.1, 1, 2], np.float32), np.array([1, 2, 3], np.float32)
    y, tangent = evaluate(jvp_module(module), [x, np.int32(2), t])
    np.testing.assert_allclose(y, np.sin(np.sin(x)), rtol=1e-6)
    np.testing.assert_allclose(tangent, np.cos(np.sin(x)) * np.cos(x) * t, rtol=1e-5)


def test_the_sign_of_a_complex_number_turns_with_it() -> None:
    """JAX has zero."""
    module = parse_module("""HloModule m
ENTRY e {
  x = c64[2] parameter(0)
  ROOT y = c64[2] sign(x)
}""")
    z, t = np.array([1 + 2j, -3j], np.complex64), np.array([0.5 - 1j, 2 + 1j], np.complex64)
    _, tangent = evaluate(jvp_module(module), [z, t])
    wide, step = z.astype(np.complex128), 1e-6 * t
    ahead, behind = wide + step, wide - step
    want = (ahead / abs(ahead) - behind / abs(behind)) / 2e-6
    np.testing.assert_allclose(tangent, want, rtol=1e-5)
    seed = np.array([1j, 2 - 1j], np.complex64)
    _, cotangent = evaluate(vjp_module(module), [z, seed])
    np.testing.assert_allclose((cotangent * t).real, (seed * want).real, rtol=1e-5, atol=1e-6)
