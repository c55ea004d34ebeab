"""The HBM allocator: first fit from the top, whole granules, a message when full."""

from __future__ import annotations

import itertools
import multiprocessing
import random
import sys
import threading

import pytest

from compiler.diagnostics import ResourceExhaustedError
from runtime.allocator import Block, HbmAllocator
from runtime.buffer import Buffer
from runtime.memory import Memory
from tests.support.interrupts import interrupted_at
from tpu_sim.isa.geometry import GRANULE_BYTES

CAPACITY = 64 * GRANULE_BYTES


def test_blocks_come_from_the_top_in_whole_granules() -> None:
    allocator = HbmAllocator(CAPACITY)
    assert allocator.largest_free_bytes == CAPACITY
    first, second = allocator.allocate(1), allocator.allocate(GRANULE_BYTES + 1)
    assert first.offset == CAPACITY - GRANULE_BYTES
    assert second.offset == CAPACITY - 3 * GRANULE_BYTES
    assert allocator.largest_free_bytes == CAPACITY - 3 * GRANULE_BYTES
    assert allocator.used_bytes == 3 * GRANULE_BYTES


def test_programs_come_from_the_bottom() -> None:
    allocator = HbmAllocator(CAPACITY)
    first, array = allocator.allocate(700, for_program=True), allocator.allocate(700)
    second = allocator.allocate(1, for_program=True)
    offsets = (first.offset, second.offset, array.offset)
    assert offsets == (0, 2 * GRANULE_BYTES, CAPACITY - 2 * GRANULE_BYTES)
    assert allocator.program_bytes == 3 * GRANULE_BYTES
    assert allocator.array_bytes == 2 * GRANULE_BYTES
    del first
    third = allocator.allocate(3 * GRANULE_BYTES, for_program=True)
    fourth = allocator.allocate(2 * GRANULE_BYTES, for_program=True)
    assert (third.offset, fourth.offset) == (3 * GRANULE_BYTES, 0)
    assert allocator.block_count == 4 and allocator.peak_bytes == 8 * GRANULE_BYTES


def test_a_block_without_bytes_is_still_a_place_of_its_own() -> None:
    allocator = HbmAllocator(CAPACITY)
    first, second = allocator.allocate(0), allocator.allocate(0)
    assert first.offset != second.offset


def test_a_hole_is_filled_by_what_fits_and_passed_by_what_does_not() -> None:
    allocator = HbmAllocator(CAPACITY)
    blocks = [allocator.allocate(4 * GRANULE_BYTES) for _ in range(4)]
    hole, last = blocks.pop(1).offset, blocks[-1].offset
    larger, same = allocator.allocate(5 * GRANULE_BYTES), allocator.allocate(4 * GRANULE_BYTES)
    assert (larger.offset, same.offset) == (last - 5 * GRANULE_BYTES, hole)


def test_a_full_memory_says_who_has_it() -> None:
    allocator = HbmAllocator(CAPACITY)
    program = allocator.allocate(32 * GRANULE_BYTES, for_program=True)
    array = allocator.allocate(30 * GRANULE_BYTES)
    with pytest.raises(ResourceExhaustedError) as found:
        allocator.allocate(3 * GRANULE_BYTES)
    message = str(found.value)
    assert "RESOURCE_EXHAUSTED: no room for 1,536 bytes" in message
    assert "15,360 of 32,768 bytes are used by arrays, 16,384 by programs" in message
    assert allocator.allocate(2 * GRANULE_BYTES).offset == 32 * GRANULE_BYTES
    del program, array
    assert allocator.used_bytes == 0


def test_blocks_never_overlap_and_freed_ones_come_back() -> None:
    allocator, rng = HbmAllocator(CAPACITY), random.Random(0)
    live: dict[int, int] = {}
    held: dict[int, Block] = {}
    for _ in range(2000):
        if live and rng.random() < 0.5:
            offset = rng.choice(list(live))
            del live[offset], held[offset]
            continue
        size = rng.randint(1, 6) * GRANULE_BYTES
        try:
            block = allocator.allocate(size)
        except ResourceExhaustedError:
            continue
        offset = block.offset
        assert offset >= 0 and offset + size <= CAPACITY
        assert all(offset + size <= o or o + s <= offset for o, s in live.items())
        live[offset], held[offset] = size, block
    assert allocator.used_bytes == sum(live.values())
    held.clear()
    del block
    assert allocator.allocate(CAPACITY).offset == 0


