"""Functions of the kernel language do in LLVM what they do in Python."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tpu_sim.isa.causes import Cause
from tpu_sim.isa.geometry import ROW_BYTES
from tpu_sim.jit import clock_kernels, window_kernels
from tpu_sim.jit.clock_kernels import ClockStep, step_word
from tpu_sim.jit.context import CONTEXT_WORDS, ROUTE_WORDS, RouteWord, Word
from tpu_sim.jit.engine import Engine, NativeModule
from tpu_sim.jit.host import detect_host
from tpu_sim.jit.kernel_builtins import (
    HalfWords,
    Native,
    Words,
    address_of,
    atomic_add,
    atomic_max,
    call_at,
    compare_and_swap,
    copy_bytes,
    load_acquire,
    local_words,
    status_at,
    store_release,
    words_at,
)
from tpu_sim.jit.kernel_language import NativeKernel, kernel
from tpu_sim.jit.kernel_translator import KernelSyntaxError
from tpu_sim.machine.fabric import ROUTES

Array = npt.NDArray[np.int64]
BIAS = 7


def double(x: int) -> int:
    """Not a kernel: its code is put in place."""
    return x + x


def both(x: int, y: int) -> tuple[int, int]:
    total = x + y
    return total, x - y


@kernel("toy_branches")
def branches(x: int, y: int) -> int:
    small = x
    if x > y:
        small = y
        if y < 0:
            return -1
    elif x == y:
        return double(x) + BIAS
    total, difference = both(small, y)
    return (total << 2) - (difference * 3) + (5 if x & 1 else y >> 1)


@kernel("toy_loops")
def loops(words: Words, halves: HalfWords, count: int) -> int:
    total, last = 0, 0
    for i in range(count):
        row = i
        while row > 0:
            total += words[row] ^ halves[i]
            row -= 2
            if total > 1000:
                total -= 1000
        if words[i] == 13 and not (i == 0 or count < 3):
            return total
        words[i] = max(total, min(i, last))
        last = row
    atomic_add(words, 0, last)
    atomic_max(words, 1, total)
    return total + last


@kernel("toy_predicate")
def predicate(x: int) -> bool:
    if x > 100:
        return True
    return x == 3 or (x < 0 and x > -5)


@kernel("toy_divisions")
def divisions(x: int, y: int) -> int:
    total = 0
    for shift in (0, 3):
        total = total * 100 + (x + shift) // y + 10 * ((x + shift) % y)
    return total


@kernel("toy_shared")
def shared(words: Words, amount: int) -> int:
    own = local_words(2)
    own[1] = amount
    while not compare_and_swap(words, 0, load_acquire(words, 0), own[1]):
        pass
    copy_bytes(address_of(words) + 16, address_of(words), 16)
    store_release(words, 1, divisions(amount, 3))
    return words[0]


@kernel("toy_calls")
def calls(words: Words) -> int:
    words[3] = address_of(finish_toy)
    call_at(words[3], words)
    return status_at(address_of(status_toy), words, address_of(words) + 8)


@kernel("toy_finish")
def finish_toy(words: Words) -> None:
    words[4] = 44


status_toy = Native("toy_status", ("ptr", "ptr"), "i32")
STATUS_TEXT = """
define i32 @toy_status(ptr %a, ptr %b) {
 %x = load i32, ptr %a
 %y = load i32, ptr %b
 %z = sub i32 %x, %y
 ret i32 %z
}
"""


@kernel("toy_address")
def address(words: Words) -> int:
    other = words_at(words[0])
    other[1] += 4
    return other[1] | 1


TOYS = (branches, loops, predicate, divisions, shared, calls, finish_toy, address)


@cache
def module(*kernels: NativeKernel) -> NativeModule:
    """Under names of their own: the machine's are known to the whole process."""
    engine = Engine(detect_host(), None, 2)
    text = "\n".join(one.text() for one in kernels)
    for one in kernels:
        text = re.sub(f"@{one.symbol}\\b", f"@test_{one.symbol}", text)
    return engine.link(engine.object_code(text + STATUS_TEXT))


def native(one: NativeKernel, result: Any, *arguments: Any) -> Any:
    function = ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * len(arguments))
    kernels = module(*TOYS, *clock_kernels.KERNELS, *window_kernels.KERNELS)
    address_of = kernels.address(f"test_{one.symbol}")
    values = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
    return function(address_of)(*values)


def test_branches_join_and_helpers_are_put_in_place() -> None:
    for x in range(-6, 7):
        for y in range(-6, 7):
            assert native(branches, ctypes.c_int64, x, y) == branches(x, y), (x, y)


