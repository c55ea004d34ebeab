"""Faults: a running program did what the machine forbids; the run ends.

A fault names the kernel and, when known, the bundle. What memory holds after it is not specified.
"""

from __future__ import annotations

from tpu_sim.isa.errors import TpucError


class MachineFault(TpucError):
    """A program broke a rule at run time. `kernel` is where, `bundle` its text ('' unknown)."""

    def __init__(self, message: str, kernel: str = "", bundle: str = "") -> None:
        self.message = message
        self.kernel = kernel
        self.bundle = bundle
        text = f"{type(self).__name__}: {message}"
        if kernel:
            text += f"\n  in kernel {kernel}"
        if bundle:
            text += f"\n  at {bundle}"
        super().__init__(text)

    def __reduce__(self) -> tuple[object, ...]:
        """It goes to other processes as it is, notes included."""
        return type(self), (self.message, self.kernel, self.bundle), self.__dict__


class OutOfWindowFault(MachineFault):
    """A VMEM access outside its window."""


class OutOfMemoryRangeFault(MachineFault):
    """An HBM or SMEM address outside the memory."""


class DmaCountFault(MachineFault):
    """A negative or absurd dynamic DMA count, or a sync flag the kernel does not own."""


class DmaRaceFault(MachineFault):
    """A DMA's target was read, or its source written, before the wait (checked runs only)."""


class UninitializedReadFault(MachineFault):
    """A VMEM row or spill slot was read before anything wrote it (checked runs only)."""


class DeadlockFault(MachineFault):
    """The run waits for another core, and nobody is left that could raise the flag."""


class CycleLimitFault(MachineFault):
    """The run passed its cycle limit."""
