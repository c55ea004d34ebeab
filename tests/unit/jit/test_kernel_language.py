"""Functions of the kernel language do in LLVM what they do in Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tpu_sim.isa.causes import Cause
from tpu_sim.jit import clock_kernels
from tpu_sim.jit.clock_kernels import Step, step_word
from tpu_sim.jit.context import CONTEXT_WORDS, ROUTE_WORDS, RouteWord, Word
from tpu_sim.jit.engine import Engine, NativeModule
from tpu_sim.jit.host import detect_host
from tpu_sim.jit.kernel_language import (
    HalfWords,
    Kernel,
    KernelSyntaxError,
    Words,
    atomic_add,
    atomic_max,
    kernel,
    words_at,
)
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


@kernel("toy_address")
def address(words: Words) -> int:
    other = words_at(words[0])
    other[1] += 4
    return other[1] | 1


@cache
def module(*kernels: Kernel) -> NativeModule:
    """Under names of their own: the machine's are known to the whole process."""
    engine = Engine(detect_host(), None, 2)
    texts = [Kernel(f"test_{one.symbol}", one.function).text() for one in kernels]
    return engine.link(engine.object_code("\n".join(texts)))


def native(one: Kernel, result: Any, *arguments: Any) -> Any:
    function = ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * len(arguments))
    kernels = module(branches, loops, predicate, address, *clock_kernels.KERNELS)
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


def test_words_may_lie_at_an_address() -> None:
    target = np.array([0, 6], np.int64)
    assert native(address, ctypes.c_int64, np.array([target.ctypes.data], np.int64)) == 11
    assert target[1] == 10


def refused(function: Callable[..., Any]) -> str:
    with pytest.raises(KernelSyntaxError) as caught:
        Kernel("toy_refused", function).text()
    return str(caught.value)


def test_what_the_language_does_not_have_is_named() -> None:
    def string(x: int) -> int:
        return len("text") + x

    def division(x: int) -> int:
        return x // 2

    def unknown(x: int) -> int:
        return nowhere(x)  # type: ignore[name-defined,no-any-return]  # noqa: F821

    def kind(x: float) -> int:
        return int(x)

    def written(halves: HalfWords) -> None:
        halves[0] = 1

    assert "'text'" in refused(string)
    assert "FloorDiv" in refused(division)
    assert "nowhere(x)" in refused(unknown)
    assert "float" in refused(kind)
    assert "read only" in refused(written)


# the clock's kernels, on random contexts


def random_context(seed: int) -> Array:
    source = np.random.default_rng(seed)
    words = source.integers(0, 1 << 20, CONTEXT_WORDS)
    words[Word.CLOCK_HEAD : Word.CLOCK_HEAD + 16] = source.integers(0, 1 << 14, 16)
    return words


def same(one: Kernel, words: Array, *arguments: Any, result: Any = ctypes.c_int64) -> None:
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
    kinds = [Step.POP, Step.UNIT, Step.MATMUL, Step.IDLE]
    steps = [
        step_word(kinds[source.integers(4)], int(source.integers(4)), int(source.integers(1 << 16)))
        for _ in range(50)
    ]
    list_of_steps = np.array([*steps, step_word(Step.END, 0, 5)], np.uint32)
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
    free = (1 << 21) + 30 + -(-size * (5 << 20) // (1 << 24))
    assert words[Word.PORT_FREE + 2] == free
    assert words[Word.FLAG_DONE + 9] == free
    assert words[Word.FLAG_PENDING + 9] == before[Word.FLAG_PENDING + 9] + 1
    assert words[Word.FLAG_CAUSE + 9] == Cause.ICI
    assert peer[Word.FLAG_DONE + 9] == free + (400 if size else 90)
    assert peer[Word.FLAG_PENDING + 9] == before_peer[Word.FLAG_PENDING + 9] - 1
    assert row[RouteWord.SENT] == 7 + size
    assert (words != before).sum() <= 5 and (peer != before_peer).sum() == 2
