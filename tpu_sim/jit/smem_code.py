"""SMEM accesses as native code: `tpu_sim.isa.effects.CorePrimitives` of the scalar unit's effects."""

from __future__ import annotations

from collections.abc import Callable

from tpu_sim.jit.context import Word
from tpu_sim.jit.dma_functions import note_smem_end
from tpu_sim.jit.scope import FunctionScope
from tpu_sim.jit.translated import FaultKind
from tpu_sim.jit.values import Scalar


class SmemCode:
    """The accesses of one block; `check_before` lets what comes before one fault before it."""

    def __init__(self, scope: FunctionScope, check_before: Callable[[], None]) -> None:
        self._scope = scope
        self._emitter = scope.emitter
        self._check_before = check_before
        self._stores: list[tuple[str, str]] = []

    def load_smem(self, a: Scalar, k: int) -> Scalar:
        """See `Core`."""
        loaded = self._emitter.load("i32", self._pointer(a, k), 4)
        return Scalar(loaded, loaded, 0)

    def core_number(self) -> Scalar:
        """See `Core`."""
        word = self._scope.load_word(Word.CORE)
        number = self._emitter.value(f"trunc i64 {word} to i32")
        return Scalar(number, number, 0)

    def store_smem(self, a: Scalar, k: int, b: Scalar) -> None:
        """See `Core`."""
        self._stores.append((b.text, self._pointer(a, k)))
        self._note_end(a, k)

    def commit(self) -> None:
        """Store what the bundle stores."""
        for stored, pointer in self._stores:
            self._emitter.store("i32", stored, pointer, 4)
        self._stores.clear()

    def _pointer(self, base: Scalar, k: int) -> str:
        e = self._emitter
        words = self._scope.chip.smem_words
        if not base.root and 0 <= base.offset + k < words:
            return e.offset("%smem", 4 * (base.offset + k))
        wide = e.value(f"sext i32 {base.text} to i64")
        word = e.value(f"add i64 {wide}, {k}")
        self._check_before()
        outside = e.value(f"icmp uge i64 {word}, {words}")
        self._scope.fault_if(outside, FaultKind.MEMORY, f"SMEM word outside 0..{words - 1}")
        return e.offset("%smem", e.value(f"shl i64 {word}, 2"))

    def _note_end(self, base: Scalar, k: int) -> None:
        """A store that may be behind the words that the program owns is taken note of."""
        owned = self._scope.module.smem_words
        if base.root:
            wide = self._emitter.value(f"sext i32 {base.text} to i64")
            note_smem_end(self._emitter, self._emitter.value(f"add i64 {wide}, {k + 1}"))
        elif base.offset + k >= owned:
            note_smem_end(self._emitter, str(base.offset + k + 1))
