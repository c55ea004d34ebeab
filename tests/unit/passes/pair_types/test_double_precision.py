"""f64: refused by name, or computed as f32 on request."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.analysis.host_ports import host_ports
from compiler.diagnostics import UnsupportedError
from compiler.driver import CompileOptions, compile_module
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.passes.context import PassContext
from compiler.passes.pair_types.double_precision import narrow_doubles
from tpu_sim.isa.chips import load_chip

TEXT = """HloModule m
ENTRY e {
  x = f64[3,5] parameter(0)
  z = c128[3] parameter(1)
  c = f64[3] constant({0.1, 1e300, -2})
  a = f64[3] abs(z)
  s = f64[3] multiply(a, c)
  y = f64[3,5] reduce-precision(x), exponent_bits=11, mantissa_bits=52
  ROOT t = (f64[3,5], f64[3]) tuple(y, s)
}
"""


def test_refused_by_name_with_what_to_do() -> None:
    with pytest.raises(UnsupportedError, match=r"%x: a TPU has no f64.*--f64-as-f32"):
        compile_module(parse_module(TEXT, "t.hlo"), load_chip("v5e"))


def test_narrowed_on_request() -> None:
    module = parse_module(TEXT, "t.hlo")
    assert narrow_doubles(module, PassContext(load_chip("v5e")))
    assert host_ports(module).parameters == ("f64[3,5]", "c128[3]")
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    z = np.array([3 + 4j, 1, 2j], np.complex64)
    same, scaled = evaluate(module, [x, z])
    assert same.dtype == scaled.dtype == np.float32
    np.testing.assert_array_equal(same, x)
    np.testing.assert_allclose(scaled, [0.5, np.inf, -4], rtol=1e-6)


def test_bits_of_an_f64_are_refused() -> None:
    text = (
        "HloModule m\nENTRY e {\n  x = f64[] parameter(0)\n  ROOT r = s64[] bitcast-convert(x)\n}\n"
    )
    module = parse_module(text, "t.hlo")
    with pytest.raises(UnsupportedError, match="needs the bits of an f64"):
        compile_module(module, load_chip("v5e"), CompileOptions(f64_as_f32=True))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "e { x = f32[2,8] parameter(0)\n ROOT g = f32[8,8] all-gather(x), replica_groups={}, "
            "dimensions={0} }",
            "all-gather of several participants; compile the program for one device",
        ),
    ],
)
def test_what_no_chip_here_holds_is_refused(text: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        compile_module(parse_module(f"HloModule m\nENTRY {text}", "t.hlo"), load_chip("v5e"))
