"""SMEM words that kernels use for themselves, after the program's scalars."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.diagnostics import ResourceExhaustedError


@dataclass
class SmemScratch:
    """Words from `base` on; every kernel starts anew there. `used` is the most any kernel took."""

    base: int
    capacity: int
    used: int = 0

    def reserve(self, words: int) -> int:
        """The first of `words` words for the kernel being lowered."""
        if self.base + words > self.capacity:
            raise ResourceExhaustedError(
                f"a kernel needs {words} words of SMEM, {self.capacity - self.base} are free"
            )
        self.used = max(self.used, words)
        return self.base
