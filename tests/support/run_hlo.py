"""Compile HLO text and run it on an emulated core, with plain NumPy data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import numpy.typing as npt

import compiler.analysis.block_shapes as block_shapes
from compiler.driver import CompiledModule, CompileOptions, compile_module
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import ArrayShape
from compiler.hlo.shape_text import parse_shape
from runtime.transfer import from_device, to_device
from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.chips import Chip, load_chip
from tpu_sim.isa.program import HbmBuffer, Program
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.result import ExecutionResult

Array = npt.NDArray[np.generic]

ADD = """
%add_f32 (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %r = f32[] add(%p, %q)
}
"""
MAX = ADD.replace("add", "max").replace("max(", "maximum(")


@dataclass
class Run:
    """Outputs and the report of one execution."""

    outputs: list[Array]
    result: ExecutionResult
    compiled: CompiledModule

    @property
    def notes(self) -> list[str]:
        """What each kernel says it is."""
        return [kernel.note for kernel in self.compiled.program.kernels.values()]


def compile_text(text: str, precision: str = "highest", chip: Chip | None = None) -> CompiledModule:
    """Parse and compile HLO text."""
    module = parse_module(text, "test.hlo")
    return compile_module(module, chip or load_chip("v5e"), CompileOptions(precision=precision))


def run_text(
    text: str, inputs: Sequence[Array], precision: str = "highest", machine: str = "numpy"
) -> Run:
    """Compile and execute; the NumPy machine also looks for DMA races and unwritten VMEM."""
    return run_compiled(compile_text(text, precision), inputs, machine)


def run_compiled(compiled: CompiledModule, inputs: Sequence[Array], machine: str = "numpy") -> Run:
    """Execute a compiled module on inputs, in parameter order."""
    program = compiled.program
    chip = load_chip(program.target)
    hbm = HbmMemory(max(program.hbm_bytes, 1 << 16))
    for offset, data in program.constants:
        hbm.write(offset, data)
    for value, buffer in zip(inputs, _ports(program, "input"), strict=True):
        hbm.write(buffer.offset_bytes, to_device(np.asarray(value), _shape(buffer)).data)
    if machine == "numpy":
        result = NumpyMachine(chip, checked=True).run(program, hbm)
    else:
        result = LlvmMachine(chip).run(program, hbm)
    outputs = [
        from_device(hbm.view(b.offset_bytes, b.size_bytes), _shape(b))
        for b in _ports(program, "output")
    ]
    return Run(outputs, result, compiled)


def expected(text: str, inputs: Sequence[Array], precision: str = "highest") -> list[Array]:
    """What the evaluator computes."""
    return list(evaluate(parse_module(text, "test.hlo"), list(inputs), precision))


def check_text(
    text: str,
    inputs: Sequence[Array],
    precision: str = "highest",
    machine: str = "numpy",
    tolerance: float = 1e-5,
) -> Run:
    """Run, and compare with the evaluator by the largest error relative to the largest value."""
    run = run_text(text, inputs, precision, machine)
    for want, got in zip(expected(text, inputs, precision), run.outputs, strict=True):
        assert normalised_error(want, got) <= tolerance
    return run


@contextmanager
def small_blocks(tiles: int, width: int = 1) -> Iterator[None]:
    """Let the window search try blocks of about `tiles` tiles only: many grid steps."""
    saved = block_shapes._TILE_TARGETS, block_shapes._WIDTH_LIMITS
    block_shapes._TILE_TARGETS, block_shapes._WIDTH_LIMITS = (tiles,), (width,)
    try:
        yield
    finally:
        block_shapes._TILE_TARGETS, block_shapes._WIDTH_LIMITS = saved


def normal(seed: int, *dims: int, dtype: str = "float32") -> Array:
    """Seeded normal numbers."""
    values = np.random.default_rng(seed).standard_normal(dims).astype(np.float32)
    return values.astype(ml_dtypes.bfloat16) if dtype == "bfloat16" else values


def _ports(program: Program, kind: str) -> list[HbmBuffer]:
    return sorted((b for b in program.buffers if b.kind == kind), key=lambda b: b.index)


def _shape(buffer: HbmBuffer) -> ArrayShape:
    shape = parse_shape(buffer.shape)
    assert isinstance(shape, ArrayShape)
    host = parse_shape(buffer.host_shape) if buffer.host_shape else shape
    assert isinstance(host, ArrayShape)
    if host.layout is None or shape.layout is None or host is shape:
        return shape
    layout = replace(shape.layout, minor_to_major=host.layout.minor_to_major)
    return replace(shape, dims=host.dims, layout=layout)


def normalised_error(want: Array, got: Array) -> float:
    """Largest difference over the largest expected magnitude."""
    assert want.shape == got.shape and want.dtype == got.dtype, (want.shape, got.shape, got.dtype)
    if want.size == 0:
        return 0.0
    a, b = got.astype(np.complex128), want.astype(np.complex128)
    assert np.array_equal(np.isfinite(a), np.isfinite(b)), "finite values differ in place"
    mask = np.isfinite(b)
    scale = np.max(np.abs(b[mask]), initial=0.0) + 1e-5
    return float(np.max(np.abs(a[mask] - b[mask]), initial=0.0) / scale)
