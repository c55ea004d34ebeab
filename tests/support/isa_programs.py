"""Small programs in assembly for tests of the instruction set and the machines."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.assembly_parser import parse_program
from tpu_sim.isa.chips import Chip, load_chip
from tpu_sim.isa.program import Program
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.result import ExecutionResult

V5E = load_chip("v5e")
HBM_BYTES = 1 << 20

TWO_WINDOWS = """
window w0 "x" rows 0 + 64
window w1 "y" rows 64 + 64
"""
COPIES = """
descriptor d0 hbm -> vmem w0 chunk 64 dims []
descriptor d1 vmem -> hbm w1 chunk 64 dims []
"""
LOAD_X = """
block "load" {
{ dma.start d0, s0, s0, f0, s0, s0, s0 }
{ dma.wait f0, s0 }
}
"""
STORE_Y = """
block "store" {
{ smovi s1 = 64 }
{ dma.start d1, s0, s1, f0, s0, s0, s0 }
{ dma.wait f0, s0 }
}
"""


def kernel_text(body: str, tables: str = TWO_WINDOWS + COPIES, head: str = "") -> str:
    head = head or "args 0 flags 8 spill 0 at 256 flops 0"
    return f'kernel "k" {head} ops 0 least 0 note "" {{\n{tables}\n{body}\n}}\n'


def block(*bundles: str) -> str:
    """A block: each argument is a bundle's inside, or a line like ``nop 3``."""
    lines = [b if b.startswith("nop") else f"{{ {b} }}" for b in bundles]
    return "\n".join(['block "" {', *lines, "}", ""])


def program_text(kernels: str, main: str = 'call "k" site "k.1"', target: str = "v5e") -> str:
    head = f'target "{target}" hbm {HBM_BYTES} smem 1024 args 0\n'
    return f"{head}{kernels}\nmain {{\n{main}\n}}\n"


def kernel_program(
    body: str, tables: str = TWO_WINDOWS + COPIES, head: str = "", target: str = "v5e"
) -> Program:
    """A program that calls one kernel of this body."""
    return parse_program(program_text(kernel_text(body, tables, head), target=target))


def execute(
    program: Program,
    inputs: dict[int, npt.NDArray[np.generic]] | None = None,
    checked: bool = True,
    chip: Chip = V5E,
) -> tuple[ExecutionResult, HbmMemory]:
    """Run on the NumPy machine with arrays at byte offsets."""
    hbm = HbmMemory(HBM_BYTES)
    for offset, array in (inputs or {}).items():
        hbm.write(offset, array.tobytes())
    return NumpyMachine(chip, checked=checked).run(program, hbm), hbm


def rows_of(hbm: HbmMemory, granule: int, rows: int) -> npt.NDArray[np.uint32]:
    """`rows` 512-byte rows of HBM as raw words."""
    return np.frombuffer(hbm.read(granule * 512, rows * 512), np.uint32).reshape(rows, 128)


def run_vector(
    *bundles: str,
    x: npt.NDArray[np.uint32],
    tables: str = TWO_WINDOWS + COPIES,
    head: str = "",
    checked: bool = True,
) -> npt.NDArray[np.uint32]:
    """Load `x` (64 rows) into w0, run one block, return w1 (64 rows)."""
    program = kernel_program(LOAD_X + block(*bundles) + STORE_Y, tables, head)
    _, hbm = execute(program, {0: x}, checked)
    return rows_of(hbm, 64, 64)
