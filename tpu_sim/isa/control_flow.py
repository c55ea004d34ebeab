"""Structured control flow around blocks, of programs (blocks of bundles) and of LLO (of operations).

    ControlFlow[B] = B | Loop[B] | If[B] | While[B] | Call

Registers are numbers: physical ones in a program, virtual ones in LLO before they are assigned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

B = TypeVar("B")


@dataclass(slots=True)
class Loop(Generic[B]):
    """Run `body` with sreg `index` = 0 .. trip-1. With `trip` -1, sreg `trip_sreg` holds the count.

    `parallel`: the iterations are independent; the checker verifies that none reads an sreg of
    another.
    """

    trip: int
    index: int
    body: list[ControlFlow[B]]
    trip_sreg: int = -1
    parallel: bool = False
    name: str = ""


@dataclass(slots=True)
class If(Generic[B]):
    """Run `then` if sreg `condition` != 0, else `orelse`."""

    condition: int
    then: list[ControlFlow[B]]
    orelse: list[ControlFlow[B]] = field(default_factory=list)


@dataclass(slots=True)
class While(Generic[B]):
    """Run `test`, stop if sreg `condition` == 0, run `body`, repeat."""

    test: list[ControlFlow[B]]
    condition: int
    body: list[ControlFlow[B]]
    name: str = ""
    expected_trips: int = -1  # for estimates; -1 when unknown


@dataclass(slots=True)
class Call:
    """Call a kernel; only in main. Its arguments were stored to SMEM by the block before."""

    kernel: str
    site: str = ""  # the HLO instruction it runs, for reports


ControlFlow: TypeAlias = B | Loop[B] | If[B] | While[B] | Call


def bodies(node: ControlFlow[B]) -> tuple[list[ControlFlow[B]], ...]:
    """The lists of nodes that a node holds, in the order of the text."""
    match node:
        case Loop():
            return (node.body,)
        case If():
            return (node.then, node.orelse)
        case While():
            return (node.test, node.body)
    return ()


def walk(body: Iterable[ControlFlow[B]]) -> Iterator[ControlFlow[B]]:
    """Every node under `body`, each before what it holds, in the order of the text."""
    for node in body:
        yield node
        for inner in bodies(node):
            yield from walk(inner)


def walk_backwards(body: Sequence[ControlFlow[B]]) -> Iterator[ControlFlow[B]]:
    """Every node under `body`, each before what it holds, the last of the text first."""
    for node in reversed(body):
        yield node
        for inner in reversed(bodies(node)):
            yield from walk_backwards(inner)
