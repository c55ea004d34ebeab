"""Cycles by what the user wrote: operations and source lines.

Each kernel call's cycles, by cause, are shared out over the HLO instructions in it:

    mxu, mxu_result, mxu_weights   as their matrix instructions
    vector                         as their bundles with vector instructions; one of several counts in parts
    latency                        as all of these together
    dma_in, dma_out, ici           as the bytes of the transfers of that kind that they ask for
    all others                     to the site: loops, launch and scalar code

How often instructions run follows from the kernel's text, as in `runtime.unit_use`. What several
operations became together (`compiler.hlo.origins`) counts for each of them in equal parts, so that costs
add up to the kernels' cycles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tpu_sim.isa.causes import Cause, transfer_cause
from tpu_sim.isa.control_flow import If, Loop, While
from tpu_sim.isa.instruction import Slot
from tpu_sim.isa.origins import Origin, OriginTable
from tpu_sim.isa.program import Block, Bundle, Kernel, Node
from tpu_sim.isa.timing import descriptor_bytes
from tpu_sim.machine.result import KernelRun

_MATRIX = (Cause.MXU, Cause.MXU_RESULT, Cause.MXU_WEIGHTS)
_VECTOR_SLOTS = frozenset({Slot.VALU, Slot.EUP, Slot.XLU, Slot.LOAD, Slot.STORE, Slot.POP})
UNKNOWN = Origin()
"""The origin of what the model says nothing about."""


@dataclass
class OriginCost:
    """Cycles of one origin (or line, or scope): by cause, and by the call sites it is in."""

    causes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    sites: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def cycles(self) -> float:
        """All of them."""
        return sum(self.causes.values())

    @property
    def bound_by(self) -> str:
        """The cause that takes most cycles."""
        return max(self.causes, key=lambda label: self.causes[label], default="none")

    def add(self, site: str, causes: Mapping[str, float], share: float = 1.0) -> None:
        """Take in a share of cycles by cause that passed at a site."""
        for label, cycles in causes.items():
            self.causes[label] += share * cycles
            self.sites[site] += share * cycles

    def take(self, other: OriginCost) -> None:
        """Take in all of another one."""
        for label, cycles in other.causes.items():
            self.causes[label] += cycles
        for site, cycles in other.sites.items():
            self.sites[site] += cycles

    def to_json(self) -> dict[str, object]:
        """Whole cycles: all, by cause and by kernel."""
        return {
            "cycles": round(self.cycles),
            "causes": {label: round(n) for label, n in self.causes.items() if round(n)},
            "kernels": {site: round(n) for site, n in self.sites.items() if round(n)},
        }


Costs = dict[Origin, OriginCost]


def origin_costs(
    kernels: Mapping[str, Kernel], runs: Iterable[KernelRun], table: OriginTable
) -> Costs:
    """Cycles of kernel calls by origin; they add up to the calls' cycles."""
    found: Costs = defaultdict(OriginCost)
    shares: dict[str, _Shares] = {}
    for (name, site), causes in _by_site(runs).items():
        if name not in shares:
            shares[name] = _Shares(kernels[name])
        for source, spent in shares[name].split(causes).items():
            origins = table.of(site or name, source) or (UNKNOWN,)
            for origin in origins:
                found[origin].add(site or name, spent, 1 / len(origins))
    return dict(found)


def _by_site(runs: Iterable[KernelRun]) -> dict[tuple[str, str], list[int]]:
    sums: dict[tuple[str, str], list[int]] = {}
    for run in runs:
        key = (run.name, run.site)
        total = sums.get(key)
        sums[key] = (
            list(run.causes)
            if total is None
            else [a + b for a, b in zip(total, run.causes, strict=True)]
        )
    return sums


