"""The HBM allocator: first fit from the top, whole granules, a message when full."""

from __future__ import annotations

import itertools
import random
import sys
import threading

import pytest

from compiler.diagnostics import ResourceExhaustedError
from runtime.allocator import HbmAllocator
from runtime.memory import Memory
from tpu_sim.isa.geometry import GRANULE_BYTES

CAPACITY = 64 * GRANULE_BYTES


def test_blocks_come_from_the_top_in_whole_granules() -> None:
    allocator = HbmAllocator(CAPACITY)
    assert allocator.largest_free_bytes == CAPACITY
    assert allocator.allocate(1) == CAPACITY - GRANULE_BYTES
    assert allocator.allocate(GRANULE_BYTES + 1) == CAPACITY - 3 * GRANULE_BYTES
    assert allocator.largest_free_bytes == CAPACITY - 3 * GRANULE_BYTES
    assert allocator.used_bytes == 3 * GRANULE_BYTES


def test_programs_come_from_the_bottom() -> None:
    allocator = HbmAllocator(CAPACITY)
    first, array = allocator.allocate(700, for_program=True), allocator.allocate(700)
    second = allocator.allocate(1, for_program=True)
    assert (first, second, array) == (0, 2 * GRANULE_BYTES, CAPACITY - 2 * GRANULE_BYTES)
    assert allocator.program_bytes == 3 * GRANULE_BYTES
    assert allocator.array_bytes == 2 * GRANULE_BYTES
    allocator.release(first)
    assert allocator.allocate(3 * GRANULE_BYTES, for_program=True) == 3 * GRANULE_BYTES
    assert allocator.allocate(2 * GRANULE_BYTES, for_program=True) == 0
    assert allocator.block_count == 4 and allocator.peak_bytes == 8 * GRANULE_BYTES


def test_a_block_without_bytes_is_still_a_place_of_its_own() -> None:
    allocator = HbmAllocator(CAPACITY)
    assert allocator.allocate(0) != allocator.allocate(0)


def test_a_hole_is_filled_by_what_fits_and_passed_by_what_does_not() -> None:
    allocator = HbmAllocator(CAPACITY)
    blocks = [allocator.allocate(4 * GRANULE_BYTES) for _ in range(4)]
    allocator.release(blocks[1])
    assert allocator.allocate(5 * GRANULE_BYTES) == blocks[3] - 5 * GRANULE_BYTES
    assert allocator.allocate(4 * GRANULE_BYTES) == blocks[1]


def test_a_full_memory_says_who_has_it() -> None:
    allocator = HbmAllocator(CAPACITY)
    allocator.allocate(32 * GRANULE_BYTES, for_program=True)
    allocator.allocate(30 * GRANULE_BYTES)
    with pytest.raises(ResourceExhaustedError) as found:
        allocator.allocate(3 * GRANULE_BYTES)
    message = str(found.value)
    assert "RESOURCE_EXHAUSTED: no room for 1,536 bytes" in message
    assert "15,360 of 32,768 bytes are used by arrays, 16,384 by programs" in message
    assert allocator.allocate(2 * GRANULE_BYTES) == 32 * GRANULE_BYTES


def test_blocks_never_overlap_and_freed_ones_come_back() -> None:
    allocator, rng = HbmAllocator(CAPACITY), random.Random(0)
    live: dict[int, int] = {}
    for _ in range(2000):
        if live and rng.random() < 0.5:
            offset = rng.choice(list(live))
            del live[offset]
            allocator.release(offset)
            continue
        size = rng.randint(1, 6) * GRANULE_BYTES
        try:
            offset = allocator.allocate(size)
        except ResourceExhaustedError:
            continue
        assert offset >= 0 and offset + size <= CAPACITY
        assert all(offset + size <= o or o + s <= offset for o, s in live.items())
        live[offset] = size
    assert allocator.used_bytes == sum(live.values())
    for offset in live:
        allocator.release(offset)
    assert allocator.allocate(CAPACITY) == 0


def test_threads_get_blocks_of_their_own() -> None:
    interval = sys.getswitchinterval()
    allocator = HbmAllocator(1 << 34)
    errors: list[Exception] = []
    for _ in range(300):
        allocator.allocate(512)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        mine: list[int] = []
        try:
            for _ in range(1500):
                if mine and rng.random() < 0.5:
                    allocator.release(mine.pop(rng.randrange(len(mine))))
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
    assert all(a + size <= b for (a, size, _), (b, *_) in itertools.pairwise(blocks))
    assert allocator.used_bytes == sum(size for _, size, _ in blocks)


def test_a_release_in_the_middle_of_an_allocation_waits_for_nobody() -> None:
    allocator = HbmAllocator(CAPACITY)
    block = allocator.allocate(CAPACITY)
    with allocator._lock:  # as a finalizer finds it
        allocator.release(block)
    assert allocator.largest_free_bytes == CAPACITY
    assert allocator.allocate(CAPACITY) == block


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
