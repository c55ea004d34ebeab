"""The part of VMEM that a kernel has for itself: `vmem_bytes` in its `backend_config`.

    {"vmem_bytes": 33554432}

It starts at row 0. The rest holds arrays that stay in VMEM from one kernel to another. A kernel
without such a config has all of VMEM.
"""

from __future__ import annotations

from dataclasses import replace

from compiler.analysis.tiled_layout import memory_space
from compiler.analysis.window_config import read_config, write_config
from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import leaves
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import SMEM

SCOPE = "vmem_bytes"
SCALAR_KERNEL_BYTES = 1 << 20
"""Enough for a kernel of scalars alone."""


def scoped_bytes(instr: HloInstruction) -> int | None:
    """Bytes of VMEM from its start that an instruction's kernel may use; None: all.

    Raises CompileError for what is no positive number.
    """
    size = read_config(instr).get(SCOPE)
    if size is None:
        return None
    if not isinstance(size, int) or size <= 0:
        raise CompileError(f"%{instr.name}: {SCOPE} is {size}, want bytes of VMEM", instr.span)
    return size


def uses_vmem(instr: HloInstruction) -> bool:
    """Whether a fusion or copy is a kernel, not scalar code: some array of it is outside SMEM."""
    shapes = [leaf for o in (*instr.operands, instr) for leaf in leaves(o.shape)]
    return any(memory_space(shape) != SMEM for shape in shapes)


def set_scope(instr: HloInstruction, size_bytes: int | None) -> None:
    """Give a kernel so many bytes of VMEM; None: all."""
    config = {key: value for key, value in read_config(instr).items() if key != SCOPE}
    if size_bytes is not None:
        config[SCOPE] = size_bytes
    write_config(instr, config)


def scoped_chip(chip: Chip, instr: HloInstruction) -> Chip:
    """The chip as an instruction's kernel sees it."""
    size = scoped_bytes(instr)
    return chip if size is None else replace(chip, vmem_bytes=min(size, chip.vmem_bytes))
