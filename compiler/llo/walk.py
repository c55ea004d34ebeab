"""Walks over the nodes of a kernel: the one place that knows which node holds which bodies.

walk(body)            every node before what it holds, in source order
walk_backwards(body)  every node before what it holds, in the reverse of source order
blocks(body)          the blocks alone, in source order
rewrite(body, each)   nodes replaced, innermost first
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from compiler.llo.ir import LloBlock, LloIf, LloKernel, LloLoop, LloNode, LloWhile, SReg
from tpu_sim.isa.program import Call

Nodes = list[LloNode]


def bodies(node: LloNode) -> tuple[Nodes, ...]:
    """The lists of nodes that a node holds, in source order."""
    match node:
        case LloLoop():
            return (node.body,)
        case LloIf():
            return (node.then, node.orelse)
        case LloWhile():
            return (node.test, node.body)
    return ()


def control_reads(node: LloNode) -> tuple[SReg, ...]:
    """The sregs that a node itself reads: a trip count or a condition."""
    match node:
        case LloLoop() if node.trip < 0:
            return (node.trip_sreg,)
        case LloIf() | LloWhile():
            return (node.condition,)
    return ()


def walk(body: Iterable[LloNode]) -> Iterator[LloNode]:
    """Every node under `body`, each before what it holds, in source order."""
    for node in body:
        yield node
        for inner in bodies(node):
            yield from walk(inner)


def walk_backwards(body: Nodes) -> Iterator[LloNode]:
    """Every node under `body`, each before what it holds, the last in source order first."""
    for node in reversed(body):
        yield node
        for inner in reversed(bodies(node)):
            yield from walk_backwards(inner)


def blocks(body: Iterable[LloNode]) -> Iterator[LloBlock]:
    """All blocks under `body`, in source order."""
    return (node for node in walk(body) if isinstance(node, LloBlock))


def op_count(kernel: LloKernel) -> int:
    """Static operations of a kernel, the measure of its code size."""
    return sum(len(block.ops) for block in blocks(kernel.body))


def has_call(body: Iterable[LloNode]) -> bool:
    """Whether a kernel is called anywhere under `body`."""
    return any(isinstance(node, Call) for node in walk(body))


def rewrite(
    body: Nodes,
    each: Callable[[LloNode], Nodes],
    whole: Callable[[Nodes], Nodes] = lambda nodes: nodes,
) -> Nodes:
    """`body` with every node replaced by `each` of it, after what it holds was rewritten.

    `whole` is applied to every list of nodes once it is made.
    """
    out: Nodes = []
    for node in body:
        match node:
            case LloLoop():
                node.body = rewrite(node.body, each, whole)
            case LloIf():
                node.then = rewrite(node.then, each, whole)
                node.orelse = rewrite(node.orelse, each, whole)
            case LloWhile():
                node.test = rewrite(node.test, each, whole)
                node.body = rewrite(node.body, each, whole)
        out += each(node)
    return whole(out)
