"""A kernel plan as text, an item a line; ``--dump-ir`` writes it beside the kernel's LLO.

    grid 1x3x1
      in %x f32[256,512]{1,0:T(8,128)} [0, 0] + [256, 512], 1032 rows
      out %add.2 f32[256,384]{1,0:T(8,128)} [0, 128*g2] + [256, 128], 520 rows
      matmul %dot.1 -> scratch.dot.1 f32[256,384] [0, 128*g2] + [256, 128], 264 rows
        of %x [0, 0] + [256, 512]
          as bf16.0.x bf16[256,512] [0, 0] + [256, 512], 520 rows
        of %w [0, 128*g2] + [512, 128], as it lies
      roots out.add.2
    3936 rows of VMEM, about 143032 cycles

A box is its first element along each dimension, in variables of the grid, + its extent. Rows are
those in VMEM, of 512 bytes. The plan's serialised form is the fusion's `backend_config`, of which it is
made again (`compiler.analysis.window_config`).
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.analysis.indexing import Expr
from compiler.analysis.kernel_vmem import stream_rows
from compiler.analysis.windows import WindowPlan
from compiler.hlo.shape_text import print_shape
from compiler.kernels.plan import (
    ChainStage,
    KernelPlan,
    MatmulStage,
    ReduceStage,
    RootStage,
    Scratch,
    Stage,
    StoredStage,
    Target,
    accumulators_name,
)


def print_plan(kernel: KernelPlan) -> str:
    """The plan as text."""
    return "\n".join(_lines(kernel)) + "\n"


def grid_text(plan: WindowPlan) -> str:
    """The steps along each dimension, ``1x3x1``."""
    return "x".join(str(d.steps) for d in plan.grid) or "1"


def _lines(kernel: KernelPlan) -> Iterator[str]:
    plan = kernel.windows
    yield f"grid {grid_text(plan)}"
    for dim in plan.grid:
        kind = "" if dim.parallel else ", sums"
        yield f"  {dim.variable}: blocks of {dim.block} of {dim.total} tiles of {dim.unit}{kind}"
    for derived in plan.derived:
        variable = derived.variable
        yield f"  {variable} = {derived.value} within {variable.low}..{variable.high}"
    for kind, windows in (("in", plan.inputs), ("out", plan.outputs)):
        for window in windows:
            box = f"{print_shape(window.shape)} {_box(window.origin, window.extent)}"
            rows = "where it lies" if window.is_resident else f"{stream_rows(plan, window)} rows"
            yield f"  {kind} %{window.node.name} {box}, {rows}"
    for parameter in kernel.body.carried:
        yield f"  carry %{parameter.name} {print_shape(parameter.array)}"
    for stage in kernel.stages:
        yield from _stage(kernel, stage)
    yield f"{kernel.rows} rows of VMEM, about {plan.estimated_cycles} cycles"


def _stage(kernel: KernelPlan, stage: Stage) -> Iterator[str]:
    match stage:
        case ReduceStage():
            sums = ", sums over steps" if stage.is_cut else ""
            yield f"  reduce %{stage.node.name}{sums}"
            for result, target, turned in zip(
                stage.results, stage.targets, stage.turned, strict=True
            ):
                through = f" through {_scratch(turned)}" if turned is not None else ""
                yield f"    %{result.name} -> {_target(kernel, target)}{through}"
            yield f"    state {accumulators_name(stage.node)}, {stage.state_tiles} tiles"
        case StoredStage():
            yield f"  store %{stage.node.name} -> {_scratch(stage.target)}"
        case MatmulStage():
            split = ", sums over steps" if stage.is_split else ""
            yield f"  matmul %{stage.node.name}{split} -> {_target(kernel, stage.target)}"
            for node, operand in zip(stage.node.operands, stage.operands, strict=True):
                lies = "" if operand.parts else ", as it lies"
                yield f"    of %{node.name} {_box(operand.box.low, operand.box.extent)}{lies}"
                for part in operand.parts:
                    yield f"      as {_scratch(part)}"
        case ChainStage():
            names = ", ".join(f"%{node.name}" for node in stage.members)
            outputs = ", ".join(_target(kernel, i) for i in stage.outputs)
            yield f"  chain of rows {_box(stage.low, stage.extent)}: {names} -> {outputs or 'scratch'}"
            for scratch in stage.scratch:
                yield f"    leaves {_scratch(scratch)}"
        case RootStage():
            yield f"  roots {', '.join(_target(kernel, i) for i in stage.outputs)}"


def _target(kernel: KernelPlan, target: Target) -> str:
    if isinstance(target, Scratch):
        return _scratch(target)
    return f"out.{kernel.windows.outputs[target].node.name}"


def _scratch(scratch: Scratch) -> str:
    replicated = " a value a row" if scratch.is_replicated else ""
    shape = print_shape(scratch.shape)
    box = _box(scratch.low, scratch.extent)
    return f"{scratch.name} {shape}{replicated} {box}, {scratch.rows} rows"


def _box(low: tuple[Expr, ...], extent: tuple[int, ...]) -> str:
    return f"[{', '.join(str(e) for e in low)}] + {list(extent)}"
