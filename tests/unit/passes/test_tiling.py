"""Windows are planned once, written into the module, obeyed by the backend, and fit VMEM as planned."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from compiler.analysis.buffer_assignment import assign_buffers
from compiler.analysis.window_planner import PLANNED_KINDS, WindowPlanner
from compiler.backend.control import ControlLowering
from compiler.backend.kernel_library import KernelLibrary
from compiler.backend.kernel_options import KernelOptions, KernelTarget
from compiler.backend.smem_scratch import SmemScratch
from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.llo.builder import LloBuilder
from compiler.passes.context import PassContext
from compiler.passes.pipeline import PASSES, run_pipeline
from tests.support.run_hlo import check_text, compile_text
from tpu_sim.isa.chips import load_chip
from tpu_sim.jit.llvm_machine import LlvmMachine

ROOT = Path(__file__).parents[3]
MODELS = sorted([*(ROOT / "tests/data").glob("*.hlo"), *(ROOT / "examples").glob("*.hlo")])
Window = tuple[int, int, int]


def _dot(sizes: Window, windows: Window | None = None, dtype: str = "bf16", more: str = "") -> str:
    """A dot of M, K, N, with blocks of so many elements."""
    m, k, n = sizes
    config = ""
    if windows is not None:
        bm, bk, bn = windows
        bounds = {
            "kernel_window_bounds": [bk // 8, bn // 128],
            "output_window_bounds": [bm // 8, bn // 128],
            "input_window_bounds": [bm // 8, bk // 128],
            "iteration_bounds": [-(-n // bn), -(-m // bm), -(-k // bk)],
        }
        config = f", backend_config={json.dumps({'window_config': bounds})}"
    return f"""HloModule dot
