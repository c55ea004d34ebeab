"""Which value each register, queue entry and spill slot holds: a block without its physical names.

Instructions that only move a value to another name make no operation here. They are executed while
the block is translated: `Renaming` is the `tpu_sim.isa.effects.CorePrimitives` of their effects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from tpu_sim.isa.instruction import VMASK, VREG, Row
from tpu_sim.isa.program import SPILL_ROWS
from tpu_sim.isa.resources import EUP, XLU, Resource
from tpu_sim.isa.rows.memory import VLD, VST
from tpu_sim.isa.rows.valu import VCMP, VMOVI, VSEL
from tpu_sim.jit.scope import FunctionScope
from tpu_sim.jit.values import Argument, RowAddress, Use

_WORDS, _MASK = "spill", "spill_mask"
"""Spill slots by what they hold, beside the register classes."""
_NONE = -1
"""Instead of a value: the slot holds none of this kind."""

AddOperation = Callable[[Row, tuple[Argument, ...], RowAddress | None, bool], int]
"""Records an operation that no instruction stands for: row, arguments, address, whether it is a mask."""


class Renaming:
    """The names of one block; `error` raises for a name that holds nothing."""

    def __init__(
        self, scope: FunctionScope, add: AddOperation, error: Callable[[str], Exception]
    ) -> None:
        self._scope = scope
        self._add = add
        self._error = error
        self._values: dict[str, dict[int, int]] = {
            names: {} for names in (VREG, VMASK, _WORDS, _MASK)
        }
        self._queues: dict[str, deque[int]] = {EUP: deque(), XLU: deque()}
        self._defined: list[tuple[dict[int, int], int, int]] = []
        self._pushed: list[tuple[deque[int], int]] = []

    def value(self, register_class: str, number: int) -> int:
        """The value in a register."""
        value = self._values[register_class].get(number)
        if value is None:
            name = f"{register_class}{number}"
            raise self._error(f"{name} is read before anything in its block defines it")
        return value

    def define(self, names: str, number: int, value: int) -> None:
        """From the next bundle on a register holds `value`."""
        self._defined.append((self._values[names], number, value))

    def push(self, queue: str, value: int) -> None:
        """From the next bundle on a queue holds `value`, too."""
        self._pushed.append((self._queues[queue], value))

    def commit(self) -> None:
        """Make what the bundle defines visible."""
        for names, number, value in self._defined:
            if value == _NONE:
                names.pop(number, None)
            else:
                names[number] = value
        self._defined.clear()
        for queue, value in self._pushed:
            queue.append(value)
        self._pushed.clear()

    def live(self) -> list[int]:
        """The values that have a name."""
        held = [v for names in self._values.values() for v in names.values()]
        return held + [v for queue in self._queues.values() for v in queue]

    def replace(self, renamed: Mapping[int, int]) -> None:
        """Give every value another number."""
        for names in self._values.values():
            names.update({number: renamed[value] for number, value in names.items()})
        for name, queue in self._queues.items():
            self._queues[name] = deque(renamed[value] for value in queue)

    # `Core`

    def pop(self, queue: Resource, _unit: int) -> int:
        """See `Core`."""
        if not self._queues[queue]:
            raise self._error(f"vpop.{queue}: the queue is empty")
        return self._queues[queue].popleft()

    def fill(self, slot: int) -> int:
        """See `Core`."""
        value = self._values[_WORDS].get(slot)
        if value is not None:
            return value
        mask = self._values[_MASK].get(slot)
        return self._load(slot) if mask is None else self._as_words(mask)

    def fill_mask(self, slot: int) -> int:
        """See `Core`."""
        value = self._values[_MASK].get(slot)
        if value is not None:
            return value
        words = self._values[_WORDS].get(slot)
        return self._as_mask(self._load(slot) if words is None else words)

    def spill(self, slot: int, a: Use) -> None:
        """See `Core`."""
        self._spill(slot, a.value, _WORDS, _MASK)

    def spill_mask(self, slot: int, a: Use) -> None:
        """See `Core`."""
        self._spill(slot, a.value, _MASK, _WORDS)

    def _spill(self, slot: int, value: int, kind: str, other: str) -> None:
        self.define(kind, slot, value)
        self.define(other, slot, _NONE)
        if slot in self._scope.carried_slots:
            words = self._as_words(value) if kind == _MASK else value
            self._add(VST, (Use(words),), self._address(slot), False)

    # spill slots between blocks lie in memory, masks as words 0 and 1

    def _address(self, slot: int) -> RowAddress:
        return RowAddress(len(self._scope.kernel.windows) - 1, "", slot * SPILL_ROWS, 1)

    def _load(self, slot: int) -> int:
        return self._add(VLD, (), self._address(slot), False)

    def _as_words(self, mask: int) -> int:
        one, zero = (self._add(VMOVI, (k,), None, False) for k in (1, 0))
        return self._add(VSEL, (Use(mask), Use(one), Use(zero)), None, False)

    def _as_mask(self, words: int) -> int:
        zero = self._add(VMOVI, (0,), None, False)
        return self._add(VCMP["ne", "s32"], (Use(words), Use(zero)), None, True)
