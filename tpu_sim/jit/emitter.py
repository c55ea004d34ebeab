"""A builder of LLVM IR text: fresh names, structured loops, branches to a fault block.

Text is several times cheaper to make than `llvmlite.ir` objects, and LLVM parses it at about one
microsecond per instruction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

PLAIN, TUNED = "#0", "#1"
"""Attributes of a function: of one that is compiled quickly, and of one that is worth more of LLVM's
time (`tpu_sim.jit.object_compiler`)."""
TARGET_ATTRIBUTES = "".join(
    f'attributes {number} = {{ nounwind "prefer-vector-width"="512" }}\n'
    for number in (PLAIN, TUNED)
)
"""512-bit vectors stay whole even where the host's tuning prefers 256."""
NON_TEMPORAL_USE, NON_TEMPORAL = "!nontemporal !0", "!0 = !{i32 1}\n"
"""Of a store that is not to fill the caches: what stands there, and what a module defines for it."""

_NOT_ALIKE = ("load ", "call ", "alloca ", "cmpxchg ", "atomicrmw ")
"""Instructions that may give something else the next time."""


class FunctionEmitter:
    """Instructions of one function. `block` is the label being filled."""

    def __init__(self, prefix: str = "t") -> None:
        self.lines: list[str] = []
        self.block = "entry"
        self._prefix = prefix
        self._count = 0
        self._computed: dict[str, str] = {}

    def fresh(self) -> str:
        """A new SSA name."""
        self._count += 1
        return f"%{self._prefix}{self._count}"

    def new_label(self) -> str:
        """A new label name, to be placed with `place`."""
        self._count += 1
        return f"L{self._count}"

    def value(self, text: str) -> str:
        """The name of the value that an instruction defines.

        It is appended unless the block has computed it before: LLVM's fast instruction selector would
        compute it again.
        """
        name = self._computed.get(text)
        if name is None:
            name = self.fresh()
            self.lines.append(f" {name} = {text}")
            if not text.startswith(_NOT_ALIKE):
                self._computed[text] = name
        return name

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f" {text}")

    def place(self, label: str) -> None:
        """Start the basic block `label`."""
        self.lines.append(f"{label}:")
        self.block = label
        self._computed = {}

    def jump(self, label: str) -> None:
        """Branch to `label`."""
        self.do(f"br label %{label}")

    def branch(self, condition: str, true_label: str, false_label: str) -> None:
        """Branch on an ``i1``."""
        self.do(f"br i1 {condition}, label %{true_label}, label %{false_label}")

    def offset(self, pointer: str, byte_offset: str | int) -> str:
        """`pointer` plus bytes."""
        if byte_offset == 0 or byte_offset == "0":
            return pointer
        return self.value(f"getelementptr i8, ptr {pointer}, i64 {byte_offset}")

    def shifted(self, pointer: str, parts: Sequence[tuple[str, int]]) -> str:
        """`pointer` plus each index (i64, name or number) times two to its power, in bytes."""
        known = 0
        for index, power in parts:
            if index.startswith("%"):
                pointer = self.offset(pointer, self.value(f"shl i64 {index}, {power}"))
            else:
                known += int(index) << power
        return self.offset(pointer, known)

    def load(self, llvm_type: str, pointer: str, align: int = 0) -> str:
        """Load a value."""
        suffix = f", align {align}" if align else ""
        return self.value(f"load {llvm_type}, ptr {pointer}{suffix}")

    def store(self, llvm_type: str, value: str, pointer: str, align: int = 0) -> None:
        """Store a value."""
        suffix = f", align {align}" if align else ""
        self.do(f"store {llvm_type} {value}, ptr {pointer}{suffix}")

    @contextmanager
    def loop(self, trips: str | int, step: int = 1) -> Iterator[str]:
        """A counted loop ``for i in range(0, trips, step)`` of at least one trip; yields `i`."""
        head, done, before = self.new_label(), self.new_label(), self.block
        index = self.fresh()
        self.jump(head)
        self.place(head)
        slot = len(self.lines)
        self.lines.append("")
        yield index
        following = self.value(f"add i64 {index}, {step}")
        self.lines[slot] = f" {index} = phi i64 [0, %{before}], [{following}, %{self.block}]"
        again = self.value(f"icmp ult i64 {following}, {trips}")
        self.branch(again, head, done)
        self.place(done)

    @contextmanager
    def folding(
        self, trips: str | int, llvm_type: str, starts: Sequence[str]
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """A counted loop that carries values, all of one type, from `starts`.

        Yields the index, the values at the start of a trip, and a list to be filled with those at
        its end; after the loop that list names the results.
        """
        head, done, before = self.new_label(), self.new_label(), self.block
        index = self.fresh()
        values = [self.fresh() for _ in starts]
        nexts: list[str] = []
        self.jump(head)
        self.place(head)
        slot = len(self.lines)
        self.lines.append("")
        yield index, values, nexts
        following = self.value(f"add i64 {index}, 1")
        lines = [f" {index} = phi i64 [0, %{before}], [{following}, %{self.block}]"]
        for value, start, after in zip(values, starts, nexts, strict=True):
            edges = f"[{start}, %{before}], [{after}, %{self.block}]"
            lines.append(f" {value} = phi {llvm_type} {edges}")
        self.lines[slot] = "\n".join(lines)
        self.branch(self.value(f"icmp ult i64 {following}, {trips}"), head, done)
        self.place(done)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Run the body if the ``i1`` holds."""
        body, done = self.new_label(), self.new_label()
        self.branch(condition, body, done)
        self.place(body)
        yield
        self.jump(done)
        self.place(done)

    def text(self) -> str:
        """The instructions so far."""
        return "\n".join(self.lines)
