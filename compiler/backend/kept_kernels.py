"""Kernels that were lowered when a module was tried before.

Where some kernel breaks a limit, its fusion is split and the module lowered anew; most other kernels
are as they were. A kernel is the same where its request is: what it computes, with which windows and
places, under which names, since instructions say what they are for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from compiler.backend.forks import shared_out
from compiler.backend.kernel_library import KernelRequest
from compiler.backend.smem_scratch import SmemScratch
from compiler.diagnostics import KernelLimitError
from compiler.hlo.call_graph import post_order
from compiler.hlo.ir import HloComputation
from compiler.hlo.keys import Key
from tpu_sim.isa.program import Kernel

_WORTH_FORKING = 24
"""Kernels for each further process: they take longer to make (about 30 ms each, measured) than it does to
fork a process and to read what it made."""


@dataclass(frozen=True)
class MadeKernel:
    """A kernel, what lowering it had to say, and how long that and its schedule took."""

    kernel: Kernel
    remarks: tuple[str, ...]
    llo_seconds: float
    schedule_seconds: float


@dataclass(frozen=True)
class _Kept:
    """What became of a kernel: made, or too large for a limit; and words of SMEM that it took."""

    made: MadeKernel | KernelLimitError
    smem_words: int


@dataclass
class KeptKernels:
    """The kernels of all attempts to lower one module for one chip, with the same options.

    Only for a program of one chip: an exchange with others plans for all of its kernels as it goes.
    """

    _kept: dict[Key, _Kept] = field(default_factory=dict)
    _ahead: dict[str, _Kept] = field(default_factory=dict)

    def make_ahead(
        self,
        requests: Sequence[KernelRequest],
        smem: SmemScratch,
        make: Callable[[str], MadeKernel],
        processes: int,
        tell: Callable[[int], None],
    ) -> None:
        """Make kernels in several processes, so that `kernel` finds them; what breaks a limit it makes
        itself."""
        wanted = [request.name for request in requests if self._known(request, smem) is None]

        def attempt(name: str) -> _Kept:
            kept = _tried(smem, lambda: make(name))
            if isinstance(kept.made, KernelLimitError):
                raise kept.made
            return kept

        count = min(processes, 1 + len(wanted) // _WORTH_FORKING)
        if count > 1:
            self._ahead = shared_out(wanted, attempt, count, tell)

    def _known(self, request: KernelRequest, smem: SmemScratch) -> _Kept | None:
        key = _key(request, smem)
        return self._kept.get(key) if key is not None else None

    def kernel(
        self, request: KernelRequest, smem: SmemScratch, make: Callable[[], MadeKernel]
    ) -> MadeKernel:
        """The kernel of a request, from `make` unless an equal one was made before.

        Raises KernelLimitError as `make` does, also for one that it was raised for before.
        """
        key = _key(request, smem)
        kept = self._known(request, smem)
        if kept is None:
            kept = self._ahead.pop(request.name, None) or _tried(smem, make)
            if key is not None:
                self._kept[key] = kept
        smem.used = max(smem.used, kept.smem_words)
        if isinstance(kept.made, KernelLimitError):
            raise kept.made
        return kept.made


def _tried(smem: SmemScratch, make: Callable[[], MadeKernel]) -> _Kept:
    others, smem.used = smem.used, 0
    made: MadeKernel | KernelLimitError
    try:
        made = make()
    except KernelLimitError as error:
        made = error
    kept = _Kept(made, smem.used)
    smem.used = others
    return kept


def _key(request: KernelRequest, smem: SmemScratch) -> Key | None:
    """All that a kernel depends on; None for a loop, whose code depends on the buffers of its module."""
    if request.lower is not None:
        return None
    called = request.instr.attrs.get("calls")
    computations = post_order([called]) if isinstance(called, HloComputation) else ()
    names = tuple([instr.name for computation in computations for instr in computation])
    place = (smem.base, smem.capacity)
    return (request.name, request.instr.name, request.structure, request.rows, place, names)
