"""The native function that takes buffers back to their stacks (`runtime.pjrt.stacks`)."""

from __future__ import annotations

from runtime.pjrt.blocks import HOME, LINK, REFERENCES, SLOTS
from tpu_sim.jit.kernel_builtins import Words, words_at
from tpu_sim.jit.kernel_language import kernel

COUNT, CAPACITY, FIRST = 0, 1, 2
"""Words of a stack: how many buffers are there, how many may be, then their handles."""
_IS_DELETED = SLOTS["buffer"]["is_deleted"]
RECYCLE, SET_APART, TAKE_FIRST = "recycle", "set_apart_kept", "take_first"


@kernel(RECYCLE)
def recycle(first: int, kept: Words) -> None:
    """Of the blocks that are linked from `first` on, buffers with a stack return to it; the others are
    put before those that `kept` links, for Python."""
    block = first
    while block != 0:
        words = words_at(block)
        following = words[LINK]
        is_back = 0
        if words[HOME] != 0:
            stack = words_at(words[HOME])
            count = stack[COUNT]
            if count < stack[CAPACITY] and words[_IS_DELETED] == 0:
                words[REFERENCES] = 1
                stack[FIRST + count] = block
                stack[COUNT] = count + 1
                is_back = 1
        if is_back == 0:
            words[LINK] = kept[0]
            kept[0] = block
        block = following


@kernel(SET_APART)
def set_apart_kept(kept: Words, apart: Words) -> None:
    """Put all blocks that `kept` links before those that `apart` does."""
    block = kept[0]
    while block != 0:
        words = words_at(block)
        following = words[LINK]
        words[LINK] = apart[0]
        apart[0] = block
        block = following
    kept[0] = 0


@kernel(TAKE_FIRST)
def take_first(apart: Words) -> int:
    """The first block that `apart` links, which it then no longer does; 0 for none."""
    block = apart[0]
    if block != 0:
        apart[0] = words_at(block)[LINK]
    return block
