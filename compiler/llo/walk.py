"""Blocks of a kernel's nodes, what nodes read, and nodes replaced; walks are in `tpu_sim.isa.control_flow`.

blocks(body)          the blocks alone, in source order
rewrite(body, each)   nodes replaced, innermost first
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from compiler.llo.ir import LloBlock, LloKernel, LloNode, SReg
from tpu_sim.isa.control_flow import Call, If, Loop, While, walk

Nodes = list[LloNode]


def control_reads(node: LloNode) -> tuple[SReg, ...]:
    """The sregs that a node itself reads: a trip count or a condition."""
    match node:
        case Loop() if node.trip < 0:
            return (node.trip_sreg,)
        case If() | While():
            return (node.condition,)
    return ()


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
            case Loop():
                node.body = rewrite(node.body, each, whole)
            case If():
                node.then = rewrite(node.then, each, whole)
                node.orelse = rewrite(node.orelse, each, whole)
            case While():
                node.test = rewrite(node.test, each, whole)
                node.body = rewrite(node.body, each, whole)
        out += each(node)
    return whole(out)