@pytest.mark.parametrize("seed", range(20))
def test_loops_carry_what_they_assign(seed: int) -> None:
    source = np.random.default_rng(seed)
    words = source.integers(0, 40, 12)
    halves = source.integers(0, 2**32, 12, np.uint32)
    ours, theirs = words.copy(), words.tolist()
    found = native(loops, ctypes.c_int64, ours, halves, seed % 13)
    assert found == loops(theirs, halves.tolist(), seed % 13)
    assert ours.tolist() == theirs


def test_conditions() -> None:
    for x in (-9, -5, -4, -1, 0, 3, 4, 100, 101):
        assert bool(native(predicate, ctypes.c_bool, x)) == predicate(x)


def test_division_rounds_down() -> None:
    for x in range(-9, 9):
        for y in (1, 2, 5):
            assert native(divisions, ctypes.c_int64, x, y) == divisions(x, y), (x, y)


def test_words_are_shared_and_copied() -> None:
    ours, theirs = np.array([5, 6, 7, 8], np.int64), np.array([5, 6, 7, 8], np.int64)
    assert native(shared, ctypes.c_int64, ours, 10) == shared(words_at(theirs.ctypes.data), 10)
    assert ours.tolist() == theirs.tolist() == [10, divisions(10, 3), 10, 6]


def test_native_functions_are_called() -> None:
    words = np.array([3, 10, 0, 0, 0], np.int64)
    assert native(calls, ctypes.c_int64, words) == -7
    assert words[4] == 44
    with pytest.raises(NotImplementedError, match="toy_status"):
        status_toy(1, 2)


def test_words_may_lie_at_an_address() -> None:
    target = np.array([0, 6], np.int64)
    assert native(address, ctypes.c_int64, np.array([target.ctypes.data], np.int64)) == 11
    assert target[1] == 10


def refused(function: Callable[..., Any]) -> str:
    with pytest.raises(KernelSyntaxError) as caught:
        kernel("toy_refused")(function).text()
    return str(caught.value)


def test_what_the_language_does_not_have_is_named() -> None:
    def string(x: int) -> int:
        return len("text") + x

    def division(x: int) -> int:
        return x / 2  # type: ignore[return-value]

    def unknown(x: int) -> int:
        return nowhere(x)  # type: ignore[name-defined,no-any-return]  # noqa: F821

    def kind(x: float) -> int:
        return int(x)

    def written(halves: HalfWords) -> None:
        halves[0] = 1

    assert "'text'" in refused(string)
    assert "Div" in refused(division)
    assert "nowhere(x)" in refused(unknown)
    assert "float" in refused(kind)
    assert "read only" in refused(written)


# the clock's kernels, on random contexts


def random_context(seed: int) -> Array:
    source = np.random.default_rng(seed)
    words = source.integers(0, 1 << 20, CONTEXT_WORDS)
    words[Word.CLOCK_HEAD : Word.CLOCK_HEAD + 16] = source.integers(0, 1 << 14, 16)
    return words


def same(one: NativeKernel, words: Array, *arguments: Any, result: Any = ctypes.c_int64) -> None:
    """Python and native code leave the same words and give the same."""
    ours, theirs = words.copy(), words.tolist()
    lists = [a.tolist() if isinstance(a, np.ndarray) else a for a in arguments]
    expected = one(theirs, *lists)
    found = native(one, result, ours, *arguments)
    if expected is not None:
        assert found == expected
    assert ours.tolist() == theirs


@pytest.mark.parametrize("seed", range(10))
def test_the_clock_counts_as_its_equations(seed: int) -> None:
    source = np.random.default_rng(seed)
    kinds = [ClockStep.POP, ClockStep.UNIT, ClockStep.MATMUL, ClockStep.IDLE]
    steps = [
        step_word(kinds[source.integers(4)], int(source.integers(4)), int(source.integers(1 << 16)))
        for _ in range(50)
    ]
    list_of_steps = np.array([*steps, step_word(ClockStep.END, 0, 5)], np.uint32)
    words = random_context(seed)
    now, flag, size = (int(source.integers(1 << 20)) for _ in range(3))
    flag %= 1024
    same(clock_kernels.run_steps, words, list_of_steps, now)
    words[Word.FLAG_CAUSE + flag] = Cause.DMA_OUT
    same(clock_kernels.wait, words, flag, now - 5, now)
    route = int(source.integers(len(ROUTES)))
    same(clock_kernels.transfer, words, flag, size, seed % 3, route, int(Cause.DMA_IN), now)
    same(clock_kernels.finish, words, np.array([2, 3, 40, 5, 60], np.int64), now)
    same(clock_kernels.count_range, words, source.integers(0, 99, clock_kernels.TALLY_WORDS))
    for number in (flag, 1024, -1):
        words[Word.FLAG_PENDING + flag] = seed % 3 - 1
        same(clock_kernels.is_pending, words, number, result=ctypes.c_bool)


