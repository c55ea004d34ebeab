"""`Arena`: where a program lies in a device's HBM, with its constants, arguments and results.

A program's addresses count from 0; it is given a part of HBM to run in (`HbmMemory.part`), anywhere.
It keeps that part between calls, unless somebody needs the room.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol
from weakref import ReferenceType, WeakSet, ref

from runtime.allocator import Block, in_granules
from runtime.memory import Memory
from tpu_sim.isa.program import Program
from tpu_sim.machine.memory import HbmMemory

_DISCARDED_BYTES = 1 << 20
"""From this size on, the pages of a place that is given up go back to the host."""


class Tenant(Protocol):
    """The storage of an array that may lie in the arena between calls; `is_lent`: as a result."""

    is_lent: bool

    def leave_arena(self) -> None:
        """Move to a block of its own, if it has none."""


class Arena:
    """The place of `program` in `memory`. Whoever uses it holds ``memory.lock``, or its turn.

    `lent` are weak references to results that lie in it; they leave before the program runs again.
    `settled` are arguments that lie in it and nowhere else, and stay for as long as they are passed
    again. `held` says which storage the places of an input hold. `in_use`: a call is under way.
    """

    def __init__(self, memory: Memory, program: Program) -> None:
        self.memory = memory
        self.size_bytes = in_granules(program.hbm_bytes)
        self.last_use = 0
        self.in_use = False
        self.lent: list[Callable[[], Tenant | None]] = []
        self.settled: WeakSet[Tenant] = WeakSet()
        self.held: dict[int, ReferenceType[Tenant]] = {}
        self._constants = program.constants
        self._block: Block | None = None
        self._hbm: HbmMemory | None = None
        self._is_loaded = False
        memory.keep(self)

    @property
    def hbm(self) -> HbmMemory:
        """Its bytes; addresses are the program's own."""
        assert self._hbm is not None, "the arena has a place while somebody looks at it"
        return self._hbm

    @property
    def is_idle(self) -> bool:
        """Whether it takes room, and no call is using it."""
        return self._block is not None and not self.in_use

    def enter(self, staying: Collection[Tenant] = ()) -> None:
        """Make it ready for a call: what would be overwritten and somebody holds moves out.

        Of the lent results those `staying` do not: the call takes them over where they lie. Raises
        `ResourceExhaustedError` when there is no room, and then nothing has been lost.
        """
        self._clear_lent(staying)
        if not self._is_loaded:
            self._load()
        memory = self.memory
        self.last_use = memory.uses = memory.uses + 1

    def spoil(self) -> None:
        """A run broke off: what it left is anyone's guess, so the next call loads everything anew."""
        self._is_loaded = False

    def evict(self) -> None:
        """Give the room back, unless a call is under way.

        Raises `ResourceExhaustedError` if arrays that lie in it find no other.
        """
        if self._block is None or self.in_use:
            return
        self.in_use = True  # it is nobody's to evict while its arrays look for room
        try:
            self._clear_lent()
            self._clear_settled()
        finally:
            self.in_use = False
        self._is_loaded = False
        if self.size_bytes >= _DISCARDED_BYTES:
            self.memory.hbm.discard(self._block.offset, self.size_bytes)
        self._block = self._hbm = None

    def lend(self, result: Callable[[], Tenant | None]) -> None:
        """A result lies in it from now on."""
        self.lent.append(result)

    def hold(self, number: int, tenant: Tenant) -> None:
        """The places of input `number` hold that array, until something else is put there."""
        self.held[number] = ref(tenant)

    def let_go(self, number: int) -> None:
        """An input's places are about to be overwritten: who lies there moves out."""
        held = self.held.get(number)
        tenant = held() if held is not None else None
        if tenant is not None:
            tenant.leave_arena()  # it stays held when HBM is too full for it
        self.held.pop(number, None)

    def _load(self) -> None:
        self._clear_settled()
        self.held.clear()
        if self._hbm is None:
            memory = self.memory
            memory.limit_idle()
            self._block = memory.allocate(self.size_bytes, for_program=True)
            self._hbm = memory.hbm.part(self._block.offset, self.size_bytes)
        for place, constant in self._constants:
            self.hbm.write(place, constant)
        self._is_loaded = True

    def _clear_lent(self, staying: Collection[Tenant] = ()) -> None:
        if not self.lent:
            return
        stay = {id(tenant) for tenant in staying}
        remaining: list[Callable[[], Tenant | None]] = []
        for lent in self.lent:
            tenant = lent()
            if tenant is not None and id(tenant) in stay:
                remaining.append(lent)
            elif tenant is not None and tenant.is_lent:
                tenant.leave_arena()  # twice is once, should a later one find no room
        self.lent[:] = remaining

    def _clear_settled(self) -> None:
        for tenant in list(self.settled):
            tenant.leave_arena()
        self.settled.clear()
