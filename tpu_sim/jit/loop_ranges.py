"""Ranges of a loop's iterations as tasks: the kernel of the library that runs one.

A loop that threads may share is a function of its own (`tpu_sim.jit.scope.LoopScope`), which works on
the state that it is given: the core's, or one of a thread's own, in which a range counts for itself.
"""

from __future__ import annotations

from enum import IntEnum

from tpu_sim.isa.chip_limits import MOST_SREGS
from tpu_sim.jit.clock_kernels import TALLY_WORDS
from tpu_sim.jit.context import OWN_STATE, Word
from tpu_sim.jit.kernel_builtins import Words, address_of, copy_bytes, status_at, words_at
from tpu_sim.jit.kernel_language import kernel

RUN_RANGE = "tpuc_kernel_v1_run_range"
_NEVER = (1 << 63) - 1
_SREG_BYTES = 4 * MOST_SREGS


class RangeWord(IntEnum):
    """The arguments of a range, and behind them room for what it gives back."""

    CONTEXT = 0
    FUNCTION = 1  # of the loop
    FIRST = 2
    END = 3
    COUNTER = 4  # the number of the loop's counter
    TEST = 5  # the node to begin with
    TRIP = 6  # iterations of the whole loop
    STATUS = 7  # 0, or the fault site
    TALLY = 8


RANGE_WORDS = RangeWord.TALLY + TALLY_WORDS


@kernel(RUN_RANGE)
def run_range(arguments: Words, scratch: Words) -> None:
    """Run a range on a state of its own; the last one leaves its sregs to the core."""
    core_at = address_of(scratch) + OWN_STATE
    core = words_at(core_at)
    sregs = arguments[RangeWord.CONTEXT] + 8 * Word.SREGS
    own_sregs = core_at + 8 * Word.SREGS
    for word in range(TALLY_WORDS):
        core[word] = 0
    copy_bytes(own_sregs, sregs, _SREG_BYTES)
    core[Word.UNTIL] = _NEVER
    core[Word.NODE] = arguments[RangeWord.TEST]
    counter = arguments[RangeWord.COUNTER]
    core[Word.COUNTERS + counter] = arguments[RangeWord.FIRST]
    core[Word.TRIPS + counter] = arguments[RangeWord.END]
    function, context = arguments[RangeWord.FUNCTION], arguments[RangeWord.CONTEXT]
    arguments[RangeWord.STATUS] = status_at(function, context, core, scratch)
    for word in range(TALLY_WORDS):
        arguments[RangeWord.TALLY + word] = core[word]
    if arguments[RangeWord.END] == arguments[RangeWord.TRIP]:
        copy_bytes(sregs, own_sregs, _SREG_BYTES)
