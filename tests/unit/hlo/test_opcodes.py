from __future__ import annotations

from compiler.hlo import opcodes
from compiler.hlo.attribute_text import FORMS
from compiler.hlo.attributes import Attribute
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_trait
from compiler.hlo.ops.declaration import variadic
from compiler.hlo.ops.inference import declared

VERBATIM = frozenset({
    "convolution_kind", "cross_program_prefetch_index", "domain", "has_dynamic_root",
    "inferred_dimension", "is_composite", "outfeed_shape", "padding_type", "parameter_replication",
    "schedule", "sparsity_config",
})  # fmt: skip
"""Attributes that nothing reads: they are printed as they were written."""


def test_every_opcode_is_declared_once() -> None:
    names = [op.name for family in opcodes._FAMILIES for op in family.OPS]
    assert len(names) == len(set(names)) == len(OPCODES)


def test_every_typed_attribute_has_a_text_form() -> None:
    typed = {name for name, value in vars(HloInstruction).items() if isinstance(value, Attribute)}
    assert typed - FORMS.keys() == {"parameter_number", "literal"}  # between the parentheses


def test_every_declared_attribute_has_a_text_form() -> None:
    declared = {row.name for op in OPCODES.values() for row in op.attrs}
    missing = declared - FORMS.keys() - VERBATIM - {"literal"}
    assert not missing, "add them to compiler/hlo/attribute_text.py"


def test_operand_counts() -> None:
    assert OPCODES["add"].accepts(2)
    assert not OPCODES["add"].accepts(1)
    assert OPCODES["concatenate"].accepts(7)
    assert not OPCODES["concatenate"].accepts(0)
    assert not OPCODES["convolution"].accepts(3)
    assert variadic("x", 1, declared, most=2).arity_text() == "1 to 2 operands"


def test_traits_imply_each_other() -> None:
    assert with_trait(Trait.COMMUTATIVE) <= with_trait(Trait.ELEMENTWISE)
    assert with_trait(Trait.TRANSCENDENTAL) <= with_trait(Trait.ELEMENTWISE)
    assert with_trait(Trait.CONTROL_FLOW) <= with_trait(Trait.CALLS)
    assert not with_trait(Trait.SIDE_EFFECT) & with_trait(Trait.ELEMENTWISE)
    assert all(OPCODES[name].arity == 2 for name in with_trait(Trait.COMMUTATIVE))
