"""Run kernels, random programs and a tiny model natively; print digests of memories and cycles.

TPUC_HOST_FEATURES=avx2 python -m tests.support.host_run
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.random_programs import random_program
from tests.support.run_hlo import compile_text, run_compiled
from tpu_sim.isa.chips import load_chip
from tpu_sim.jit.host import detect_host
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.machine.memory import HbmMemory

DATA = Path(__file__).parents[1] / "data"
_HBM_BYTES = 1 << 20
_SEEDS = range(100, 106)
_CHIP = load_chip("v5e")

KERNELS = {
    "dot bf16": (
        "ENTRY e { a = bf16[48,640] parameter(0)\n b = bf16[640,256] parameter(1)\n"
        " ROOT d = f32[48,256] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0} }",
        1.0,
    ),
    "dot of tiny numbers": (
        "ENTRY e { a = bf16[32,256] parameter(0)\n b = bf16[256,128] parameter(1)\n"
        " ROOT d = f32[32,128] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0} }",
        2.0**-63,
    ),
    "dot f32, transposed": (
        "ENTRY e { a = f32[48,130] parameter(0)\n b = f32[72,130] parameter(1)\n"
        " ROOT d = f32[48,72] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1},"
        " operand_precision={highest,highest} }",
        1.0,
    ),
    "functions": (
        "ENTRY e { a = f32[40,200] parameter(0)\n b = f32[40,200] exponential(a)\n"
        " c = f32[40,200] tanh(a)\n d = f32[40,200] divide(b, c)\n m = f32[40,200] maximum(d, a)\n"
        " f = f32[40,200] floor(m)\n s = s32[40,200] convert(f)\n t = f32[40,200] convert(s)\n"
        " ROOT r = f32[40,200] subtract(m, t) }",
        1.0,
    ),
    "reduce": (
        "add { x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT z = f32[] add(x, y) }\n"
        "ENTRY e { a = f32[72,300] parameter(0)\n z = f32[] constant(0)\n"
        " r = f32[72] reduce(a, z), dimensions={1}, to_apply=add\n"
        " t = f32[300,72] transpose(a), dimensions={1,0}\n"
        " q = f32[72] reduce(t, z), dimensions={0}, to_apply=add\n"
        " ROOT s = f32[72] subtract(r, q) }",
        1.0,
    ),
}
"""Name to HLO and the scale of the inputs."""


def digests() -> Iterator[tuple[str, str, int]]:
    """Name, digest of what was computed, cycles."""
    for name, (text, scale) in KERNELS.items():
        yield name, *_run_text(f"HloModule m\n{text}", scale)
    arrays = np.load(DATA / "gpt2_fwd_tiny.npz")
    inputs = [arrays[f"in{n}"] for n in range(sum(key.startswith("in") for key in arrays))]
    run = run_compiled(compile_text((DATA / "gpt2_fwd_tiny.hlo").read_text()), inputs, "llvm")
    yield "gpt2_fwd_tiny", _digest(run.outputs), run.result.cycles
    for seed in _SEEDS:
        yield f"random {seed}", *_run_random(seed)


def _digest(arrays: Sequence[npt.NDArray[Any]]) -> str:
    """Of the bits, with all NaN alike."""
    digest = hashlib.sha256()
    for array in arrays:
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def _run_text(text: str, scale: float) -> tuple[str, int]:
    compiled = compile_text(text)
    source = np.random.default_rng(1)
    shapes = [p.shape for p in compiled.module.entry.parameters]
    inputs = [
        (source.standard_normal(shape.dims) * scale).astype(shape.dtype.numpy) for shape in shapes
    ]
    run = run_compiled(compiled, inputs, "llvm")
    return _digest(run.outputs), run.result.cycles


def _run_random(seed: int) -> tuple[str, int]:
    program = random_program(_CHIP, seed, 3, 40)
    source = np.random.default_rng(seed)
    hbm = HbmMemory(_HBM_BYTES)
    words = hbm.bytes.view(np.float32)
    words[:] = source.standard_normal(words.size) * 2
    words[::97], words[::101], words[5::311], words[7::313] = 0, -0.0, np.inf, 1e-40
    result = LlvmMachine(_CHIP, cache=False).run(program, hbm)
    return _digest([words]), result.cycles


if __name__ == "__main__":
    host = detect_host()
    print("host", host.cpu, host.vector_lanes)
    for line in digests():
        print(*line, sep=": ")
