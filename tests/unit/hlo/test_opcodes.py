from __future__ import annotations

from compiler.hlo.opcodes import OPCODES, VARIADIC, OpcodeInfo, Trait, with_trait
from compiler.hlo.shape_inference import RULES


def test_every_opcode_has_exactly_one_shape_rule() -> None:
    assert RULES.keys() == OPCODES.keys()


def test_rows_are_listed_under_their_names() -> None:
    assert all(name == row.name for name, row in OPCODES.items())
    assert len(OPCODES) == 138


def test_operand_counts() -> None:
    assert OPCODES["add"].accepts(2)
    assert not OPCODES["add"].accepts(1)
    assert OPCODES["concatenate"].accepts(7)
    assert not OPCODES["concatenate"].accepts(0)
    assert not OPCODES["convolution"].accepts(3)
    assert OpcodeInfo("x", VARIADIC, min_arity=1, max_arity=2).arity_text() == "1 to 2 operands"


def test_traits_imply_each_other() -> None:
    assert with_trait(Trait.COMMUTATIVE) <= with_trait(Trait.ELEMENTWISE)
    assert with_trait(Trait.TRANSCENDENTAL) <= with_trait(Trait.ELEMENTWISE)
    assert with_trait(Trait.CONTROL_FLOW) <= with_trait(Trait.CALLS)
    assert not with_trait(Trait.SIDE_EFFECT) & with_trait(Trait.ELEMENTWISE)
    assert all(OPCODES[name].arity == 2 for name in with_trait(Trait.COMMUTATIVE))
