"""Where things are in a program: bundles by number, loops around them, the call sites, what code is for what.

Bundles of a body are numbered from 0 in the order of its text, as on the page of `tpuc view`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.origins import inside
from tpu_sim.isa.control_flow import Loop, While
from tpu_sim.isa.origins import OriginTable, origin_table
from tpu_sim.isa.program import Block, Bundle, Program
from tpu_sim.machine.node_table import MAIN, FlatBody, NodeStep, NodeTable


@dataclass(frozen=True)
class LoopSpan:
    """A loop of a body: its nodes are `enter` to `end`, exclusive; `counter` is its counter's word."""

    enter: int
    end: int
    counter: int
    name: str
    is_while: bool
    trip: int


class BodyMap:
    """Bundles and loops of one body."""

    def __init__(self, flat: FlatBody) -> None:
        self.name = flat.kernel.name
        self.kernel = flat.kernel
        self.count = 0
        self._nodes: list[int] = []
        self._firsts: list[int] = []
        self._blocks: list[Block] = []
        self.loops: list[LoopSpan] = []
        self.first_of: dict[str, int] = {}
        """By HLO instruction the first bundle that computes it."""
        for number, node in enumerate(flat.nodes):
            match node.step, node.source:
                case NodeStep.RUN, Block() as block:
                    self._block(number, block)
                case NodeStep.ENTER, Loop() | While() as loop:
                    trip = loop.trip if isinstance(loop, Loop) else loop.expected_trips
                    span = LoopSpan(number, node.target, node.counter, loop.name,
                                    isinstance(loop, While), trip)  # fmt: skip
                    self.loops.append(span)

    def _block(self, node: int, block: Block) -> None:
        self._nodes.append(node)
        self._firsts.append(self.count)
        self._blocks.append(block)
        for offset, bundle in enumerate(block.bundles):
            for instr in bundle:
                self.first_of.setdefault(instr.source, self.count + offset)
        self.count += len(block.bundles)

    def number(self, node: int, offset: int) -> int | None:
        """The number of a bundle of the block at `node`; None if that is no block."""
        at = bisect_right(self._nodes, node) - 1
        return None if at < 0 or self._nodes[at] != node else self._firsts[at] + offset

    def place(self, number: int) -> tuple[int, int]:
        """Node and offset of a bundle."""
        at = bisect_right(self._firsts, number) - 1
        while not self._blocks[at].bundles:
            at -= 1
        return self._nodes[at], number - self._firsts[at]

    def bundle(self, number: int) -> Bundle:
        """A bundle."""
        node, offset = self.place(number)
        return self._blocks[self._nodes.index(node)].bundles[offset]

    def around(self, node: int) -> list[LoopSpan]:
        """The loops that a node is in, outermost first."""
        return [loop for loop in self.loops if loop.enter < node < loop.end]

    def sources(self) -> Iterator[str]:
        """The HLO instructions that bundles are for."""
        return (source for source in self.first_of if source)


@dataclass(frozen=True)
class Spot:
    """A bundle, when it runs for a call site: body and number of the bundle."""

    site: str
    body: int
    bundle: int


class ProgramMap:
    """Bodies, sites, and the HLO instructions that they are for; `module` is None for a saved program."""

    def __init__(self, program: Program, table: NodeTable, module: HloModule | None) -> None:
        self.program = program
        self.bodies = [BodyMap(body) for body in table.bodies]
        self.sites = [site or kernel for kernel, site in table.calls]
        """By number of a call."""
        self.body_of_call = table.body_of_call
        self.origins: OriginTable = origin_table(program.metadata)
        self.module = module
        self.instructions: dict[str, HloInstruction] = {}
        self.controlled: dict[str, HloInstruction] = {}
        """Instructions outside of fusions, by name."""
        if module is not None:
            self.instructions = {i.name: i for c in module.computations.values() for i in c}
            self.controlled = {i.name: i for c in control_computations(module) for i in c}

    def body_of_site(self, site: str) -> int:
        """The number of the body that a call site runs."""
        return self.body_of_call[self.sites.index(site)]

    def sites_of(self, body: int) -> list[str]:
        """The call sites of a kernel."""
        pairs = zip(self.sites, self.body_of_call, strict=True)
        return list(dict.fromkeys(site for site, called in pairs if called == body))

    def source_at(self, site: str, name: str) -> str:
        """What the code of a site's kernel calls the HLO instruction `name`.

        Sites of equal computations share a kernel, whose code is named after the first one's.
        """
        return self._kernel_names(site).get(name, name)

    def _kernel_names(self, site: str) -> dict[str, str]:
        here = self.controlled.get(site)
        kernel = self.bodies[self.body_of_site(site)].name if site in self.sites else site
        first = self.controlled.get(kernel)
        if here is None or first is None or here is first:
            return {}
        pairs = [(a.name, b.name) for a, b in zip(inside(here), inside(first), strict=False)]
        pairs.append((here.name, first.name))
        return dict(pairs)

    def spots_of(self, name: str) -> list[Spot]:
        """Where an HLO instruction within kernels is computed: the first bundle at each site."""
        main = self.bodies[MAIN].first_of.get(name)
        found = [] if main is None else [Spot("", MAIN, main)]
        for site in dict.fromkeys(self.sites):
            body = self.body_of_site(site)
            if self._is_inside(site, name):
                first = self.bodies[body].first_of.get(self.source_at(site, name))
                if first is not None:
                    found.append(Spot(site, body, first))
        return found

    def _is_inside(self, site: str, name: str) -> bool:
        instr = self.controlled.get(site)
        if instr is None:
            return name in self.bodies[self.body_of_site(site)].first_of
        return any(i.name == name for i in inside(instr))

    def spots_of_line(self, place: str) -> list[Spot]:
        """Where code of a source line ``file:line`` begins: the first bundle at each site."""
        found = []
        for site in dict.fromkeys(self.sites):
            body = self.body_of_site(site)
            mine = [
                first
                for source, first in self.bodies[body].first_of.items()
                if any(_is_place(o.place, place) for o in self.origins.of(site, source))
            ]
            if mine:
                found.append(Spot(site, body, min(mine)))
        return found

    def lines(self) -> list[str]:
        """The source lines that have code."""
        found = (o.place for site in self.origins.sites for o in self.origins.of_all(site))
        return sorted({place for place in found if ":" in place})


def _is_place(found: str, wanted: str) -> bool:
    return found == wanted or found.endswith("/" + wanted)
