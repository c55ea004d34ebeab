"""A program's control flow as flat tables of nodes: what a sequencer walks, on both machines.

A body (main, or a kernel) becomes a list of nodes that run one after another unless a node says
otherwise. Where a run stands is the number of a body, the number of a node in it, and, in a kernel,
the node of main to go on with. What a loop counts is state too: loops nested in each other have
counters of their own, main's and the kernel's apart.

    START                  a kernel's queues and units are reset
    RUN block              its bundles
    ENTER loop             counter = 0; the trip count is read, once
    TEST loop, target      the body of another iteration, or `target`
    AGAIN loop, target     an iteration's overhead; counter + 1; `target` is the test
    BRANCH if, target      `target` if the condition is 0
    JUMP target
    CALL                   the kernel's body, then the next node
    END                    back to main, or the end of the run

Time passes in RUN, AGAIN and CALL. After each of these, and nowhere else, a run may be paused. A block
whose first bundle waits for a sync flag that another core has yet to raise does not begin: the run
waits there, until the flag is raised. A wait behind the first bundle looks at times alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tpu_sim.isa.cached_property import cached_property
from tpu_sim.isa.causes import Counts, IssueCauses
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import Call, If, Loop, While
from tpu_sim.isa.errors import ProgramError
from tpu_sim.isa.program import Block, Kernel, Node, Program
from tpu_sim.isa.resources import FLAG

MAIN = 0
"""The number of main among the bodies; kernel n of a program is body n + 1."""
LOOP_DEPTH = 64
"""Loops of a body that may be nested in each other."""


class NodeStep(IntEnum):
    """What a node does."""

    START = 0
    RUN = 1
    ENTER = 2
    TEST = 3
    AGAIN = 4
    BRANCH = 5
    JUMP = 6
    CALL = 7
    END = 8


@dataclass(slots=True)
class FlatNode:
    """One node. `counter` is the number of its loop's counter, `call` the number of a call.

    `issued` says what the cycles of a block, or of the overhead of an iteration, count as.
    """

    step: NodeStep
    source: Node | None = None
    target: int = -1
    counter: int = -1
    call: int = -1
    issued: Counts | None = None


@dataclass(frozen=True)
class FlatBody:
    """The nodes of main, whose kernel has no windows, or of a kernel."""

    kernel: Kernel
    nodes: list[FlatNode]

    @cached_property
    def pauses(self) -> frozenset[int]:
        """The nodes that a paused run, or one that waits, may go on with."""
        after = {
            n + 1 for n, node in enumerate(self.nodes) if node.step in (NodeStep.RUN, NodeStep.CALL)
        }
        again = {node.target for node in self.nodes if node.step is NodeStep.AGAIN}
        waits = {n for n, node in enumerate(self.nodes) if first_waits(node)}
        return frozenset({0} | after | again | waits)


def first_waits(node: FlatNode) -> list[tuple[int, int]]:
    """Flag and sreg of the waits in a block's first bundle: those that may wait for another core."""
    block = node.source
    if not isinstance(block, Block) or not block.bundles:
        return []
    waits = [(i.row.flag_index, i.operands) for i in block.bundles[0] if FLAG in i.row.uses]
    return [(operands[at], operands[at + 1]) for at, operands in waits]


@dataclass(frozen=True)
class NodeTable:
    """All bodies of a program, main first; `calls` are kernel and site of each call of main."""

    bodies: tuple[FlatBody, ...]
    calls: tuple[tuple[str, str], ...]
    body_of_call: tuple[int, ...]


def body_name(program: Program, body: int) -> str:
    """What a body is called: "main", or the kernel's name."""
    return "main" if body == MAIN else list(program.kernels)[body - MAIN - 1]


def node_table(program: Program, chip: Chip) -> NodeTable:
    """Flatten a program; raises `ProgramError` for a call of no kernel, or too deep loops."""
    numbers = {name: number for number, name in enumerate(program.kernels, MAIN + 1)}
    main = Kernel("main", 0, [], [], program.main)
    flat = [_Flattener(kernel, chip, number) for number, kernel in
            enumerate([main, *program.kernels.values()])]  # fmt: skip
    calls = flat[MAIN].calls
    unknown = [call.kernel for call in calls if call.kernel not in numbers]
    if unknown:
        raise ProgramError(f"call of unknown kernel {unknown[0]}", "main")
    return NodeTable(
        tuple(body.flat for body in flat),
        tuple((call.kernel, call.site) for call in calls),
        tuple(numbers[call.kernel] for call in calls),
    )


class _Flattener:
    """Makes the nodes of one body."""

    def __init__(self, kernel: Kernel, chip: Chip, number: int) -> None:
        self.calls: list[Call] = []
        self._nodes: list[FlatNode] = []
        self._causes = IssueCauses(kernel.body, chip)
        self._first_counter = 0 if number == MAIN else LOOP_DEPTH
        self._depth = 0
        self._add(FlatNode(NodeStep.START))
        self._list(kernel.body)
        self._add(FlatNode(NodeStep.END))
        self.flat = FlatBody(kernel, self._nodes)

    def _add(self, node: FlatNode) -> FlatNode:
        self._nodes.append(node)
        return node

    def _list(self, nodes: list[Node]) -> None:
        for node in nodes:
            match node:
                case Block():
                    self._add(FlatNode(NodeStep.RUN, node, issued=self._causes.of_block(node)))
                case Loop():
                    self._loop(node, [], node.body)
                case While():
                    self._loop(node, node.test, node.body)
                case If():
                    self._if(node)
                case Call():
                    self._add(FlatNode(NodeStep.CALL, node, call=len(self.calls)))
                    self.calls.append(node)

    def _loop(self, loop: Loop[Block] | While[Block], test: list[Node], body: list[Node]) -> None:
        if self._depth == LOOP_DEPTH:
            raise ProgramError(f"loops are nested deeper than {LOOP_DEPTH}")
        counter = self._first_counter + self._depth
        self._depth += 1
        enter = self._add(FlatNode(NodeStep.ENTER, loop, counter=counter))
        first = len(self._nodes)
        self._list(test)
        tested = self._add(FlatNode(NodeStep.TEST, loop, counter=counter))
        self._list(body)
        issued = self._causes.of_iteration(loop)
        self._add(FlatNode(NodeStep.AGAIN, loop, target=first, counter=counter, issued=issued))
        tested.target = enter.target = len(self._nodes)
        self._depth -= 1

    def _if(self, node: If[Block]) -> None:
        branch = self._add(FlatNode(NodeStep.BRANCH, node))
        self._list(node.then)
        jump = self._add(FlatNode(NodeStep.JUMP))
        branch.target = len(self._nodes)
        self._list(node.orelse)
        jump.target = len(self._nodes)
