"""Index expressions in sregs: worked out once in a block, anew where their variables lie elsewhere."""

from __future__ import annotations

import pytest

from compiler.analysis.indexing import Var, var
from compiler.backend.vector import index_values
from compiler.backend.vector.index_values import IndexValues
from compiler.backend.vector.ops import Ops
from compiler.llo.builder import LloBuilder
from tpu_sim.isa.chips import load_chip

_I = Var("i", 0, 1000)


def test_a_scalar_is_worked_out_once_in_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = LloBuilder("k", load_chip("v5e"))
    values = IndexValues(Ops(builder), {_I: builder.argument(0)})
    expr = (var(_I) * 3 + 5) // 7
    sreg = values.scalar(expr)
    count = len(builder.block.ops)

    def never(*_: object) -> None:
        raise AssertionError("it is worked out again")

    with monkeypatch.context() as patch:
        patch.setattr(index_values, "emit_index", never)
        assert values.scalar((var(_I) * 3 + 5) // 7) == sreg
    assert len(builder.block.ops) == count


def test_a_variable_that_lies_elsewhere_is_read_there() -> None:
    builder = LloBuilder("k", load_chip("v5e"))
    values = IndexValues(Ops(builder), {_I: builder.argument(0)})
    expr = var(_I) * 3 + 5
    sreg = values.scalar(expr)
    values.sregs[_I] = builder.argument(1)
    assert values.scalar(expr) != sreg


def test_a_variable_that_was_assigned_to_is_read_again() -> None:
    builder = LloBuilder("k", load_chip("v5e"))
    counter = builder.variable(constant=0)
    values = IndexValues(Ops(builder), {_I: counter})
    expr = var(_I) * 3
    sreg = values.scalar(expr)
    builder.assign_add(counter, 1)
    assert values.scalar(expr) != sreg
