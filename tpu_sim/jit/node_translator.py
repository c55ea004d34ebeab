"""The nodes of a body to native code: the sequencer of `tpu_sim.machine.node_table`, compiled.

Each node that may follow another than the one before it, or that a paused run may go on with, has a
label of its own. Time, sregs and loop counters lie in the context between nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tpu_sim.isa.control_flow import Call, If, Loop, While
from tpu_sim.isa.errors import ProgramError
from tpu_sim.isa.program import Block, Node
from tpu_sim.jit.block_translator import BlockTranslator
from tpu_sim.jit.calls import CALLS, ENDED
from tpu_sim.jit.clock import finish
from tpu_sim.jit.clock_kernels import COUNT_RANGE, IS_PENDING
from tpu_sim.jit.context import Word
from tpu_sim.jit.dma_functions import DmaFunctions
from tpu_sim.jit.loop_ranges import RANGE_WORDS, RUN_RANGE, RangeWord
from tpu_sim.jit.parallel_loops import fills_transpose, work_to_share
from tpu_sim.jit.scope import FunctionScope, LoopScope, label_of
from tpu_sim.machine.node_table import FlatBody, FlatNode, NodeStep, first_waits

_RANGES_PER_THREAD = 4
_RANGE_WORK = 300
"""Vreg operations a range should have, so that taking it costs little beside them."""

Occupancy = dict[int, int]
"""Results waiting in each MXU's queue, where there are any."""


