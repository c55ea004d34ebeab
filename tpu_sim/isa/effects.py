"""`CorePrimitives`: what the effects of state instructions are written in.

An effect stands in its row. It never sees NumPy or LLVM: vregs, masks and scalars are
opaque values, and each machine implements these few methods. `tpu_sim.interp` reads and writes a
core's state; `tpu_sim.jit` notes or emits native code that does, in the places where it treats
resources of the kind, and implements only what can come there.

All that a bundle reads is as it was before it. A method that changes state does so when the bundle's
reads are done.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from tpu_sim.isa.resources import Resource

V = TypeVar("V")
M = TypeVar("M")
S = TypeVar("S")


class CorePrimitives(Protocol[V, M, S]):
    """Primitives on a core's state, of values V (a vreg), M (a vmask) and S (an sreg).

    A window's row ``base`` + s + k + i * `stride` belongs to sublane i; words are counted from row
    ``base`` + s. What lies outside its window, memory or kernel's flags is a fault.
    """

    # VMEM: windows and spill slots

    def load_rows(self, window: int, s: S, k: int, stride: int) -> V:
        """Eight rows of a window."""

    def store_rows(
        self, window: int, s: S, k: int, stride: int, a: V, mask: M | None = None
    ) -> None:
        """Write rows in ascending order of sublanes, where the mask is set."""

    def load_words(self, window: int, s: S, index: V) -> V:
        """The word of each lane's own address."""

    def store_words(self, window: int, s: S, index: V, a: V, mask: M) -> None:
        """Write each lane's word where the mask is set, in ascending order of sublane, then lane."""

    def fill(self, slot: int) -> V:
        """What a spill slot holds."""

    def fill_mask(self, slot: int) -> M:
        """Which words of a spill slot are not 0."""

    def spill(self, slot: int, a: V) -> None:
        """Write a spill slot."""

    def spill_mask(self, slot: int, a: M) -> None:
        """Write a spill slot: words of 0 and 1."""

    # SMEM

    def load_smem(self, a: S, k: int) -> S:
        """Word a + k."""

    def store_smem(self, a: S, k: int, b: S) -> None:
        """Write word a + k."""

    def core_number(self) -> S:
        """The number of the core in its device."""

    # queues

    def pop(self, queue: Resource, unit: int) -> V:
        """The oldest result of a queue, of the MXUs that of `unit`."""

    # from the vector unit to the scalar unit

    def first_word(self, a: V) -> S:
        """The word of sublane 0, lane 0."""

    # MXU

    def push_weights(self, unit: int, a: V, row: int, *, is_transposed: bool) -> None:
        """Write 16 rows of the shadow weights, or 16 columns if transposed, from 16 * `row` on."""

    def swap_weights(self, unit: int) -> None:
        """The shadow weights become the active ones, and are cleared."""

    def multiply(self, unit: int, a: V, pass_format: str) -> None:
        """Push the two results of a pass, which computes as the row's format says."""

    # transpose units

    def push_block(self, unit: int, a: V, row: int) -> None:
        """Write sublane rows of the shadow block, from 8 * `row` on."""

    def transpose(self, unit: int, element_bits: int) -> None:
        """The active block becomes the transposed shadow block, of 32 bit or 16 bit elements."""

    def read_block(self, unit: int, row: int) -> V:
        """Sublane rows of the active block, from 8 * `row` on."""

    # transfers and sync flags

    def start(self, descriptor: int, src: S, dst: S, flag: int, f: S, c0: S, c1: S) -> None:
        """Start a transfer, counted on flag `flag` + f; it goes last of what the bundle does."""

    def wait(self, flag: int, f: S) -> None:
        """Go on when the transfers counted on flag `flag` + f are done."""
