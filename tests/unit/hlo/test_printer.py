from __future__ import annotations

from pathlib import Path

import pytest

from compiler.hlo.parser import parse_module
from compiler.hlo.printer import PrintOptions, print_instruction, print_module

MODELS = sorted((Path(__file__).parents[2] / "data").glob("*.hlo"))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_models_print_back_byte_for_byte(path: Path) -> None:
    text = path.read_text()
    assert print_module(parse_module(text)) == text


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_xla_reads_what_is_printed(path: Path) -> None:
    xla = pytest.importorskip("jaxlib._hlo")
    text = print_module(parse_module(path.read_text()))
    options = xla.HloPrintOptions()
    options.print_large_constants = True
    again = xla.hlo_module_from_text(text).to_string(options)
    assert sorted(again.splitlines()) == sorted(text.splitlines())


def test_short_form_leaves_out_what_the_parser_can_do_without() -> None:
    text = "ENTRY e { x = f32[2]{0} parameter(0) ROOT y = f32[2]{0} add(x, x) }"
    options = PrintOptions(percent=False, signatures=False, layouts=False)
    printed = print_module(parse_module(text), options)
    assert "ENTRY e {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] add(x, x)\n}" in printed


def test_options_hide_metadata_and_configuration() -> None:
    text = 'ENTRY e { x = f32[] parameter(0), metadata={op_name="a"}, backend_config={"k":1} }'
    root = parse_module(text).entry.root_instruction
    assert print_instruction(root) == (
        '%x = f32[] parameter(0), metadata={op_name="a"}, backend_config={"k":1}'
    )
    options = PrintOptions(metadata=False, backend_config=False)
    assert print_instruction(root, options) == "%x = f32[] parameter(0)"


def test_operands_can_show_their_shapes() -> None:
    text = "ENTRY e { x = f32[2]{0} parameter(0) ROOT y = f32[2]{0} add(x, x) }"
    root = parse_module(text).entry.root_instruction
    printed = print_instruction(root, PrintOptions(operand_shapes=True))
    assert printed == "%y = f32[2]{0} add(f32[2]{0} %x, f32[2]{0} %x)"


def test_large_constants_can_be_elided() -> None:
    root = parse_module("ENTRY e { x = s32[3] constant({1, 2, 3}) }").entry.root_instruction
    assert print_instruction(root, PrintOptions(large_constant_elements=2)).endswith("({...})")
    assert print_instruction(root, PrintOptions(large_constant_elements=3)).endswith("({1, 2, 3})")
