"""The native side of the clock: functions of the kernel library that translated blocks call.

They count cycles by the equations of `tpu_sim.isa.timing`, whose code is put in place here
(`tpu_sim.jit.kernel_language`); what depends on the chip stands in the context. The
waits and passes of a block are a list of steps (`step_word`), which `RUN_STEPS` goes through: that
is far less code than a call for each.
"""

from __future__ import annotations

from enum import IntEnum

from tpu_sim.isa.causes import LOWERED, Cause
from tpu_sim.isa.chip_limits import MOST_RESULTS
from tpu_sim.isa.program import MAX_FLAGS
from tpu_sim.isa.timing import engine_cycles, occupied_until, unit_issue, wait_end
from tpu_sim.jit.context import COST_WORDS, ROUTE_WORDS, RouteWord, Word
from tpu_sim.jit.kernel_builtins import HalfWords, Words, atomic_add, atomic_max, words_at
from tpu_sim.jit.kernel_language import kernel

_PREFIX = "tpuc_kernel_v1_clock_"
RUN_STEPS = _PREFIX + "steps"
WAIT = _PREFIX + "wait"
TRANSFER = _PREFIX + "transfer"
EXCHANGE = _PREFIX + "exchange"
FINISH = _PREFIX + "finish"
COUNT_RANGE = _PREFIX + "count_range"
IS_PENDING = _PREFIX + "is_pending"
TALLY_WORDS = 1 + len(Cause)
"""`Word.NOW` and the cycles by cause behind it: what a range of iterations counts for itself."""


class ClockStep(IntEnum):
    """What happens at a step: a pop's wait, a pass' wait for its unit, a pass, nothing."""

    END = 0
    POP = 1
    UNIT = 2
    MATMUL = 3
    IDLE = 4


MAX_ELAPSED = (1 << 16) - 1
"""Most cycles between a step and the one before."""


def step_word(step: ClockStep, unit: int, elapsed: int) -> int:
    """A step of `unit`, `elapsed` cycles after the one before."""
    return elapsed << 16 | unit << 8 | step


def _stall(ctx: Words, cause: int, now: int, until: int) -> int:
    """Wait from `now` until a time, for a cause; the later of the two."""
    later = max(now, until)
    ctx[Word.CAUSES + cause] += later - now
    return later


def _ready_at(unit: int, position: int) -> int:
    """The word that says when result number `position` of a unit is ready."""
    return Word.READY + unit * MOST_RESULTS + (position & MOST_RESULTS - 1)


def _push(ctx: Words, unit: int, ready: int) -> None:
    """Enter a result into the queue of a unit."""
    position = ctx[Word.CLOCK_TAIL + unit]
    ctx[_ready_at(unit, position)] = ready
    ctx[Word.CLOCK_TAIL + unit] = position + 1


@kernel(RUN_STEPS)
def run_steps(ctx: Words, steps: HalfWords, start: int) -> int:
    """The time after a list of steps that begins at `start`."""
    now = start
    at = 0
    while True:
        word = steps[at]
        now += word >> 16
        unit = word >> 8 & 255
        step = word & 255
        if step == ClockStep.POP:
            oldest = ctx[Word.CLOCK_HEAD + unit]
            ctx[Word.CLOCK_HEAD + unit] = oldest + 1
            now = _stall(ctx, Cause.MXU_RESULT, now, ctx[_ready_at(unit, oldest)])
        elif step == ClockStep.UNIT:
            now = _stall(ctx, Cause.MXU, now, unit_issue(ctx[Word.UNIT_FREE + unit]))
        elif step == ClockStep.MATMUL:
            _push(ctx, unit, now + ctx[Word.RESULT_READY])
            _push(ctx, unit, now + ctx[Word.RESULT_READY + 1])
            free = ctx[Word.UNIT_FREE + unit]
            ctx[Word.UNIT_FREE + unit] = occupied_until(free, now, ctx[Word.PASS_OCCUPANCY])
            ctx[Word.MXU_PASSES] += 1
        elif step == ClockStep.END:
            return now
        at += 1


