from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest

from compiler.diagnostics import CompileError
from compiler.hlo.attributes import ComputationLayout
from compiler.hlo.ir import HloComputation
from compiler.hlo.parser import parse_module
from compiler.hlo.verifier import verify

MODELS = sorted((Path(__file__).parents[2] / "data").glob("*.hlo"))

MODULE = """HloModule m, entry_computation_layout={(f32[4]{0})->f32[4]{0}}

sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }

ENTRY main {
  x = f32[4]{0} parameter(0)
  zero = f32[] constant(0)
  r = f32[] reduce(x, zero), dimensions={0}, to_apply=sum
  ROOT b = f32[4]{0} broadcast(r), dimensions={}
}
"""


def test_module_entry_and_attributes_become_objects() -> None:
    module = parse_module(MODULE)
    assert (module.name, module.entry.name) == ("m", "main")
    assert isinstance(module.attrs["entry_computation_layout"], ComputationLayout)
    reduce = next(i for i in module.entry if i.opcode == "reduce")
    assert reduce.attrs["dimensions"] == (0,)
    assert reduce.attrs["to_apply"] is module.computations["sum"]
    assert [operand.name for operand in reduce.operands] == ["x", "zero"]
    literal = reduce.operands[1].attrs["literal"]
    assert isinstance(literal, np.ndarray)
    assert (literal.dtype, literal.shape, literal.item()) == (np.float32, (), 0.0)


def test_the_order_of_the_text_is_kept() -> None:
    assert [i.name for i in parse_module(MODULE).entry] == ["x", "zero", "r", "b.1"]


def test_names_that_repeat_in_other_computations_get_numbers_as_in_xla() -> None:
    module = parse_module(MODULE)
    assert [i.name for i in module.computations["sum"]] == ["a", "b", "c"]
    assert module.entry.root_instruction.name == "b.1"
    assert module.unique_name("b") == "b.2"


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_models_parse_and_verify(path: Path) -> None:
    module = parse_module(path.read_text(), path.name)
    verify(module)
    spans = [instr.span for instr in module.entry]
    assert all(span is not None and span.file == path.name for span in spans)


def test_comments_are_skipped() -> None:
    text = "// title\nENTRY e { /* a * b */ x = f32[2] parameter(0) // the input\n }"
    assert parse_module(text).entry.root_instruction.name == "x"


def test_a_large_literal_parses() -> None:
    numbers = ", ".join(map(str, range(50_000)))
    module = parse_module(f"ENTRY e {{ x = s32[50000] constant({{{numbers}}}) }}")
    literal = module.entry.root_instruction.attrs["literal"]
    assert isinstance(literal, np.ndarray)
    assert literal[-1] == 49_999


def test_deeply_nested_configurations_parse() -> None:
    config = '{"a":{"b":{"c":{"d":{"e":["}{"]}}}}}'
    text = f"ENTRY e {{ x = f32[2] parameter(0), backend_config={config} }}"
    assert parse_module(text).entry.root_instruction.attrs["backend_config"] == config


def test_cyclic_garbage_collection_is_restored() -> None:
    assert gc.isenabled()
    with pytest.raises(CompileError):
        parse_module("ENTRY e {")
    assert gc.isenabled()


def test_an_error_leaves_nothing_behind() -> None:
    with pytest.raises(CompileError):
        parse_module("ENTRY e { x = f32[2] parameter(0) y = ")
    assert parse_module(MODULE).entry.name == "main"


def test_modules_parse_in_several_threads() -> None:
    names: list[str] = []

    def parse(number: int) -> None:
        text = MODULE.replace("HloModule m", f"HloModule m{number}")
        names.append(parse_module(text).name)

    threads = [threading.Thread(target=parse, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names) == ["m0", "m1", "m2", "m3"]


@pytest.mark.parametrize("text", ["", "HloModule m", "ENTRY e {}", "e", "{", "ENTRY e { x }"])
def test_fragments_are_syntax_errors(text: str) -> None:
    with pytest.raises(CompileError):
        parse_module(text)


def test_truncations_never_crash() -> None:
    for end in range(0, len(MODULE) - 2, 3):
        try:
            parse_module(MODULE[:end])
        except CompileError as error:
            assert error.span is not None


def test_called_computations_are_found_in_tuples_too() -> None:
    module = parse_module(
        "f { p = f32[] parameter(0) } g { p = f32[] parameter(0) }"
        "ENTRY e { i = s32[] parameter(0) x = f32[] parameter(1)"
        "  ROOT c = f32[] conditional(i, x, x), branch_computations={f, g} }"
    )
    called: list[HloComputation] = module.entry.root_instruction.called_computations()
    assert [computation.name for computation in called] == ["f", "g"]