@pytest.mark.parametrize("size", [0, 512 * 77])
def test_an_exchange_raises_the_flag_of_its_peer(size: int) -> None:
    words, peer = random_context(1), random_context(2)
    links = np.zeros(2 * ROUTE_WORDS, np.int64)
    row = links[ROUTE_WORDS:]
    row[: len(RouteWord)] = [peer.ctypes.data, 1, 2, 5 << 20, 30, 400, 90, 7]
    words[Word.LINKS] = links.ctypes.data
    before, before_peer = words.copy(), peer.copy()
    native(clock_kernels.exchange, None, words, 9, size, 1, 1 << 21)
    left = (1 << 21) + 30 + -(-size * (5 << 20) // (1 << 24))
    is_free = left if size else before[Word.PORT_FREE + 2]  # a flag alone needs no port
    assert words[Word.PORT_FREE + 2] == is_free
    assert words[Word.FLAG_DONE + 9] == left
    assert words[Word.FLAG_PENDING + 9] == before[Word.FLAG_PENDING + 9] + 1
    assert words[Word.FLAG_CAUSE + 9] == Cause.ICI
    assert peer[Word.FLAG_DONE + 9] == left + (400 if size else 90)
    assert peer[Word.FLAG_PENDING + 9] == before_peer[Word.FLAG_PENDING + 9] - 1
    assert row[RouteWord.SENT] == 7 + size
    assert (words != before).sum() <= 5 and (peer != before_peer).sum() == 2


# the table of windows that are read in place, on memory of its own


class Windows:
    """A context with one window of 24 rows, and HBM, in one piece of memory."""

    ROW_WORDS = ROW_BYTES // 8
    VMEM_ROWS, HBM_ROWS = 24, 96

    def __init__(self, piece_rows: int, gap: int) -> None:
        self.words = np.arange(CONTEXT_WORDS + self.ROW_WORDS * 120)
        self.words[:CONTEXT_WORDS] = 0
        self.address = int(self.words.ctypes.data)
        self.vmem = self.address + 8 * CONTEXT_WORDS
        self.hbm = self.vmem + ROW_BYTES * self.VMEM_ROWS
        self.slots = self.address + window_kernels.entry_offset(0)
        entry = words_at(self.slots)
        entry[window_kernels.POINTER_OFFSET // 8] = self.vmem
        entry[window_kernels.PIECE_ROWS_OFFSET // 8] = piece_rows
        entry[window_kernels.GAP_OFFSET // 8] = gap
        self.words[Word.WINDOW_COUNT] = 1

    def seen(self) -> Array:
        """All words but for the window's address."""
        words = self.words.copy()
        words[(self.slots + window_kernels.POINTER_OFFSET - self.address) // 8] = 0
        return words

    def arguments(self, name: str, draws: Sequence[int]) -> tuple[NativeKernel, Any, list[int]]:
        """A kernel, the type of its result, and its arguments behind the context."""
        first, rows, row = draws[0] % 5 * 4 + draws[0] % 7 // 6, 8 + draws[1] % 4 * 4, draws[2] % 40
        match name:
            case "refer":
                delta = self.hbm + row * ROW_BYTES - (self.vmem + first * ROW_BYTES)
                rows = min(rows, self.VMEM_ROWS - first)
                return window_kernels.refer, ctypes.c_bool, [self.slots, first, rows, delta]
            case "resolve":
                return window_kernels.resolve, ctypes.c_int64, [self.slots, first, draws[1] % 4]
            case "protect":
                low = self.hbm + row * ROW_BYTES
                size, stride = ROW_BYTES * (1 + draws[3] % 4), ROW_BYTES * (draws[4] % 10 - 1)
                end = low + size if stride <= 0 else low + 3 * stride + size
                return window_kernels.protect, None, [low, end, size, stride]
            case _:
                return window_kernels.settle, None, [self.slots]


@pytest.mark.parametrize(("piece_rows", "gap_rows"), [(1 << 40, 0), (4, 4), (8, 1)])
def test_windows_in_place_are_kept_as_in_python(piece_rows: int, gap_rows: int) -> None:
    source = np.random.default_rng(gap_rows)
    names = ["refer", "refer", "resolve", "resolve", "protect", "settle"]
    kept = 0
    for _ in range(80):
        ours, theirs = (Windows(piece_rows, gap_rows * ROW_BYTES) for _ in range(2))
        for step in range(6):
            name = "refer" if step == 0 else names[source.integers(len(names))]
            draws = source.integers(0, 1000, 5).tolist()
            one, result, arguments = ours.arguments(name, draws)
            found = native(one, result, ours.words, *arguments)
            _, _, (*others,) = theirs.arguments(name, draws)
            if name != "protect":
                expected = one(words_at(theirs.address), words_at(others[0]), *others[1:])
            else:
                expected = one(words_at(theirs.address), *others)
            assert result is None or found == expected
            assert np.array_equal(ours.seen(), theirs.seen())
            kept += name == "resolve" and found != 0
    assert kept > 5  # references that were read through
