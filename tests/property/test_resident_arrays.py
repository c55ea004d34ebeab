"""Arrays that stay in VMEM between kernels: values are those of the evaluator, nothing races.

VMEM is small here, so that kernels have grids and share it with what stays. More:

    TPUC_CHAINED_PROGRAMS=500 pytest tests/property/test_resident_arrays.py
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from compiler.analysis.code_costs import KernelCosts
from compiler.driver import CompileOptions, compile_module
from compiler.hlo.parser import parse_module
from compiler.passes import vmem_prefetch
from compiler.passes.carried_results import carried_elements
from tests.support.chained_programs import chained_program
from tests.support.module_checks import inputs_for
from tests.support.run_hlo import Array, compile_text, expected, normalised_error, run_compiled
from tpu_sim.isa.chips import Chip, load_chip
from tpu_sim.isa.program import VMEM

COUNT = int(os.environ.get("TPUC_CHAINED_PROGRAMS", "0"))


@pytest.mark.parametrize("seed", range(COUNT or 16))
@pytest.mark.parametrize("is_saving", [False, True])
def test_chains_keep_values(seed: int, is_saving: bool) -> None:
    text = chained_program(seed, 6, is_saving)
    chip = replace(load_chip("v5e"), vmem_bytes=(1, 2, 4)[seed % 3] << 20)
    machine = "numpy" if seed % 4 == 0 else "llvm"
    want = expected(text, inputs_for(text))
    found, through_hbm = (
        _errors(text, want, chip, machine, skip)
        for skip in ((), ("vmem-residency", "vmem-prefetch"))
    )
    assert found <= 2 * through_hbm + 2e-4


def _errors(
    text: str, want: Sequence[Array], chip: Chip, machine: str, skip: tuple[str, ...]
) -> float:
    """The largest error of the results; chains may make large ones of a last bit of bf16."""
    options = CompileOptions(precision="highest", skip=skip)
    compiled = compile_module(parse_module(text), chip, options)
    outputs = run_compiled(compiled, inputs_for(text), machine).outputs
    return max(normalised_error(w, g) for w, g in zip(want, outputs, strict=True))


def test_values_that_are_saved_stay_for_their_next_readers() -> None:
    """They lie in HBM, too: their kernels write them twice."""
    twins = 0
    for seed in range(4):
        text = chained_program(seed, 8, True)
        module = compile_text(text, chip=replace(load_chip("v5e"), vmem_bytes=2 << 20)).module
        roots = [c.root_instruction for c in module.computations.values() if c is not module.entry]
        twins += sum(len(r.operands) - len(set(r.operands)) for r in roots if r.opcode == "tuple")
    assert twins > 1


def test_chains_do_stay_in_vmem() -> None:
    chip = replace(load_chip("v5e"), vmem_bytes=4 << 20)
    staying = 0
    for seed in range(8):
        places = compile_text(chained_program(seed, 6), chip=chip).buffers.allocations
        staying += sum(place.space == VMEM for place in places)
    assert staying > 8


def test_equal_layers_are_lowered_once_wherever_their_arrays_lie() -> None:
    product = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    lines = ["x0 = f32[128,128] parameter(0)", "w = f32[128,128] parameter(1)"]
    for layer in range(4):
        lines.append(f"d{layer} = f32[128,128] dot(x{layer}, w), {product}")
        lines.append(f"x{layer + 1} = f32[128,128] tanh(d{layer})")
    lines.append(f"e2 = f32[128,128] dot(x1, x2), {product}")
    lines += [f"e{n} = f32[128,128] dot(e{n - 1}, x{n}), {product}" for n in (3, 4)]
    lines.append("ROOT r = f32[128,128] negate(e4)")
    text = "HloModule m\nENTRY main {\n  " + "\n  ".join(lines) + "\n}\n"
    compiled = compile_text(text)
    requests = compiled.lowered.library.requests.values()
    moved = [request for request in requests if request.twin is not None]
    assert moved
    for request in moved:
        assert request.twin is not None
        kernels = compiled.program.kernels
        one, other = kernels[request.twin], kernels[request.name]
        assert one.body is other.body
        assert [w.base_row for w in one.windows] != [w.base_row for w in other.windows]
    inputs = inputs_for(text)
    (want,) = expected(text, inputs)
    for machine in ("numpy", "llvm"):
        (got,) = run_compiled(compiled, inputs, machine).outputs
        assert normalised_error(want, got) <= 1e-4


def test_what_is_fetched_for_later_kernels_keeps_its_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fetched as often as there is time, whether it pays or not."""
    for name in ("_LEAST_BYTES", "_LEAST_SHARE"):
        monkeypatch.setattr(vmem_prefetch, name, -1)
    monkeypatch.setattr(KernelCosts, "fetched_array", -1)
    chip = replace(load_chip("v5e"), matmul_cycles=256)
    fetched = 0
    for seed in range(COUNT or 6):
        text = chained_program(seed, 10, is_saving=seed % 2 == 0)
        inputs, outputs = inputs_for(text), []
        for skip in ((), ("vmem-prefetch",)):
            compiled = compile_module(parse_module(text), chip, CompileOptions(skip=skip))
            fetched += len(carried_elements(compiled.module))
            machine = "numpy" if seed % 3 == 0 and not skip else "llvm"
            outputs.append(run_compiled(compiled, inputs, machine).outputs)
        for got, want in zip(*outputs, strict=True):
            np.testing.assert_array_equal(got, want)
    assert fetched >= (COUNT or 6)
