"""collective-permute of whole arrays: transfers and flags, at once or as a start and its done.

A permute in halves is two kernels. The start tells the core that sends to this one that the result's
place is free, waits to hear the same, and starts the transfers; the done waits for what comes. What
runs between them hides the transfer. Each pair has a flag of its own while it is under way.
"""

from __future__ import annotations

from compiler.analysis.async_flags import exchange_flag
from compiler.backend.custom import CustomKernel
from compiler.backend.exchange.kernels import (
    BACKWARD,
    LOCAL,
    ExchangeKernel,
)
from compiler.backend.exchange.plan import FIRST_ASYNC_FLAG, FIRST_DATA_FLAG
from compiler.backend.kernel_calls import Argument
from compiler.backend.transfer import hbm_tiling
from compiler.hlo.ir import HloInstruction
from compiler.llo.builder import LloBuilder
from tpu_sim.isa.program import HBM, MAX_FLAGS, DmaDescriptor, DmaDim


def emit_permute(kernel: CustomKernel) -> None:
    """Emit a collective-permute: one transfer for each array; a core that nothing comes to fills its
    results with zeros."""
    send_arrays(kernel, FIRST_DATA_FLAG).wait(FIRST_DATA_FLAG)


def send_arrays(kernel: CustomKernel, flag: int) -> ExchangeKernel:
    """Start a permute's transfers, all on one flag."""
    x = ExchangeKernel(kernel)
    forth, back = [-1] * x.cores, [-1] * x.cores
    pairs = x.pairs()
    for source, target in pairs:
        forth[source], back[target] = target, source
    b = x.builder
    route = x.plan.route(forth, [forth], x.plan.permute_ports[pairs])
    is_partial = any(source < 0 for source in back)
    if is_partial:
        x.start_table([[int(source < 0)] for source in back])
    x.signal(x.plan.route(back, [back], BACKWARD), x.ready)
    x.wait(x.ready)
    for operand, result in zip(kernel.interface.operands, kernel.interface.results, strict=True):
        places = b.argument(operand.index), b.argument(result.index)
        x.start(route, *places, b.sconst(flag), _granules(operand))
        b.new_block()
    if is_partial:
        x.await_table()
        with b.if_(x.word(0)):
            _clear(x, kernel.interface.results)
    return x


def _clear(x: ExchangeKernel, results: tuple[Argument, ...]) -> None:
    b, (zeros, _) = x.builder, x.plan.table([[0]], x.builder.name)
    for result in results:
        fill = DmaDescriptor(HBM, HBM, 1, (DmaDim(_granules(result), 0, 1),))
        place = b.argument(result.index)
        b.emit("dma.start", b.descriptor(fill), b.sconst(zeros), place, LOCAL, 0, 0, 0)
    x.wait(LOCAL)


def _granules(argument: Argument) -> int:
    return hbm_tiling(argument.shape).total_granules


def emit_start(kernel: CustomKernel, start: HloInstruction) -> None:
    """Emit the first half: the transfers are under way when it ends."""
    send_arrays(kernel, FIRST_ASYNC_FLAG + exchange_flag(start))


def emit_done(builder: LloBuilder, done: HloInstruction) -> None:
    """Emit the second half, a wait."""
    builder.flag(MAX_FLAGS)
    flag = builder.sconst(FIRST_ASYNC_FLAG + exchange_flag(done))
    builder.new_block()  # a wait for another core is the first thing in its block
    builder.emit("dma.wait", 0, flag)
