"""The memory that a result is to lie in goes from the signature to the compiled program."""

from __future__ import annotations

from compiler.driver import compile_module
from compiler.frontends.stablehlo.lowering import parse_stablehlo
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.hlo.result_memories import DEVICE_MEMORY, put_result_memories, result_memories
from tpu_sim.isa.chips import load_chip

PROGRAM = """func.func public @main(%x: tensor<4xf32>)
    -> (tensor<4xf32> {mhlo.memory_kind = "device"}, tensor<4xf32> {mhlo.memory_kind = "pinned_host"}) {
  %y = stablehlo.negate %x : tensor<4xf32>
  return %x, %y : tensor<4xf32>, tensor<4xf32>
}"""


def test_the_text_of_the_module_says_it() -> None:
    module = parse_stablehlo(PROGRAM)
    assert result_memories(module) == {1: "pinned_host"}
    assert result_memories(parse_module(print_module(module))) == {1: "pinned_host"}


def test_the_program_says_it() -> None:
    program = compile_module(parse_stablehlo(PROGRAM), load_chip("v5e")).program
    assert program.metadata["result_memories"] == '{"1": "pinned_host"}'


def test_a_program_that_says_nothing_has_no_such_line() -> None:
    plain = PROGRAM.replace("pinned_host", "device")
    program = compile_module(parse_stablehlo(plain), load_chip("v5e")).program
    assert "result_memories" not in program.metadata


def test_the_last_note_holds() -> None:
    module = parse_stablehlo(PROGRAM)
    put_result_memories(module, {0: "unpinned_host", 1: DEVICE_MEMORY})
    assert result_memories(parse_module(print_module(module))) == {0: "unpinned_host"}
    put_result_memories(module, {0: DEVICE_MEMORY})
    assert result_memories(module) == {}
