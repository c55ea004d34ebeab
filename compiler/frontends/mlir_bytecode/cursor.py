"""A place in bytes that moves on as numbers are read from it. What ends too early is a ValueError."""

from __future__ import annotations

import numpy as np


class Cursor:
    """Reads the primitives of the format, one after another, from `at` to `end`."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end
        if not 0 <= at <= self.end <= len(data):
            raise ValueError("a part reaches beyond the file")

    @property
    def is_done(self) -> bool:
        """Whether nothing is left."""
        return self.at >= self.end

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if size > self.end - self.at:
            raise ValueError("it ends too early")
        self.at += size
        return self.data[self.at - size : self.at]

    def byte(self) -> int:
        """The next byte."""
        return self.take(1)[0]

    def number(self) -> int:
        """An unsigned integer; zeros at the low end of its first byte say how many bytes follow."""
        first = self.byte()
        if first & 1:
            return first >> 1
        if first == 0:
            return int.from_bytes(self.take(8), "little")
        more = (first & -first).bit_length() - 1
        rest = int.from_bytes(self.take(more), "little") << 8 | first
        return rest >> (more + 1)

    def flagged(self) -> tuple[int, bool]:
        """A number, and the flag in its lowest bit."""
        value = self.number()
        return value >> 1, bool(value & 1)

    def signed(self) -> int:
        """A signed integer, whose sign is its lowest bit."""
        value = self.number()
        return value >> 1 ^ -(value & 1)

    def numbers(self) -> tuple[int, ...]:
        """A list of unsigned integers."""
        return tuple(self.number() for _ in range(self.count()))

    def signed_numbers(self) -> tuple[int, ...]:
        """A list of signed integers."""
        return tuple(self.signed() for _ in range(self.count()))

    def count(self) -> int:
        """How many elements follow, each of which takes a byte at least."""
        count = self.number()
        if count > self.end - self.at:
            raise ValueError("a list is longer than the file")
        return count

    def blob(self) -> bytes:
        """Bytes with their size before them."""
        return self.take(self.number())

    def integer(self, bits: int) -> int:
        """A number of known width, as two's complement has it, in one word."""
        if bits <= 8:
            value = self.byte()
        elif bits <= 64:
            value = self.signed()
        else:
            raise ValueError(f"an integer of {bits} bits")
        return value & (1 << bits) - 1

    def float(self, dtype: np.dtype[np.generic]) -> float:
        """A float of known type."""
        bits = self.integer(8 * dtype.itemsize)
        return float(np.array([bits], f"u{dtype.itemsize}").view(dtype)[0])

    def skip_to_alignment(self, alignment: int) -> None:
        """Pass what fills up to a multiple of `alignment`, counted from the file's beginning."""
        if alignment < 1 or alignment & alignment - 1:
            raise ValueError(f"an alignment of {alignment}")
        self.take(-self.at % alignment)