@kernel(WAIT)
def wait(ctx: Words, flag: int, arrival: int, now: int) -> int:
    """The time after a wait, which counts from `arrival`, when the bundle could issue but for its
    waits."""
    done = wait_end(now, ctx[Word.FLAG_DONE + flag], ctx[Word.WAIT_CYCLES])
    ctx[Word.DMA_WAIT] += done - arrival
    cause = ctx[Word.FLAG_CAUSE + flag]
    ctx[Word.FLAG_CAUSE + flag] = LOWERED
    return _stall(ctx, cause, now, done)


@kernel(TRANSFER)
def transfer(
    ctx: Words, flag: int, size: int, sides: int, route: int, cause: int, now: int
) -> None:
    """A transfer on a route whose cost the fabric gave (`Word.DMA_COSTS`); `sides` of it are HBM."""
    row = Word.DMA_COSTS + route * COST_WORDS
    free = max(now, ctx[Word.DMA_FREE]) + engine_cycles(size, ctx[row], ctx[row + 1])
    ctx[Word.DMA_FREE] = free
    ctx[Word.FLAG_DONE + flag] = max(free + ctx[row + 2], ctx[Word.FLAG_DONE + flag])
    ctx[Word.FLAG_CAUSE + flag] = cause
    ctx[Word.HBM_BYTES] += size * sides


@kernel(EXCHANGE)
def exchange(ctx: Words, flag: int, size: int, route: int, now: int) -> None:
    """A transfer over a route: it raises the flag at the core it goes to, whose words another thread
    may be using; at its own, the flag waits for what comes by the route."""
    table = words_at(ctx[Word.LINKS])
    row = route * ROUTE_WORDS
    ctx[Word.FLAG_CAUSE + flag] = Cause.ICI
    atomic_add(ctx, Word.FLAG_PENDING + flag, table[row + RouteWord.EXPECTS])
    if table[row + RouteWord.PEER] == 0:
        return
    port = Word.PORT_FREE + table[row + RouteWord.PORT]
    cycles = engine_cycles(size, table[row + RouteWord.FACTOR], table[row + RouteWord.SETUP])
    free = max(now, ctx[port] if size > 0 else now) + cycles
    ctx[port] = free if size > 0 else ctx[port]
    quick, slow = table[row + RouteWord.FLAG_LATENCY], table[row + RouteWord.LATENCY]
    ctx[Word.HBM_BYTES] += size * 2
    table[row + RouteWord.SENT] += size
    atomic_max(ctx, Word.FLAG_DONE + flag, free)
    peer = words_at(table[row + RouteWord.PEER])
    atomic_max(peer, Word.FLAG_DONE + flag, free + (quick if size == 0 else slow))
    atomic_add(peer, Word.FLAG_PENDING + flag, -1)


@kernel(FINISH)
def finish(ctx: Words, counts: Words, now: int) -> None:
    """Set the time, and add to cycles by cause: pairs of cause and cycles behind their number."""
    ctx[Word.NOW] = now
    for number in range(counts[0]):
        ctx[Word.CAUSES + counts[1 + 2 * number]] += counts[2 + 2 * number]


@kernel(COUNT_RANGE)
def count_range(ctx: Words, tally: Words) -> None:
    """Add the words that a range of iterations counted to those of the core."""
    for word in range(TALLY_WORDS):
        ctx[word] += tally[word]


@kernel(IS_PENDING)
def is_pending(ctx: Words, flag: int) -> bool:
    """Whether another core has yet to raise a flag; false for a number that no flag has."""
    if flag < 0 or flag >= MAX_FLAGS:
        return False
    return ctx[Word.FLAG_PENDING + flag] > 0


KERNELS = (run_steps, wait, transfer, exchange, finish, count_range, is_pending)
