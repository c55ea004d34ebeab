"""What kernels call that is no function of theirs: memory, atomics, addresses, native functions.

In Python they do the same to the memory of this process, but for calls of native code.
"""

from __future__ import annotations

import ctypes
from collections.abc import MutableSequence
from dataclasses import dataclass
from typing import Any, cast

Words = MutableSequence[int]
"""An array of 64-bit words in memory."""
HalfWords = MutableSequence[int]
"""An array of unsigned 32-bit words in memory."""


def words_at(address: int) -> Words:
    """The words at an address that lies in a word."""
    return cast(Words, ctypes.cast(address, ctypes.POINTER(ctypes.c_int64)))


def address_of(what: Any) -> int:
    """The address of words, or of a native function."""
    return ctypes.addressof(what.contents)


def local_words(count: int) -> Words:
    """Words of the kernel's own, on a line of the cache; at the top of a kernel, as none is given back."""
    return [0] * count


def copy_bytes(target: int, source: int, count: int) -> None:
    """Copy memory between addresses; the two sides are apart."""
    ctypes.memmove(target, source, count)


def atomic_add(words: Words, index: int, amount: int) -> None:
    """Add to a word that other threads use."""
    words[index] += amount


def atomic_max(words: Words, index: int, value: int) -> None:
    """Raise a word that other threads use to at least `value`."""
    words[index] = max(words[index], value)


def load_acquire(words: Words, index: int) -> int:
    """A word that other threads write; what is read afterwards is at least as new."""
    return words[index]


def store_release(words: Words, index: int, value: int) -> None:
    """Write a word that other threads read, after all that was written before."""
    words[index] = value


def compare_and_swap(words: Words, index: int, expected: int, value: int) -> bool:
    """Write a word that other threads use if it is as expected; whether it was."""
    is_expected = words[index] == expected
    if is_expected:
        words[index] = value
    return is_expected


def call_at(function: int, *arguments: int | Words) -> None:
    """Call the function at an address with pointers: words, or addresses."""
    raise NotImplementedError(f"native code at {function}")


def status_at(function: int, *arguments: int | Words) -> int:
    """`call_at` for a function that returns a signed status of 32 bits."""
    raise NotImplementedError(f"native code at {function}")


@dataclass(frozen=True)
class Native:
    """A native function, with the LLVM types of its parameters (i64, ptr) and of its result."""

    symbol: str
    parameters: tuple[str, ...] = ()
    result: str = "void"

    def __call__(self, *arguments: Any) -> Any:
        """Python does not have what only native code defines."""
        raise NotImplementedError(f"native function {self.symbol}")

    def declaration(self) -> str:
        """What a module that calls it declares."""
        return f"declare {self.result} @{self.symbol}({', '.join(self.parameters)})\n"


@dataclass(frozen=True)
class WordTable:
    """A table of words of the library, which is filled when the library is installed."""

    symbol: str
    count: int

    def __getitem__(self, index: int) -> int:
        """An entry; native code alone has them."""
        raise NotImplementedError(f"entry {index} of {self.symbol}")

    def definition(self) -> str:
        """The table, empty."""
        return f"@{self.symbol} = global [{self.count} x i64] zeroinitializer, align 8\n"