class _Shares:
    """Which part of a kernel's work each of its sources has."""

    def __init__(self, kernel: Kernel) -> None:
        self._descriptors = kernel.descriptors
        self._matrix: dict[str, float] = defaultdict(float)
        self._vector: dict[str, float] = defaultdict(float)
        self._bytes: dict[Cause, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._nodes(kernel.body, 1)
        both = {*self._matrix, *self._vector}
        self._both = {s: self._matrix[s] + self._vector[s] for s in sorted(both)}

    def split(self, causes: list[int]) -> dict[str, dict[str, float]]:
        """Cycles by cause of each source; the empty one has what belongs to none."""
        found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for cause in Cause:
            weights = self._weights(cause)
            total = sum(weights.values())
            if not total:
                weights, total = {"": 1.0}, 1.0
            for source, weight in weights.items():
                if weight and causes[cause]:
                    found[source][cause.label] += causes[cause] * weight / total
        return found

    def _weights(self, cause: Cause) -> dict[str, float]:
        if cause in _MATRIX:
            return self._matrix
        if cause is Cause.VECTOR:
            return self._vector
        return self._both if cause is Cause.LATENCY else self._bytes.get(cause, {})

    def _nodes(self, nodes: list[Node], times: float) -> None:
        for node in nodes:
            match node:
                case Block():
                    for bundle in node.bundles:
                        self._bundle(bundle, times)
                case Loop():
                    self._nodes(node.body, times * (node.trip if node.trip >= 0 else 1))
                case If():
                    self._nodes([*node.then, *node.orelse], times)
                case While():
                    trips = node.expected_trips if node.expected_trips >= 0 else 1
                    self._nodes(node.test, times * (trips + 1))
                    self._nodes(node.body, times * trips)

    def _bundle(self, bundle: Bundle, times: float) -> None:
        vector: list[str] = []
        for instr in bundle:
            if instr.row.slot is Slot.MXU:
                self._matrix[instr.source] += times
            elif instr.row.slot in _VECTOR_SLOTS:
                vector.append(instr.source)
            elif instr.row.is_transfer:
                descriptor = self._descriptors[instr.operands[instr.row.descriptor_index]]
                moved = times * descriptor_bytes(descriptor, 1, 1)
                self._bytes[transfer_cause(descriptor)][instr.source] += moved
        for source in vector:
            self._vector[source] += times / len(vector)


def by_line(costs: Costs) -> dict[str, OriginCost]:
    """Costs by source line, the largest first; by name where the model has no lines."""
    found: dict[str, OriginCost] = defaultdict(OriginCost)
    for origin, cost in costs.items():
        found[origin.place or origin.op_name or "(not known)"].take(cost)
    return dict(sorted(found.items(), key=lambda item: -item[1].cycles))


@dataclass
class OriginScope:
    """A part of the operations' names and what is in it; `cost` is that of all of it."""

    name: str
    cost: OriginCost = field(default_factory=OriginCost)
    children: dict[str, OriginScope] = field(default_factory=dict)

    def ordered(self) -> list[OriginScope]:
        """What is directly in it, dearest first."""
        return sorted(self.children.values(), key=lambda scope: -scope.cost.cycles)

    def to_json(self) -> dict[str, object]:
        """The scope with all in it."""
        inner = [scope.to_json() for scope in self.ordered()]
        return {"name": self.name, **self.cost.to_json(), "children": inner}


def by_scope(costs: Costs) -> OriginScope:
    """Costs as the tree of operation names: ``f/layer/dot`` is in ``layer``, which is in ``f``."""
    root = OriginScope("")
    for origin, cost in costs.items():
        scope = root
        scope.cost.take(cost)
        for part in scope_parts(origin.op_name) or ("(not named)",):
            scope = scope.children.setdefault(part, OriginScope(part))
            scope.cost.take(cost)
    return root


def scope_parts(op_name: str) -> tuple[str, ...]:
    """The parts of an operation's name; a slash in parentheses or brackets divides nothing.

    >>> scope_parts("jit(f)/layer/dot[a=b/c]")
    ('jit(f)', 'layer', 'dot[a=b/c]')
    """
    return tuple(part for part in _parts(op_name) if part)


def _parts(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for at, letter in enumerate(text):
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth = max(0, depth - 1)
        elif letter == "/" and not depth:
            yield text[start:at]
            start = at + 1
    yield text[start:]
