"""Equal blocks are scheduled once, whatever their addresses, constants and registers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from compiler.llo.builder import LloBuilder, f32_bits
from compiler.llo.finalize import finalize_kernel
from compiler.llo.op_table import OpInfo
from compiler.llo.schedule import known_schedules
from compiler.llo.schedule.dependences import BlockGraph
from compiler.llo.schedule.scheduler import Schedule
from tpu_sim.isa.chips import Chip, load_chip
from tpu_sim.isa.instruction import Instr
from tpu_sim.isa.program import Kernel, blocks_of

CHIP = load_chip("v5e")


def _kernel(parts: int, factor: float, *, is_added: bool) -> Kernel:
    """So many loops, each of which multiplies what it loads, or adds it to itself."""
    b = LloBuilder("k", CHIP)
    window = b.window("x", 64 * parts)
    for part in range(parts):
        with b.loop(40) as row:
            first = b.emit("vld", window, row, 8 * part, 1)
            second = b.emit("vld", window, row, 8 * part + 8, 1)
            smaller = b.emit("vmin.f32", first, second)
            if is_added:
                made = b.emit("vadd.f32", smaller, smaller)
            else:
                made = b.emit("vmuli.f32", smaller, f32_bits(factor + part))
            b.emit("vst", window, row, 8 * part, 1, made)
    return finalize_kernel(b.finish(), CHIP)


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Operations of the blocks that are scheduled from now on; nothing is known yet."""
    counts: list[int] = []
    schedule_block = known_schedules.schedule_block

    def counted(ops: list[Instr], infos: list[OpInfo], graph: BlockGraph, chip: Chip) -> Schedule:
        counts.append(len(ops))
        return schedule_block(ops, infos, graph, chip)

    monkeypatch.setattr(known_schedules, "_KNOWN", {})
    monkeypatch.setattr(known_schedules, "schedule_block", counted)
    return counts


def test_equal_blocks_are_scheduled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = _counted(monkeypatch)
    _kernel(1, 2.0, is_added=False)
    first = list(counts)
    _kernel(3, 5.0, is_added=False)
    assert counts[len(first) :] == []
    _kernel(1, 2.0, is_added=True)  # one operation of another latency
    assert counts[len(first) :]


def test_a_known_schedule_is_the_one_that_would_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    _kernel(2, 3.0, is_added=False)
    known = _kernel(3, 5.0, is_added=False)
    monkeypatch.setattr(known_schedules, "_KNOWN", {})
    anew = _kernel(3, 5.0, is_added=False)
    assert [b.bundles for b in blocks_of(known.body)] == [b.bundles for b in blocks_of(anew.body)]


def test_threads_that_schedule_at_once_may_fill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_schedules, "_MOST", 4)
    monkeypatch.setattr(known_schedules, "_KNOWN", {})
    sizes = list(range(1, 5)) * 4
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: _kernel(n, 2.0, is_added=bool(n % 2)), sizes))
    for size, kernel in zip(sizes, found, strict=True):
        assert kernel.body == _kernel(size, 2.0, is_added=bool(size % 2)).body
    assert len(known_schedules._KNOWN) <= 4 + 4
