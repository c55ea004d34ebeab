"""Functions of the kernel library written as Python: a small part of the language, as LLVM IR text.

    @kernel("tpuc_kernel_v1_clock_finish")
    def finish(ctx: Words, counts: Words, now: int) -> None:
        ctx[Word.NOW] = now
        for number in range(counts[0]):
            ctx[Word.CAUSES + counts[1 + 2 * number]] += counts[2 + 2 * number]

    text = finish.text()

The same function runs in Python on anything that is indexed like an array, which is how it is tested.

Values are ``int`` (i64, Python's operators but for overflow; ``>>`` is arithmetic, ``//`` and ``%``
take a positive right side), conditions, and arrays of words in memory: `Words` (i64) and `HalfWords`
(i32, read as unsigned). Statements are assignments, ``if``, ``while``, ``for .. in range``, ``for ..
in`` a tuple, and ``return``; a loop's condition is looked at before each trip. ``max`` and ``min`` are
known, and so is what `tpu_sim.jit.kernel_builtins` has: atomics, addresses, calls of native code.
A call of a kernel or of a `Native` function is a call; any other function of this language or of
plain equations is put in place, so it returns at its end only. A name that is not local is a constant
where the function is defined. There is no pass pipeline behind this: what is written is what runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tpu_sim.jit.kernel_builtins import Native
from tpu_sim.jit.kernel_translator import definition_text, signature


@dataclass(frozen=True)
class NativeKernel(Native):
    """A native function that is written in the language; `symbol` is its name in the library."""

    function: Callable[..., Any] = field(kw_only=True)

    def __call__(self, *arguments: Any) -> Any:
        """Run it in Python."""
        return self.function(*arguments)

    def text(self) -> str:
        """The function as LLVM IR."""
        return definition_text(self.symbol, self.function)


def kernel(symbol: str) -> Callable[[Callable[..., Any]], NativeKernel]:
    """Make the decorated function the kernel called `symbol`."""
    return lambda function: NativeKernel(symbol, *signature(function), function=function)
