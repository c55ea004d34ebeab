"""What is computed once instead of in every load that wants it depends on the chip."""

from __future__ import annotations

import pytest

from compiler.hlo.parser import parse_module
from compiler.passes.repeated_work import is_better_done_once
from tpu_sim.isa.chips import load_chip

OPS = 5


def module_text(copies: int) -> str:
    """A product that reads `copies` of each element of a value."""
    return f"""HloModule m
    ENTRY e {{
      x = f32[512,512] parameter(0)
      w = f32[512,128] parameter(1)
      value = f32[512,512] multiply(x, x)
      spread = f32[{copies},512,512] broadcast(value), dimensions={{1,2}}
      rows = f32[{copies * 512},512] reshape(spread)
      ROOT d = f32[{copies * 512},128] dot(rows, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
    }}"""


@pytest.mark.parametrize(
    ("chip", "copies", "expected"),
    [
        ("v5e", 6, False),
        ("v5e", 7, True),
        ("v2", 4, False),
        ("v2", 5, True),
        ("7x", 2, False),
        ("7x", 3, True),
    ],
    ids=str,
)
def test_an_operation_is_weighed_against_the_chips_memory(
    chip: str, copies: int, expected: bool
) -> None:
    """On v5e an operation takes half a cycle and a register 17 to be written and read; v2 has half of the
    slots, 7x three times the bandwidth."""
    entry = parse_module(module_text(copies)).entry
    value = next(i for i in entry if i.opcode == "multiply")
    assert is_better_done_once(value, OPS, load_chip(chip)) is expected


@pytest.mark.parametrize(("copies", "expected"), [(20, False), (21, True)])
def test_a_value_that_others_read_too_must_save_several_times_as_much(
    copies: int, expected: bool
) -> None:
    """Taps of a value that a gradient reads as well: on v5e 21 take 52 cycles, storing it 17."""
    text = module_text(copies).replace("ROOT d", "d")
    text = text.replace(
        "rhs_contracting_dims={0}\n    }",
        "rhs_contracting_dims={0}\n      n = f32[512,512] sine(value)\n"
        f"      ROOT t = (f32[{copies * 512},128], f32[512,512]) tuple(d, n)\n    }}",
    )
    value = next(i for i in parse_module(text).entry if i.opcode == "multiply")
    assert is_better_done_once(value, OPS, load_chip("v5e")) is expected