def test_threads_get_blocks_of_their_own() -> None:
    interval = sys.getswitchinterval()
    allocator = HbmAllocator(1 << 34)
    errors: list[Exception] = []
    others = [allocator.allocate(512) for _ in range(300)]

    def work(seed: int) -> None:
        rng = random.Random(seed)
        mine: list[Block] = []
        try:
            for _ in range(1500):
                if mine and rng.random() < 0.5:
                    mine.pop(rng.randrange(len(mine)))
                else:
                    mine.append(allocator.allocate(rng.choice([512, 1024, 4096])))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors
    blocks = allocator._blocks
    assert all(a + size <= b for (a, size, *_), (b, *_) in itertools.pairwise(blocks))
    assert allocator.used_bytes == sum(size for _, size, *_ in blocks) == 512 * len(others)


def test_a_release_in_the_middle_of_an_allocation_waits_for_nobody() -> None:
    allocator = HbmAllocator(CAPACITY)
    block = allocator.allocate(CAPACITY)
    with allocator._lock.here:  # as a finalizer finds it
        del block
    assert allocator.largest_free_bytes == CAPACITY
    assert allocator.allocate(CAPACITY).offset == 0


def test_a_release_takes_no_step_of_python() -> None:
    """A signal's handler may raise where a finalizer in Python begins: the block then stayed taken."""
    memory = Memory(1 << 20)
    buffer: list[object] = [Buffer(memory, 512, 1)]
    assert memory.allocator.used_bytes == 512

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    sys.settrace(interrupt)
    buffer.clear()
    sys.settrace(None)
    assert memory.allocator.used_bytes == 0


def test_nothing_is_lost_where_an_allocation_is_interrupted() -> None:
    """An exception at any step leaves no block that nobody has, and counts that hold."""
    allocator = HbmAllocator(CAPACITY)
    kept = allocator.allocate(3 * GRANULE_BYTES, for_program=True)

    def work() -> None:
        for size in (1, 2 * GRANULE_BYTES):
            allocator.allocate(size)
        assert allocator.used_bytes == 3 * GRANULE_BYTES

    steps = 0
    while interrupted_at(steps, work):
        steps += 1
        assert allocator._lock.here.acquire(blocking=False), steps
        allocator._lock.here.release()
        assert (allocator.array_bytes, allocator.program_bytes) == (0, 3 * GRANULE_BYTES), steps
        assert allocator.block_count == 1, steps
    assert steps > 30
    assert kept.offset == 0


def test_programs_come_while_others_look_for_idle_ones() -> None:
    memory, is_over = Memory(1 << 20), threading.Event()

    class Program:
        size_bytes, last_use, is_idle = 1, 0, False

        def evict(self) -> None:
            raise AssertionError("it is not idle")

    def come_and_go() -> None:
        while not is_over.is_set():
            kept = [Program() for _ in range(50)]
            for program in kept:
                memory.keep(program)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(2000):
            memory.limit_idle()
    finally:
        is_over.set()
        other.join()
        sys.setswitchinterval(before)
    held = Program()
    memory.keep(held)
    assert len(memory._idle_programs()) == 0
    held.is_idle = True
    assert memory._idle_programs() == [held]


@pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # newer Pythons' remark
def test_a_forked_process_allocates_although_a_thread_was_at_it() -> None:
    allocator = HbmAllocator(CAPACITY)
    is_taken, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with allocator._lock.here:
            is_taken.set()
            may_end.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    is_taken.wait()
    child = multiprocessing.get_context("fork").Process(target=allocator.allocate, args=(1,))
    child.start()
    child.join(timeout=60)
    may_end.set()
    holder.join()
    was_hung = child.is_alive()
    child.kill()
    assert not was_hung and child.exitcode == 0