ENTRY main {{
  a = {dtype}[{m},{k}] parameter(0)
  b = {dtype}[{k},{n}] parameter(1)
  ROOT d = {dtype}[{m},{n}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{config}{more}
}}
"""


def _fusions(text_or_module: str) -> list[HloInstruction]:
    module = parse_module(text_or_module)
    return [i for i in module.entry if i.opcode == "fusion"]


@pytest.mark.parametrize(
    ("windows", "grid", "steps", "measured"),
    [
        ((128, 128, 128), "64x64x64", 262144, 91.836),
        ((512, 1024, 1024), "16x8x8", 1024, 6.0994),
    ],
)
def test_windows_asked_for_cost_what_they_cost_on_hardware(
    windows: Window, grid: str, steps: int, measured: float
) -> None:
    """`measured`: milliseconds of the same windows on a real v5e."""
    program = compile_text(_dot((8192, 8192, 8192), windows), "default").program
    (kernel,) = program.kernels.values()
    assert f"grid {grid}" in kernel.note
    assert np.prod([int(n) for n in grid.split("x")]) == steps
    chip = load_chip("v5e")
    cycles = LlvmMachine(chip).estimate(program).cycles
    assert cycles / chip.clock_hz * 1e3 == pytest.approx(measured, rel=0.10)


@pytest.mark.parametrize(("size", "utilisation"), [(2048, 0.88), (4096, 0.94)])
def test_large_products_keep_the_mxus_busy(size: int, utilisation: float) -> None:
    program = compile_text(_dot((size, size, size)), "default").program
    chip = load_chip("v5e")
    rate = chip.mxu_units * 16 * 128 * 128 / chip.matmul_cycles * chip.mxu_sustained
    ideal = size**3 / rate
    assert ideal / LlvmMachine(chip).estimate(program).cycles >= utilisation


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("windows", [(32, 128, 128), (64, 384, 256), (96, 128, 384)])
def test_windows_asked_for_do_not_change_values(dtype: str, windows: Window) -> None:
    rng = np.random.default_rng(1)
    dims = ((96, 384), (384, 384))
    arguments = [rng.integers(-4, 5, d).astype(np.float32) for d in dims]
    inputs = [
        a.astype(parse_module(_dot((8, 8, 8), None, dtype)).entry.parameters[0].array.dtype.numpy)
        for a in arguments
    ]
    run = check_text(_dot((96, 384, 384), windows, dtype), inputs, "default")
    steps = [-(-n // b) for n, b in zip((96, 384, 384), windows, strict=True)]
    (note,) = run.notes
    assert f"grid {steps[0]}x{steps[2]}x{steps[1]}" in note or (
        f"grid {steps[2]}x{steps[0]}x{steps[1]}" in note
    )


def test_an_edited_dump_is_compiled_as_edited() -> None:
    module = parse_module(_dot((512, 512, 512)))
    run_pipeline(module, load_chip("v5e"))
    dump = print_module(module)
    (fusion,) = _fusions(dump)
    config = json.loads(str(fusion.attrs["backend_config"]))
    before = config["window_config"]["output_window_bounds"]
    assert before != ["8", "1"]
    config["window_config"] |= {"output_window_bounds": ["8", "1"], "iteration_bounds": [4, 8, 1]}
    del config["window_config"]["kernel_window_bounds"]
    del config["window_config"]["input_window_bounds"]
    edited = dump.replace(
        str(fusion.attrs["backend_config"]), json.dumps(config, separators=(",", ":"))
    )
    compiled = compile_text(edited, "default")
    (kernel,) = compiled.program.kernels.values()
    assert "grid 8x4x1" in kernel.note or "grid 4x8x1" in kernel.note
    again = compile_text(dump, "default")
    assert print_module(again.module) == dump


def test_the_backend_plans_itself_without_a_config() -> None:
    module = parse_module(_dot((512, 512, 512)))
    chip = load_chip("v5e")
    run_pipeline(module, chip)
    (fusion,) = [i for i in module.entry if i.opcode == "fusion"]
    written = WindowPlanner(chip).plan(fusion)
    del fusion.attrs["backend_config"]
    assert WindowPlanner(chip).plan(fusion).blocks == written.blocks


def test_equal_fusions_are_searched_once() -> None:
    text = """HloModule m
    ENTRY main {
      a = f32[256,256] parameter(0)
      b = f32[256,256] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      c = f32[256,256] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT d = f32[256,256] dot(c, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    }"""
    module = parse_module(text)
    chip = load_chip("v5e")
    run_pipeline(module, chip, passes=["dot-canonicalizer", "wrap-fusions", "layout-assignment"])
    context = PassContext(chip)
    assert PASSES["tiling"].run(module, context)
    assert (context.counts["tiled"], context.counts["distinct"]) == (3, 1)
    assert not PASSES["tiling"].run(module, PassContext(chip))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"window_config":{"output_window_bounds":["x","1"]}}', "want a list of whole numbers"),
        ('{"window_config":{"output_window_bounds":["4"]}}', "has 1 entry, want 2"),
        ('{"window_config":{"output_window_bounds":["1","1"]}}', "want multiples of 16"),
        ('{"window_config":{"output_window_bounds":["0","1"]}}', "empty blocks"),
        ('{"window_config":[1]}', "no JSON object"),
        ('{"tpuc":{"blocks":[1,1],"order":[0,1]}}', "2 blocks in tpuc.blocks, want 0"),
        ('{"tpuc":{"order":[0,2]}}', "want a permutation of [0, 1]"),
    ],
)
def test_requests_that_make_no_sense_are_refused(config: str, message: str) -> None:
    text = _dot((256, 256, 256), more=f", backend_config={config}")
    with pytest.raises(CompileError) as caught:
        compile_text(text, "default")
    assert message in caught.value.message
    assert caught.value.span is not None


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_kernels_take_the_vmem_that_was_planned(path: Path) -> None:
    chip = load_chip("v5e")
    precision = "highest" if "tests" in path.parts else "default"
    module = parse_module(path.read_text())
    run_pipeline(module, chip, precision=precision)
    target = KernelTarget(chip, KernelOptions(precision), SmemScratch(8192, chip.smem_words))
    library = KernelLibrary(target)
    main = LloBuilder("main", chip, calls=True)
    ControlLowering(main, assign_buffers(module, chip), library).lower(module.entry)
    planner = WindowPlanner(chip, precision)
    compared = 0
    for name, request in library.requests.items():
        fusion = request.instr
        if fusion.attrs.get("kind") not in PLANNED_KINDS:
            continue
        planned = planner.kernel(fusion).vmem()
        taken = [w for w in library.lower(name).windows if w.place < 0]  # its own, not residents
        compared += 1
        assert Counter(planned) == Counter((w.name, w.rows) for w in taken), name
    assert compared
