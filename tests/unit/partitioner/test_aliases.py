"""What becomes of a parameter's place when its pieces and those of the result differ."""

from __future__ import annotations

import pytest

from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.verifier import verify
from compiler.partitioner.partitioner import partition_module
from compiler.passes.context import PassContext
from tpu_sim.isa.chips import load_chip


def _partitioned(kind: str, result: str) -> HloModule:
    module = parse_module(
        f"HloModule m, num_partitions=4, input_output_alias={{ {{}}: (0, {{}}, {kind}) }}\n"
        "ENTRY e { x = f32[8,6] parameter(0), sharding={devices=[4,1]<=[4]} "
        f"ROOT y = f32[8,6] negate(x), sharding={result} }}"
    )
    partition_module(module, PassContext(load_chip("v5e")))
    verify(module)
    return module


def test_equal_pieces_keep_their_place() -> None:
    assert "input_output_alias" in _partitioned("must-alias", "{devices=[4,1]<=[4]}").attrs


def test_a_parameter_that_may_give_its_place_is_given_away() -> None:
    module = _partitioned("may-alias", "{replicated}")
    assert "input_output_alias" not in module.attrs
    assert "buffer_donor" in module.attrs


def test_a_parameter_that_must_give_its_place_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="parameter 0 must be the place of a result"):
        _partitioned("must-alias", "{replicated}")
