"""Printing and parsing ``.llo`` are inverse; errors say where."""

from __future__ import annotations

import pytest

from compiler.diagnostics import CompileError
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import LloKernel
from compiler.llo.parser import parse_llo
from compiler.llo.printer import print_llo
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.program import HBM, VMEM, DmaDescriptor, DmaDim


def sample() -> LloKernel:
    b = LloBuilder('odd "name"', load_chip("v5e"))
    b.source = "add.5"
    x = b.window("x", 64)
    move = b.descriptor(DmaDescriptor(HBM, VMEM, 8, (DmaDim(-1, 2, 3), DmaDim(4, 5, 6)), x))
    flag = b.flag(2)
    b.emit("dma.start", move, b.argument(1), 0, flag, 0, b.argument(0), 0)
    total = b.variable(constant=3)
    with b.loop_dynamic(b.argument(0), "rows", parallel=True) as i, b.if_(i):
        b.emit("vst", x, i, 0, 1, b.emit("vtanh.f32", b.emit("vsplat", total)))
    with b.loop(5):
        b.assign_add(total, -2)
    with b.if_(total):
        b.emit("sst", 0, 200, total)
    with b.else_():
        b.emit("dma.wait", flag, 0)
    with b.while_("w", 9) as loop:
        loop.condition(b.saddi(total, 1))
        b.assign_add(total, 1)
    b.note = "a note"
    return b.finish()


def test_parsing_what_is_printed_gives_an_equal_kernel() -> None:
    kernel = sample()
    text = print_llo(kernel)
    assert parse_llo(text) == kernel
    assert print_llo(parse_llo(text)) == text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sst ", "ssst ", "unknown instruction"),
        ("window w0", "window w1", "number 1, want 0"),
        ("hbm ->", "hmb ->", "spaces hbm, vmem or smem"),
        ("-1 x", "q x", "dimension"),
        ("loop s", "lop s", "want block, loop"),
        ("} do s", "} doo s", "want } do"),
    ],
)
def test_errors_name_the_line(old: str, new: str, message: str) -> None:
    text = print_llo(sample()).replace("c0 x", "-1 x")
    assert old in text
    with pytest.raises(CompileError, match=message) as error:
        parse_llo(text.replace(old, new, 1), "k.llo")
    assert error.value.span is not None and error.value.span.file == "k.llo"


def test_a_text_that_ends_early_is_an_error() -> None:
    text = "\n".join(print_llo(sample()).splitlines()[:-3])
    with pytest.raises(CompileError, match="ends too early"):
        parse_llo(text)


def test_a_string_with_an_escape_that_json_does_not_have_is_an_error_of_the_text() -> None:
    text = print_llo(sample()).replace('block "', 'block "\\q', 1)
    with pytest.raises(CompileError, match="escape") as error:
        parse_llo(text, "k.llo")
    assert error.value.span is not None and error.value.span.file == "k.llo"