class NodeTranslator:
    """Emits nodes of one body into one function; `dma` is None in main.

    `start` emits what a kernel does first, `body_of_call` finds the body that a call runs, and
    `assumed_trips` says how often a `While` runs whose condition is not computed.
    """

    def __init__(
        self,
        scope: FunctionScope,
        body: FlatBody,
        dma: DmaFunctions | None,
        start: Callable[[], None],
        body_of_call: Callable[[int], int],
        assumed_trips: Callable[[While[Block]], int],
    ) -> None:
        self._scope = scope
        self._emitter = scope.emitter
        self._body = body
        self._dma = dma
        self._start = start
        self._body_of_call = body_of_call
        self._assumed_trips = assumed_trips
        self._occupancy: Occupancy = {}
        self._arrivals: dict[int, Occupancy] = {}
        self._is_open = True
        self._loop_count = 0
        self._may_transpose = cache(lambda: fills_transpose(scope.kernel.body))

    def emit_all(self) -> None:
        """Append the code of all nodes."""
        self._is_open = False  # the entry goes on at the node that the context names
        self._arrivals = {0: {}}
        self._nodes(0, len(self._body.nodes))

    def emit_loop(self, test: int, again: int, waiting: Occupancy) -> None:
        """Append the code of a function that is the loop of these nodes."""
        self._is_open = False
        self._arrivals = {test: waiting}
        self._nodes(test, again + 1)
        self._emitter.place(label_of(again + 1))
        self._emitter.do(f"ret i32 {ENDED}")

    def _nodes(self, first: int, end: int) -> None:
        nodes = self._body.nodes
        labels = {node.target for node in nodes} | self._body.pauses
        labels |= {
            n + 1 for n in range(first, end) if nodes[n].step in (NodeStep.TEST, NodeStep.BRANCH)
        }
        number = first
        while number < end:
            if number in labels:
                self._place(number)
            number = self._node(number, nodes[number])

    # edges

    def _goes_to(self, target: int) -> None:
        """There is a way from here to a node: queues must be there as on the other ways."""
        here = {unit: count for unit, count in self._occupancy.items() if count}
        if self._arrivals.setdefault(target, here) != here:
            raise ProgramError(
                "a node finds other numbers of waiting MXU results on different ways to it",
                self._scope.kernel.name,
            )

    def _place(self, number: int) -> None:
        """Start a node that has a label."""
        if self._is_open:
            self._goes_to(number)
            self._emitter.jump(label_of(number))
        self._emitter.place(label_of(number))
        self._occupancy = dict(self._arrivals.get(number, {}))
        self._is_open = True

    def _branch(self, condition: str, true_node: int, false_node: int) -> None:
        for target in (true_node, false_node):
            self._goes_to(target)
        self._emitter.branch(condition, label_of(true_node), label_of(false_node))
        self._is_open = False

    def _end_time(self, now: str, following: int) -> None:
        """Go on, or pause at a border behind which time is `now`."""
        self._goes_to(following)
        is_past = self._emitter.value(f"icmp sge i64 {now}, {self._scope.load_word(Word.UNTIL)}")
        self._scope.pause_if(is_past, following)
        self._is_open = False

    # nodes

    def _node(self, number: int, node: FlatNode) -> int:
        """Append a node; returns the number of the next one to append."""
        match node.step, node.source:
            case NodeStep.START, _:
                self._start()
            case NodeStep.RUN, Block() as block:
                self._wait(number, node)
                self._end_time(self._block(node, block), number + 1)
            case NodeStep.ENTER, Loop() | While() as loop:
                return self._enter(number, node, loop)
            case NodeStep.TEST, Loop() | While() as loop:
                self._branch(self._goes_on(node, loop), number + 1, node.target)
            case NodeStep.AGAIN, Loop() | While():
                self._again(node)
            case NodeStep.BRANCH, If(condition=sreg):
                taken = self._emitter.value(f"icmp ne i32 {self._scope.read_sreg(sreg)}, 0")
                self._branch(taken, number + 1, node.target)
            case NodeStep.JUMP, _:
                self._goes_to(node.target)
                self._emitter.jump(label_of(node.target))
                self._is_open = False
            case NodeStep.CALL, Call():
                self._call(number, node)
            case NodeStep.END, _:
                if self._dma is None:  # main: here the run stands when it is over
                    self._scope.store_word(Word.NODE, str(number))
                self._emitter.do(f"ret i32 {ENDED}")
                self._is_open = False
        return number + 1

    def _block(self, node: FlatNode, block: Block) -> str:
        """Append a block; returns the time after it."""
        return BlockTranslator(
            self._scope, block, node.issued or [], self._occupancy, self._dma_function
        ).translate()

    def _wait(self, number: int, node: FlatNode) -> None:
        """Come back later to a block that may not begin yet."""
        e = self._emitter
        for flag, sreg in first_waits(node):
            wide = e.value(f"sext i32 {self._scope.read_sreg(sreg)} to i64")
            pending = e.value(
                f"call i1 @{IS_PENDING}(ptr %ctx, i64 {e.value(f'add i64 {wide}, {flag}')})"
            )
            self._scope.wait_if(pending, number)

    def _dma_function(self, number: int) -> str:
        if self._dma is None:
            raise ProgramError("a transfer outside a kernel", "main")
        return self._dma.function(number)

    def _enter(self, number: int, node: FlatNode, loop: Loop[Block] | While[Block]) -> int:
        scope, e = self._scope, self._emitter
        scope.store_word(Word.COUNTERS + node.counter, "0")
        if isinstance(loop, While):
            return number + 1
        trip = str(loop.trip)
        if loop.trip < 0:
            trip = e.value(f"sext i32 {scope.read_sreg(loop.trip_sreg)} to i64")
        scope.store_word(Word.TRIPS + node.counter, trip)
        if scope.module.threads > 1 and scope.module.values:
            work = work_to_share(loop, self._may_transpose, scope.carried_slots)
            if work:
                self._shared_loop(number + 1, node, loop, work)
                return node.target
        return number + 1

    def _goes_on(self, node: FlatNode, loop: Loop[Block] | While[Block]) -> str:
        """Whether a loop runs another time, as an ``i1``; sets the index of a counted one."""
        scope, e = self._scope, self._emitter
        if isinstance(loop, While) and scope.module.values:
            return e.value(f"icmp ne i32 {scope.read_sreg(loop.condition)}, 0")
        done = scope.load_word(Word.COUNTERS + node.counter)
        if isinstance(loop, While):  # values are off: a trip count stands for the condition
            return e.value(f"icmp slt i64 {done}, {self._assumed_trips(loop)}")
        trip = str(loop.trip)
        if loop.trip < 0 or isinstance(scope, LoopScope):
            trip = scope.load_word(Word.TRIPS + node.counter)
        scope.write_sreg(loop.index, e.value(f"trunc i64 {done} to i32"))
        return e.value(f"icmp slt i64 {done}, {trip}")

    def _again(self, node: FlatNode) -> None:
        scope, e = self._scope, self._emitter
        counter = Word.COUNTERS + node.counter
        scope.store_word(counter, e.value(f"add i64 {scope.load_word(counter)}, 1"))
        now = e.value(f"add i64 {scope.load_word(Word.NOW)}, {scope.chip.loop_overhead_cycles}")
        finish(scope, now, node.issued or [])
        self._end_time(now, node.target)

    def _call(self, number: int, node: FlatNode) -> None:
        """Leave for the kernel; `tpu_sim.jit.calls` begins it and comes back."""
        self._goes_to(number + 1)
        for word, value in (
            (Word.CALL, node.call),
            (Word.BODY, self._body_of_call(node.call)),
            (Word.NODE, 0),
            (Word.RETURN_NODE, number + 1),
        ):
            self._scope.store_word(word, str(value))
        self._emitter.do(f"ret i32 {CALLS}")
        self._is_open = False

    # loops that threads share

    def _shared_loop(self, test: int, node: FlatNode, loop: Loop[Block], work: int) -> None:
        """A loop that is a function of its own, whose ranges are the tasks of a fork.

        Nothing in it waits, so what each range counts adds up, and there is a cycle at which it is over
        at the latest. A run that is to pause before that goes through the loop by itself.
        """
        scope, e = self._scope, self._emitter
        function = self._loop_function(test, node)
        shared, alone, calling = (e.new_label() for _ in range(3))
        most = e.value(f"add i64 {scope.load_word(Word.NOW)}, {_most_cycles([loop], scope)}")
        ends_before = e.value(f"icmp slt i64 {most}, {scope.load_word(Word.GOAL)}")
        e.branch(ends_before, shared, alone)
        e.place(alone)
        scope.store_word(Word.NODE, str(test))
        e.jump(calling)
        e.place(calling)
        scope.entries |= dict.fromkeys(self._body.pauses & {*range(test, node.target)}, calling)
        scope.fault_on(e.value(f"call i32 @{function}(ptr %ctx, ptr %ctx, ptr %scratch)"))
        self._goes_to(node.target)
        e.jump(label_of(node.target))
        e.place(shared)
        self._ranges(function, test, node, loop, work)
        e.jump(label_of(node.target))
        self._is_open = False

    def _loop_function(self, test: int, node: FlatNode) -> str:
        scope = self._scope
        function = f"{scope.function}_loop{self._loop_count}"
        self._loop_count += 1
        inner = LoopScope(scope, function)
        translator = NodeTranslator(
            inner, self._body, None, self._start, self._body_of_call, self._assumed_trips
        )
        translator.emit_loop(test, node.target - 1, dict(self._occupancy))
        pauses = self._body.pauses & {*range(test, node.target)}
        scope.module.emit(inner.define(pauses | {test}))
        return function

    def _ranges(
        self, function: str, test: int, node: FlatNode, loop: Loop[Block], work: int
    ) -> None:
        scope, e = self._scope, self._emitter
        threads = scope.module.threads
        count = min(loop.trip, max(threads, min(threads * _RANGES_PER_THREAD, work // _RANGE_WORK)))
        table, room = scope.task_table(), ["i64 0"] * (RANGE_WORDS - RangeWord.STATUS)
        tasks = []
        for part in range(count):
            first, end = (loop.trip * n // count for n in (part, part + 1))
            numbers = [f"i64 {n}" for n in (first, end, node.counter, test, loop.trip)]
            tasks.append(table.add(RUN_RANGE, ["ptr %ctx", f"ptr @{function}", *numbers, *room]))
        table.run()
        for task in tasks:
            scope.fault_on(e.load("i32", e.offset(task, 8 * RangeWord.STATUS), 8))
        for task in tasks:
            e.do(f"call void @{COUNT_RANGE}(ptr %ctx, ptr {e.offset(task, 8 * RangeWord.TALLY)})")
        scope.store_word(Word.COUNTERS + node.counter, str(loop.trip))


def _most_cycles(nodes: list[Node], scope: FunctionScope) -> int:
    """Most cycles that nodes take in which nothing waits."""
    total = 0
    for node in nodes:
        match node:
            case Block():
                total += len(node.bundles)
            case Loop():
                body = _most_cycles(node.body, scope) + scope.chip.loop_overhead_cycles
                total += node.trip * body
            case If():
                total += max(_most_cycles(node.then, scope), _most_cycles(node.orelse, scope))
            case While() | Call():
                raise AssertionError("a loop with these is not cut into ranges")
    return total
