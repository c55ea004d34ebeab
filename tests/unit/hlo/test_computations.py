from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from compiler.hlo.call_graph import (
    callees,
    callers,
    control_computations,
    drop_unreachable,
    post_order,
)
from compiler.hlo.cloning import clone_computation, clone_instructions
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.keys import Key, computation_hash, computation_key
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.hlo.verifier import verify

TEXT = """
f { p = f32[4] parameter(0) q = f32[4] parameter(1) a = f32[4] negate(p)
    b = f32[4] exponential(q) k = f32[] constant(2) s = f32[4] broadcast(k), dimensions={}
    m = f32[4] multiply(a, s) ROOT r = f32[4] subtract(m, b) }
ENTRY e { x = f32[4] parameter(0) ROOT y = f32[4] call(x, x), to_apply=f }
"""


def _key_of(text: str) -> Key:
    return computation_key(parse_module(text).computations["f"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a = f32[4] negate(p)", "a2 = f32[4] negate(p), metadata={op_name=\"n\"}"),
        ("f {", "f { "),
    ],
)  # fmt: skip
def test_names_and_metadata_do_not_count(old: str, new: str) -> None:
    changed = TEXT.replace(old, new)
    if "a2" in new:
        changed = changed.replace("multiply(a,", "multiply(a2,")
    assert changed != TEXT
    assert _key_of(changed) == _key_of(TEXT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("negate(p)", "abs(p)"),
        ("subtract(m, b)", "subtract(b, m)"),
        ("constant(2)", "constant(3)"),
        ("negate(p)", "negate(q)"),
        ("a = f32[4]", "a = f32[4]{0:T(128)}"),
        ("dimensions={}", "dimensions={}, odd=1"),
        ("ROOT r = f32[4] subtract(m, b)", "r = f32[4] subtract(m, b) ROOT t = f32[4] abs(m)"),
    ],
)
def test_what_is_computed_counts(old: str, new: str) -> None:
    assert old in TEXT
    assert _key_of(TEXT.replace(old, new)) != _key_of(TEXT)


def test_called_computations_count_by_structure() -> None:
    def entry_key(text: str) -> Key:
        return computation_key(parse_module(text).entry)

    assert entry_key(TEXT.replace("f {", "g {").replace("=f ", "=g ")) == entry_key(TEXT)
    assert entry_key(TEXT.replace("negate", "abs")) != entry_key(TEXT)


def _hashes(module: HloModule) -> list[int]:
    return [computation_hash(c) for c in module.computations.values()]


Edit = Callable[[HloModule], object]


def _rename(module: HloModule) -> None:
    module.entry.root_instruction.name = "z"


def _swap(module: HloModule) -> None:
    root = module.computations["f"].root_instruction
    root.set_operands(reversed(root.operands))


def _attribute(module: HloModule) -> None:
    module.entry.root_instruction.attrs["odd"] = 1


def _literal(module: HloModule) -> None:
    constant = next(i for i in module.computations["f"] if i.opcode == "constant")
    constant.attrs["literal"] = np.array(3, np.float32)


def _root(module: HloModule) -> None:
    module.entry.root = module.entry.parameters[0]


def _shape(module: HloModule) -> None:
    instr = module.entry.parameters[0]
    instr.shape = instr.array.with_dims((5,))


def _reorder(module: HloModule) -> None:
    computation = module.computations["f"]
    computation.instructions = dict(reversed(computation.instructions.items()))


@pytest.mark.parametrize("edit", [_rename, _swap, _attribute, _literal, _root, _shape, _reorder])
def test_a_fingerprint_sees_every_edit(edit: Edit) -> None:
    module = parse_module(TEXT)
    before = _hashes(module)
    assert _hashes(module) == before
    edit(module)
    assert _hashes(module) != before


def test_a_fingerprint_is_not_moved_by_an_equal_literal() -> None:
    module = parse_module(TEXT)
    before = _hashes(module)
    constant = next(i for i in module.computations["f"] if i.opcode == "constant")
    constant.attrs["literal"] = np.array(2, np.float32)
    assert _hashes(module) == before


def test_clone_has_own_instructions_and_equal_structure() -> None:
    module = parse_module(TEXT)
    original = module.computations["f"]
    clone = clone_computation(original, module=module)
    assert clone.name == "f.clone"
    assert not set(clone) & set(original)
    assert computation_key(clone) == computation_key(original)
    assert len({i.name for c in (original, clone) for i in c}) == 2 * len(original.instructions)


def test_clone_instructions_inlines_a_call() -> None:
    module = parse_module(TEXT)
    entry = module.entry
    call = entry.root_instruction
    copies = clone_instructions(module.computations["f"], entry, call.operands)
    call.replace_all_uses_with(copies[module.computations["f"].root_instruction])
    entry.remove(call)
    drop_unreachable(module)
    verify(module)
    assert [i.opcode for i in entry][-1] == "subtract"


def test_call_graph_questions() -> None:
    module = parse_module(TEXT)
    f, e = module.computations.values()
    assert callees(e) == [f]
    assert callers(module) == {f: [e.root], e: []}
    assert post_order([e, f]) == [f, e]
    assert control_computations(module) == [f, e]


def test_embedded_computations_are_not_control_flow() -> None:
    path = Path(__file__).parents[2] / "data" / "mandelbrot_while_tiny.hlo"
    module = parse_module(path.read_text())
    control = control_computations(module)
    loops = [i for c in control for i in c if i.opcode == "while"]
    assert loops
    for loop in loops:
        assert all(c in control for c in loop.called_computations())
    embedded = [c for c in module.computations.values() if c not in control]
    assert all(not isinstance(i, HloComputation) for c in embedded for i in c)
    assert print_module(module)


def test_clone_keeps_control_predecessors_inside() -> None:
    module = parse_module(
        "ENTRY e { x = f32[] parameter(0) a = f32[] negate(x)"
        " ROOT b = f32[] abs(x), control-predecessors={a} }"
    )
    clone = clone_computation(module.entry)
    root: HloInstruction = clone.root_instruction
    assert [p.name for p in root.control_predecessors()] == ["a"]
    assert root.control_predecessors()[0] in clone.instructions
