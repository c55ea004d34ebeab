"""What a compiled program's text has beside XLA's opcodes, XLA's reader takes as custom calls."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.readable import readable_text

jaxlib_hlo = pytest.importorskip("jaxlib._hlo")
READABLE = "HloModule m\n\nENTRY %e (x: f32[4]) -> f32[4] {\n  ROOT %y = f32[4] negate(%x)\n}\n"


def test_a_text_of_xlas_own_opcodes_stays_as_it_is() -> None:
    assert readable_text(READABLE) is READABLE


@pytest.mark.parametrize("opcode", sorted(with_trait(Trait.UNREAD)))
def test_xlas_reader_does_not_know_them(opcode: str) -> None:
    with pytest.raises(Exception, match="Unknown opcode"):
        jaxlib_hlo.hlo_module_from_text(f"HloModule m\nENTRY e {{\n  ROOT x = f32[] {opcode}()\n}}")


@pytest.mark.parametrize(
    "body",
    [
        "x = f32[64] parameter(0)\n  y = c64[64] convert(x)\n"
        "  f = c64[64] fft(y), fft_type=FFT, fft_length={64}\n  ROOT r = f32[64] real(f)",
        "x = f32[8,128] parameter(0)\n  y = c64[8,128] convert(x)\n  z = c64[8,128] multiply(y, y)\n"
        "  ROOT r = f32[8,128] real(z)",
        "x = f32[64] parameter(0)\n  ROOT r = f32[64] atan(x)",
    ],
)
def test_compiled_programs_are_read(body: str) -> None:
    text = tpuc.compile(f"HloModule m\nENTRY e {{\n  {body}\n}}").text("hlo")
    read = jaxlib_hlo.hlo_module_from_text(readable_text(text))
    assert read.name.startswith("m")
    np.testing.assert_equal("tpuc." in readable_text(text), readable_text(text) is not text)
