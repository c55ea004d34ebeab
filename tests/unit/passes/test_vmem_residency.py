"""What stays in VMEM can be put back, and rows of VMEM are never given twice."""

from __future__ import annotations

import random
from dataclasses import replace

from compiler.analysis.buffer_packing import Request
from compiler.analysis.vmem_packing import VmemRows, aligned_rows
from compiler.analysis.window_planner import WindowPlanner
from compiler.driver import CompileOptions, run_passes
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.passes.pipeline import release_kernels
from tests.support.chained_programs import chained_program
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.program import VMEM


def test_released_modules_are_those_without_the_pass() -> None:
    chip = load_chip("v5e")
    kept = 0
    for seed in range(6):
        text = chained_program(seed, 6, is_saving=seed > 2)
        module, without = parse_module(text), parse_module(text)
        run_passes(module, chip)
        run_passes(without, chip, options=CompileOptions(skip=("vmem-residency", "vmem-prefetch")))
        kept += release_kernels(module, WindowPlanner(chip)) is not None
        assert print_module(module) == print_module(without)
    assert kept


def test_released_transforms_write_over_their_operands_again() -> None:
    """While arrays between transforms stay in VMEM, results lie apart from operands."""
    text = """HloModule m
ENTRY main {
  x = c64[64,128,128] parameter(0)
  f = c64[64,128,128] fft(x), fft_type=FFT, fft_length={128,128}
  s = c64[64,128,128] multiply(f, f)
  ROOT r = c64[64,128,128] fft(s), fft_type=IFFT, fft_length={128,128}
}
"""
    chip = load_chip("v5e")
    module, without = parse_module(text), parse_module(text)
    run_passes(module, chip)
    assert "S(1)" in print_module(module)
    run_passes(without, chip, options=CompileOptions(skip=("vmem-residency", "vmem-prefetch")))
    assert "output_to_operand_aliasing" in print_module(without)
    assert release_kernels(module, WindowPlanner(chip)) is not None
    assert print_module(module) == print_module(without)
    assert release_kernels(module, WindowPlanner(chip)) is None


def test_rows_are_given_once_at_a_time() -> None:
    rng = random.Random(0)
    for _ in range(200):
        floors = [rng.choice((0, 64, 256)) for _ in range(24)]
        requests = []
        for key in range(rng.randint(1, 20)):
            start = rng.randrange(23)
            size = rng.randint(1, 200) * 512
            requests.append(Request(key, size, start, rng.randint(start, 23)))
        found = VmemRows(1024, floors).pack(requests)
        for position in range(24):
            taken = sorted(
                (found[r.key], found[r.key] + aligned_rows(r.size_bytes))
                for r in requests
                if r.key in found and r.start <= position <= r.end
            )
            ends = [floors[position], *(end for _, end in taken)]
            assert all(row >= end for (row, _), end in zip(taken, ends, strict=False))
            assert ends[-1] <= 1024


def test_vmem_is_a_memory_space_of_layouts() -> None:
    module = parse_module(chained_program(0, 6))
    run_passes(module, load_chip("v5e"))
    shapes = [i.array for i in module.entry if i.opcode == "fusion" and hasattr(i.shape, "dims")]
    assert any(s.layout is not None and s.layout.memory_space == VMEM for s in shapes)


def test_kernels_need_less_beside_what_they_read_and_make() -> None:
    """With all in HBM the windows of either product would leave no room for what is between them."""
    text = """HloModule m
ENTRY main {
  x = f32[512,1024] parameter(0)
  y = f32[1024,128] parameter(1)
  z = f32[128,128] parameter(2)
  d = f32[512,128] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[512,128] dot(d, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT o = f32[512,128] add(d, e)
}
"""
    module = parse_module(text)
    run_passes(module, replace(load_chip("v5e"), vmem_bytes=8 << 20))
    assert "f32[512,128]{1,0:T(8,128)S(1)}" in print_module(module)
