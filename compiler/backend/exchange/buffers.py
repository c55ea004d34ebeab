"""What exchanges hold in HBM as buffers: partial sums while a reduction runs, tables of a program's data.

They lie behind the arrays, where kernels find them by number (`ExchangePlan`), and are allocations as
those of arrays are, so that reports, program files, traces and pages tell of the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from compiler.analysis.buffer_assignment import Allocation, BufferAssignment
from compiler.backend.exchange.plan import ExchangePlan
from compiler.backend.transfer import hbm_tiling
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import HBM


def reductions(module: HloModule) -> Iterator[tuple[HloInstruction, int]]:
    """The fusions that add up what others send, each with the granules of its partial sums."""
    for computation in control_computations(module):
        for fusion in computation:
            if fusion.opcode == "fusion" and _root(fusion).opcode == "reduce-scatter":
                yield fusion, hbm_tiling(fusion.operands[0].array).total_granules


def with_exchange_buffers(
    buffers: BufferAssignment, module: HloModule, plan: ExchangePlan
) -> BufferAssignment:
    """The allocations of arrays and, behind them, those of exchanges, once all kernels are made.

    All reductions have their partial sums in one place, each while it runs; tables are constants.
    """
    names = dict(buffers.names)
    allocations = list(buffers.allocations)
    whole = max((place.live[1] for place in allocations), default=0)

    def add(name: str, offset: int, size_bytes: int, live: tuple[int, int], is_table: bool) -> None:
        names[len(allocations)] = name
        allocations.append(Allocation(HBM, offset, size_bytes, live, is_constant=is_table))

    scratch = plan.scratch_granule * GRANULE_BYTES
    for fusion, granules in reductions(module):
        at = buffers.positions[fusion]
        live = (at.start, at.end)
        add(f"{fusion.name} partial sums", scratch, granules * GRANULE_BYTES, live, is_table=False)
    for (offset, data), kernel in zip(plan.tables, plan.table_kernels, strict=True):
        add(f"{kernel} table", offset, len(data), (0, whole), is_table=True)
    peak = max(buffers.peak_bytes, plan.end_bytes)
    return replace(buffers, allocations=allocations, names=names, peak_bytes=peak)


def _root(fusion: HloInstruction) -> HloInstruction:
    called = fusion.attrs["calls"]
    assert isinstance(called, HloComputation)
    return called.root_instruction
