"""The invariants of kernel plans, numbered; `verify_plan` reads only.

K1  every output window is made by exactly one stage
K2  what a stage reads of materialised nodes is left by a stage before it
K3  a box has as many dimensions as its array, holds something, and starts inside it
K4  a matmul's operand is used as it lies or has as many parts as the dot's precision says
K5  a matmul whose K is split is the first stage; every other kernel has no split one
K6  windows and scratch fit VMEM
"""

from __future__ import annotations

from collections import Counter

from compiler.analysis.indexing import Expr
from compiler.analysis.row_chain import leaves_behind
from compiler.diagnostics import VerifyError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.kernels.plan import (
    ChainStage,
    KernelPlan,
    MatmulStage,
    ReduceStage,
    RootStage,
)
from tpu_sim.isa.chips import Chip


def verify_plan(kernel: KernelPlan, chip: Chip) -> None:
    """Raise `VerifyError` if a plan breaks an invariant."""
    _check_outputs(kernel)
    _check_order(kernel)
    for window in (*kernel.windows.inputs, *kernel.windows.outputs):
        _check_box(window.node.name, window.shape, window.origin, window.extent)
    for number, stage in enumerate(kernel.stages):
        for scratch in stage.scratch:
            _check_box(scratch.name, scratch.shape, scratch.low, scratch.extent)
        if isinstance(stage, MatmulStage):
            _check_matmul(kernel, stage, number)
    if kernel.rows > chip.vmem_rows:
        _fail(6, f"{kernel.rows} rows of VMEM, {chip.name} has {chip.vmem_rows}")


def _fail(number: int, message: str) -> None:
    raise VerifyError(f"error[K{number}]: {message}")


def _check_outputs(kernel: KernelPlan) -> None:
    made = Counter(number for stage in kernel.stages for number in stage.outputs)
    for number, root in enumerate(kernel.body.roots):
        if made[number] != 1:
            _fail(1, f"out.{root.name} is made by {made[number]} stages")


def _check_order(kernel: KernelPlan) -> None:
    leaves, left = kernel.body.leaves, set[HloInstruction]()
    for stage in kernel.stages:
        inner: set[HloInstruction] = set()
        if isinstance(stage, RootStage | ChainStage):
            read = [kernel.body.roots[i] for i in stage.outputs]
        else:
            read = list(stage.node.operands)
        if isinstance(stage, ChainStage):
            inner = set(stage.members)
            read += [o for node in stage.members for o in node.operands]
        for leaf in leaves_behind(read, leaves) - left - inner:
            _fail(2, f"a stage reads %{leaf.name}, which no stage before it leaves")
        if isinstance(stage, ReduceStage):
            left.update(stage.results)
        elif isinstance(stage, ChainStage):
            pairs = zip(stage.members, stage.targets, strict=True)
            left.update(node for node, target in pairs if target is not None)
        elif not isinstance(stage, RootStage):
            left.add(stage.node)


def _check_box(
    name: str, shape: ArrayShape, low: tuple[Expr, ...], extent: tuple[int, ...]
) -> None:
    if not len(low) == len(extent) == shape.rank:
        _fail(3, f"{name}: a box of {len(low)} and {len(extent)} dimensions of rank {shape.rank}")
    for dim, (first, held, size) in enumerate(zip(low, extent, shape.dims, strict=True)):
        least, most = first.range()
        if held < 1 or least < 0 or most >= max(1, size):
            _fail(3, f"{name}: dimension {dim} of {size} holds {held} from {least}..{most}")


def _check_matmul(kernel: KernelPlan, stage: MatmulStage, number: int) -> None:
    for side, operand in enumerate(stage.operands):
        wanted = kernel.parts.of(side)
        if len(operand.parts) not in (wanted, 0) or (not operand.parts and wanted != 1):
            _fail(
                4, f"%{stage.node.name}: operand {side} has {len(operand.parts)} parts of {wanted}"
            )
    if stage.is_split != (stage.node in kernel.windows.depths) or (stage.is_split and number):
        _fail(5, f"%{stage.node.name}: a matmul whose K is split is the first stage")
