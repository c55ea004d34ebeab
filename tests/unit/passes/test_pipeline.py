"""The pipeline as data: its order is checked, passes are found by name and watched."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from compiler.diagnostics import CompileError, VerifyError
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.parser import parse_module
from compiler.passes.context import PassContext
from compiler.passes.pass_manager import FunctionPass, PassManager
from compiler.passes.pipeline import (
    MUST_PRECEDE,
    ON_REQUEST,
    PARTITIONING,
    PASSES,
    PIPELINE,
    hlo_passes,
    run_pipeline,
)
from tpu_sim.isa.chips import load_chip

TEXT = """HloModule m
ENTRY main {
  x = f32[8,128] parameter(0)
  y = f32[8,128] exponential(x)
  ROOT z = f32[8,128] negate(y)
}
"""


MARKING = {"layout-assignment", "scheduling"}  # raise the level, so they always say "changed"


def _module() -> HloModule:
    return parse_module(TEXT)


def test_the_pipeline_respects_its_constraints() -> None:
    assert [p.name for p in hlo_passes(PIPELINE)] == list(PIPELINE)


def test_every_constraint_names_two_passes_of_the_pipeline_and_a_reason() -> None:
    for before, after, reason in MUST_PRECEDE:
        assert before in (*ON_REQUEST, *PARTITIONING, *PIPELINE)
        assert after in (*PARTITIONING, *PIPELINE)
        assert reason


def test_breaking_a_constraint_is_an_error_that_says_why() -> None:
    with pytest.raises(CompileError, match=r"dot-canonicalizer.*must run before 'fusion'"):
        hlo_passes(["fusion", "dot-canonicalizer"])
    with pytest.raises(
        CompileError, match=r"'pair-types' must run before 'fusion': it establishes 32"
    ):
        hlo_passes(["fusion", "pair-types"])


def test_pass_names_are_kebab_case_and_known() -> None:
    for name in PASSES:
        assert name == name.lower()
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz-")
    with pytest.raises(CompileError, match="no pass 'fusoin'"):
        hlo_passes(["fusoin"])


def test_a_pass_that_hides_a_change_is_exposed() -> None:
    def rename(module: HloModule, context: PassContext) -> bool:
        root = module.entry.root_instruction
        root.opcode = "abs"
        return False

    manager = PassManager([FunctionPass("liar", rename)], load_chip("v5e"))
    with pytest.raises(AssertionError, match="'liar' says it changed nothing"):
        manager.run(_module())


def test_a_pass_that_claims_a_change_it_did_not_make_is_exposed() -> None:
    manager = PassManager([FunctionPass("boaster", lambda m, c: True)], load_chip("v5e"))
    with pytest.raises(AssertionError, match="'boaster' says it changed the module"):
        manager.run(_module())


def test_invalid_hlo_after_a_pass_names_the_pass() -> None:
    def break_shape(module: HloModule, context: PassContext) -> bool:
        root = module.entry.root_instruction
        root.shape = root.array.with_dims((8, 64))
        return True

    manager = PassManager([FunctionPass("breaker", break_shape)], load_chip("v5e"))
    with pytest.raises(VerifyError, match=r"V7(.|\n)*after pass 'breaker'"):
        manager.run(_module())


def test_dumps_are_numbered_and_parse(tmp_path: Path) -> None:
    run_pipeline(_module(), load_chip("v5e"), dump_dir=tmp_path)
    names = sorted(p.name for p in tmp_path.glob("*.hlo"))
    assert names[0] == "00.input.hlo"
    assert names[-1] == f"{len(PIPELINE):02d}.after_{PIPELINE[-1]}.hlo"
    for path in tmp_path.glob("*.hlo"):
        parse_module(path.read_text())


def test_fusion_says_why_it_refused(tmp_path: Path) -> None:
    module = parse_module((Path(__file__).parents[2] / "data" / "gpt2_fwd_tiny.hlo").read_text())
    run_pipeline(module, load_chip("v5e"), dump_dir=tmp_path)
    (path,) = tmp_path.glob("*.after_fusion.remarks.txt")
    assert "kOutput and kOutput do not mix" in path.read_text()


def test_timings_report_each_pass() -> None:
    told: list[str] = []
    timings = run_pipeline(_module(), load_chip("v5e"), progress=told.append)
    assert [t.name for t in timings] == list(PIPELINE) == told
    assert any(t.is_changed for t in timings)
    assert all(t.seconds >= 0 for t in timings)


@pytest.mark.parametrize("name", sorted(set(PIPELINE) - MARKING))
def test_a_second_run_changes_nothing(name: str) -> None:
    """Idempotence, each pass after those that the pipeline runs before it."""
    module = parse_module((Path(__file__).parents[2] / "data" / "lstm_train_tiny.hlo").read_text())
    last = len(PIPELINE) - 1 - PIPELINE[::-1].index(name)
    run_pipeline(module, load_chip("v5e"), passes=PIPELINE[: last + 1])
    context = PassContext(load_chip("v5e"))
    assert _is_fixed_point(name, module, context), dict(context.counts)


def _is_fixed_point(name: str, module: HloModule, context: PassContext) -> bool:
    before = module.instruction_count()
    if name == "memory-space-assignment":
        PASSES[name].run(module, context)
        return context.counts["copies"] == 0
    PASSES[name].run(module, context)
    return module.instruction_count() == before


def test_the_schedule_is_a_topological_order() -> None:
    module = parse_module((Path(__file__).parents[2] / "data" / "gpt2_train_tiny.hlo").read_text())
    run_pipeline(module, load_chip("v5e"))
    position: dict[HloInstruction, int] = {i: n for n, i in enumerate(module.entry)}
    for instr in module.entry:
        assert all(position[o] < position[instr] for o in instr.operands)
    assert all(a < b for a, b in pairwise(position.values()))
