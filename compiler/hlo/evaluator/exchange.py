"""What devices that run one program send each other: letters in order between every two of them.

Every device is a thread. One that waits for a letter which cannot come any more, since all others
wait or are through, ends the run with the instructions at which each of them stands.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.replica_groups import DeviceCounts


class _Stopped(Exception):
    """Another device has failed."""


@dataclass
class Mailboxes:
    """The letters under way between the devices of one run."""

    counts: DeviceCounts = field(default_factory=DeviceCounts)
    _boxes: dict[Hashable, deque[Any]] = field(default_factory=lambda: defaultdict(deque))
    _waiting: dict[int, tuple[HloInstruction, int, Hashable]] = field(default_factory=dict)
    _over: set[int] = field(default_factory=set)
    _failure: BaseException | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def send(self, channel: Hashable, source: int, target: int, value: object) -> None:
        """Post a value; the sender goes on."""
        with self._changed:
            self._boxes[channel, source, target].append(value)
            self._changed.notify_all()

    def receive(self, instr: HloInstruction, channel: Hashable, source: int, target: int) -> Any:
        """The next value from `source`; waits for it. Raises CompileError if it cannot come."""
        key = (channel, source, target)
        with self._changed:
            while not self._boxes[key]:
                self._waiting[target] = (instr, source, key)
                self._stop_if_stuck()
                if self._failure is not None:
                    raise _Stopped
                self._changed.wait()
            self._waiting.pop(target, None)
            return self._boxes[key].popleft()

    def finish(self, device: int, failure: BaseException | None) -> None:
        """Note that a device has run its program, or has failed."""
        with self._changed:
            self._over.add(device)
            self._waiting.pop(device, None)
            if failure is not None and not isinstance(failure, _Stopped):
                self._failure = self._failure or failure
            self._stop_if_stuck()
            self._changed.notify_all()

    def _stop_if_stuck(self) -> None:
        """All devices wait or are over, and no letter that one waits for is there."""
        if self._failure is not None or not self._waiting:
            return
        if len(self._waiting) + len(self._over) < self.counts.devices:
            return
        if any(self._boxes[key] for _, _, key in self._waiting.values()):
            return
        self._failure = CompileError(self._standstill(), next(iter(self._waiting.values()))[0].span)
        self._changed.notify_all()

    def _standstill(self) -> str:
        rows = [
            f"  device {device} waits in %{instr.name} ({instr.opcode}) for device {source}"
            for device, (instr, source, _) in sorted(self._waiting.items())
        ]
        rows += [f"  device {device} has ended" for device in sorted(self._over)]
        return "the devices wait for each other:\n" + "\n".join(rows)

    def run(self, program: Callable[[int], object]) -> list[Any]:
        """`program` on every device at once: its results by device. Raises the first failure."""
        results: list[Any] = [None] * self.counts.devices

        def work(device: int) -> None:
            try:
                results[device] = program(device)
            except BaseException as error:
                self.finish(device, error)
            else:
                self.finish(device, None)

        threads = [threading.Thread(target=work, args=(d,)) for d in range(self.counts.devices)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure
        return results


@dataclass(frozen=True)
class Participant:
    """One of the devices that run a program together."""

    number: int = 0
    exchange: Mailboxes = field(default_factory=Mailboxes)

    @property
    def counts(self) -> DeviceCounts:
        """How many devices there are."""
        return self.exchange.counts

    def share(
        self, instr: HloInstruction, group: Sequence[int], values: Sequence[Any]
    ) -> list[Any]:
        """Give member i of the group `values[i]`; what each of them gave this device, in order."""
        for member, value in zip(group, values, strict=True):
            self.exchange.send((instr, group), self.number, member, value)
        channel = (instr, group)
        return [self.exchange.receive(instr, channel, member, self.number) for member in group]
