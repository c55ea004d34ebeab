"""Every pass keeps where instructions come from: each after each pass says so, and invents nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.frontends.models import parse_model
from compiler.hlo.attributes import OpMetadata
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.origins import IDLE, inside, origin_texts
from compiler.passes.pass_manager import PassManager
from compiler.passes.pipeline import PIPELINE, hlo_passes
from tpu_sim.isa.chips import load_chip

DATA = Path(__file__).resolve().parents[2] / "data"
MODELS = ("gpt2_train", "lstm_train", "kmeans", "cg_while", "mandelbrot_while", "llama_fwd_scan")
MORE = """HloModule more

compare {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT lt = pred[] compare(a, b), direction=LT
}

ENTRY e {
  x = f32[8,1024]{1,0} parameter(0)
  c = c64[16,64]{1,0} parameter(1)
  s = f32[12,12]{1,0} parameter(2)
  k = s64[32]{0} parameter(3)
  i = f32[2,16,16,8]{3,2,1,0} parameter(4)
  w = f32[3,3,8,16]{3,2,1,0} parameter(5)
  sorted = f32[8,1024]{1,0} sort(x), dimensions={1}, to_apply=compare
  fft = c64[16,64]{1,0} fft(c), fft_type=FFT, fft_length={64}
  chol = f32[12,12]{1,0} cholesky(s), lower=true
  wide = s64[32]{0} multiply(k, k)
  conv = f32[2,14,14,16]{3,2,1,0} convolution(i, w), window={size=3x3}, dim_labels=b01f_01io->b01f
  t = f32[8,1024]{1,0} tan(sorted)
  one = (f32[8,1024]{1,0}, c64[16,64]{1,0}, f32[12,12]{1,0}) tuple(t, fft, chol)
  two = (s64[32]{0}, f32[2,14,14,16]{3,2,1,0}) tuple(wide, conv)
  ROOT r = ((f32[8,1024]{1,0}, c64[16,64]{1,0}, f32[12,12]{1,0}),
            (s64[32]{0}, f32[2,14,14,16]{3,2,1,0})) tuple(one, two)
}
"""


def _texts() -> dict[str, str]:
    files = {name: (DATA / f"{name}_tiny.hlo").read_text() for name in MODELS}
    return {**files, "more": MORE}


def _name_all(module: HloModule) -> set[str]:
    """Give every instruction its name as origin; returns the names."""
    found = set()
    for computation in module.computations.values():
        for instr in computation:
            instr.attrs["metadata"] = OpMetadata(f'{{op_name="{instr.name}" source_file="m.py"}}')
            found.add(instr.name)
    return found


def _origins(instr: HloInstruction) -> set[str]:
    """The names of the instructions it comes from, without the calls that they were inlined for."""
    return {OpMetadata(text).op_name.rpartition("/")[2] for text in origin_texts(instr)}


def _running(module: HloModule) -> set[HloComputation]:
    """What runs as a program or as a kernel; not what a reduce or a sort applies."""
    control = control_computations(module)
    fused = {i.calls for c in control for i in c if i.opcode == "fusion"}
    return {*control, *fused}


@pytest.mark.parametrize("name", [*MODELS, "more"])
def test_every_instruction_says_where_it_comes_from_after_every_pass(name: str) -> None:
    module = parse_model(_texts()[name], name)
    given = _name_all(module)
    dots = {i.name for c in _running(module) for i in c if i.opcode == "dot"}
    lost: dict[str, list[str]] = {}
    passes = iter(["input", *PIPELINE])

    def look(_: str = "") -> None:
        after = next(passes)
        for computation in _running(module):
            for instr in computation:
                names = _origins(instr)
                assert names <= given, f"{after} invents {names - given} for %{instr.name}"
                if instr.opcode not in IDLE and not names:
                    lost.setdefault(after, []).append(f"{instr.opcode} %{instr.name}")

    manager = PassManager(hlo_passes(PIPELINE), load_chip("v5e"), progress=look, is_verifying=False)
    manager.run(module)
    look()
    assert not lost, lost
    at_end = {name for c in _running(module) for i in c for name in _origins(i)}
    assert dots <= at_end, f"dots without code: {sorted(dots - at_end)}"


def test_a_fusion_runs_what_it_was_made_of() -> None:
    module = parse_model(_texts()["gpt2_train"], "gpt2_train")
    _name_all(module)
    PassManager(hlo_passes(PIPELINE), load_chip("v5e"), is_verifying=False).run(module)
    fusions = [i for c in control_computations(module) for i in c if i.opcode == "fusion"]
    several = [len({name for i in inside(f) for name in _origins(i)}) for f in fusions]
    assert max(several) >= 10
    assert min(several) >= 1
