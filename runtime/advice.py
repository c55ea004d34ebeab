"""What would help: for each cause that takes many cycles, where, why, what to do, and what it would save.

A *rule* (`runtime.advice_rules`) looks at a call site: its cycles by cause, what moved, and what the kernel's
operations are in the model's own shapes. It says about how many cycles a change would take away: what one
resource no longer takes, HBM or another may, and what is beside it may go with it. Savings of different rules
do not add up. The same
advice about the same lines, or about call sites of the same code (layers of a model that are written out), is
given once, whatever the number of kernels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from runtime.advice_rules import findings
from runtime.advice_site import Finding, SiteFacts
from runtime.kernel_report import KernelReport
from runtime.origin_costs import Costs
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.kernel_facts import KernelFacts, kernel_facts
from tpu_sim.isa.origins import OriginTable, origin_table
from tpu_sim.isa.program import Program

_LEAST_SHARE = 0.02
"""Of all cycles: advice that would save less is left out."""
_LEAST_PART = 0.2
"""Of a kernel's dearest line: others with less are not named."""
_MOST_PLACES = 3
"""Source lines of one piece of advice that are named."""


@dataclass(frozen=True)
class Advice:
    """What would help some kernels: about `saved_cycles` fewer.

    `places` are source lines, dearest first (operation names where the model has no lines, none where it
    has neither); `kernels` are call sites.
    """

    rule: str
    saved_cycles: float
    why: str
    remedy: str
    places: tuple[str, ...]
    kernels: tuple[str, ...]

    def to_json(self, cycles: int) -> dict[str, object]:
        """The JSON object; `cycles` are those of the whole run."""
        return {
            "rule": self.rule,
            "saved_cycles": round(self.saved_cycles),
            "share": self.saved_cycles / max(cycles, 1),
            "lines": list(self.places),
            "kernels": list(self.kernels),
            "why": self.why,
            "remedy": self.remedy,
        }


@dataclass
class _Group:
    """Findings of one rule about the same places."""

    found: list[tuple[KernelReport, Finding]] = field(default_factory=list)
    places: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def advice(self) -> Advice:
        """All of them as one."""
        found = sorted(self.found, key=lambda item: -item[1].saved)
        first = found[0][1]
        once = max(finding.once for _, finding in found)
        calls = sum(report.calls for report, _ in found)
        places = sorted(self.places, key=lambda place: -self.places[place])
        return Advice(
            first.rule,
            sum(finding.saved for _, finding in found) - once,
            first.why.replace("{calls}", f"{calls:,}"),
            first.remedy,
            tuple(places[:_MOST_PLACES]),
            tuple(report.name for report, _ in found),
        )


def advise(
    program: Program,
    chip: Chip,
    sites: Iterable[tuple[str, KernelReport]],
    costs: Costs,
    cycles: int,
) -> tuple[Advice, ...]:
    """What would help, most first; `sites` are kernels' names and the reports of their call sites."""
    facts, table = kernel_facts(program.metadata), origin_table(program.metadata)
    dearest = _dearest_places(costs)
    groups: dict[tuple[str, object], _Group] = defaultdict(_Group)
    of_code: dict[tuple[str, str], object] = {}
    for kernel, report in sites:
        ops = program.kernels[kernel].element_ops * report.calls
        site = SiteFacts(report, facts.get(kernel, KernelFacts()), chip, ops)
        for finding in findings(site):
            places = _places(finding, report.name, table, dearest)
            about = "" if finding.once else tuple(places) or kernel
            group = groups[finding.rule, of_code.setdefault((finding.rule, kernel), about)]
            group.found.append((report, finding))
            for place in places:
                group.places[place] += finding.saved
    made = (group.advice() for group in groups.values())
    kept = (advice for advice in made if advice.saved_cycles >= _LEAST_SHARE * cycles)
    return tuple(sorted(kept, key=lambda advice: -advice.saved_cycles))


def _dearest_places(costs: Costs) -> dict[str, list[str]]:
    """The places of each call site, dearest first; what has little of it is left out."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for origin, cost in costs.items():
        place = origin.place or origin.op_name
        for site, cycles in cost.sites.items():
            if place:
                found[site][place] += cycles
    return {site: _most(places) for site, places in found.items()}


def _most(places: dict[str, float]) -> list[str]:
    least = _LEAST_PART * max(places.values(), default=0.0)
    ordered = sorted(places, key=lambda place: -places[place])
    return [place for place in ordered[:_MOST_PLACES] if places[place] >= least]


def _places(
    finding: Finding, site: str, table: OriginTable, dearest: dict[str, list[str]]
) -> list[str]:
    """The lines that a finding is about: of its operation, else of the site."""
    origins = table.of(site, finding.source) if finding.source else ()
    own = dict.fromkeys(origin.place or origin.op_name for origin in origins)
    return [place for place in own if place][:_MOST_PLACES] or dearest.get(site, [])
