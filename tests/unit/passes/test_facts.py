"""Passes run only where what they require holds."""

from __future__ import annotations

import pytest

from compiler.diagnostics import CompileError, VerifyError
from compiler.hlo.dtypes import S64
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.passes.context import PassContext
from compiler.passes.facts import CONTRACTS, Fact, contract_of
from compiler.passes.pass_manager import FunctionPass, PassManager
from compiler.passes.pipeline import PASSES, PIPELINE, run_pipeline
from compiler.rewrite.graph import emit
from tpu_sim.isa.chips import load_chip

CHIP = load_chip("v5e")
CALL = """f {
  p = f32[8] parameter(0)
  ROOT n = f32[8] negate(p)
}
ENTRY main {
  x = f32[8] parameter(0)
  ROOT c = f32[8] call(x), to_apply=f
}
"""
WIDE = "ENTRY e { x = s64[8] parameter(0)\n ROOT r = s64[8] negate(x) }"
NARROW_INDEX = (
    "ENTRY e { x = f32[300] parameter(0)\n i = u8[9] parameter(1)\n ROOT g = f32[9] gather(x, i), "
    "offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
    "slice_sizes={1} }"
)
NESTED = """c { s = (f32[], (f32[])) parameter(0)
 ROOT p = pred[] constant(false) }
b { ROOT s = (f32[], (f32[])) parameter(0) }
ENTRY e { s = (f32[], (f32[])) parameter(0)
 ROOT w = (f32[], (f32[])) while(s), condition=c, body=b }
"""


def test_contracts_are_of_known_passes() -> None:
    assert CONTRACTS.keys() <= PASSES.keys()


def test_every_requirement_is_established_before_in_the_pipeline() -> None:
    held: set[Fact] = set()
    for name in PIPELINE:
        contract = contract_of(name)
        missing = [fact.name for fact in contract.requires if fact not in held]
        assert not missing, f"{name} requires {missing}"
        held |= {*contract.establishes}
        held -= {*contract.ends}


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (
            CALL,
            "fusion",
            "'fusion' requires no-calls, but %c in %main is or has a call; run 'call-in",
        ),
        (CALL, "pair-types", "run 'call-inliner'"),
        (WIDE, "fusion", "requires 32-bit-lanes.*run 'pair-types'"),
        (NARROW_INDEX, "fusion", "requires s32-indices, but %g.*run 'simple-expansions'"),
        (NESTED, "while-simplifier", "requires flat-tuples, but %w.*run 'tuple-flattener'"),
        (CALL.replace("[8]", "[8]{0}"), "cse", "requires bare-shapes.*run 'layout-stripping'"),
        (WIDE.replace("s64", "s4"), "pair-types", "requires whole-bytes.*'sub-byte-types'"),
        (WIDE.replace("s64", "f32"), "layout-assignment", "requires wrapped.*'wrap-fusions'"),
        (WIDE.replace("s64", "f32"), "tiling", "requires wrapped"),
    ],
)
def test_a_pass_where_it_may_not_run_is_an_error(text: str, name: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        run_pipeline(parse_module(text), CHIP, passes=[name])


def test_what_the_module_has_anyway_need_not_be_established() -> None:
    run_pipeline(parse_module(WIDE.replace("s64", "f32")), CHIP, passes=["fusion"])


def test_a_pass_that_breaks_a_fact_is_named() -> None:
    def widen(module: HloModule, context: PassContext) -> bool:
        root = module.entry.root_instruction
        wide = emit(root, "convert", root.array.with_dtype(S64), (root,))
        module.entry.root = emit(root, "convert", root.shape, (wide,))
        return True

    text = WIDE.replace("s64", "s32")
    widener = FunctionPass("widener", widen)
    PassManager([widener], CHIP).run(parse_module(text))  # nothing says that there are none
    with pytest.raises(VerifyError, match=r"32-bit-lanes does not hold: %convert(.|\n)*'widener'"):
        PassManager([PASSES["pair-types"], widener], CHIP).run(parse_module(text))
